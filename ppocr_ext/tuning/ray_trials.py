"""Run the trials of a study through Ray Tune: on this machine, or on those of a cluster that share the study's folder.

The study proposes, prunes and keeps the record as it does without Ray; Ray decides where and when a trial runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
import ray  # noqa: E402 - reads that variable
from ray import tune  # noqa: E402
from ray.tune.search import Searcher  # noqa: E402

from ppocr_ext.errors import PPOCRExtError  # noqa: E402
from ppocr_ext.tuning.search import RunTrials, Search  # noqa: E402
from ppocr_ext.tuning.study import (  # noqa: E402
    Evaluation,
    TrialResult,
    TuningStudy,  # noqa: E402
    objective,
)


class _Driver(Searcher, tune.Stopper):
    """Ray's searcher and stopper, in the process of the study."""

    def __init__(self, search: Search, study: TuningStudy) -> None:
        super().__init__()
        self._search = search
        self._study = study
        self._numbers: dict[str, int] = {}  # trials by Ray's names
        self._evaluations: dict[str, list[Evaluation]] = {}
        self.error: PPOCRExtError | None = None

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Return what the trainable gets."""
        number, settings = self._study.ask()
        self._numbers[trial_id] = number
        self._evaluations[trial_id] = []
        return {"number": number, "settings": json.dumps(settings)}

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Take an evaluation; return True if the trial is to stop."""
        seen = self._evaluations[trial_id]
        if "evaluation" not in result:
            return False
        seen.append(json.loads(result["evaluation"]))
        return self._study.report(self._numbers[trial_id], len(seen), seen[-1])

    def stop_all(self) -> bool:
        """Return True if the study cannot go on."""
        return self.error is not None

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the study how a trial ended; one without a result of its own was stopped."""
        last = result or {}
        text = last.get("result")
        seen = self._evaluations[trial_id]
        best = max(seen, key=lambda line: objective(line, self._study.indicator), default={})
        state, reason = (
            ("failed", f"its Ray worker has ended; see {self._search.folder}/ray")
            if error
            else ("pruned", "")
        )
        stopped = TrialResult(state, reason, best, last.get("time_total_s", 0.0) / 60)
        try:
            ended = TrialResult(**json.loads(text)) if text else stopped
            self._search.end(self._study, self._numbers[trial_id], ended)
        except PPOCRExtError as problem:  # Ray would only log it
            self.error = problem

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the study keeps its record itself."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the study keeps its record itself."""


def ray_trials(address: str | None, at_once: int) -> RunTrials:
    """Return the back end that runs trials through Ray.

    Args:
        address: of a cluster; None starts Ray on this machine.
        at_once: trials at the same time.
    """

    def run(search: Search, study: TuningStudy) -> None:
        left = search.trials - len(study.trials())
        if left <= 0:
            return
        search = replace(search, folder=search.folder.resolve())
        driver = _Driver(search, study)
        gpus = int(search.config.settings.use_gpu is True)
        # for workers of a clone that is not installed; its configs and files must be at the same paths on each machine
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        environment = {"env_vars": {"PYTHONPATH": path}}
        where: dict[str, Any] = (
            {"address": address} if address else {"address": "local", "include_dashboard": False}
        )
        with ray.init(log_to_driver=False, runtime_env=environment, **where):
            tune.Tuner(
                tune.with_resources(_trainable(search, study.indicator, Path.cwd()), {"cpu": 1, "gpu": gpus}),
                tune_config=tune.TuneConfig(
                    search_alg=driver, num_samples=left, max_concurrent_trials=at_once
                ),
                run_config=tune.RunConfig(storage_path=str(search.folder / "ray"), stop=driver, verbose=0),
            ).fit()
        if driver.error is not None:
            raise driver.error
        if len(study.trials()) < search.trials:  # Ray takes Ctrl-C for itself, and returns
            raise KeyboardInterrupt

    return run


def _trainable(search: Search, indicator: str, working_folder: Path) -> Any:
    """Return the function that a Ray worker calls with what the driver suggests."""

    def train(suggested: Mapping[str, Any]) -> None:
        os.chdir(working_folder)  # Ray's worker is in another one; paths in the config are relative to this

        def on_evaluation(count: int, line: Evaluation) -> bool:
            tune.report({"evaluation": json.dumps(line)})  # does not return if the trial is to stop
            return False

        result = search.train(
            suggested["number"], json.loads(suggested["settings"]), indicator, on_evaluation
        )
        tune.report({"result": json.dumps(asdict(result))})

    return train
