"""Train a whole run: lock the folder, build the run, train; called by `ppocr-ext train` and the quickstart."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import paddle.distributed as dist

from ppocr_ext.checkpoint.contents import BEFORE, POINTS
from ppocr_ext.checkpoint.files import remove_checkpoints
from ppocr_ext.checkpoint.weights import count_parameters
from ppocr_ext.config import Config
from ppocr_ext.config.derive import MAX_DROP
from ppocr_ext.host import open_host
from ppocr_ext.loop.adapter import HostLoop
from ppocr_ext.loop.events import Hook, Outcome
from ppocr_ext.loop.folder_lock import LOCK_FILE, check_folder, locked_folder
from ppocr_ext.loop.hooks.collapse_watch import CollapseWatch
from ppocr_ext.loop.hooks.early_stop import EarlyStop
from ppocr_ext.loop.hooks.ema import Ema
from ppocr_ext.loop.hooks.export_hook import ExportHook
from ppocr_ext.loop.hooks.keep_general import KeepGeneral
from ppocr_ext.loop.hooks.metric_writers import require_packages, writers_for
from ppocr_ext.loop.hooks.metrics_log import MetricsLog, ProgressBar
from ppocr_ext.loop.hooks.report_hook import ReportHook
from ppocr_ext.loop.hooks.run_record import RunRecord, record_loss
from ppocr_ext.loop.hooks.weight_checks import CacheUse, TeacherCheck, WeightChange
from ppocr_ext.loop.launch import MESSAGES, advise_processes
from ppocr_ext.messages import LOG
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.general import SECTION
from ppocr_ext.run.host_config import folder_of
from ppocr_ext.run.logs import log_file, quiet_host, set_up_console
from ppocr_ext.run.machine import ending_with_launcher
from ppocr_ext.run.run import Run, Training
from ppocr_ext.run.team import failing_together


class RemoveReplaced(Hook):
    """Remove the checkpoints ``names`` of an earlier run; placed after hooks that may refuse to start.

    With the weights before its training goes what was read of them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def on_start(self, run: Run, training: Training) -> None:
        """Remove them."""
        remove_checkpoints(run.context.folder, self._names)
        if BEFORE in self._names:
            (run.context.folder / POINTS).unlink(missing_ok=True)


def default_hooks(run: Run, training: Training) -> list[Hook]:
    """Return the hooks of this process; only process 0 writes files and shows progress."""
    cache = [] if run.teacher_cache is None else [CacheUse(run.teacher_cache)]
    if not run.context.is_first:
        return [TeacherCheck(), *cache]
    config = run.context.config
    settings = config.settings
    every = max(1, settings.print_batch_step)
    record = RunRecord()
    bar = ProgressBar()
    hooks: list[Hook] = [
        # Hooks that may refuse to start come first, before others write files.
        *([] if settings.early_stop is None else [EarlyStop(**settings.early_stop)]),
        *([] if settings.ema is None else [Ema(settings.ema)]),
        *_keep_general(run.context, training),  # after the average, in whose place it may save others
        MetricsLog(every, writers_for(config), bar.show),
        record,
        TeacherCheck(),
        *cache,
        CollapseWatch(every, record.add),
        WeightChange(),
        bar,
    ]
    if settings.report:
        hooks.append(ReportHook())
    if settings.uniform_output_enabled:
        hooks.append(ExportHook())
    return hooks


def _keep_general(context: RunContext, training: Training) -> list[Hook]:
    """Return the hook of ``Eval.general``, if the run has weights to keep something of."""
    config, checkpoint = context.config, context.checkpoint
    if config.at(SECTION, None) is None:
        return []
    # a resumed run has read the list, or else nothing was kept
    if not (
        training.starts_from_weights if checkpoint is None else KeepGeneral.__name__ in training.hook_states
    ):
        LOG.warning("%s: this run did not begin from weights with such a list, so it keeps nothing", SECTION)
        return []
    return [KeepGeneral(float(config.at(f"{SECTION}.max_drop", MAX_DROP)))]


def train(
    config: Config,
    *,
    host_path: str | None = None,
    old_dictionary: str | None = None,
    hooks: Sequence[Hook] = (),
    overwrite: bool = False,
    processes: int = 1,
) -> Outcome:
    """Train as ``config`` says.

    Args:
        config: as loaded, with overlays and overrides.
        host_path: a PaddleOCR checkout; None searches for a host.
        old_dictionary: dictionary of the weights, if it differs from the config's.
        hooks: called after the default ones.
        overwrite: replace an earlier run in the run folder.
        processes: value of ``ppocr-ext train --processes``, for a command in a message.

    Raises:
        PPOCRExtError: the run cannot be built, the run folder holds another run, or a hook raised.
    """
    set_up_console()
    require_packages(config)
    host = open_host(host_path)
    quiet_host(host.logger)
    folder = folder_of(config)
    loggers = [LOG, host.logger]
    first = dist.get_rank() == 0  # only process 0 writes a log; the launcher stores the output of the others
    new = [path for path in (folder, *folder.parents) if _is_new(path)] if first else []
    with ExitStack() as stack:
        stack.enter_context(failing_together())
        replaced: list[str] = []
        if first:
            stack.enter_context(locked_folder(folder))
            replaced = check_folder(folder, config, host_path, overwrite, processes)
            stack.enter_context(log_file(folder / "train.log", *loggers))
            LOG.info("host: %s", host)
        stack.enter_context(ending_with_launcher())  # after the log is open, so that its message is logged
        try:
            run = Run.build(config, "train", host_path=host_path, old_dictionary=old_dictionary)
        except BaseException as fault:
            # Otherwise the message names a file in this folder, which stays.
            if getattr(fault, "record", None) is None:
                _remove_new(new)
            raise
        training = run.training
        assert training is not None  # its role is "train"
        if run.context.team.size == 1:
            advise_processes(run.context, count_parameters(run.network))
        own = default_hooks(run, training)
        if (
            first
            and run.context.checkpoint is None
            and not any(isinstance(each, KeepGeneral) for each in own)
        ):
            replaced.append(BEFORE)  # else a resume would take the weights before an earlier run
        loop = HostLoop(run, training, [*own, RemoveReplaced(replaced), *hooks])
        if (watch := run.context.team.watch) is not None:
            watch.step = lambda: loop.position.global_step
            watch.record = lambda reason: record_loss(folder, reason, loop.position.global_step)
        try:
            return loop.train()
        except OSError as fault:
            if fault.errno == errno.ENOSPC and fault.filename is None:
                fault.filename = str(folder)  # an error of an open stream does not name its file
            raise


def _is_new(folder: Path) -> bool:
    """Return True if ``folder`` does not exist, or has only the output of `ppocr-ext train --processes`."""
    return not folder.exists() or [file.name for file in folder.iterdir()] == [MESSAGES]


def _remove_new(folders: Sequence[Path]) -> None:
    """Remove the run folder, the first of ``folders``, and the folders above it, unless they have other files."""
    if not folders:
        return
    folder = folders[0]
    for name in ("usable_train", "usable_eval"):
        shutil.rmtree(folder / name, ignore_errors=True)
    # Errors are ignored here, since the error of the start matters more.
    for name in ("train.log", "preflight.json", LOCK_FILE):
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    for path in folders:
        with suppress(OSError):
            path.rmdir()
