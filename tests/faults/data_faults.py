"""Faults that the samples show: in label files, in images, and in what a dataset gives."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from planted import Change, Fault, Place, batch_check, preflight

TAB, EVAL_LIST, TRAIN_LIST = "\t", "Eval.dataset.label_file_list", "Train.dataset.label_file_list"
RESIZE = "transforms.RecResizeImg"
SHAPE = f"Train.dataset.{RESIZE}.image_shape"
EVAL_SHAPE = f"Eval.dataset.{RESIZE}.image_shape"
WARM_UP = {"name": "LinearWarmupCosine", "learning_rate": 0.001}
PPLCNET = {"name": "PPLCNetV3", "scale": 0.25, "conv_kxk_num": 1}


def unusable(name: str, reason: str, wrong: Change, right: Change, *names: str) -> Fault:
    """A fault of a sample, which makes it unusable for this reason."""
    return Fault(name, preflight, "too_many_unusable", wrong, right, (reason, *names))


def warning(name: str, code: str, wrong: Change, right: Change, *names: str) -> Fault:
    return Fault(name, preflight, code, wrong, right, names, level="warning")


def lines_of(place: Place) -> list[str]:
    return (place.captchas / "train_list.txt").read_text().splitlines()


def with_lines(change: Callable[[list[str]], list[str]], encoding: str = "utf-8", **values: Any) -> Change:
    """Train on a label file of the same images, whose lines are changed."""

    def plant(place: Place) -> dict[str, Any]:
        file = place.folder / "train.txt"
        file.write_bytes("".join(f"{line}\n" for line in change(lines_of(place))).encode(encoding))
        return {"Train.dataset.label_file_list": [str(file)], **values}

    return plant


def labelled(label: str, **values: Any) -> Change:
    """The third sample has this label."""
    return with_lines(lambda lines: [*lines[:2], f"{path_of(lines[2])}\t{label}", *lines[3:]], **values)


def evaluated(change: Callable[[list[str], list[str]], list[str]]) -> Change:
    """Evaluate on lines made of those of Train and of Eval; copies of images may be named ``copy/0.png`` and so on."""

    def plant(place: Place) -> dict[str, Any]:
        own = (place.captchas / "val_list.txt").read_text().splitlines()
        copies = place.folder / "copies"
        copies.mkdir()
        for number, line in enumerate(lines_of(place)):
            (copies / f"{number}.png").write_bytes((place.captchas / path_of(line)).read_bytes())
        lines = [line.replace("copy/", f"{copies}/") for line in change(lines_of(place), own)]
        file = place.folder / "val.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        return {EVAL_LIST: [str(file)], "Global.allow_outside_data_dir": True}

    return plant


def listed(*names: str) -> Change:
    """Train on label files that are copies of this one."""

    def plant(place: Place) -> dict[str, Any]:
        for name in names:
            (place.folder / name).write_bytes((place.captchas / "train_list.txt").read_bytes())
        return {TRAIN_LIST: [str(place.folder / name) for name in names]}

    return plant


def separated(separator: str, third: str = "", **values: Any) -> Change:
    """All lines with this separator; ``third`` follows the label of the third sample."""
    return with_lines(
        lambda lines: [
            line.replace(TAB, separator) + third * (number == 2) for number, line in enumerate(lines)
        ],
        **values,
    )


def csv(third: str, separator: str = ",") -> Change:
    """A CSV with this label of the third sample; the dictionary has the quotation mark."""
    lines = labelled(third)

    def plant(place: Place) -> dict[str, Any]:
        values = lines(place) if callable(lines) else lines
        (file,) = map(Path, values[TRAIN_LIST])
        file.write_text(file.read_text().replace(TAB, separator))
        (place.folder / "dict.txt").write_text("\n".join('0123456789"') + "\n")
        return {
            **values,
            "Global.character_dict_path": str(place.folder / "dict.txt"),
            "Train.dataset.delimiter": separator,
        }

    return plant


def path_of(line: str) -> str:
    return line.split("\t")[0]


def with_image(content: Callable[[bytes], bytes]) -> Change:
    """Train on the same samples and one more, an image made of the first."""

    def plant(place: Place) -> dict[str, Any]:
        first = lines_of(place)[0]
        image = (place.captchas / path_of(first)).read_bytes()
        for number, line in enumerate(lines_of(place)):
            copy = place.folder / f"{number}.png"
            copy.write_bytes((place.captchas / path_of(line)).read_bytes())
        (place.folder / "2.png").write_bytes(content(image))
        file = place.folder / "train.txt"
        labels = [line.split(TAB)[1] for line in lines_of(place)]
        labels[2] = labels[0]
        file.write_text("".join(f"{number}.png\t{label}\n" for number, label in enumerate(labels)))
        return {"Train.dataset.label_file_list": [str(file)], "Train.dataset.data_dir": str(place.folder)}

    return plant


def drawn(picture: Callable[[np.ndarray], np.ndarray]) -> Change:
    """The same with an image that is drawn from one with four digits: uint8 [32, 96], black on white."""
    digits = np.full((32, 96), 255, np.uint8)
    cv2.putText(digits, "1234", (4, 25), cv2.FONT_HERSHEY_SIMPLEX, 0.9, 0, 2)
    return with_image(lambda image: bytes(cv2.imencode(".png", picture(digits))[1]))


def of_pixels(width: int, height: int) -> Callable[[bytes], bytes]:
    """A PNG whose head claims this size."""
    return lambda image: image[:16] + struct.pack(">II", width, height) + image[24:]


def transparent(background: int) -> Callable[[np.ndarray], np.ndarray]:
    """Black digits on transparent pixels of another colour, which PaddleOCR reads as if they were opaque."""

    def picture(digits: np.ndarray) -> np.ndarray:
        colour = np.where(digits < 255, 0, background).astype(np.uint8)
        return np.dstack([colour, colour, colour, 255 - digits])

    return picture


def long_labels(length: int) -> Callable[[list[str]], list[str]]:
    digits = "0123456789" * 6
    return lambda lines: [f"{path_of(line)}\t{digits[:length]}" for line in lines]


def filtered(kept: int) -> Change:
    """Evaluate with ``is_filter`` on labels of which this many have digits, the others Chinese characters alone."""

    def plant(place: Place) -> dict[str, Any]:
        (place.folder / "dict.txt").write_text("\n".join("0123456789未来") + "\n", "utf-8")
        lines = (place.captchas / "val_list.txt").read_text().splitlines()
        changed = [line if at < kept else f"{path_of(line)}\t未来" for at, line in enumerate(lines)]
        (place.folder / "val.txt").write_text("".join(f"{line}\n" for line in changed), "utf-8")
        return {
            "Global.character_dict_path": str(place.folder / "dict.txt"),
            "Eval.dataset.label_file_list": [str(place.folder / "val.txt")],
            "Metric.is_filter": True,
        }

    return plant


WIDE = {
    SHAPE: [3, 48, 640],
    EVAL_SHAPE: [3, 48, 640],
    "Architecture.Backbone": PPLCNET,
    "Global.max_text_length": 60,
    "Architecture.Head.head_list.NRTRHead.max_text_length": 60,
}
BY_WIDTH = {"Architecture.Backbone": {**PPLCNET, "train_frames": "width"}}
FEW = {SHAPE: [3, 32, 32], EVAL_SHAPE: [3, 32, 32]}
OTHER = {"Global.allow_different_preprocessing": True}

SAMPLES = (
    unusable("a letter that the dictionary lacks", "unknown_char", labelled("12x4"), labelled("1254"),
             "train.txt:3", "'x' (U+0078)", "character_dict_path"),
    unusable("a full-width digit", "unknown_char", labelled("12４4"), labelled("1244"), "U+FF14"),
    unusable("a space in a label", "unknown_char", labelled("12 4"),
             labelled("12 4", **{"Global.use_space_char": True}), "use_space_char: true"),
    unusable("a label without text", "empty_label", labelled(""), labelled("7"), "train.txt:3"),
    unusable("a label that is too long", "too_long", labelled("1234567"), labelled("123456"),
             "Global.max_text_length: 9"),
    unusable("a label that is too short", "too_short", labelled("1", **{"Global.min_text_length": 2}),
             labelled("12", **{"Global.min_text_length": 2}), "min_text_length"),
    unusable("a space instead of a tab", "bad_format",
             with_lines(lambda lines: [lines[0].replace("\t", " "), *lines[1:]]), with_lines(list), "train.txt:1"),
    unusable("boxes of PPOCRLabel", "bad_format",
             labelled('[{"transcription": "12", "points": [[0, 0], [9, 0], [9, 9]], "difficult": false}]'),
             labelled("12"), "train.txt:3", "rec_gt.txt", "Export Recognition Result"),
    unusable("an image that is not there", "missing_image",
             with_lines(lambda lines: [f"no/{lines[0]}", *lines[1:]]), with_lines(list), "no/", "data_dir"),
    unusable("an image outside data_dir", "outside_data_dir",
             with_lines(lambda lines: [f"../{lines[0]}", *lines[1:]]), with_lines(list), "allow_outside_data_dir"),
    unusable("an image that is cut short", "broken_image", with_image(lambda image: image[:-9]),
             with_image(lambda image: image), "2.png", "again"),
    unusable("an image that is no image", "broken_image", with_image(lambda image: b"GIF89a, or HTML"),
             with_image(lambda image: image), "2.png"),
    unusable("an image that claims 400 million pixels", "too_many_pixels", with_image(of_pixels(20_000, 20_000)),
             with_image(lambda image: image), "Global.max_image_pixels"),
    unusable("labels longer than the frames of training", "too_long_for_frames", with_lines(long_labels(50), **WIDE),
             with_lines(long_labels(39), **(WIDE | BY_WIDTH)), "train_frames: width", "CTC has 40"),
    unusable("images too narrow for their labels", "too_long_for_frames", FEW, {SHAPE: [3, 32, 128]}, "wider"),
    unusable("evaluation images too narrow for their labels", "too_long_for_frames",
             {EVAL_SHAPE: [3, 32, 8], **OTHER}, {EVAL_SHAPE: [3, 32, 96], **OTHER}, "Eval", "wider"),
    Fault("an empty label file", preflight, "empty_file", with_lines(lambda lines: []), with_lines(list),
          ("train.txt",)),
    Fault("a metric that compares nothing of all labels", preflight, "filtered_labels", filtered(0), filtered(99),
          ("Metric.is_filter", "is_filter: false")),
    Fault("a label file in UTF-16", preflight, "bad_encoding", with_lines(list, "utf-16"),
          with_lines(list, "utf-8-sig"), ("train.txt", "UTF-8")),
)  # fmt: skip

UNSEEN = (
    warning("black text on transparent black", "flat_image", drawn(transparent(0)), drawn(transparent(255)),
            "transparency"),
    warning("16 bits with small values", "flat_image", drawn(lambda digits: digits.astype(np.uint16)),
            drawn(lambda digits: digits.astype(np.uint16) * 257), "8 bits"),
    warning("an image of one colour", "flat_image", drawn(lambda digits: digits * 0),
            drawn(lambda digits: 255 - digits), "one colour"),
    warning("grey text on nearly the same grey", "flat_image", drawn(lambda digits: 120 + digits // 64),
            drawn(lambda digits: 20 + digits // 2), "brightness"),
    warning("an image one pixel high", "tiny_image", drawn(lambda digits: digits[:1]),
            drawn(lambda digits: digits[:24]), "96×1"),
    warning("vertical text", "tall_image", drawn(lambda digits: digits.T), drawn(lambda digits: digits), "Turn"),
    warning("a metric that compares nothing of some labels", "filtered_labels", filtered(2), filtered(99),
            "Metric.is_filter", "is_filter: false"),
    warning("few frames for the labels", "few_frames", {SHAPE: [3, 32, 64], EVAL_SHAPE: [3, 32, 64]},
            {SHAPE: [3, 32, 96], EVAL_SHAPE: [3, 32, 96]}, "wide"),
    warning("a warm-up of more steps than the run", "long_warm_up", {"Optimizer.lr": {**WARM_UP, "warmup_steps": 6}},
            {"Optimizer.lr": {**WARM_UP, "warmup_steps": 5}}, "6 steps"),
)  # fmt: skip


SPACES, COMMAS = ({"Train.dataset.delimiter": separator} for separator in " ,")
OWN = evaluated(lambda train, own: own)
CUT = (
    warning("a tab in a label", "cut_label", separated(TAB, "\t80"), separated(TAB), "train.txt:3", "'80'",
            "without it"),
    Fault("a space in a label, where a space is the delimiter", preflight, "cut_label", separated(" ", " 80", **SPACES),
          separated(" ", **SPACES), ("train.txt:3", " 80'", "a tab between"), "error"),
    Fault("a comma in a label of a CSV", preflight, "cut_label", separated(",", ",80", **COMMAS),
          with_lines(lambda lines: [line.replace(TAB, ",") + ",0.98" for line in lines], **COMMAS),
          ("train.txt:3", ",80'", "a tab between"), "error"),
    Fault("a comma in a label of a CSV, in quotes", preflight, "quoted_label", csv('"12, 4"'), csv('12"4'),
          ("train.txt:3", "without ' 4\"'", "a tab between"), "error"),
    warning("quotes of a CSV with semicolons", "quoted_label", csv('"124"', ";"), csv('"', ";"), "train.txt:3",
            "'\"124\"'", "a tab between"),
)  # fmt: skip

SHARED = (
    warning("Eval with half of the lines of Train", "trained_samples",
            evaluated(lambda train, own: [*own, *train[:10]]), OWN, "10 of 20 samples (50 %)", "val.txt:11",
            "other samples"),
    warning("Eval that is Train", "trained_samples", evaluated(lambda train, own: train), OWN,
            "24 of 24 samples (100 %)"),
    warning("Eval with copies of images of Train", "trained_samples",
            evaluated(lambda train, own: [*own, f"copy/3.png\t{train[3].split(TAB)[1]}"]), OWN,
            "1 of 11 samples", "val.txt:11", "train_list.txt:4"),
    warning("one image with two labels", "conflicting_labels",
            with_lines(lambda lines: [*lines, f"{path_of(lines[1])}\t1"]),
            with_lines(lambda lines: [*lines, lines[1]]), "train.txt:25", "'1'", "train.txt:2", "correct"),
    warning("a label file that is named twice", "repeated_samples", listed("a.txt", "a.txt"), listed("a.txt"),
            "24 of 58 samples", "a.txt:1", "once"),
    warning("a copy of a label file", "repeated_samples", listed("a.txt", "b.txt"), listed("a.txt"), "b.txt:1",
            "a.txt:1", "once"),
)  # fmt: skip


def labels(name: str, wrong: list[int], *names: str) -> Fault:
    """A CTC label that a dataset of the user's gives; the dictionary has the classes 1 to 10."""
    where = "Train.dataset.transforms"
    return Fault(name, batch_check, "bad_label", {}, {}, (where, *names), step=(wrong, [1, 10, 3]))


LABELS = (
    labels("a class above the last", [1, 11, 3], "1 to 10"),
    labels("a class of -1", [1, -1, 3], "1 to 10"),
    labels("the blank in a label", [1, 0, 3], "blank"),
    labels("a batch without a label", [], "no label"),
)

FAULTS = (*SAMPLES, *UNSEEN, *CUT, *SHARED, *LABELS)
