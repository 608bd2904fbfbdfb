"""The quickstart: draw CAPTCHAs, train a teacher, a student alone and the same student distilled, and compare them.

Finished stages are kept, so another call continues where the last one stopped.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import BEST
from ppocr_ext.checkpoint.weights import count_parameters
from ppocr_ext.config import Config, load
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.evaluation.predictions import write_predictions
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import config_path, config_root
from ppocr_ext.limits import read_json_object, read_text, usable_cores
from ppocr_ext.loop.session import train
from ppocr_ext.loop.signals import last_error, start_child, stop_child
from ppocr_ext.messages import LOG, command_line
from ppocr_ext.report.run_folder import read_metrics, read_record, status_of
from ppocr_ext.report.run_page import REPORT_FILE, write_curves, write_report
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

TEST_IMAGES = 1_000
UNLABELLED = {"student": 0.0, "distilled": 0.75}  # share of a batch that has no labels, by stage


@dataclass(frozen=True)
class StageResult:
    """One row of the table.

    Attributes:
        name: the name of the stage.
        parameters: number of weights of the whole network, with both heads.
        steps: number of optimizer steps.
        minutes: time of the training, with evaluations.
        accuracy: share of held-out images without an error.
        similarity: 1 - normalised edit distance, mean over the images.
    """

    name: str
    parameters: int
    steps: int
    minutes: float
    accuracy: float
    similarity: float


def to_markdown(results: Sequence[StageResult]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| model | parameters | steps | minutes | accuracy on {TEST_IMAGES:,} held-out images | 1 - NED |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.name} | {r.parameters / 1e6:.2f} M | {r.steps} | {r.minutes:.1f} "
        f"| {r.accuracy:.1%} | {r.similarity:.4f} |"
        for r in results
    ]
    return "\n".join(lines)


VALIDATION_IMAGES = 200
CURVES_FILE = "curves.svg"
STAGES = {"teacher": "teacher", "student": "student alone", "distilled": "student, distilled"}


@dataclass(frozen=True)
class QuickstartOptions:
    """The options that determine the results in a quickstart folder; all calls for a folder must have the same.

    Attributes:
        preset: folder of configs with ``teacher.yml``, ``student.yml`` and ``distill.yml``.
        minutes: approximate time of all stages on two cores; None for that of the preset.
        seed: the seed of the images and the training.
    """

    preset: str = "quickstart"
    minutes: float | None = None
    seed: int = 1

    def words(self) -> list[str]:
        """Return these options as words of a command line."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return [word for name, value in values.items() for word in (f"--{name}", str(value))]


class StopSignal(Exception):  # noqa: N818 - a decision of the user, not an error
    """A signal stopped a training run; the argument is its number."""


def run_quickstart(
    folder: Path,
    options: QuickstartOptions,
    processes: int,
    stages: Sequence[str] = tuple(STAGES),
    host_path: str | None = None,
) -> list[StageResult]:
    """Run the unfinished ``stages`` in ``folder``, and return the results of all finished stages.

    Args:
        folder: holds the data, the run folders of the stages, and the report.
        options: the options of the quickstart.
        processes: number of processes that draw images.
        stages: keys of :data:`STAGES`.
        host_path: a PaddleOCR checkout; None for the installed package.

    Raises:
        ConfigError: the preset is unknown, ``folder`` was made with other options, or the teacher is missing.
        ModelError: a training has stopped itself.
        StopSignal: a signal stopped a training run; call again to continue.
    """
    quiet_host(open_host(host_path).logger)
    _check_options(folder, options, host_path)
    _make_data(folder, options, processes)
    stages = [stage for stage in STAGES if stage in stages]
    with _student_beside(stages, folder, options, host_path) as wait_for_student:
        for stage in stages:
            if stage == "student":
                wait_for_student()
            _train_stage(stage, folder, options, host_path)
    finished = [stage for stage in STAGES if _is_finished(folder / stage)]
    results = [_evaluate_stage(stage, folder, options, host_path) for stage in finished]
    title = f"{options.preset}, seed {options.seed}"
    runs = write_report([folder / stage for stage in finished], folder / REPORT_FILE, title)
    write_curves([replace(run, name=STAGES[run.folder.name]) for run in runs], folder / CURVES_FILE, title)
    write_text(folder / "results.md", to_markdown(results) + "\n")
    return results


def _check_options(folder: Path, options: QuickstartOptions, host_path: str | None) -> None:
    """Check that the preset is known and the options are those of the folder; store the options there."""
    root = config_root()
    folders = sorted(str(path.parent.relative_to(root)) for path in root.rglob("teacher.yml"))
    presets = [name for name in folders if not name.startswith(("svtrv2", "lines"))]
    if options.preset not in presets:
        raise ConfigError(
            f"--preset {options.preset}: unknown preset (expected one of {', '.join(presets)})",
            code="unknown_preset",
        )
    file = folder / "quickstart.json"
    if file.is_file():
        try:
            before = QuickstartOptions(**read_json_object(file))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{file} cannot be read ({error}). Fix: choose another folder.", code="unreadable_file"
            ) from error
        if before != options:
            raise ConfigError(
                f"{folder} was made with other options than {' '.join(options.words())}. Fix: choose another folder, "
                f"or continue with its options:\n"
                f"{command_line('quickstart', '--out', folder, *before.words(), host=host_path)}",
                code="other_options",
            )
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds other files. Fix: choose another folder.", code="folder_not_empty")
    write_text(file, json.dumps(asdict(options)) + "\n")


def _make_data(folder: Path, options: QuickstartOptions, processes: int) -> None:
    """Draw the images of the students' labels, of validation and of the test; others are drawn during the training."""
    config = load([config_path(f"{options.preset}/teacher.yml")])
    dataset = config.at("Train.dataset")
    drawing = CaptchaOptions(
        dataset["characters"],
        tuple(dataset["length"]),
        dataset["width"],
        dataset["height"],
        painter="library",
    )
    data = folder / "data"
    source = CaptchaSource(drawing, options.seed)
    few = config.at("Quickstart.labelled") or 0
    drawn = make_folder(
        data, DatasetFolder(source, train=few, val=VALIDATION_IMAGES + TEST_IMAGES), processes
    )
    if drawn:
        LOG.info("drew %d CAPTCHAs", drawn)
    lines = read_text(data / "val_list.txt").splitlines(keepends=True)
    write_text(data / "validation.txt", "".join(lines[:VALIDATION_IMAGES]))
    write_text(data / "test.txt", "".join(lines[VALIDATION_IMAGES:]))
    if few:
        own = read_text(data / "train_list.txt")
        for stage, share in UNLABELLED.items():
            # as often as fills the labelled part of an epoch
            write_text(data / f"{stage}.txt", own * (round(dataset["size"] * (1 - share)) // few))


def stage_config(stage: str, folder: Path, options: QuickstartOptions) -> Config:
    """Return the config of a stage, with its paths in ``folder`` and its length scaled to ``options.minutes``."""
    name = "distill" if stage == "distilled" else stage
    config = load([config_path(f"{options.preset}/{name}.yml")])
    data = folder / "data"
    nominal = float(config.at("Quickstart.minutes"))
    scale = (options.minutes or nominal) / nominal
    epochs = max(1, round(config.settings.epoch_num * scale))
    steps = epochs * (config.at("Train.dataset.size") // config.at("Train.loader.batch_size_per_card"))
    values: dict[str, Any] = {
        "Global.save_model_dir": str(folder / stage),
        "Global.character_dict_path": str(data / "dict.txt"),
        "Global.seed": options.seed,
        "Global.epoch_num": epochs,
        "Global.eval_batch_step": [0, max(1, min(config.settings.eval_batch_step[1], steps))],
        "Optimizer.lr.warmup_epoch": config.at("Optimizer.lr.warmup_epoch") * scale,
        "Eval.dataset.data_dir": str(data),
        "Eval.dataset.label_file_list": [str(data / "validation.txt")],
    }
    if stage in UNLABELLED and config.at("Quickstart.labelled") is not None:
        values |= _with_few_labels(config, data, stage)
    if stage == "distilled":
        values |= {
            "Architecture.Models.Teacher.pretrained": str(folder / "teacher" / BEST),
            "Global.allow_untrained_teacher": True,  # after few minutes, it may not read yet
        }
    return config.with_values(values)


def _with_few_labels(config: Config, data: Path, stage: str) -> dict[str, Any]:
    """Return the values that let a student read few labels again and again; a teacher teaches it other images too.

    Args:
        config: of the stage; its data set draws images.
        data: the folder with the labelled images.
        stage: ``student`` or ``distilled``.
    """
    drawing = config.at("Train.dataset").thaw()
    share = UNLABELLED[stage]
    labelled = {
        "name": "SimpleDataSet",
        "data_dir": str(data),
        "label_file_list": [str(data / f"{stage}.txt")],
        "transforms": drawing.pop("transforms"),
    }
    values = {"Train.dataset": labelled, "Train.loader.shuffle": True}
    if not share:
        return values
    batch = "Train.loader.batch_size_per_card"
    return values | {
        batch: round(config.at(batch) * (1 - share)),
        "Train.mix": [{"dataset": drawing, "share": share, "labelled": False}],
        "Global.cal_metric_during_train": False,
    }


def _config_to_go_on(stage: str, folder: Path, options: QuickstartOptions) -> tuple[Config, bool]:
    """Return the config to begin or continue a stage, and whether it has begun."""
    config = stage_config(stage, folder, options)
    if not _weights(folder, stage).is_file():
        return config, False
    return config.with_values({"Global.checkpoints": str(folder / stage / "latest")}), True


def _train_stage(stage: str, folder: Path, options: QuickstartOptions, host_path: str | None) -> None:
    if _is_finished(folder / stage):
        LOG.info("%s: already finished", STAGES[stage])
        return
    config, begun = _config_to_go_on(stage, folder, options)
    LOG.info("\n== %s ==", STAGES[stage])
    if stage == "distilled" and not _weights(folder, "teacher", BEST).is_file():
        both = ["--out", str(folder), *options.words(), "--stages", "teacher", "distilled"]
        raise ConfigError(
            f"The distillation needs the teacher. Fix: train it first:\n"
            f"{command_line('quickstart', *both, host=host_path)}",
            code="missing_teacher",
        )
    # A stage that was killed before its first `latest` may have a `best_accuracy`, but begins again.
    outcome = train(config, host_path=host_path, overwrite=not begun)
    if outcome.signal is not None:
        raise StopSignal(outcome.signal)
    if outcome.status != "finished":
        raise ModelError(
            f"{STAGES[stage]}: the training stopped itself ({outcome.status}): {outcome.reason}. Fix: see "
            f"{folder / stage / 'train.log'}.",
            code="training_failed",
        )


@contextmanager
def _student_beside(
    stages: Sequence[str], folder: Path, options: QuickstartOptions, host_path: str | None
) -> Iterator[Callable[[], None]]:
    """Train the student alone at the same time as the teacher, in another process, if both are to do on two cores.

    Yields:
        A function that waits for the process, which stops at the end of this context. The stage may be unfinished
        after it, if the process has failed or none was started.
    """
    to_do = {"teacher", "student"} & {stage for stage in stages if not _is_finished(folder / stage)}
    if len(to_do) < 2 or usable_cores() < 2:
        yield lambda: None
        return
    config, begun = _config_to_go_on("student", folder, options)
    file = folder / "student.yml"
    log = folder / "student.log"
    write_text(file, config.to_yaml())
    host = [] if host_path is None else ["--host", host_path]
    process = start_child(["train", "-c", str(file), *([] if begun else ["--overwrite"]), *host], log)
    LOG.info("%s trains at the same time, in another process: %s", STAGES["student"], log)

    def wait() -> None:
        if process.poll() is None:
            LOG.info("waiting for %s", STAGES["student"])
        try:
            failed = process.wait()
        except KeyboardInterrupt as stop:  # Ctrl-C, or a signal, whose number is the argument
            raise StopSignal(stop.args[0] if stop.args else signal.SIGINT) from None
        if failed:
            reason = last_error(log) or f"exit code {failed}"
            LOG.warning(
                "%s: its process has failed (%s), see %s. It trains here.", STAGES["student"], reason, log
            )

    try:
        yield wait
    finally:
        stop_child(process)


def _weights(folder: Path, stage: str, name: str = "latest") -> Path:
    return Checkpoint(folder / stage / name).file(".pdparams")  # opening finishes a save that was killed


def _is_finished(run_folder: Path) -> bool:
    return status_of(read_record(run_folder)) == "finished"


def _evaluate_stage(
    stage: str, folder: Path, options: QuickstartOptions, host_path: str | None
) -> StageResult:
    run_folder = folder / stage
    config = stage_config(stage, folder, options).with_values(
        {
            "Global.checkpoints": str(run_folder / BEST),
            "Eval.dataset.label_file_list": [str(folder / "data" / "test.txt")],
        }
    )
    LOG.info("evaluating on %d held-out images: %s", TEST_IMAGES, STAGES[stage])
    run = Run.build(config, "eval", host_path=host_path)
    result = evaluate(run)
    write_predictions(run_folder / "predictions.tsv", result.predictions)
    network = run.model if stage != "distilled" else run.model.Student
    metrics = read_metrics(run_folder)
    last = max((*metrics.train, *metrics.evals), key=lambda line: line["step"])
    return StageResult(
        name=STAGES[stage],
        parameters=count_parameters(network),
        steps=last["step"],
        minutes=float(last["time"]) / 60,  # `time` adds up over all calls
        accuracy=sum(p.correct for p in result.predictions) / len(result.predictions),
        similarity=float(result.metrics["norm_edit_dis"]),
    )
