"""Write the config of a first run: few lines over its base, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ppocr_ext import __version__
from ppocr_ext.base.parts import OF_LABEL_FILES
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.config import Config
from ppocr_ext.config.config_view import from_plain
from ppocr_ext.config.yaml_io import dump
from ppocr_ext.first_run.decisions import Decision, Plan
from ppocr_ext.io.resources import shown_path
from ppocr_ext.messages import printable, yaml_text

NETWORK = "network.yml"
RUN = "run"
TAUGHT = 0.3  # share of a batch that the weights before the training teach (docs/results.md, Released models)
MORE = 0.2  # share of a batch of the lines that only train (docs/results.md, Few labels)
_OF_BASE = ("name", "label_file_list", "ratio_list", "data_dir", "delimiter", "ds_width", "transforms")


class Data(NamedTuple):
    """Where the samples of ``Train`` or of ``Eval`` are.

    Attributes:
        folder: the folder that ``data_dir`` names.
        labels: the label file; None if the folder is an LMDB.
    """

    folder: Path
    labels: Path | None


class General(NamedTuple):
    """The lines that a recogniser must still read.

    Attributes:
        judged: the lines that an evaluation reads.
        taught: other lines, which the weights before the training teach; None if there are none.
        max_drop: how much the accuracy on ``judged`` may fall.
    """

    judged: Data
    taught: Data | None
    max_drop: float


class Lists(NamedTuple):
    """The samples that a config names.

    Attributes:
        train: the samples of ``Train``.
        val: the samples of ``Eval``.
        general: the lines that must still be read; None for a training that has nothing to keep.
        more: samples that train beside those of ``Train``, in a part of each batch; None if there are none.
    """

    train: Data
    val: Data
    general: General | None = None
    more: Data | None = None


def config_text(plan: Plan, lists: Lists, out: Path, command: str) -> str:
    """Return the config as YAML.

    Args:
        plan: the base and the values.
        lists: the samples.
        out: the folder of the config.
        command: the command that made it, for the first line.
    """
    base = plan.base
    general = lists.general
    rows = [
        Decision("Global.save_model_dir", shown_path(out / RUN)),
        Decision("Global.pretrained_model", base.weights),
        *(row for row in plan.decisions if not row.key.startswith("RecResizeImg")),
        Decision("Train.loader.shuffle", True),
        *([Decision("Train.sampler", None, "images of one size")] if base.is_released else []),
        *_mixed(lists, base.config),
    ]
    if base.config.settings.checkpoints is not None:
        rows.append(Decision("Global.checkpoints", None))
    if base.charset is not None and base.weights is not None and find_source(base.weights) is None:
        rows.append(Decision("Architecture.pretrained_dict", str(base.charset.path), "of the weights"))
    files = [*base.files, *([NETWORK] if base.sections is not None else [])]
    lines = [
        _comment(
            f"Written by `{command}`, ppocr-ext {__version__}. Change what you like: docs/configuration.md"
        ),
        f"_BASE_: {_inline(files)}   {_comment(base.name)}",
    ]
    sections = Config.of(from_plain({})).with_values({row.key: row.value for row in rows})
    for section, values in sections.items():
        lines.append(f"{section}:")
        if section == "Train":
            lines += _dataset_lines(_dataset(plan, "Train", lists.train))
        for name, value in values.items():
            start = f"{section}.{name}."
            reasons = "; ".join(row.why for row in rows if row.why and f"{row.key}.".startswith(start))
            lines.append(f"  {name}: {_inline(value)}{f'   {_comment(reasons)}' if reasons else ''}")
    lines += ["Eval:", f"  dataset: !replace {_inline(_dataset(plan, 'Eval', lists.val))}"]
    if general is not None:
        kept = {"dataset": _files(general.judged), "max_drop": general.max_drop}
        lines.append(f"  general: {_inline(kept)}   {_comment('what must still be read: docs/training.md')}")
    elif base.config.at("Eval.general", None) is not None:
        lines.append("  general: null")
    return "\n".join([*lines, ""])


def _mixed(lists: Lists, base: Config) -> Iterator[Decision]:
    """Yield what puts other lines into each batch."""
    taught = None if lists.general is None else lists.general.taught
    mix: list[dict[str, Any]] = []
    why = "other lines in each batch"
    if lists.more is not None:
        mix.append({"dataset": _files(lists.more), "share": MORE})
    if taught is not None:
        mix.append({"dataset": _files(taught), "share": TAUGHT, "labelled": False})
        why += "; the weights before the training teach those with `labelled: false`: docs/training.md"
        if base.settings.cal_metric_during_train:
            yield Decision("Global.cal_metric_during_train", False, "not of lines without labels")
    if mix:
        yield Decision("Train.mix", mix, why)
    elif base.at("Train.mix", None) is not None:
        yield Decision("Train.mix", None, "the lists of the base are not used")


def _files(data: Data) -> dict[str, Any]:
    """Return the keys of a ``dataset`` that name its samples."""
    files = {} if data.labels is None else {"label_file_list": [shown_path(data.labels)]}
    return {"data_dir": shown_path(data.folder), **files}


def _comment(text: str) -> str:
    """Return a comment on one line, whatever a path or a label has in it."""
    return "# " + printable(text).replace("\n", "\\n")


def sections_text(sections: Mapping[str, Any]) -> str:
    """Return the file with the networks that no other file has, and their losses."""
    return "".join(
        dump({name: section}).replace(f"{name}:", f"{name}: !replace", 1)
        for name, section in sections.items()
    )


def _dataset(plan: Plan, mode: str, data: Data) -> dict[str, Any]:
    """Return the section ``dataset``: that of the base with these samples, and with images of the plan's size."""
    section = plan.base.config.at(f"{mode}.dataset").thaw()
    name = "LMDBDataSet"
    if data.labels is not None:
        name = section["name"] if section["name"] in OF_LABEL_FILES else "SimpleDataSet"
    dataset: dict[str, Any] = {"name": name, **_files(data)}
    if section["name"] == name:
        dataset |= {key: value for key, value in section.items() if key not in _OF_BASE}
    dataset["transforms"] = [_resized(plan, each) for each in section["transforms"]]
    return dataset


def _resized(plan: Plan, transform: dict[str, Any]) -> dict[str, Any]:
    """Return a transform; one that resizes gets the size of the plan."""
    name, options = next(iter(transform.items()))
    if not name.endswith("ResizeImg"):
        return transform
    start = "RecResizeImg."
    size = {row.key.removeprefix(start): row.value for row in plan.decisions if row.key.startswith(start)}
    return {name: {**(options or {}), **size}}


def _dataset_lines(dataset: Mapping[str, Any]) -> list[str]:
    lines = ["  dataset: !replace"]
    lines += [f"    {key}: {_inline(value)}" for key, value in dataset.items() if key != "transforms"]
    return [*lines, "    transforms:", *(f"      - {_inline(each)[1:-1]}" for each in dataset["transforms"])]


def _inline(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return yaml_text(value) if isinstance(value, str) else json.dumps(value)
