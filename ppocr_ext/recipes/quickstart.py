"""The quickstart: from nothing to a distilled student and a table, in minutes on two CPU cores.

Draws CAPTCHAs, trains a teacher, trains a narrower student alone, distils the same student for the
same steps, and judges all three on images that none has seen. Every part that is finished is kept:
called again, it goes on where it was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.model_state import count_parameters
from ppocr_ext.commands import command_line
from ppocr_ext.config import Config, load
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.evaluate import evaluate, write_predictions
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import config_path, config_root
from ppocr_ext.loop.events import Outcome
from ppocr_ext.loop.session import train
from ppocr_ext.report.page import REPORT_FILE, write_report
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

_LOG = logging.getLogger("ppocr_ext")
VALIDATION_IMAGES, TEST_IMAGES = 200, 1_000
STAGES = {
    "teacher": "teacher",
    "student": "student alone",
    "distilled": "student, distilled",
}


@dataclass(frozen=True)
class Settings:
    """What a quickstart folder was made with; another call must agree, or name another folder.

    Attributes:
        preset: folder of configs with ``teacher.yml``, ``student.yml`` and ``distill.yml``.
        minutes: about how long all of it takes on two cores; None: what the preset is made for.
        seed: of the images and of the training.
    """

    preset: str = "quickstart"
    minutes: float | None = None
    seed: int = 1


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        parameters: of the whole network, both heads.
        steps: optimizer steps.
        minutes: of training, evaluations included.
        accuracy: share of held-out images read without a mistake.
        similarity: 1 - normalised edit distance, mean over images.
    """

    name: str
    parameters: int
    steps: int
    minutes: float
    accuracy: float
    similarity: float


class Stopped(Exception):  # noqa: N818 - a decision of the user's, not an error
    """A signal stopped a training run; its number."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


def run_quickstart(
    folder: Path,
    settings: Settings,
    processes: int,
    stages: Sequence[str] = tuple(STAGES),
    host_path: str | None = None,
) -> list[Row]:
    """Carry out what is left to do of ``stages`` in ``folder``; the rows of all that is done there.

    Raises:
        ConfigError: ``folder`` was made with other settings.
        Stopped: a signal stopped a training run; call again to go on.
    """
    check_preset(settings.preset)
    host = open_host(host_path)
    quiet_host(host.logger)
    _agree(folder, settings, host_path)
    _make_data(folder, settings, processes)
    for stage in stages:
        _train_stage(stage, folder, settings, host_path)
    done = [stage for stage in STAGES if _status(folder / stage) == "finished"]
    rows = [_judge(stage, folder, settings, host_path) for stage in done]
    from ppocr_ext.report.curves import draw_curves  # matplotlib takes a second to import

    title = f"{settings.preset}, seed {settings.seed}"
    draw_curves(
        {STAGES[stage]: folder / stage / "metrics.jsonl" for stage in done},
        folder / "curves.png",
        title=title,
    )
    write_report([folder / stage for stage in done], folder / REPORT_FILE, title)
    write_text(folder / "results.md", to_markdown(rows) + "\n")
    return rows


def check_preset(name: str) -> None:
    """Refuse a preset that is not shipped.

    Raises:
        ConfigError: the message lists those that are.
    """
    root = config_root()
    folders = sorted(str(path.parent.relative_to(root)) for path in root.rglob("teacher.yml"))
    presets = [folder for folder in folders if not folder.startswith(("svtrv2", "experiments"))]
    if name not in presets:
        raise ConfigError(f"--preset {name}: there is no such preset. There are: {', '.join(presets)}.")


def _agree(folder: Path, settings: Settings, host_path: str | None) -> None:
    file = folder / "quickstart.json"
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))
        if before != asdict(settings):
            asked = " ".join(_options(asdict(settings)))
            raise ConfigError(
                f"{folder} was begun with other options than {asked}. To go on with those (or name another folder):\n"
                f"{command_line('quickstart', '--out', folder, *_options(before), host=host_path)}"
            )
    write_text(file, json.dumps(asdict(settings)) + "\n")


def _options(settings: Mapping[str, Any]) -> list[str]:
    """Return the words of the command line that give ``settings``."""
    given = {name: value for name, value in settings.items() if value is not None}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def _make_data(folder: Path, settings: Settings, processes: int) -> None:
    """Images to validate and to test on; those to train on are made as training asks for them."""
    drawn = load([config_path(f"{settings.preset}/teacher.yml")]).at("Train.dataset")
    options = CaptchaOptions(
        drawn["characters"], tuple(drawn["length"]), drawn["width"], drawn["height"], painter="library"
    )
    wanted = DatasetFolder(
        CaptchaSource(options, settings.seed), train=0, val=VALIDATION_IMAGES + TEST_IMAGES
    )
    data = folder / "data"
    summary = make_folder(data, wanted, processes)
    if summary.drawn:
        _LOG.info("drew %d CAPTCHAs to validate and to test on", summary.drawn)
    lines = (data / "val_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    write_text(data / "validation.txt", "".join(lines[:VALIDATION_IMAGES]))
    write_text(data / "test.txt", "".join(lines[VALIDATION_IMAGES:]))


def stage_config(stage: str, folder: Path, settings: Settings) -> Config:
    """The config of a stage, with its paths in ``folder`` and its length scaled to ``minutes``."""
    name = "distill" if stage == "distilled" else stage
    config = load([config_path(f"{settings.preset}/{name}.yml")])
    data = folder / "data"
    nominal = float(config.at("Quickstart.minutes"))
    scale = (settings.minutes or nominal) / nominal
    epochs = max(1, round(config.at("Global.epoch_num") * scale))
    steps = epochs * (config.at("Train.dataset.size") // config.at("Train.loader.batch_size_per_card"))
    values: dict[str, Any] = {
        "Global.save_model_dir": str(folder / stage),
        "Global.character_dict_path": str(data / "dict.txt"),
        "Global.seed": settings.seed,
        "Global.epoch_num": epochs,
        "Global.eval_batch_step": [0, max(1, min(config.at("Global.eval_batch_step")[1], steps))],
        "Optimizer.lr.warmup_epoch": config.at("Optimizer.lr.warmup_epoch") * scale,
        "Eval.dataset.data_dir": str(data),
        "Eval.dataset.label_file_list": [str(data / "validation.txt")],
    }
    if stage == "distilled":
        values["Architecture.Models.Teacher.pretrained"] = str(folder / "teacher" / "latest")
    return config.with_values(values)


def _train_stage(stage: str, folder: Path, settings: Settings, host_path: str | None) -> None:
    config = stage_config(stage, folder, settings)
    run_folder = folder / stage
    if _status(run_folder) == "finished":
        _LOG.info("%s: finished before", STAGES[stage])
        return
    if Checkpoint(run_folder / "latest").file(".pdparams").is_file():
        config = config.with_values({"Global.checkpoints": str(run_folder / "latest")})
    _LOG.info("\n== %s ==", STAGES[stage])
    teacher = Checkpoint(folder / "teacher" / "latest").file(".pdparams")
    if stage == "distilled" and not teacher.is_file():
        both = ["--out", str(folder), *_options(asdict(settings)), "--stages", "teacher", "distilled"]
        raise ConfigError(
            f"The distillation needs the teacher. Fix: train it first:\n"
            f"{command_line('quickstart', *both, host=host_path)}"
        )
    outcome: Outcome = train(config, host_path=host_path)
    if outcome.signal is not None:
        raise Stopped(outcome.signal)


def _status(run_folder: Path) -> str:
    file = run_folder / "run.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["status"]) if file.is_file() else ""


def _judge(stage: str, folder: Path, settings: Settings, host_path: str | None) -> Row:
    data = folder / "data"
    config = stage_config(stage, folder, settings).with_values(
        {
            "Global.checkpoints": str(folder / stage / "latest"),
            "Eval.dataset.label_file_list": [str(data / "test.txt")],
        }
    )
    _LOG.info("reading %d held-out images: %s", TEST_IMAGES, STAGES[stage])
    run = Run.build(config, "eval", host_path=host_path)
    result = evaluate(run)
    write_predictions(folder / stage / "predictions.tsv", result.predictions)
    correct = sum(p.text == p.label for p in result.predictions)
    network = run.model if stage != "distilled" else run.sub_model("Student")
    record = json.loads((folder / stage / "run.json").read_text(encoding="utf-8"))
    return Row(
        name=STAGES[stage],
        parameters=count_parameters(network),
        steps=int(record["global_step"]),
        minutes=_last_time(folder / stage / "metrics.jsonl") / 60,
        accuracy=correct / result.judged,
        similarity=float(result.metrics["norm_edit_dis"]),
    )


def _last_time(path: Path) -> float:
    """Seconds of training, over all calls."""
    return float(json.loads(path.read_text(encoding="utf-8").splitlines()[-1])["time"])


def to_markdown(rows: list[Row]) -> str:
    """The table, as Markdown."""
    lines = [
        f"| model | parameters | steps | minutes | accuracy on {TEST_IMAGES:,} held-out images | 1 - NED |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.name} | {r.parameters / 1e6:.2f} M | {r.steps} | {r.minutes:.1f} "
        f"| {r.accuracy:.1%} | {r.similarity:.4f} |"
        for r in rows
    ]
    return "\n".join(lines)
