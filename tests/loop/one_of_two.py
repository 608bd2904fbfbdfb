"""What each process of the tests of several processes runs: a list of jobs, one training after the other.

    python -m paddle.distributed.launch --nproc_per_node 2 one_of_two.py jobs.json

Each job: ``config`` (a file), ``keep`` (where the parameters go, with the process's number), and optionally
``stop_after`` ([process, step]: as a signal would), ``fail`` ([process, step, "raise" or "kill"]), ``nan_part``
([process, step]: a part of the loss is NaN that the total does not hold), ``rows`` (of each process: the rows of its
batches that it trains on).
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist

from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.errors import DataError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.hooks.weight_checks import state_digest
from ppocr_ext.loop.session import train


class Keep(Hook):
    """Writes the parameters at the end, and the digest of the teacher before and after."""

    def __init__(self, path):
        self.path = f"{path}.{dist.get_rank()}.npz"

    def on_start(self, run, training):
        self.run = run
        self.before = {name: state_digest(getattr(run.network, name)) for name in run.network.frozen or ()}

    def on_end(self, outcome):
        names = {n for n, p in self.run.network.named_parameters() if not p.stop_gradient}
        state = {n: t.numpy() for n, t in self.run.network.state_dict().items() if n in names}
        after = {name: state_digest(getattr(self.run.network, name)) for name in self.before}
        assert self.before == after
        np.savez(self.path, **state)


class StopAfter(Hook):
    """A signal to one process."""

    def __init__(self, rank, step):
        self.rank, self.step = rank, step

    def on_step(self, step):
        if (dist.get_rank(), step.position.global_step) == (self.rank, self.step):
            signal.raise_signal(signal.SIGINT)


class Fail(Hook):
    """An error in one process, or its death."""

    def __init__(self, rank, step, how):
        self.rank, self.step, self.how = rank, step, how

    def on_step(self, step):
        if (dist.get_rank(), step.position.global_step) == (self.rank, self.step):
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise DataError("the disk of this process is broken")


class NanPart(Hook):
    """A part of the loss of one process is NaN in one step; no gradient comes from it."""

    def __init__(self, rank, step):
        self.rank, self.step = rank, step

    def on_start(self, run, training):
        self.loss = run.training.loss

    def on_step(self, step):
        if (dist.get_rank(), step.position.global_step + 1) != (self.rank, self.step):
            return
        forward = self.loss.forward

        def once(predicts, batch):
            del self.loss.forward
            return {"other": paddle.full([], float("nan")), **forward(predicts, batch)}

        object.__setattr__(self.loss, "forward", once)


class Rows(Hook):
    """Batches keep these rows alone."""

    def __init__(self, rows):
        self.rows = rows

    def on_start(self, run, training):
        read = run.data.train_loader.read

        def shortened(epoch, skip):
            for batch in read(epoch, skip):
                rows = paddle.to_tensor([row for row in self.rows if row < len(batch[0])])
                yield [part.index_select(rows) for part in batch]

        run.data.train_loader.read = shortened


def run_jobs(path):
    for job in json.loads(Path(path).read_text()):
        hooks = [Keep(job["keep"])]
        if "stop_after" in job:
            hooks.append(StopAfter(*job["stop_after"]))
        if "fail" in job:
            hooks.append(Fail(*job["fail"]))
        if "nan_part" in job:
            hooks.append(NanPart(*job["nan_part"]))
        if "rows" in job:
            hooks.append(Rows(job["rows"][dist.get_rank()]))
        train(load([job["config"]]), hooks=hooks)
    return 0


if __name__ == "__main__":
    import ppocr_ext.cli.doctor as command  # `main` reports errors as it does for every command

    command.add_arguments = lambda parser: parser.add_argument("jobs")
    command.run = lambda args: run_jobs(args.jobs)
    sys.exit(main(["doctor", sys.argv[1]]))
