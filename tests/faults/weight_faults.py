"""Faults of weights to start from, and of a checkpoint and a folder to resume in."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from planted import Change, Fault, Place, resuming, weight_loading
from saved_runs import network_of

from ppocr_ext.checkpoint.files import read_plain_pickle

Arrays = dict[str, np.ndarray]
CLASSIFIER = "head.ctc_head.fc.weight"
PRETRAINED, RESUMED = "Global.pretrained_model", "Global.checkpoints"
TEACHER = "Architecture.Models.Teacher.pretrained"
OLD = "Architecture.pretrained_dict"
ALLOW = "Global.allow_untrained_teacher"


def written(change: Callable[[Arrays], Any] = lambda arrays: None, **values: Any) -> Change:
    """Start from a file of weights that fit the student, after ``change`` of its arrays."""

    def plant(place: Place) -> dict[str, Any]:
        network, _ = network_of(place.config("student"))
        arrays = {name: value.numpy() for name, value in network.state_dict().items()}
        content = change(arrays)
        write(place, content if isinstance(content, bytes) else pickle.dumps(arrays, protocol=2))
        return {PRETRAINED: str(place.folder / "weights"), **values}

    return plant


def write(place: Place, content: bytes) -> None:
    (place.folder / "weights.pdparams").write_bytes(content)


def first(name: str, number: float) -> Callable[[Arrays], None]:
    """The first number of an entry is another one."""
    return lambda arrays: arrays[name].__setitem__((0,) * arrays[name].ndim, number)


def every(change: Callable[[np.ndarray], np.ndarray], of: str = "") -> Callable[[Arrays], None]:
    """All entries whose names end so are changed."""
    return lambda arrays: arrays.update({n: change(v) for n, v in arrays.items() if n.endswith(of)})


def cut_short(arrays: Arrays) -> bytes:
    return pickle.dumps(arrays, protocol=2)[:-1000]


def both(student: str, teacher: str = "Teacher", **values: Any) -> Change:
    """A distillation starts from a file of both sub-models, of which the student's has this name."""

    def change(arrays: Arrays) -> None:
        single = dict(arrays)
        arrays.clear()
        arrays.update({f"{part}.{name}": v for part in (student, teacher) for name, v in single.items()})

    return written(change, **values)


def taught_by(name: str, allowed: bool = False) -> Change:
    """The teacher has weights, which are random, or none (an empty name)."""

    def plant(place: Place) -> dict[str, Any]:
        change = written()
        values = change(place) if callable(change) else {}
        return {TEACHER: values[PRETRAINED] if name else None, ALLOW: allowed}

    return plant


def of_letters(place: Place) -> dict[str, Any]:
    """Weights of a dictionary with more characters."""
    values = written()(place)  # type: ignore[operator]
    file = place.folder / "letters.txt"
    file.write_text("\n".join("0123456789ab") + "\n")
    return {**values, "Global.character_dict_path": str(file)}


def of_a_run(digits: str) -> Change:
    """Start from a finished run, with the digits of its dictionary in this order."""

    def plant(place: Place) -> dict[str, Any]:
        file = place.folder / "digits.txt"
        file.write_text("\n".join(digits) + "\n")
        return {PRETRAINED: str(place.trained() / "latest"), "Global.character_dict_path": str(file)}

    return plant


def weights(name: str, code: str, wrong: Change, right: Change, *names: str, **options: Any) -> Fault:
    return Fault(name, weight_loading, code, wrong, right, names, **options)


def resumed(change: Callable[[Place, dict[str, dict[str, Any]]], Any] | None = None, **values: Any) -> Change:
    """Resume the finished run for another epoch, after a change of the content of its files by ending.

    A change makes the files as PaddleOCR's: without digests, which would find any change.
    """

    def plant(place: Place) -> dict[str, Any]:
        run = place.trained()
        if change is not None:
            contents = {e: read_plain_pickle(run / f"latest{e}") for e in (".pdparams", ".pdopt", ".states")}
            contents[".states"].pop("files")
            change(place, contents)
            for ending, content in contents.items():
                (run / f"latest{ending}").write_bytes(pickle.dumps(content, protocol=2))
        return {RESUMED: str(run / "latest"), **values}

    return plant


def keep(place: Place, contents: dict[str, dict[str, Any]]) -> None:
    """Write the same content again."""


def of_states(key: str, value: Any) -> Callable[[Place, dict[str, dict[str, Any]]], None]:
    return lambda place, contents: contents[".states"].__setitem__(key, value)


def foreign_optimizer(place: Place, contents: dict[str, dict[str, Any]]) -> None:
    contents[".pdopt"] = {f"foreign_{name}": value for name, value in contents[".pdopt"].items()}


def wider_optimizer(place: Place, contents: dict[str, dict[str, Any]]) -> None:
    """Every matrix of the state has one column more."""
    for name, value in contents[".pdopt"].items():
        if isinstance(value, np.ndarray) and value.ndim == 2:
            contents[".pdopt"][name] = np.pad(value, ((0, 0), (0, 1)))


def nan_weights(place: Place, contents: dict[str, dict[str, Any]]) -> None:
    contents[".pdparams"][CLASSIFIER] = contents[".pdparams"][CLASSIFIER] * np.nan


def average_of(number: float) -> Callable[[Place, dict[str, dict[str, Any]]], None]:
    """The run has averaged its weights; the average of one entry has this number."""

    def change(place: Place, contents: dict[str, dict[str, Any]]) -> None:
        average = {CLASSIFIER: np.full_like(contents[".pdparams"][CLASSIFIER], number)}
        contents[".states"].setdefault("hooks", {})["Ema"] = {"updates": 3, "average": average}

    return change


def of_two_saves(place: Place) -> dict[str, Any]:
    """The weights are of a later save than the rest."""
    values = resumed()(place)  # type: ignore[operator]
    file = place.folder / "run" / "latest.pdparams"
    content = read_plain_pickle(file)
    file.write_bytes(pickle.dumps({**content, CLASSIFIER: content[CLASSIFIER] * 2}, protocol=2))
    return dict(values)


def of_another_folder(place: Place) -> dict[str, Any]:
    """The folder of the run has another run than the one that is resumed."""
    values = resumed()(place)  # type: ignore[operator]
    other = (place.folder / "run").rename(place.folder / "other")
    place.trained()
    return {**values, RESUMED: str(other / "latest")}


def other_labels(place: Place) -> dict[str, Any]:
    """The label of one sample was corrected before the run goes on."""
    lines = (place.captchas / "train_list.txt").read_text().splitlines()
    name, _ = lines[3].split("\t")
    file = place.folder / "train_list.txt"
    file.write_text("\n".join([*lines[:3], f"{name}\t1234", *lines[4:]]) + "\n")
    return {**resumed()(place), "Train.dataset.label_file_list": [str(file)]}  # type: ignore[operator]


def same_labels_elsewhere(place: Place) -> dict[str, Any]:
    """The label file was copied."""
    content = (place.captchas / "train_list.txt").read_bytes()
    (place.folder / "copy.txt").write_bytes(content)
    files = [str(place.folder / "copy.txt")]
    return {**resumed()(place), "Train.dataset.label_file_list": files}  # type: ignore[operator]


def begun_again(place: Place) -> dict[str, Any]:
    """The folder has a finished run, which the new one would replace."""
    place.trained()
    return {}


def resume(
    name: str, code: str, wrong: Change, *names: str, right: Change | None = None, level: str = "error"
) -> Fault:
    return Fault(name, resuming, code, wrong, RESUMES_AGAIN if right is None else right, names, level)


RESUMES, RESUMES_AGAIN = resumed(), resumed(keep)

WEIGHTS = (
    weights("weights with NaN", "nonfinite_weights", written(first(CLASSIFIER, np.nan)),
            written(first(CLASSIFIER, 0.5)), "weights.pdparams", CLASSIFIER, "another checkpoint"),
    weights("weights with infinity", "nonfinite_weights", written(every(lambda v: v / 0.0, "._mean")),
            written(every(lambda v: v + 1, "._mean")), "._mean"),
    weights("a negative variance", "negative_variance", written(every(lambda v: v - 2, "._variance")),
            written(every(lambda v: v + 2, "._variance")), "._variance"),
    weights("complex weights", "bad_content", written(every(lambda v: v.astype("complex64"), ".weight")),
            written(every(lambda v: v.astype("float64"), ".weight")), "complex64"),
    weights("weights that are all zero", "zero_weights", written(every(lambda v: v * 0)),
            written(every(lambda v: v * 0, ".bias")), "matrices"),
    weights("weights that are cut short", "damaged_file", written(cut_short), written(), "weights.pdparams"),
    weights("a web page instead of weights", "damaged_file", written(lambda arrays: b"<!DOCTYPE html>"), written(),
            "weights.pdparams"),
    weights("weights without the classifier", "weights_mismatch", written(lambda arrays: arrays.pop(CLASSIFIER)),
            written(), CLASSIFIER),
    weights("weights of a wider network", "weights_mismatch",
            written(every(lambda v: np.pad(v, ((0, 2), (0, 0))), CLASSIFIER)), written(), CLASSIFIER),
    weights("weights of fewer classes", "weights_mismatch", of_letters, written(), "--old-dict"),
    weights("no dictionary of the weights", "missing_file", written(**{OLD: "no/old.txt"}), written(),
            OLD, "no/old.txt"),
    weights("a dictionary in another order", "charset_mismatch", of_a_run("1023456789"), of_a_run("0123456789"),
            "--old-dict"),
    weights("a misspelt prefix", "misspelt_prefix", both("Studnet"), both("Student"), "'Student'", kind="distill"),
    weights("a teacher without weights", "missing_weights", taught_by(""), taught_by("teacher"), TEACHER, ALLOW,
            kind="distill"),
    weights("a file without the teacher", "missing_weights", written(**{ALLOW: False}),
            both("Student", **{ALLOW: False}), TEACHER, kind="distill"),
    Fault("a teacher that cannot read", resuming, "teacher_cannot_read", taught_by("teacher"),
          taught_by("teacher", allowed=True), ("24 samples", "dictionary", ALLOW), kind="distill"),
)  # fmt: skip

RESUME = (
    resume("files of two saves", "mixed_checkpoint", of_two_saves, "latest.pdparams", "all three files", right=RESUMES),
    resume("a checkpoint with NaN", "nonfinite_weights", resumed(nan_weights), CLASSIFIER, "another checkpoint"),
    resume("an average with NaN", "nonfinite_weights", resumed(average_of(np.nan)), "latest.states", CLASSIFIER,
           right=resumed(average_of(0.5))),
    resume("the optimizer state of another run", "optimizer_mismatch", resumed(foreign_optimizer), "latest.pdopt",
           PRETRAINED),
    resume("the optimizer state of a wider network", "optimizer_mismatch", resumed(wider_optimizer), "latest.pdopt",
           "shape"),
    resume("epoch -3", "bad_content", resumed(of_states("epoch", -3)), "latest.states", "epoch is -3",
           right=resumed(of_states("epoch", 0))),
    resume("a run that is finished", "nothing_left", resumed(**{"Global.epoch_num": 1}), "Global.epoch_num",
           right=resumed(**{"Global.epoch_num": 3})),
    resume("another optimizer", "optimizer_mismatch",
           resumed(Optimizer={"name": "Momentum", "momentum": 0.9, "lr": {"learning_rate": 0.001}}),
           "AdamW", PRETRAINED),
    resume("the dictionary of another run", "charset_mismatch",
           resumed(of_states("charset_digest", "0" * 64)), "--old-dict"),
    resume("other labels than before", "", other_labels, "Before: Train: 24 labels", level="warning",
           right=same_labels_elsewhere),
    resume("another loss weight than before", "", resumed(**{"Loss.weight_1": 0.5}), "Loss: weight_1: 0.5",
           level="warning", right=RESUMES),
    resume("another indicator than before", "", resumed(**{"Metric.main_indicator": "norm_edit_dis"}),
           "Metric.main_indicator: acc", "Metric.main_indicator: norm_edit_dis", level="warning", right=RESUMES),
    resume("the folder of another run", "folder_holds_run", of_another_folder, "other", "--overwrite",
           "Global.save_model_dir", right=RESUMES),
    resume("a finished run that would be replaced", "folder_holds_run", begun_again, "--overwrite", right=RESUMES),
)  # fmt: skip

FAULTS = (*WEIGHTS, *RESUME)
