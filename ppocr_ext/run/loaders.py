"""A run's loaders: the data looked at once, then the host's datasets and samplers over what can be used."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.check.data import reads_key
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.data.preflight import check_label_files, check_lmdbs
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import FrameLimit, Gtc, SampleRules
from ppocr_ext.data.unusable_limit import UnusableLimit, limit_errors
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.run.frames import FrameCounts

_LOG = logging.getLogger("ppocr_ext")
OF_LABEL_FILES = ("SimpleDataSet", "MultiScaleDataSet", "TextRecDataset", "MSTextRecDataset")
OF_LMDB = ("LMDBDataSet",)


def label_kind(transforms: Any) -> Gtc | None:
    """Which second label the transforms make: ``"nrtr"``, ``"sar"`` or None (CTC alone)."""
    for entry in transforms or ():
        name, options = next(iter(entry.items())) if isinstance(entry, Mapping) else (entry, None)
        if name == "MultiLabelEncode":
            encode = (options or {}).get("gtc_encode")
            return "nrtr" if encode == "NRTRLabelEncode" else "sar" if encode is None else None
        if name == "NRTRLabelEncode":
            return "nrtr"
        if name == "SARLabelEncode":
            return "sar"
    return None


def label_files_of(config: Config, mode: str) -> tuple[Path, ...]:
    """Label files of ``Train`` or ``Eval``; empty where the dataset has none, or reads none."""
    if not reads_key(config, mode, "label_file_list"):
        return ()
    files = config.at(f"{mode}.dataset.label_file_list", default=None) or ()
    return tuple(Path(f) for f in ((files,) if isinstance(files, str) else files))


def tolerance_of(config: Config) -> UnusableLimit:
    """Return the limit that ``Global.max_unusable`` and ``Global.strict`` give."""
    return UnusableLimit(float(global_value(config, "max_unusable")), global_value(config, "strict"))


def look_at_data(
    config: Config,
    charset: Charset,
    frames: Mapping[str, FrameCounts],
    record: Path | None = None,
    data_of: str = "Eval",
    seconds: float | None = None,
    say: Callable[[str], None] = _LOG.info,
) -> dict[str, PreflightReport]:
    """What preflight finds in the data of each mode; a mode whose dataset it does not know is left out.

    Args:
        config: the configuration.
        charset: its dictionary.
        frames: for each mode that is to be checked (``"Train"``, ``"Eval"``), T of the CTC output.
        record: the ``preflight.json`` to write, also where the data are refused.
        data_of: how messages call the data of ``Eval``.
        seconds: stop the check of each mode after this time; None: check every line.
        say: is given what was found in data that can be used.

    Raises:
        DataError: label files or LMDBs cannot be read, or more lines are unusable than
            ``Global.max_unusable`` and ``Global.strict`` admit. The message covers all modes.
        ConfigError: a key of these checks has no meaning.
    """
    tolerance = tolerance_of(config)
    names = {mode: data_of if mode == "Eval" else mode for mode in frames}
    found: dict[str, PreflightReport] = {}
    said: list[str] = []
    for mode, count in frames.items():
        try:
            report = _look(config, mode, charset, count.limit(required=mode == "Train"), seconds)
        except DataError as error:
            said.append(f"{names[mode]}: {error}")
            continue
        if report is not None:
            found[mode] = report
            if tolerance.allows_report(report):
                for text in filter(None, (report.summary(), report.frames_summary())):
                    say(f"{names[mode].lower()} data: {text}")
    if record is not None and found:
        content = {mode: report.to_json() for mode, report in found.items()}
        write_text(record, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    refused = limit_errors({names[mode]: report for mode, report in found.items()}, tolerance)
    if refused and record is not None:
        refused.append(f"{record} names the first {found[next(iter(found))].examples} of each reason.")
    if said or refused:
        refusal = DataError("\n".join(said + refused))
        refusal.record = record if refused else None
        raise refusal
    return found


def sample_rules(config: Config, mode: str, charset: Charset, frames: FrameLimit | None) -> SampleRules:
    """Return what makes a sample of ``mode`` usable."""
    return SampleRules(
        charset,
        global_value(config, "max_text_length"),
        label_kind(config.at(f"{mode}.dataset.transforms", default=None)),
        frames,
        global_value(config, "unknown_char"),
        # a bad image in evaluation would make its result wrong
        image_check="decode" if mode == "Eval" else "header",
        allow_outside_data_dir=global_value(config, "allow_outside_data_dir"),
    )


def _look(
    config: Config, mode: str, charset: Charset, frames: FrameLimit | None, seconds: float | None
) -> PreflightReport | None:
    dataset = config.at(f"{mode}.dataset")
    name = dataset.get("name")
    if name not in (*OF_LABEL_FILES, *OF_LMDB):
        return None
    if dataset.get("data_dir") is None:
        raise DataError(f"{mode}.dataset.data_dir is missing: {_data_dir_is(name)}.")
    rules = sample_rules(config, mode, charset, frames)
    if name in OF_LMDB:
        return check_lmdbs(dataset["data_dir"], rules, seconds=seconds)
    return check_label_files(
        label_files_of(config, mode),
        dataset["data_dir"],
        rules,
        delimiter=dataset.get("delimiter", "\t"),
        ds_width=bool(dataset.get("ds_width", False)),
        seconds=seconds,
    )


def _data_dir_is(name: str) -> str:
    return "the folder of the LMDB" if name in OF_LMDB else "the folder that image paths start from"
