"""Start the processes of a training on this machine by Paddle's launcher; imports no Paddle.

The launcher shows the lines of process 0 up to two seconds late, and after a signal its exit code is the number of the
signal. So this process shows these lines itself, and computes the exit code of the command.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import ppocr_ext
from ppocr_ext.config import Config
from ppocr_ext.data.batches import batch_share, batch_size, samples_per_step
from ppocr_ext.errors import ConfigError, PPOCRExtError, ProcessError
from ppocr_ext.io.atomic import own_file, require_no_link
from ppocr_ext.limits import usable_cores
from ppocr_ext.loop.folder_lock import locked_folder
from ppocr_ext.loop.signals import deferred_signals
from ppocr_ext.messages import LOG
from ppocr_ext.run.host_config import folder_of
from ppocr_ext.run.logs import set_up_console
from ppocr_ext.run.machine import starter_environment

if TYPE_CHECKING:  # it imports Paddle, which this process does not need
    from ppocr_ext.run.context import RunContext

MESSAGES = "processes"  # in the run folder; the output of process N is in workerlog.N there
_FIRST_LOG = "workerlog.0"
_LAUNCHER_LOG = "launcher.log"
# The launcher writes all environment variables, also secrets, into these files.
_ENVIRONMENT_FILES = ("envlog.*", "backup_env.*.json", "default.*.log")
_PAUSE = 0.2  # seconds between two reads of the output of process 0
_LAST = 15  # lines of output that an error message repeats
# The last message of a process that failed, as cli/main.py prints it.
_ERROR = re.compile(r"^error: [Pp]rocess \d", re.MULTILINE)
_WORTH_SHARING = 1_000_000  # weights; smaller networks, like the quickstart's, were not measured
_LEAST_SHARE = 8  # samples of a process; BatchNorm normalises by them
_VERDICTS = (0, 1)  # exit codes of a training that was not interrupted
_OWN_SCRIPT = str(Path(ppocr_ext.__file__).with_name("__main__.py"))


def is_started(processes: int) -> bool:
    """Return True if this process is one of the ``processes`` of a training; False if they must be started.

    Raises:
        ConfigError: ``processes`` is below 1, or the launcher has started another number of them.
    """
    if processes < 1:
        raise ConfigError(
            f"--processes: found {processes}, expected 1 or more. Fix: give the cores or GPUs to use.",
            code="bad_value",
        )
    if "PADDLE_LOCAL_RANK" not in os.environ:  # only the launcher sets it
        return processes == 1
    started = os.environ.get("PADDLE_TRAINERS_NUM", "1")
    if started != str(processes):
        raise ConfigError(
            f"--processes: Paddle's launcher has started this process as one of {started} (found {processes}). Fix: "
            f"leave --processes out, or start ppocr-ext without the launcher.",
            code="inside_launcher",
        )
    return True


def start_processes(config: Config, processes: int, words: Sequence[str]) -> int:
    """Run a command in several processes on this machine; show the output of process 0, and pass signals on.

    On a CPU, the processes share the cores (one thread each), unless ``OMP_NUM_THREADS`` is set. On other devices, each
    process gets a device. The output of each process is kept in the folder ``processes`` of the run folder.

    Args:
        config: the config of the training.
        processes: at least 2.
        words: command and options of each process, such as ``["train", "-c", "my.yml"]``.

    Returns:
        The exit code: that of process 0, or 128 + n after the signal n.

    Raises:
        PPOCRExtError: the processes cannot be started, or another training uses the run folder.
        ProcessError: a process failed, and process 0 could not report it.
    """
    set_up_console()
    on_cpu = _runs_on_cpu(config, processes)
    environment = _environment(processes, on_cpu)
    folder = folder_of(config)
    is_new = not folder.exists()
    messages = require_no_link(folder / MESSAGES)
    _describe(config, processes, messages, environment["OMP_NUM_THREADS"] if on_cpu else None)
    # Process 0 locks the run folder only after some seconds, so the folder of the output has a lock of its own.
    # Process 0 warns if the system has no locks.
    try:
        with locked_folder(messages, warning_level=logging.DEBUG):
            with locked_folder(folder, warning_level=logging.DEBUG):
                # Remove the output of the run before it was resumed; train.log has its lines too.
                _remove(messages, "workerlog.*", *_ENVIRONMENT_FILES)
            code, stopped_by = _launch(processes, words, messages, environment, on_cpu)
            output = _text(messages / _FIRST_LOG)
            if stopped_by is not None:
                return 128 + stopped_by
            if code in _VERDICTS and output:
                return code
            if not _ERROR.search(output):
                raise ProcessError(_failure(code, messages), code="process_failed")
            if is_new and [file.name for file in folder.iterdir()] == [MESSAGES]:
                shutil.rmtree(folder)  # a start that failed leaves no folder, as with one process
    finally:
        with suppress(OSError):  # the folder is empty only if another training uses the run folder
            messages.rmdir()
    return PPOCRExtError.exit_code


def _launch(
    processes: int, words: Sequence[str], messages: Path, environment: Mapping[str, str], on_cpu: bool
) -> tuple[int, int | None]:
    """Run Paddle's launcher; return its exit code, and the signal that this process passed on, if any."""
    log = messages / _FIRST_LOG
    log.touch()
    options = ["--nproc_per_node", str(processes), "--host", "127.0.0.1", "--log_dir", str(messages)]
    options += ["--log_level", "ERROR"]
    if on_cpu:
        options += ["--devices", ",".join(["0"] * processes)]  # _environment says why
    with open(messages / _LAUNCHER_LOG, "wb", opener=own_file) as output:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "paddle.distributed.launch", *options, _OWN_SCRIPT, *words],
            env=environment,
            stdout=subprocess.DEVNULL,  # the lines of process 0, which _follow shows sooner
            stderr=output,
            start_new_session=True,  # else it would get Ctrl-C from the terminal and from us
        )
        try:
            stopped_by = _follow(launcher, log)
        finally:
            _remove(messages, *_ENVIRONMENT_FILES)
    return launcher.returncode, stopped_by


def _runs_on_cpu(config: Config, processes: int) -> bool:
    """Return True if the training runs on a CPU; for another device, ask Paddle whether it is usable.

    Raises:
        ConfigError: the device is not usable, or not by so many processes.
    """
    if config.asked_devices():
        import paddle

        from ppocr_ext.run.context import device_kind

        devices = paddle.device.cuda.device_count() if device_kind(config) == "gpu" else processes
        if devices < processes:
            raise ConfigError(
                f"--processes: each process needs a GPU of its own (found {devices} for {processes} processes). Fix: "
                f"--processes {devices}.",
                code="too_few_gpus",
            )
        return False
    if config.settings.use_sync_bn:
        raise ConfigError(
            f"{config.where('Global.use_sync_bn')}: Global.use_sync_bn: on a CPU, Paddle has no BatchNorm over several "
            f"processes. Fix: -o Global.use_sync_bn=false; each process then normalises by its own batch.",
            code="unsupported_device",
        )
    return True


def _environment(processes: int, on_cpu: bool) -> dict[str, str]:
    """Return the environment variables of the launcher and the processes."""
    # PADDLE_… and POD_IP are left out, since the launcher prefers them to its options.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PADDLE_") and key != "POD_IP"
    }
    environment |= starter_environment()
    # Errors only, since Paddle logs each connection otherwise.
    environment.setdefault("GLOG_minloglevel", "1")
    if not on_cpu:
        return environment
    cores = usable_cores()
    threads = environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // processes)))
    if threads.isdigit() and processes * int(threads) > cores:
        LOG.warning(
            "%d processes with %s threads each share %d cores, so they wait for each other.",
            processes,
            threads,
            cores,
        )
    # The launcher looks for GPUs, and fails if there are fewer than processes. It is told that all processes share
    # GPU 0, which none of them uses.
    return environment | {"CUDA_VISIBLE_DEVICES": "0", "PADDLE_DISTRI_BACKEND": "gloo"}


def _describe(config: Config, processes: int, messages: Path, threads: str | None) -> None:
    """Log the number of processes and what it means for the batch."""
    share = "one device each" if threads is None else f"OMP_NUM_THREADS={threads}"
    LOG.info("%d processes on this machine, %s; their messages: %s/workerlog.*", processes, share, messages)
    each = samples_per_step(config)
    if each is None:
        return
    LOG.info(
        "a step has %d x %d = %d samples, so an epoch has 1/%d of the steps; BatchNorm normalises by the batch of each "
        "process",
        processes,
        each,
        processes * each,
        processes,
    )
    option, remark = batch_share(config, processes)
    if option:
        LOG.info("for steps of the same size as with one process%s: %s", remark, option)


def advise_processes(context: RunContext, weights: int) -> None:
    """Log how a training in one process on a CPU can use more cores, if its networks have so many weights."""
    cores = usable_cores()
    processes = min(cores, (batch_size(context.config) or 0) // _LEAST_SHARE)
    decided = "OMP_NUM_THREADS" in os.environ or context.config.settings.use_sync_bn
    decided = decided or context.checkpoint is not None  # with other batches it would be another run
    if context.device == "cpu" and processes > 1 and weights >= _WORTH_SHARING and not decided:
        option, remark = batch_share(context.config, processes)
        LOG.info(
            "this training uses 1 of %d cores. Faster, with steps of the same size%s: --processes %d %s",
            cores,
            remark,
            processes,
            option,
        )


def _follow(launcher: subprocess.Popen[bytes], log: Path) -> int | None:
    """Show new lines of ``log`` until the launcher has ended; return the signal that was passed on to it, if any.

    The launcher ends its processes within 30 seconds, and within 10 after a second signal.
    """
    signals: list[int] = []

    def pass_on(number: int) -> None:
        signals.append(number)
        # Not SIGHUP, after which the launcher would end without its processes.
        launcher.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    with log.open(encoding="utf-8", errors="replace", newline="") as stream, deferred_signals(pass_on):
        try:
            has_ended = False
            while not has_ended:
                # Asked before the read, so that the last read gets all lines.
                has_ended = launcher.poll() is not None
                print(stream.read(), end="", flush=True)
                time.sleep(0 if has_ended else _PAUSE)
        except BaseException:  # a second signal, or the reader of our output has ended
            launcher.terminate()
            launcher.wait()
            raise
    return signals[0] if signals else None


def _remove(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _failure(exit_code: int, messages: Path) -> str:
    """Return the error message, with the last lines of the process that failed, if process 0 printed none."""
    launcher_log = messages / _LAUNCHER_LOG
    workers = sorted(messages.glob("workerlog.*"))
    log = next((each for each in workers if _ERROR.search(_text(each))), launcher_log)
    last = "\n".join(_text(log).strip().splitlines()[-_LAST:])
    return (
        f"--processes: the processes have ended (exit code {exit_code} of Paddle's launcher). Fix: see {messages}. The "
        f"last lines of {log.name} there:\n{last}"
    )
