"""``ppocr-ext doctor``: what is installed, where it comes from, and what fixes the rest."""

from __future__ import annotations

import argparse
import math
import os
import textwrap
import time
import traceback
from collections.abc import Iterable

from ppocr_ext import __version__
from ppocr_ext.cli import checks
from ppocr_ext.cli.checks import FAIL, OK, Finding
from ppocr_ext.cli.options import add_host_argument
from ppocr_ext.commands import command_line

NAME = "doctor"
HELP = "say what is installed, where each part comes from, and the command that fixes what is not right"
EPILOG = """\
examples:
  ppocr-ext doctor
  ppocr-ext doctor --host ~/PaddleOCR         would this checkout do?

It leaves with 0 if training can run, with 1 if it cannot.
"""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_host_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report; 0 if training can run, else 1."""
    print(f"ppocr-ext {__version__}")
    findings = [
        *checks.check_python(),
        *checks.check_paddle(),
        *checks.check_arrays(),
        *checks.check_quickstart(),
    ]
    findings += checks.check_folder()
    _print("installed", findings)
    if _failures(findings):
        return _verdict(findings)
    host = checks.check_host(args.host, args.debug)
    _print("host", host)
    findings += host
    if _failures(findings):
        return _verdict(findings)
    _print_components()
    _print("devices", check_devices())
    step = check_training_step(args.debug, args.host)
    _print("training step", step)
    return _verdict(findings + step)


def _print(title: str, findings: Iterable[Finding]) -> None:
    print(f"\n{title}")
    for finding in findings:
        print(f"  {finding.level:<5} {finding.text}")
        if finding.fix:
            print(f"        fix it: {finding.fix}")


def _failures(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == FAIL]


def _verdict(findings: Iterable[Finding]) -> int:
    failures = len(_failures(findings))
    if not failures:
        print("\nTraining can run.")
        return 0
    print(
        f"\nTraining cannot run: {failures} {'thing' if failures == 1 else 'things'} to fix, see FAIL above."
    )
    return 1


def _print_components() -> None:
    import ppocr_ext.losses
    import ppocr_ext.metrics
    import ppocr_ext.modeling
    import ppocr_ext.optim  # noqa: F401  (importing them registers our components)
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
        ours = registry.names()
        theirs = [name for name in host.component_names(kind) if name not in ours]
        print(f"  {kind}")
        _print_names("ours", ours)
        _print_names("the host's", theirs)


def _print_names(owner: str, names: list[str]) -> None:
    indent = " " * 16
    listed = textwrap.fill(", ".join(names) or "none", 110, initial_indent=indent, subsequent_indent=indent)
    print(f"    {owner:<12}{listed.lstrip()}")


def check_devices() -> list[Finding]:
    """What Paddle can compute on."""
    import paddle

    findings = [Finding(OK, f"CPU, {os.cpu_count()} cores")]
    if paddle.is_compiled_with_cuda():
        count = paddle.device.cuda.device_count()
        names = [paddle.device.cuda.get_device_name(index) for index in range(count)]
        findings.append(Finding(OK, f"{count} GPU: {', '.join(names)}" if count else "no GPU is visible"))
    return findings


def check_training_step(debug: bool = False, host: str | None = None) -> list[Finding]:
    """One forward and backward pass of a tiny SVTRv2 with CTC. ``debug`` prints a failure's traceback."""
    try:
        seconds, loss = training_step()
    except Exception as reason:  # whatever goes wrong here goes wrong in training: it is the finding
        if debug:
            traceback.print_exc()
        return [Finding(FAIL, checks.first_line(reason), command_line("doctor", "--debug", host=host))]
    if not math.isfinite(loss):
        return [Finding(FAIL, f"the loss of a tiny SVTRv2 is {loss}", "pip install -U 'ppocr-ext[cpu]'")]
    return [Finding(OK, f"tiny SVTRv2: forward and backward in {seconds:.2f} s, loss {loss:.2f}")]


def training_step() -> tuple[float, float]:
    """Seconds that one training step of a tiny recogniser takes, and its loss."""
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
    trained = [(name, p) for name, p in model.named_parameters() if not p.stop_gradient]
    without = [name for name, parameter in trained if parameter.grad is None]
    if without:
        raise RuntimeError(f"no gradient reaches {', '.join(without)}")
    return time.perf_counter() - start, float(loss)
