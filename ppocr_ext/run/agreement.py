"""Compare what the machines of a run must have in common, before the first step.

A machine with another dictionary or another learning rate would not fail: all would train, each on something else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext import __version__
from ppocr_ext.check.files import weights_to_load
from ppocr_ext.checkpoint.checkpoints import checkpoint_prefix
from ppocr_ext.checkpoint.files import ENDINGS
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.config.node import dotted
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.errors import DataError
from ppocr_ext.io.resources import file_digest
from ppocr_ext.messages import shortened
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.machine import own_address, spans_machines
from ppocr_ext.run.team import is_leader

# Keys whose values may differ: places, of which the content is compared, and what does not change the training.
_OWN = frozenset(
    {
        "save_model_dir",
        "checkpoints",
        "pretrained_model",
        "pretrained",
        "data_dir",
        "label_file_list",
        "character_dict_path",
        "infer_img",
        "save_res_path",
        "save_inference_dir",
        "num_workers",
    }
)
_PACKAGE = Path(__file__).parents[1]
_MOST = 5  # differences that the message names


def require_agreement(context: RunContext, preflight: Mapping[str, PreflightReport]) -> None:
    """Check that all machines of a run have the same labels, dictionary, config, packages and weights.

    Raises:
        DataError: this machine differs from that of process 0.
        ProcessError: another machine differs.
    """
    if not spans_machines():
        return
    team = context.team
    if is_leader():
        own = facts_of(context, preflight)
        first = json.loads(team.text_of_first("facts", json.dumps({**own, "address": own_address()})))
        here, there = own_address(), first.pop("address")
        if wrong := differences(own, first, here, there):
            raise DataError(
                f"All machines must train with the same, but {here} differs from {there} (process 0):\n  "
                f"{shortened(wrong, _MOST, chr(10) + '  ')}\nFix: the same files and the same command on all of them.",
                code="data_differs",
            )
    team.barrier()


def facts_of(context: RunContext, preflight: Mapping[str, PreflightReport]) -> dict[str, str]:
    """Return what must be the same on every machine, by name."""
    sources = "".join(file_digest(file) for file in sorted(_PACKAGE.rglob("*.py")))
    facts = {
        "ppocr-ext": f"{__version__}, {_short(sha256(sources.encode()).hexdigest())}",
        "Paddle": paddle.__version__,
        "PaddleOCR": str(context.host.version),
        "dictionary": _short(context.charset.digest),
    }
    for section, report in preflight.items():
        if section == "Eval":
            continue
        facts[f"usable samples of {section}"] = f"{report.usable} of {report.total}"
        for number, file in enumerate(report.files, 1):
            of_file = f"label file {number} of {section} ({file.path.name})"
            facts[of_file] = f"{file.total:,} lines, {_short(file.digest)}"
    for path, name in weights_to_load(context.config, "train"):
        source = find_source(str(name))
        place = checkpoint_prefix(str(name)) if source is None else source.fetch()
        files = [place, *(Path(f"{place}{ending}") for ending in ENDINGS)]
        digests = [_short(file_digest(file)) for file in files if file.is_file()]
        facts[f"weights of {dotted(path)}"] = f"{place.name}, {', '.join(digests)}"
    plain = context.config.thaw()
    plain.pop("computed", None)
    return facts | dict(_leaves(plain))


def differences(own: Mapping[str, str], first: Mapping[str, str], here: str, there: str) -> list[str]:
    """Return a line for each fact that differs from that of process 0; ``here`` and ``there`` are the addresses."""
    return [
        f"{name}: {own.get(name, 'nothing')} on {here}, {first.get(name, 'nothing')} on {there}"
        for name in dict.fromkeys([*first, *own])
        if own.get(name) != first.get(name)
    ]


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield dotted path and value of each value of a config; for a file or a folder, only that it is one."""
    if path and path[-1] in _OWN:
        return
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        is_place = isinstance(value, str) and os.path.exists(value)  # noqa: PTH110 - Path fails on a long text
        yield dotted(path), "a file or folder" if is_place else json.dumps(value, default=str)
    for key, each in items:
        yield from _leaves(each, (*path, str(key)))


def _short(digest: str) -> str:
    return f"digest {digest[:12]}"
