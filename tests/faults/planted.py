"""What a planted fault is, and the tools that have to find it.

A fault is a change of a good tiny run: of its config, data, weights or steps. Its twin is the same change with a value
that is right. Every tool also runs those before it, so that a fault counts as found by the first tool that can know it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.check import check_all
from ppocr_ext.cli.config import dry_check
from ppocr_ext.config import Config, resolve_charset, with_class_counts
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.host import open_host
from ppocr_ext.issues import Issue
from ppocr_ext.loop.folder_lock import check_folder, locked_folder
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.datasets import run_preflight
from ppocr_ext.run.frame_counts import count_frames
from ppocr_ext.run.host_config import complete, folder_of
from ppocr_ext.run.loader_setup import label_check
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.run import Run, build_network

REMEDY = (
    "Fix",
    "Did you mean",
    "expected",
    "such as",
    "Set `",
    "reproduce it",
)  # what to do is said by one of these


@dataclass(frozen=True)
class Finding:
    """What a tool says."""

    level: str
    code: str
    text: str


@dataclass(frozen=True)
class Place:
    """Where a fault is planted.

    Attributes:
        folder: of the test.
        captchas: images and label files, which do not change.
        config: makes the tiny config of a kind, ``"student"`` or ``"distill"``, with values.
        trained: gives the folder of a finished run of ``student`` for one epoch; a copy for this test.
    """

    folder: Path
    captchas: Path
    config: Callable[..., Config]
    trained: Callable[[], Path]


Values = Mapping[str, Any]
Change = Values | Callable[[Place], Values]
Tool = Callable[[Config, Any], list[Finding]]


@dataclass(frozen=True)
class Fault:
    """A fault and its twin.

    Attributes:
        name: of the test.
        tool: the first one that can find it.
        code: of the issue or error.
        wrong: values of the config, or a function that plants the fault and gives them.
        right: the same with a value in which nothing is wrong.
        names: what the message has to name: the place, and the remedy.
        level: ``"error"`` or ``"warning"``.
        kind: of the tiny run, ``"student"`` or ``"distill"``.
        step: for `steps`: what is done to the run before its second step; wrong and right.
    """

    name: str
    tool: Tool
    code: str
    wrong: Change
    right: Change
    names: tuple[str, ...] = ()
    level: str = "error"
    kind: str = "student"
    step: tuple[Any, Any] = (None, None)

    def found(self, place: Place, is_wrong: bool) -> list[Finding]:
        """Plant the fault or its twin; return what the tool says."""
        change = self.wrong if is_wrong else self.right
        values = change(place) if callable(change) else change
        return self.tool(place.config(self.kind, **values), self.step[not is_wrong])


def findings(issues: Sequence[Issue]) -> list[Finding]:
    return [Finding(issue.level, issue.code, f"{issue.path}: {issue.message}") for issue in issues]


@contextmanager
def said() -> Iterator[list[Finding]]:
    """Collect an error of ours, and the warnings of the log."""
    texts, handler, logger = list[Finding](), logging.Handler(logging.WARNING), logging.getLogger("ppocr_ext")
    handler.emit = lambda record: texts.append(  # type: ignore[method-assign]
        Finding(record.levelname.lower(), "", record.getMessage())
    )
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        yield texts
    except PPOCRExtError as error:
        texts.append(Finding("error", error.code, str(error)))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def charset_of(config: Config) -> Charset:
    return resolve_charset(config, open_host().find_file)


def config_check(config: Config, step: Any = None) -> list[Finding]:
    """The check of the config, which builds nothing."""
    return findings(check_all(config, open_host(), "train")[0])


def dry_step(config: Config, step: Any = None) -> list[Finding]:
    """Two samples through every part of the run."""
    issues, unused = check_all(config, open_host(), "train")
    found = findings(issues)
    if not any(issue.level == "error" for issue in issues):
        with said() as texts:
            found += findings(dry_check(config, open_host(), "train", unused, lambda text: None)[0])
        found += texts
    return found


def preflight(config: Config, step: Any = None) -> list[Finding]:
    """The check of all samples, of which none may be unusable."""
    config = config.with_values({"Global.max_unusable": 0})
    found = config_check(config)
    charset = charset_of(config)
    whole = with_class_counts(complete(config, charset), charset)
    network, warnings = build_network(whole), list[Issue]()
    with said() as texts:
        frames = {mode: count_frames(network, whole, mode) for mode in ("Train", "Eval")}
        run_preflight(whole, charset, frames, report=lambda text: None, warn=warnings.extend)
    return found + texts + findings(warnings)


def batch_check(config: Config, step: Any) -> list[Finding]:
    """The check of a batch's labels; ``step`` is a CTC label, as a dataset of the user's gives it."""
    found, check = config_check(config), label_check(config, charset_of(config), None)
    assert check is not None
    labels = np.array([*step, *[0] * (8 - len(step))])
    nrtr = np.array([2, 4, 3, 0, 0, 0, 0, 0])
    with said() as texts:
        check([[np.zeros((3, 32, 128), "float32"), labels, nrtr, np.array(len(step)), 1.0]])
    return found + texts


def weight_loading(config: Config, step: Any = None) -> list[Finding]:
    """The weights that the networks start from, or resume from."""
    with said() as texts:
        context = open_context(config, RunOptions("train"))
        load_model_weights(build_network(context.components), context, needed=None)
    return texts


def resuming(config: Config, step: Any = None) -> list[Finding]:
    """All that is built before the first step of a resumed run."""
    with said() as texts, locked_folder(folder_of(config)):
        check_folder(folder_of(config), config, None, overwrite=False)
        Run.build(config, "train")
    return texts
