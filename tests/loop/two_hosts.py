"""Two hosts on this machine, joined by a cable: each has its own network, name, processes, home and files.

Linux namespaces make them, which needs root and Debian's iproute2 and util-linux. Nothing of them outlives the process
that has made them, however it ends: a host is its first process, which ends when its standard input is closed.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tiny_runs import tiny_config

import ppocr_ext

T = TypeVar("T")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
MASTER = f"{ADDRESSES[0]}:8090"
CABLE = "cable"  # the name of the network interface in both hosts
PACKAGE = Path(ppocr_ext.__file__).parent
# The first process of a host, in its namespaces. It ignores SIGCHLD, so that the kernel removes ended orphans.
_INIT = """
hostname "$0" && mount --bind "$1" /etc/hosts && ip link set lo up && trap "" CHLD && echo up && exec cat >/dev/null
"""
_MOST_CORE = 1 << 20  # bytes of a core dump: enough to see that there is one
_SOON = 20.0  # seconds for what takes no time
STILL = ("RecAug", "RecConAug")  # transforms that draw


def within(seconds: float, event: Callable[[], T], what: object = "") -> T:
    """Return the first true result of ``event``; fail if there is none in time. ``what`` is part of the message."""
    until = time.monotonic() + seconds
    while not (result := event()):
        assert time.monotonic() < until, f"nothing has happened in {seconds:g} s: {what}"
        time.sleep(0.05)
    return result


def finish(jobs: Iterable[Job], *codes: int, seconds: float = 120) -> list[str]:
    """Wait for the end of ``jobs``; check their exit codes, if given. Return their output."""
    ended = [job.wait(seconds) for job in jobs]
    said = [job.said for job in jobs]
    assert not codes or ended == list(codes), f"{ended}\n" + "\n\n".join(said)
    return said


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Job:
    """A command on a host. Its output goes into the file ``log``."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process  # nsenter, whose child is the command
        self._began = time.monotonic()
        self.log = log

    @property
    def said(self) -> str:
        """The output so far."""
        return self.log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The number of the command's process on this machine, not on its host."""
        return within(_SOON, lambda: children(self._process.pid), self.log)[0]

    @property
    def trainer(self) -> int:
        """The number of the training process, which is the child of the command (a launcher)."""
        return within(_SOON, lambda: children(self.pid), self.log)[0]

    def poll(self) -> int | None:
        """Return the exit code, or minus the number of a signal; None while the command runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        """Return the exit code; fail if the command has not ended within ``seconds``."""
        within(seconds, lambda: self.poll() is not None, self.log)
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command."""
        os.kill(self.pid, number)


class Host:
    """A host that :func:`two_hosts` makes.

    Attributes:
        name: its host name.
        address: its address on the cable.
        folder: its files; the current folder of its commands. ``home`` is in it, and ``data`` and ``train.yml``
            after :meth:`furnish`.
    """

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name, self.address, self.folder = name, address, folder
        for each in ("home", "tmp", "screen"):
            (folder / each).mkdir(parents=True)
        hosts = folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")  # as Debian does
        spaces = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._init = subprocess.Popen(
            ["unshare", *spaces, "sh", "-c", _INIT, name, str(hosts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._init.stdout.readline() != "up\n":
            pytest.skip(f"no namespaces here: {self._init.communicate()[1]}")
        self.pid = children(self._init.pid)[0]

    def close(self) -> None:
        """End all processes of the host, and remove it."""
        self._init.stdin.close()
        self._init.wait(_SOON)

    def furnish(self, captchas: Path, kind: str = "student", **values: object) -> None:
        """Copy the data into ``data``; write ``train.yml``, which trains into ``run``. All paths in it are relative."""
        if not (self.folder / "data").exists():
            shutil.copytree(captchas, self.folder / "data")
        transforms = tiny_config(Path("data"), Path(), kind).thaw()["Train"]["dataset"]["transforms"]
        changes = {
            "Global.use_gpu": False,
            "Train.dataset.transforms": [each for each in transforms if next(iter(each)) not in STILL],
            "Train.loader.batch_size_per_card": 4,
            "Train.loader.shuffle": False,
            **values,
        }
        config = tiny_config(Path("data"), Path(), kind, **changes)
        (self.folder / "train.yml").write_text(config.to_yaml())

    def start(self, words: Iterable[object], **environment: str) -> Job:
        """Start a command on this host."""
        own = {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": str(PACKAGE.parent),
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        kept = {key: value for key, value in os.environ.items() if key != "PPOCR_EXT_CACHE"}
        log = self.folder / "screen" / f"{len(list((self.folder / 'screen').iterdir()))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                # nsenter leaves the current folder, so it is entered inside.
                [*_enter(self.pid), "env", "-C", str(self.folder), *map(str, words)],
                env=kept | own,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (_MOST_CORE, _MOST_CORE)),
            )
        return Job(process, log)

    def ppocr_ext(self, *words: object, **environment: str) -> Job:
        """Start a command of ``ppocr-ext``."""
        return self.start([sys.executable, PACKAGE / "__main__.py", *words], **environment)

    def core_dumps(self) -> list[Path]:
        """Return the files of processes that have crashed."""
        return [*self.folder.rglob("core"), *self.folder.rglob("core.*"), *self.folder.rglob("*.core")]

    def cut_cable(self) -> None:
        """Switch this host's end of the cable off: nothing arrives any more, at neither host."""
        _run(*_enter(self.pid), "ip", "link", "set", CABLE, "down")

    def mend_cable(self) -> None:
        """Switch this host's end of the cable on."""
        _run(*_enter(self.pid), "ip", "link", "set", CABLE, "up")


def launch(host: Host, *words: object, package: Path = PACKAGE, **environment: str) -> Job:
    """Start Paddle's launcher on a host, for one process of ``ppocr-ext`` with ``words``."""
    options = ["--nnodes", 2, "--nproc_per_node", 1, "--master", MASTER, "--host", host.address]
    command = [sys.executable, "-m", "paddle.distributed.launch", *options, package / "__main__.py", *words]
    return host.start(command, **environment)


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Yield two hosts with their files in ``folder``; they can reach each other, and nothing else.

    Skips the test if this machine allows no namespaces.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("namespaces need Linux and root")
    if missing := [each for each in ("ip", "unshare", "nsenter") if shutil.which(each) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    with ExitStack() as stack:
        hosts = []
        for name, address in zip(("one", "two"), ADDRESSES, strict=True):
            hosts.append(Host(name, address, folder / name))
            stack.callback(hosts[-1].close)
        ends = [[CABLE, "netns", str(host.pid)] for host in hosts]
        made = subprocess.run(
            ["ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1]],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if made.returncode:
            pytest.skip(f"no virtual cable here: {made.stderr}")
        for host in hosts:
            _run(*_enter(host.pid), "ip", "address", "add", f"{host.address}/24", "dev", CABLE)
            host.mend_cable()
        yield hosts[0], hosts[1]


def _enter(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", "--uts", "--mount", "--pid", "--"]


def _run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=_SOON)
