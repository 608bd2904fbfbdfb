"""The search itself: check, run the trials, here or through another back end, and write the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.commands import command_line
from ppocr_ext.config import Config
from ppocr_ext.errors import ModelError
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.folder_lock import locked_folder
from ppocr_ext.messages import LOG
from ppocr_ext.report.formats import percent
from ppocr_ext.report.run_folder import METRICS_FILE, RECORD_FILE
from ppocr_ext.run.host_config import import_plugins, seed_of
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.tuning.results import BEST_FILE, RESULTS_FILE, settings_text, write_results
from ppocr_ext.tuning.space import Space, check_space, space_text
from ppocr_ext.tuning.study import STUDY_FILE, TuningStudy
from ppocr_ext.tuning.trial import OnEvaluation, TrialResult, run_trial


@dataclass(frozen=True)
class Search:
    """A search: what is trained, where, and how often.

    Attributes:
        config: as loaded, with overlays and options; its own values are trial 0.
        files: those of ``-c``, for the command that trains the best settings.
        folder: of the study: its record, its runs (``trials/0003``), its results.
        trials: how many there are in the end, those of a resumed study included.
        host_path: a PaddleOCR checkout; None: the installed package.
    """

    config: Config
    files: tuple[str, ...]
    folder: Path
    trials: int
    host_path: str | None = None

    def train(
        self, number: int, settings: Mapping[str, Any], indicator: str, on_evaluation: OnEvaluation
    ) -> TrialResult:
        """Train trial ``number`` as ``ppocr-ext train`` does, in a run folder of its own."""
        folder = self.folder / "trials" / f"{number:04}"
        for name in (METRICS_FILE, RECORD_FILE):  # of an earlier study, which would be read as this one's
            (folder / name).unlink(missing_ok=True)
        values = {**settings, "Global.save_model_dir": folder.as_posix()}
        options = [f"{key}={json.dumps(value)}" for key, value in values.items()]  # JSON is YAML
        host = [] if self.host_path is None else ["--host", self.host_path]
        base = (self.folder / "config.yml").as_posix()
        command = ["train", "-c", base, *host, "--overwrite", "-o", *options]
        return run_trial(command, folder, indicator, on_evaluation)

    def end(self, study: TuningStudy, number: int, result: TrialResult) -> None:
        """Keep the result of a trial, and write the results so far.

        Raises:
            ModelError: the trial with the config's own settings failed, and no other has finished: all would fail.
        """
        trial = study.tell(number, result)
        trials, reason = study.trials(), f": {result.reason}" if result.reason else ""
        if trial.settings == study.shipped and all(each.result.state == "failed" for each in trials):
            (self.folder / STUDY_FILE).unlink()
            command = command_line("train", "-c", self.folder / "config.yml", host=self.host_path)
            raise ModelError(
                f"trial {number}, the config as it is, failed{reason}\nFix: make this command run, then begin again:\n"
                f"{command}",
                code="training_failed",
            )
        best, name = trials[0], study.indicator
        values = [percent(each.result.best.get(name)) for each in (trial, best)]
        said = (
            f"trial {number}: {settings_text(trial.settings)}: {name} {values[0]}, {result.state}{reason}, "
            f"{result.minutes:.1f} minutes (best: {values[1]}, trial {best.number})"
        )
        LOG.info("%s", said)
        files = [word for file in (*self.files, self.folder / BEST_FILE) for word in ("-c", str(file))]
        write_results(study, self.config, self.folder, command_line("train", *files, host=self.host_path))

    def run(self, space: Space, run_trials: RunTrials) -> Path:
        """Run what is missing of the study, and return its page of results.

        Args:
            space: the parameters.
            run_trials: the back end: :func:`run_here`, or that of Ray.

        Raises:
            ConfigError: config, space or an earlier study in the folder cannot be used.
            ModelError: the config cannot be trained as it is.
        """
        host = open_host(self.host_path)
        quiet_host(host.logger)
        import_plugins(self.config)
        check_space(space, self.config, host)
        with locked_folder(self.folder, "--out DIR"):
            study = TuningStudy(self.folder, space, self.config, seed_of(self.config))
            write_text(self.folder / "config.yml", self.config.to_yaml())
            write_text(self.folder / "space.yml", space_text(space))
            try:
                run_trials(self, study)
            finally:
                study.put_back()
        return self.folder / RESULTS_FILE


RunTrials = Callable[[Search, TuningStudy], None]


def run_here(search: Search, study: TuningStudy) -> None:
    """Run trials one after the other on this machine, with a bar."""
    done = len(study.trials())
    with tqdm(total=search.trials, initial=done, unit="trial", dynamic_ncols=True, disable=None) as bar:
        for _ in range(done, search.trials):
            number, settings = study.ask()
            bar.set_description(f"trial {number}")

            def on_evaluation(count: int, line: Mapping[str, Any], number: int = number) -> bool:
                bar.set_postfix_str(
                    f"step {line['step']}, {study.indicator} {percent(line.get(study.indicator))}"
                )
                return study.report(number, count, line)

            search.end(study, number, search.train(number, settings, study.indicator, on_evaluation))
            bar.update(1)
