"""``ppocr-ext doctor``: print what is installed, where it comes from, and what fixes the rest."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import sys
import textwrap
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from ppocr_ext import __version__
from ppocr_ext.cli.options import add_host_argument
from ppocr_ext.errors import HostError
from ppocr_ext.host.complete import quiet_imports
from ppocr_ext.messages import INSTALL_PADDLE, command_line

EPILOG = """\
examples:
  ppocr-ext doctor
  ppocr-ext doctor --host ~/PaddleOCR         would this checkout do?

  ppocr-ext doctor --components               which networks, losses, … a config can name, ours and the host's

It leaves with 0 if training can run, with 1 if it cannot.
"""

_PYTHONS = ((3, 10), (3, 12))
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
    """What one check of the installation found.

    Attributes:
        level: ``"note"``: only some commands lack it; ``"FAIL"``: training cannot run.
        text: what was found.
        fix: the command that fixes it; empty if there is nothing to fix.
    """

    level: Literal["ok", "note", "FAIL"]
    text: str
    fix: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_host_argument(parser)
    parser.add_argument(
        "--components", action="store_true", help="list what a config can name, and whose each part is"
    )


def run(args: argparse.Namespace) -> int:
    """Print whether training can run, and what was checked; return 0 if it can, else 1."""
    groups = {
        "installed": [*check_python(), *check_paddle(), *check_arrays(), *check_quickstart(), *check_folder()]
    }
    if not _failures(groups):
        groups["host"] = check_host(args.host, args.debug)
    if not _failures(groups):
        groups["devices"] = check_devices()
        groups["training step"] = check_training_step(args.debug, args.host)
    failures = _failures(groups)
    verdict = (
        "Training can run." if not failures else f"Training cannot run: {failures} to fix, see FAIL below."
    )
    print(f"ppocr-ext {__version__}: {verdict}")
    for title, results in groups.items():
        print(f"\n{title}")
        for level, text, fix in results:
            print(f"  {level:<5} {text}")
            if fix:
                print(f"        fix it: {fix}")
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
    return [CheckResult("FAIL", f"{text}: 3.10 to 3.12 are supported", "python3.11 -m venv .venv")]


def check_paddle() -> list[CheckResult]:
    """Check that Paddle is installed once, and can be imported."""
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
    except ModuleNotFoundError as reason:
        return [CheckResult("FAIL", f"Paddle cannot be imported: {reason}", f"pip install {reason.name}")]
    except Exception as reason:  # a broken build may raise anything
        return [CheckResult("FAIL", f"Paddle cannot be imported: {_first_line(reason)}", reinstall)]
    build = "CUDA" if paddle.is_compiled_with_cuda() else "CPU"
    return [CheckResult("ok", f"Paddle {paddle.__version__} ({build} build)")]


def check_arrays() -> list[CheckResult]:
    """Check that numpy and OpenCV can be imported, and that the OpenCV packages have one version."""
    results = []
    for module, name, fix in (
        ("numpy", "numpy", "pip install --force-reinstall numpy"),
        # The build with windows needs libraries of the desktop that servers and containers lack.
        ("cv2", "OpenCV", "pip install --force-reinstall --no-deps opencv-python-headless"),
    ):
        try:
            version = importlib.import_module(module).__version__
            results.append(CheckResult("ok", f"{name} {version}"))
        except Exception as reason:  # as above
            results.append(CheckResult("FAIL", f"{name} cannot be imported: {_first_line(reason)}", fix))
    opencvs = _versions(_OPENCVS)
    if len(set(opencvs.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in opencvs.items())
        text = f"{listed} write the same folder and differ; the one installed last is used"
        results.append(CheckResult("note", text, f"pip install -U {' '.join(opencvs)}"))
    return results


def check_quickstart() -> list[CheckResult]:
    """Check the packages that only some commands need."""
    results = []
    for module, purpose, extra in (
        ("captcha", "draws CAPTCHAs", "quickstart"),
        ("matplotlib", "has fonts and draws the map of centers", "quickstart"),
        ("paddle2onnx", "writes ONNX files in `export`", "onnx"),
    ):
        if importlib.util.find_spec(module) is None:
            text = f"{module} is not installed: it {purpose}"
            results.append(CheckResult("note", text, f"pip install 'ppocr-ext[{extra}]'"))
        else:
            results.append(CheckResult("ok", f"{module} {importlib.metadata.version(module)}"))
    return results


def check_folder() -> list[CheckResult]:
    """Check that the current folder can be written to, where runs go by default."""
    here = Path.cwd()
    if os.access(here, os.W_OK):
        return []
    return [
        CheckResult(
            "note",
            f"nothing can be written to the current folder {here}; runs go there by default",
            "ppocr-ext train … -o Global.save_model_dir=/a/folder/that/can/be/written",
        )
    ]


def check_host(path: str | None, debug: bool = False) -> list[CheckResult]:
    """Open PaddleOCR. ``debug`` prints the traceback of a failure."""
    from ppocr_ext.host import open_host

    try:
        host = open_host(path)
    except HostError as reason:
        if debug:
            traceback.print_exc()
        return [CheckResult("FAIL", str(reason))]  # its message has the command that fixes it
    return [CheckResult("ok", str(host))]


def check_devices() -> list[CheckResult]:
    """List what Paddle can compute on."""
    import paddle

    results = [CheckResult("ok", f"CPU, {os.cpu_count()} cores")]
    if paddle.is_compiled_with_cuda():
        count = paddle.device.cuda.device_count()
        names = [paddle.device.cuda.get_device_name(index) for index in range(count)]
        results.append(
            CheckResult("ok", f"{count} GPU: {', '.join(names)}" if count else "no GPU is visible")
        )
    return results


def check_training_step(debug: bool = False, host: str | None = None) -> list[CheckResult]:
    """Run one training step of a tiny SVTRv2 with CTC. ``debug`` prints the traceback of a failure."""
    try:
        seconds, loss = training_step()
    except Exception as reason:  # whatever fails here fails in training
        if debug:
            traceback.print_exc()
        return [CheckResult("FAIL", _first_line(reason), command_line("doctor", "--debug", host=host))]
    if not math.isfinite(loss):
        return [
            CheckResult("FAIL", f"the loss of a tiny SVTRv2 is {loss}", "pip install -U 'ppocr-ext[cpu]'")
        ]
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
    indent = " " * 16
    for kind, registry in BY_KIND.items():
        print(f"  {kind}")
        ours = registry.names()
        theirs = [name for name in host.component_names(kind) if name not in ours]
        for owner, names in (("ours", ours), ("the host's", theirs)):
            listed = textwrap.fill(
                ", ".join(names) or "none", 110, initial_indent=indent, subsequent_indent=indent
            )
            print(f"    {owner:<12}{listed.lstrip()}")


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _first_line(reason: BaseException) -> str:
    """Return type and first line of an exception."""
    lines = str(reason).splitlines() or ["no reason given"]
    return f"{type(reason).__name__}: {lines[0]}"
