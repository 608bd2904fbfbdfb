"""Check the samples of ``Train`` and ``Eval`` before a run, as their sections of the config describe them."""

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
from ppocr_ext.run.frame_counts import FrameCounts

_LOG = logging.getLogger("ppocr_ext")
OF_LABEL_FILES = ("SimpleDataSet", "MultiScaleDataSet", "TextRecDataset", "MSTextRecDataset")
OF_LMDB = ("LMDBDataSet",)


def second_label_kind(transforms: Any) -> Gtc | None:
    """Return which second label the transforms make: ``"nrtr"``, ``"sar"`` or None for CTC alone."""
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
    """Return the label files of ``Train`` or ``Eval``; none for a dataset that reads none."""
    if not reads_key(config, mode, "label_file_list"):
        return ()
    files = config.at(f"{mode}.dataset.label_file_list", default=None) or ()
    return tuple(Path(f) for f in ((files,) if isinstance(files, str) else files))


def unusable_limit_of(config: Config) -> UnusableLimit:
    """Return the limit that ``Global.max_unusable`` and ``Global.strict`` give."""
    return UnusableLimit(float(global_value(config, "max_unusable")), global_value(config, "strict"))


def run_preflight(
    config: Config,
    charset: Charset,
    frames: Mapping[str, FrameCounts],
    record: Path | None = None,
    eval_section: str = "Eval",
    seconds: float | None = None,
    report: Callable[[str], None] = _LOG.info,
) -> dict[str, PreflightReport]:
    """Check the data of each mode; return the reports by mode, without datasets that are not label files or LMDBs.

    Args:
        config: the configuration.
        charset: its dictionary.
        frames: T of the CTC output, for each mode to check (``"Train"``, ``"Eval"``).
        record: the ``preflight.json`` to write, also if the data cannot be used.
        eval_section: what messages call the data of ``Eval``.
        seconds: stop the check of each mode after this time; None checks every sample.
        report: takes a summary of data that can be used.

    Raises:
        DataError: label files or LMDBs cannot be read, or more samples are unusable than
            ``Global.max_unusable`` and ``Global.strict`` allow. The message covers all modes.
        ConfigError: a key of these checks has a bad value.
    """
    limit = unusable_limit_of(config)
    names = {mode: eval_section if mode == "Eval" else mode for mode in frames}
    found: dict[str, PreflightReport] = {}
    errors: list[DataError] = []
    for mode, count in frames.items():
        try:
            checked = _check_section(config, mode, charset, count.limit(required=mode == "Train"), seconds)
        except DataError as error:
            errors.append(DataError(f"{names[mode]}: {error}", code=error.code))
            continue
        if checked is not None:
            found[mode] = checked
            if limit.allows_report(checked):
                for text in filter(None, (checked.summary(), checked.frames_summary())):
                    report(f"{names[mode].lower()} data: {text}")
    if record is not None and found:
        content = {mode: checked.to_json() for mode, checked in found.items()}
        write_text(record, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    texts = limit_errors({names[mode]: checked for mode, checked in found.items()}, limit)
    if texts and record is not None:
        texts.append(f"{record} names the first {found[next(iter(found))].examples} of each reason.")
    if errors or texts:
        code = errors[0].code if errors else "too_many_unusable"
        failure = DataError("\n".join([*map(str, errors), *texts]), code=code)
        failure.record = record if texts else None
        raise failure
    return found


def sample_rules(config: Config, mode: str, charset: Charset, frames: FrameLimit | None) -> SampleRules:
    """Return what makes a sample of ``mode`` usable."""
    return SampleRules(
        charset,
        global_value(config, "max_text_length"),
        second_label_kind(config.at(f"{mode}.dataset.transforms", default=None)),
        frames,
        global_value(config, "unknown_char"),
        # a bad image in evaluation would make its result wrong
        image_check="decode" if mode == "Eval" else "header",
        allow_outside_data_dir=global_value(config, "allow_outside_data_dir"),
    )


def _check_section(
    config: Config, mode: str, charset: Charset, frames: FrameLimit | None, seconds: float | None
) -> PreflightReport | None:
    dataset = config.at(f"{mode}.dataset")
    name = dataset.get("name")
    if name not in (*OF_LABEL_FILES, *OF_LMDB):
        return None
    if dataset.get("data_dir") is None:
        raise DataError(f"{mode}.dataset.data_dir is missing: {_data_dir_is(name)}.", code="missing_key")
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
