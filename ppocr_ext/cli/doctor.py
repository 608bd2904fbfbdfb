"""``ppocr-ext doctor``: print what is installed, where it comes from, and what fixes the rest."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from ppocr_ext import __version__
from ppocr_ext.cli.options import add_host_argument
from ppocr_ext.errors import HostError, interruption_behind
from ppocr_ext.host.complete import quiet_imports
from ppocr_ext.messages import (
    INSTALL_LIBRARIES,
    INSTALL_ONNX,
    INSTALL_PADDLE,
    INSTALL_QUICKSTART,
    command_line,
    fit,
    lacks_library,
)

EPILOG = """\
examples:
  ppocr-ext doctor
  ppocr-ext doctor --host ~/PaddleOCR         # would this checkout do?
  ppocr-ext doctor --json                     # all of it as JSON, for the report of a fault
  ppocr-ext doctor --components               # which networks, losses, … a config can name, ours and the host's

exit code: 0 training can run, 1 it cannot.
"""

_FIX_LINE = "\n        fix it: "
_PYTHONS = ((3, 10), (3, 13))
_PADDLES = ("paddlepaddle", "paddlepaddle-gpu")
_OPENCVS = (
    "opencv-python",
    "opencv-contrib-python",
    "opencv-python-headless",
    "opencv-contrib-python-headless",
)
# Parts of PaddleOCR that a run uses, by the module that holds them.
_ALWAYS_THE_HOSTS = ("training loop", "loaders", "label encoders", "label decoders")
_TINY_MODEL = {
    "model_type": "rec",
    "algorithm": "SVTR_LCNet",
    "Transform": None,
    "Backbone": {
        "name": "SVTRv2",
        "use_pos_embed": False,
        "dims": [16, 24, 32],
        "depths": [1, 2, 1],
        "num_heads": [2, 2, 2],
        "mixer": [["Conv"], ["Conv", "Global"], ["Global"]],
        "local_k": [[5, 5], [5, 5], [-1, -1]],
        "sub_k": [[2, 1], [2, 1], [-1, -1]],
        "last_stage": False,
        "use_pool": True,
    },
    "Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"},
    "Head": {"name": "CTCHead", "out_channels": 11},
}


class CheckResult(NamedTuple):
    """The result of one check of the installation.

    Attributes:
        level: ``"note"`` if only some commands cannot run, ``"FAIL"`` if training cannot run.
        text: what the check found.
        fix: the command that fixes it; empty if there is nothing to fix.
    """

    level: Literal["ok", "note", "FAIL"]
    text: str
    fix: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_host_argument(parser)
    parser.add_argument(
        "--components",
        action="store_true",
        help="list the components that a config can name, ours and the host's",
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(args: argparse.Namespace) -> int:
    """Print whether training can run, and what was checked; return 0 if it can, 1 if it cannot."""
    groups = {
        "installed": [*check_python(), *check_paddle(), *check_arrays(), *check_quickstart(), *check_folder()]
    }
    if not _failures(groups):
        groups["host"] = check_host(args.host, args.debug)
    if not _failures(groups):
        groups["devices"] = check_devices()
        groups["training step"] = check_training_step(args.debug, args.host)
    failures = _failures(groups)
    if args.json:
        checks = {title: [each._asdict() for each in results] for title, results in groups.items()}
        print(json.dumps({"ppocr_ext": __version__, "can_train": not failures, "checks": checks}, indent=2))
        return int(failures > 0)
    verdict = f"Training cannot run: {failures} to fix, see FAIL below." if failures else "Training can run."
    print(f"ppocr-ext {__version__}: {verdict}")
    for title, results in groups.items():
        print(f"\n{title}")
        for level, text, fix in results:
            print(f"{fit(f'  {level:<5} {text}')}{fix and f'{_FIX_LINE}{fix}'}")
    if args.components and not failures:
        _print_components()
    return int(failures > 0)


def _failures(groups: Mapping[str, Iterable[CheckResult]]) -> int:
    return sum(each.level == "FAIL" for results in groups.values() for each in results)


def check_python() -> list[CheckResult]:
    """Check Python's version."""
    text = f"Python {platform.python_version()} ({sys.executable})"
    if _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return [CheckResult("ok", text)]
    return [CheckResult("FAIL", f"{text}: 3.10 to 3.13 are supported", "python3.11 -m venv .venv")]


def check_paddle() -> list[CheckResult]:
    """Check that exactly one build of Paddle is installed, and that it can be imported."""
    installed = _versions(_PADDLES)
    reinstall = f"pip uninstall -y {' '.join(_PADDLES)} && {INSTALL_PADDLE}"
    if len(installed) > 1:
        both = " and ".join(f"{name} {version}" for name, version in installed.items())
        return [CheckResult("FAIL", f"{both} are both installed; they overwrite each other", reinstall)]
    if importlib.util.find_spec("paddle") is None:
        return [CheckResult("FAIL", "Paddle is not installed", INSTALL_PADDLE)]
    try:
        with quiet_imports():
            paddle = importlib.import_module("paddle")
    except Exception as reason:  # a broken build may raise any exception
        fix = INSTALL_LIBRARIES if lacks_library(reason) else reinstall
        if isinstance(reason, ModuleNotFoundError):
            fix = f"pip install {reason.name}"
        return [CheckResult("FAIL", f"Paddle cannot be imported: {_first_line(reason)}", fix)]
    build = "CUDA" if paddle.is_compiled_with_cuda() else "CPU"
    return [CheckResult("ok", f"Paddle {paddle.__version__} ({build} build)")]


def check_arrays() -> list[CheckResult]:
    """Check that NumPy and OpenCV can be imported, and that the OpenCV packages have the same version."""
    results = []
    for module, name, fix in (
        ("numpy", "numpy", "pip install --force-reinstall numpy"),
        # The other build of OpenCV needs libraries of a desktop, which servers and containers lack.
        ("cv2", "OpenCV", "pip install --force-reinstall --no-deps opencv-python-headless"),
    ):
        try:
            results.append(CheckResult("ok", f"{name} {importlib.import_module(module).__version__}"))
        except Exception as reason:  # a broken build may raise any exception
            results.append(CheckResult("FAIL", f"{name} cannot be imported: {_first_line(reason)}", fix))
    opencvs = _versions(_OPENCVS)
    if len(set(opencvs.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in opencvs.items())
        text = f"{listed} write the same folder and differ; the one installed last is used"
        results.append(CheckResult("note", text, f"pip install -U {' '.join(opencvs)}"))
    return results


def check_quickstart() -> list[CheckResult]:
    """Check the packages that only some commands need."""
    return [
        CheckResult("ok", f"{module} {importlib.metadata.version(module)}")
        if importlib.util.find_spec(module)
        else CheckResult("note", f"{module} is not installed: it {purpose}", fix)
        for module, purpose, fix in (
            ("captcha", "draws CAPTCHAs", INSTALL_QUICKSTART),
            ("matplotlib", "has fonts and draws the map of centers", INSTALL_QUICKSTART),
            ("paddle2onnx", "writes ONNX files in `export`", INSTALL_ONNX),
        )
    ]


def check_folder() -> list[CheckResult]:
    """Check that the current folder can be written to, where runs go by default."""
    here = Path.cwd()
    fix = "ppocr-ext train … -o Global.save_model_dir=/a/folder/that/can/be/written"
    text = f"nothing can be written to the current folder {here}; runs go there by default"
    return [] if os.access(here, os.W_OK) else [CheckResult("note", text, fix)]


def check_host(path: str | None, debug: bool = False) -> list[CheckResult]:
    """Open PaddleOCR. ``debug`` prints the traceback of a failure."""
    from ppocr_ext.host import open_host

    try:
        return [CheckResult("ok", str(open_host(path)))]
    except HostError as reason:
        if debug:
            traceback.print_exc()
        return [CheckResult("FAIL", str(reason))]  # its message has the command that fixes it


def check_devices() -> list[CheckResult]:
    """List the devices that Paddle can compute on."""
    import paddle

    results = [CheckResult("ok", f"CPU, {os.cpu_count()} cores")]
    if paddle.is_compiled_with_cuda():
        gpus = range(paddle.device.cuda.device_count())
        names = ", ".join(map(paddle.device.cuda.get_device_name, gpus))
        results.append(CheckResult("ok", f"{len(gpus)} GPU: {names}" if gpus else "no GPU is visible"))
    name = socket.gethostname()
    address = "no address"
    with suppress(OSError):
        address = socket.gethostbyname(name)
    if address.startswith("127.") or not address[0].isdigit():
        # Otherwise Paddle's launcher tells the other machines this address, and waits for ever.
        text = (
            f"the name of this machine, {name}, has {address}: train on several machines with --host ADDRESS"
        )
        results.append(CheckResult("ok", text))
    return results


def check_training_step(debug: bool = False, host: str | None = None) -> list[CheckResult]:
    """Run one training step of a tiny SVTRv2 with CTC. ``debug`` prints the traceback of a failure."""
    try:
        seconds, loss = training_step()
    except Exception as reason:  # what fails here also fails in training
        if debug:
            traceback.print_exc()
        return [CheckResult("FAIL", _first_line(reason), command_line("doctor", "--debug", host=host))]
    if not math.isfinite(loss):
        text = f"the loss of a tiny SVTRv2 is {loss}"
        return [CheckResult("FAIL", text, "pip install -U 'ppocr-ext[cpu]'")]
    return [CheckResult("ok", f"tiny SVTRv2: forward and backward in {seconds:.2f} s, loss {loss:.2f}")]


def training_step() -> tuple[float, float]:
    """Return the seconds that one training step of a tiny recogniser takes, and its loss."""
    import paddle

    from ppocr_ext.losses import build_loss
    from ppocr_ext.modeling import build_model

    start = time.perf_counter()
    image = paddle.zeros([2, 3, 32, 64])
    label = paddle.to_tensor([[1, 2, 3], [4, 5, 0]], dtype="int64")
    length = paddle.to_tensor([3, 2], dtype="int64")
    model = build_model(_TINY_MODEL)
    model.train()
    loss = build_loss({"name": "CTCLoss"})(model(image), [image, label, length])["loss"]
    loss.backward()
    without = [n for n, p in model.named_parameters() if not p.stop_gradient and p.grad is None]
    if without:
        raise RuntimeError(f"no gradient reaches {', '.join(without)}")
    return time.perf_counter() - start, float(loss)


def _print_components() -> None:
    import ppocr_ext.check  # noqa: F401 - it imports, and so registers, all our components
    from ppocr_ext.host import open_host
    from ppocr_ext.registry import BY_KIND

    host = open_host()
    print("\nparts")
    for part in _ALWAYS_THE_HOSTS:
        print(f"  {part:<24} the host's")
    for package in ("modeling", "losses", "optimizer", "metrics"):
        owner = "ours, the host has none" if package in host.grafted else "the host's, for its own scripts"
        print(f"  ppocr.{package:<18} {owner}")
    print("\ncomponents that a configuration can name; where both have one, ours is used")
    for kind, registry in BY_KIND.items():
        print(f"  {kind}")
        ours = registry.names()
        theirs = [name for name in host.component_names(kind) if name not in ours]
        for owner, names in (("ours", ours), ("the host's", theirs)):
            listed = f"    {owner:<10}  {', '.join(names) or 'none'}"
            print(fit(listed))


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    versions = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _first_line(reason: BaseException) -> str:
    """Return type and first line of an exception.

    Raises:
        KeyboardInterrupt: Ctrl-C is behind it; a package that is being imported turns it into an ImportError.
    """
    if (interruption := interruption_behind(reason)) is not None:
        raise interruption
    return f"{type(reason).__name__}: {(str(reason).splitlines() or ['no reason given'])[0]}"
