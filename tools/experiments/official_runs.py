"""What each recognition config of PaddleOCR gives: a few steps of training and an evaluation on a tiny data set."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from experiments.official_files import config_files, write_configs
from experiments.runs import RunFailedError, Training, command
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.config import Config, load, named_items
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

_EVALUATED = 4  # images
_HEAD = (
    "| config | classes | parameters | frames in Train, Eval | steps | loss, first and last | evaluated "
    "| seconds | refused |\n|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Settings:
    """How the configs are run.

    Attributes:
        steps: of training, at least.
        batch: images of a batch.
        configs: ``configs/rec`` of a checkout; None: the stored facts.
    """

    steps: int = 2
    batch: int = 2
    configs: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the values for ``results.json``."""
        return {"steps": self.steps, "batch": self.batch, "configs": str(self.configs or "facts")}


@dataclass(frozen=True)
class Row:
    """What one config gave.

    Attributes:
        name: of the config, below configs/rec.
        seconds: of both commands, their start included.
        refused: what the first command that failed said; empty if both did their work.
        classes: of CTC, with the blank.
        parameters: of all networks.
        frames: fewest frames of CTC in the batches of Train and of Eval.
        steps: of training.
        losses: of the first and the last step.
        evaluated: images.
    """

    name: str
    seconds: float
    refused: str = ""
    classes: int | None = None
    parameters: int | None = None
    frames: tuple[int | None, ...] = ()
    steps: int = 0
    losses: tuple[float, ...] = ()
    evaluated: int = 0


def draw_images(folder: Path, steps: int, batch: int) -> None:
    """Draw the images of both sections: CAPTCHAs of digits, which each of the official dictionaries has."""
    source = CaptchaSource(CaptchaOptions(), seed=1)
    make_folder(folder, DatasetFolder(source, train=steps * batch, val=_EVALUATED))


def changed_values(config: Config, data: Path, batch: int) -> dict[str, Any]:
    """Return the values to give with ``-o``, by key: paths, sizes and the device alone.

    Args:
        config: the official one.
        data: folder of `draw_images`.
        batch: images of a batch. A MultiScaleSampler has as many at its first scale, and makes whole rounds of its
            scales.
    """
    values: dict[str, Any] = {
        "Global.use_gpu": False,
        "Global.epoch_num": 1,
        "Global.print_batch_step": 1,
        "Global.pretrained_model": None,
        "Global.allow_untrained_teacher": True,
        "Global.checkpoints": None,
    }
    for mode, name in (("Train", "train_list.txt"), ("Eval", "val_list.txt")):
        values |= {
            f"{mode}.dataset.data_dir": str(data),
            f"{mode}.dataset.label_file_list": [str(data / name)],
            f"{mode}.loader.batch_size_per_card": batch,
            f"{mode}.loader.num_workers": 0,
        }
    if config.at("Train.sampler", None):
        values["Train.sampler.first_bs"] = batch
    for name, path in named_items(config, "Loss", "loss_config_list"):
        if name == "CenterLoss":
            values[dotted((*path, "center_file_path"))] = str(_draw_centers(config.at(path), data))
    return values


def _draw_centers(loss: Config, folder: Path) -> Path:
    """Write random centers of all classes; who trains with a CenterLoss exports them before."""
    count, features = loss["num_classes"], loss["feat_dim"]
    drawn = np.random.default_rng(1).standard_normal((count, features)).astype(np.float32)
    names = ("",) * count
    table = CenterTable(np.arange(count), names, drawn, np.ones(count, np.int64), np.ones(count))
    table.save(folder / "centers.npz")
    return folder / "centers.npz"


def run_config(name: str, file: Path, data: Path, folder: Path, batch: int) -> Row:
    """Train and evaluate one config by the commands; return what it gave.

    Args:
        name: of the config.
        file: the config.
        data: folder of `draw_images`.
        folder: for the run; its checkpoints are removed.
        batch: images of a batch.
    """
    run = Training(folder, (file,), changed_values(load([file]), data, batch))
    log = folder.with_name(f"{folder.name}.log")
    log.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.monotonic()
    try:
        command("train", run.options(), log)
        values = {**run.values, "Global.checkpoints": str(run.latest)}
        command("eval", Training(folder, run.configs, values).options(), log)
    except RunFailedError:
        return Row(name, time.monotonic() - begin, refused=_refusal(log.read_text(encoding="utf-8"), file))
    finally:
        for checkpoint in (*folder.glob("*.pdparams"), *folder.glob("*.pdopt")):
            checkpoint.unlink()
    return _read_row(name, folder, time.monotonic() - begin, log.read_text(encoding="utf-8"))


def _refusal(said: str, file: Path) -> str:
    """Return what a command said at its end: its error, with the lines of the config alone, or its last line."""
    at = said.rfind("error: ")
    text = said[at:].removeprefix("error: ") if at >= 0 else said.strip().rpartition("\n")[2]
    return text.strip().replace(f"{file}:", "line ")


def _read_row(name: str, folder: Path, seconds: float, said: str) -> Row:
    record, preflight = (
        json.loads((folder / file).read_text(encoding="utf-8")) for file in ("run.json", "preflight.json")
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    frames = [preflight[mode]["most_frames"] for mode in ("Train", "Eval")]
    return Row(
        name,
        seconds,
        classes=record["dictionary"]["classes"],
        parameters=record["parameters"]["all"],
        frames=tuple(None if each is None else each["of"] for each in frames),
        steps=record["global_step"],
        losses=(losses[0], losses[-1]),
        evaluated=int(said.rpartition("evaluated: ")[2].split()[0]),
    )


def run_configs(folder: Path, settings: Settings, only: Sequence[str] = ()) -> str:
    """Run the configs that have no row yet, and write `results.json` and `results.md`; return the table.

    Args:
        folder: for all files.
        settings: rows of other settings begin anew.
        only: parts of the names of the configs to run, also where they have a row. Empty: all configs.

    Raises:
        DataError: there is no such config.
        RunStopped: by a signal.
    """
    files = write_configs(folder / "configs") if settings.configs is None else config_files(settings.configs)
    chosen = [name for name in files if not only or any(part in name for part in only)]
    if not chosen:
        raise DataError(f"No config has {' or '.join(only)} in its name.", code="no_configs")
    rows = {row.name: row for row in _read_results(folder, settings)}
    data = folder / f"images_{settings.steps * settings.batch}"
    draw_images(data, settings.steps, settings.batch)
    with tqdm([name for name in chosen if only or name not in rows], unit="config", disable=None) as bar:
        for name in bar:
            bar.set_postfix_str(name)
            run = folder / "runs" / name.replace("/", "_")
            rows[name] = run_config(name, files[name], data, run, settings.batch)
            _write_results(folder, settings, list(rows.values()))
    return to_markdown(list(rows.values()))


def _write_results(folder: Path, settings: Settings, rows: Sequence[Row]) -> None:
    document = {"settings": settings.to_json(), "configs": [asdict(row) for row in rows]}
    write_text(folder / "results.json", json.dumps(document, indent=1) + "\n")
    write_text(folder / "results.md", to_markdown(rows) + "\n")


def _read_results(folder: Path, settings: Settings) -> list[Row]:
    """Return the rows of an earlier call with the same settings; none without such a call."""
    file = folder / "results.json"
    if not file.is_file():
        return []
    document = json.loads(file.read_text(encoding="utf-8"))
    return [Row(**row) for row in document["configs"]] if document["settings"] == settings.to_json() else []


def to_markdown(rows: Sequence[Row]) -> str:
    """Return a table with a line for each config, by name."""
    return "\n".join([_HEAD, *(_line(row) for row in sorted(rows, key=lambda row: row.name))])


def _line(row: Row) -> str:
    if row.refused:
        said = " ".join(row.refused.split()).replace("|", "\\|")
        return f"| {row.name} |  |  |  |  |  |  | {row.seconds:.0f} | {said} |"
    frames = ", ".join("unknown" if count is None else str(count) for count in row.frames)
    losses = ", ".join(f"{loss:.1f}" for loss in row.losses)
    return (
        f"| {row.name} | {row.classes:,} | {row.parameters:,} | {frames} | {row.steps} | {losses} "
        f"| {row.evaluated} | {row.seconds:.0f} |  |"
    )
