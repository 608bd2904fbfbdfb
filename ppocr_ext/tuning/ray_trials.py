"""Run the trials of a study through Ray Tune, on this machine or on a cluster whose machines share the study's folder.

The study proposes, prunes and keeps the record, as without Ray. Ray decides where and when a trial runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray must not send usage data
import ray  # noqa: E402 - reads that variable
from ray import tune  # noqa: E402
from ray.tune.search import Searcher  # noqa: E402

from ppocr_ext.errors import PPOCRExtError  # noqa: E402
from ppocr_ext.tuning.search import RunTrials, Search  # noqa: E402
from ppocr_ext.tuning.study import (  # noqa: E402
    Evaluation,
    TrialResult,
    TuningStudy,  # noqa: E402
)


class _Driver(Searcher, tune.Stopper):
    """Connect the study with Ray, as its searcher and stopper, in the process of the study."""

    def __init__(self, search: Search, study: TuningStudy) -> None:
        super().__init__()
        self._search = search
        self._study = study
        self._numbers: dict[str, int] = {}  # trials by Ray's names
        self._evaluations: dict[str, list[Evaluation]] = {}
        self.error: PPOCRExtError | None = None

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Begin a trial, and return the arguments of the trainable."""
        number, settings = self._study.ask()
        self._numbers[trial_id] = number
        self._evaluations[trial_id] = []
        return {"number": number, "settings": json.dumps(settings)}

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Report an evaluation to the study; return True if the trial is to stop."""
        if "evaluation" not in result:
            return False
        evaluations = self._evaluations[trial_id]
        evaluations.append(json.loads(result["evaluation"]))
        return self._study.report(self._numbers[trial_id], len(evaluations), evaluations[-1])

    def stop_all(self) -> bool:
        """Return True if the study cannot go on."""
        return self.error is not None

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the study how a trial ended. A trial without a result was pruned, or its worker has ended."""
        last = result or {}
        if "result" in last:
            ended = TrialResult(**json.loads(last["result"]))
        else:
            best = (self._evaluations[trial_id] or [{}])[-1]
            minutes = last.get("time_total_s", 0.0) / 60
            reason = f"its Ray worker has ended; see {self._search.folder}/ray" if error else ""
            ended = TrialResult("failed" if error else "pruned", reason, best, minutes)
        try:
            self._search.end(self._study, self._numbers[trial_id], ended)
        except PPOCRExtError as problem:  # Ray would only log it
            self.error = problem

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, since the study keeps its record itself."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, since the study keeps its record itself."""


def ray_trials(address: str | None, at_once: int) -> RunTrials:
    """Return the back end that runs trials through Ray.

    Args:
        address: the address of a cluster; None starts Ray on this machine.
        at_once: number of trials at the same time.
    """

    def run(search: Search, study: TuningStudy) -> None:
        left = search.trials - len(study.trials())
        if left <= 0:
            return
        search = replace(search, folder=search.folder.resolve())
        driver = _Driver(search, study)
        gpus = int(search.config.settings.use_gpu is True)
        # Workers need it if this package is not installed. Configs and data must have the same paths on each machine.
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        place: dict[str, Any] = {"address": address}
        if not address:
            place = {"address": "local", "include_dashboard": False}
        with ray.init(log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}}, **place):
            tune.Tuner(
                tune.with_resources(_trainable(search, study.indicator, Path.cwd()), {"cpu": 1, "gpu": gpus}),
                tune_config=tune.TuneConfig(
                    search_alg=driver, num_samples=left, max_concurrent_trials=at_once
                ),
                run_config=tune.RunConfig(storage_path=str(search.folder / "ray"), stop=driver, verbose=0),
            ).fit()
        if driver.error is not None:
            raise driver.error
        if len(study.trials()) < search.trials:  # Ray handles Ctrl-C itself, and returns
            raise KeyboardInterrupt

    return run


def _trainable(search: Search, indicator: str, working_folder: Path) -> Any:
    """Return the function that a Ray worker calls with what the driver suggests."""

    def train(suggested: Mapping[str, Any]) -> None:
        # A Ray worker starts in a folder of its own, but paths in the config are relative to the driver's folder.
        os.chdir(working_folder)

        def on_evaluation(count: int, line: Evaluation) -> bool:
            tune.report({"evaluation": json.dumps(line)})  # does not return if the trial is to stop
            return False

        result = search.train(
            suggested["number"], json.loads(suggested["settings"]), indicator, on_evaluation
        )
        tune.report({"result": json.dumps(asdict(result))})

    return train
