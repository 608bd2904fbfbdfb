"""Check the samples of ``Train`` and ``Eval`` before a run, and extend the host's datasets.

The host's datasets then skip unusable samples, and name a sample that fails when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.base.parts import BRANCHES, OF_LABEL_FILES, OF_LMDB
from ppocr_ext.charset import Charset
from ppocr_ext.check.data import reads_key
from ppocr_ext.config import Config
from ppocr_ext.data.label_file import parse_line, read_raw_lines
from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.data.load_failures import LoadFailures, report_failures
from ppocr_ext.data.preflight import check_label_files, check_lmdbs
from ppocr_ext.data.preflight_report import FileReport, PreflightReport, UnusableLimit, limit_errors
from ppocr_ext.data.sample_rules import FrameLimit, Gtc, SampleRules
from ppocr_ext.data.sample_seeds import generators_kept
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.messages import LOG, printable
from ppocr_ext.run.data_warnings import data_warnings, shared_image_warnings
from ppocr_ext.run.frame_counts import FrameCounts


def second_label_kind(transforms: Any) -> Gtc | None:
    """Return which second label the transforms make: ``"nrtr"``, ``"sar"`` or None for CTC only."""
    kinds: dict[str, Gtc] = {BRANCHES["gtc"].encoder: "nrtr", BRANCHES["sar"].encoder: "sar"}
    for entry in transforms or ():
        name, options = next(iter(entry.items())) if isinstance(entry, Mapping) else (entry, None)
        if name == "MultiLabelEncode":
            return kinds.get((options or {}).get("gtc_encode") or BRANCHES["sar"].encoder)
        if name in kinds:
            return kinds[name]
    return None


def label_files_of(config: Config, mode: str) -> tuple[Path, ...]:
    """Return the label files of ``Train`` or ``Eval``; none for a dataset that reads none."""
    if not reads_key(config, mode, "label_file_list"):
        return ()
    files = config.at(f"{mode}.dataset.label_file_list", default=None) or ()
    return tuple(Path(f) for f in ((files,) if isinstance(files, str) else files))


def unusable_limit_of(config: Config) -> UnusableLimit:
    """Return the limit that ``Global.max_unusable`` and ``Global.strict`` give."""
    return UnusableLimit(config.settings.max_unusable, config.settings.strict)


def run_preflight(
    config: Config,
    charset: Charset,
    frames: Mapping[str, FrameCounts],
    record: Path | None = None,
    eval_section: str = "Eval",
    seconds: float | None = None,
    report: Callable[[str], None] = LOG.info,
    config_warnings: Sequence[Issue] = (),
    warn: Callable[[list[Issue]], None] | None = None,
) -> dict[str, PreflightReport]:
    """Check the data of each mode; return the reports by mode, without datasets that are not label files or LMDBs.

    Args:
        config: the configuration.
        charset: its dictionary.
        frames: T of the CTC output, for each mode to check (``"Train"``, ``"Eval"``); what ``train_frames`` means for
            the labels is reported too.
        record: the ``preflight.json`` to write, also if the data cannot be used.
        eval_section: what messages call the data of ``Eval``.
        seconds: stop the check of each mode after this time; None checks every sample.
        report: takes a summary of data that can be used.
        config_warnings: those of the config check, which go into ``record`` too.
        warn: takes the issues of the data; None: warnings are logged, errors (all, with ``Global.strict``) raised.

    Raises:
        DataError: label files or LMDBs cannot be read, or more samples are unusable than
            ``Global.max_unusable`` and ``Global.strict`` allow. The message covers all modes.
        ConfigError: a key of these checks has a bad value.
        InvalidConfigError: the data have an issue of level error, or any and ``Global.strict`` is true.
    """
    limit = unusable_limit_of(config)
    names = {mode: eval_section if mode == "Eval" else mode for mode in frames}
    found, errors = _check_sections(config, charset, frames, names, seconds, report)
    if "Train" in found and all(map(limit.allows_report, found.values())):
        found["Train"].warnings.extend(shared_image_warnings(config, found, report))
    if record is not None and found:
        content = preflight_json(found, config_warnings)
        write_text(record, printable(json.dumps(content, indent=2, ensure_ascii=False)) + "\n")
    _refuse_unusable({names[mode]: checked for mode, checked in found.items()}, errors, limit, record)
    report_or_raise = partial(report_issues, strict=limit.strict)
    (warn or report_or_raise)([issue for checked in found.values() for issue in checked.warnings])
    return found


def _check_sections(
    config: Config,
    charset: Charset,
    frames: Mapping[str, FrameCounts],
    names: Mapping[str, str],
    seconds: float | None,
    report: Callable[[str], None],
) -> tuple[dict[str, PreflightReport], list[DataError]]:
    """Check the data of each mode, and report what can be used; return the reports by mode, and what cannot be read.

    Arguments are those of :func:`run_preflight`; ``names`` has what messages call the data of a mode.
    """
    limit = unusable_limit_of(config)
    found: dict[str, PreflightReport] = {}
    errors = []
    for mode, count in frames.items():
        try:
            checked = _check_section(config, mode, charset, count.limit(required=mode == "Train"), seconds)
        except DataError as error:
            errors.append(DataError(f"{names[mode]}: {error}", code=error.code))
            continue
        if checked is not None:
            found[mode] = checked
            checked.warnings.extend(data_warnings(config, mode, checked, names[mode]))
            if not limit.allows_report(checked):
                continue
            for text in filter(None, (checked.summary(), checked.frames_summary())):
                report(f"{names[mode].lower()} data: {text}")
        for text in count.notes(0 if checked is None else checked.most_frames):
            report(text)
    return found, errors


def preflight_json(
    reports: Mapping[str, PreflightReport], config_warnings: Sequence[Issue] = ()
) -> dict[str, Any]:
    """Return the content of ``preflight.json``: a report for each section, and all warnings in one list."""
    warnings = [*config_warnings, *(issue for report in reports.values() for issue in report.warnings)]
    return {
        **{mode: report.to_json() for mode, report in reports.items()},
        "warnings": [issue.to_json() for issue in warnings],
    }


def _refuse_unusable(
    found: Mapping[str, PreflightReport],
    errors: Sequence[DataError],
    limit: UnusableLimit,
    record: Path | None,
) -> None:
    """Raise one error for data that cannot be read (``errors``) and for too many unusable samples.

    Args:
        found: the reports, by what messages call their data.
        errors: of data without a report.
        limit: of unusable samples.
        record: the file that names examples of them.

    Raises:
        DataError: there is one or the other.
    """
    texts = limit_errors(found, limit)
    if texts and record is not None:
        texts.append(f"{record} names the first {next(iter(found.values())).examples} of each reason.")
    if not errors and not texts:
        return
    code = errors[0].code if errors else "too_many_unusable"
    failure = DataError("\n".join([*map(str, errors), *texts]), code=code)
    failure.record = record if texts else None
    raise failure


def sample_rules(config: Config, mode: str, charset: Charset, frames: FrameLimit | None) -> SampleRules:
    """Return what makes a sample of ``mode`` usable."""
    return SampleRules(
        charset,
        config.settings.max_text_length,
        second_label_kind(config.at(f"{mode}.dataset.transforms", default=None)),
        frames,
        config.settings.unknown_char,
        # a bad image in evaluation would make its result wrong
        image_check="decode" if mode == "Eval" else "header",
        allow_outside_data_dir=config.settings.allow_outside_data_dir,
        max_pixels=config.settings.max_image_pixels,
        min_text_length=config.settings.min_text_length,
    )


def _check_section(
    config: Config, mode: str, charset: Charset, frames: FrameLimit | None, seconds: float | None
) -> PreflightReport | None:
    dataset = config.at(f"{mode}.dataset")
    name = dataset.get("name")
    if name not in (*OF_LABEL_FILES, *OF_LMDB):
        return None
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


def label_file_dataset_class(
    base: Any, failures: LoadFailures, label_files: Sequence[Path], delimiter: str
) -> type:
    """Return the host's dataset of label files, ``SimpleDataSet`` or ``MultiScaleDataSet``, with reports.

    Args:
        base: the host's class.
        failures: counts the samples that fail when they are loaded.
        label_files: as the config names them; a line that fails is looked up there.
        delimiter: of the label files.
    """
    return report_failures(base, failures, _line_of, _line_finder(label_files, delimiter))


def _line_of(dataset: Any, index: int) -> bytes:
    """Return the line of the sample at ``index``; under ``ds_width`` the host sorts samples by width."""
    by_width = getattr(dataset, "wh_ratio_sort", None) if getattr(dataset, "ds_width", False) else None
    return bytes(dataset.data_lines[(dataset.data_idx_order_list if by_width is None else by_width)[index]])


def _line_finder(label_files: Sequence[Path], delimiter: str) -> Callable[[bytes], str]:
    """Return the function that names the place of a line; it reads the files, so that no place is kept in memory."""

    def place(line: bytes) -> str:
        wanted = parse_line(2, line, delimiter)  # not the first, whose byte order mark is already removed
        for file in label_files:
            for number, raw in enumerate(read_raw_lines(file), start=1):
                if parse_line(number, raw, delimiter).content == wanted.content:
                    return f"{file}:{number}"
        return ", ".join(wanted.images)

    return place


def lmdb_dataset_class(
    base: Any, failures: LoadFailures, reports: Sequence[FileReport], data_dir: str
) -> type:
    """Return the host's ``LMDBDataSet`` without the samples that preflight found unusable, with reports.

    Samplers see the number of usable samples. An LMDB is opened once for all its readers.

    Args:
        base: the host's class.
        failures: counts the samples that fail when they are loaded.
        reports: what preflight found, an entry for each LMDB.
        data_dir: that the LMDBs are in or below; the keys of samples leave it out.
    """

    class UsableSamples(base):
        def __init__(self, config: Any, mode: str, logger: Any, seed: int | None = None) -> None:
            with generators_kept():
                np.random.seed(seed)  # the host shuffles here: a resumed run needs the same order
                super().__init__(config, mode, logger, seed)

        def load_hierarchical_lmdb_dataset(self, data_dir: str) -> dict[int, dict[str, Any]]:
            return {
                number: {
                    "dirpath": str(each.path),
                    "env": each.environment,
                    "txn": each.transaction,
                    "num_samples": each.count,
                }
                for number, each in enumerate(open_sets(data_dir))
            }

        def dataset_traversal(self) -> Any:
            # 8 bytes for each sample, where PaddleOCR has 16 and a list of Python's numbers while it makes them
            samples = [np.flatnonzero(report.usable_array()).astype(np.int32) + 1 for report in reports]
            sets = np.repeat(np.arange(len(samples), dtype=np.int32), [len(each) for each in samples])
            return np.stack([sets, np.concatenate(samples)], axis=1)

    UsableSamples.__name__ = base.__name__
    root = str(Path(data_dir))  # the paths of the LMDBs begin with it
    return report_failures(
        UsableSamples,
        failures,
        lambda dataset, index: sample_name(dataset, index).removeprefix(root).encode(),
        lambda key: root + key.decode(),
    )


def sample_name(dataset: Any, index: int) -> str:
    """Return ``folder#12``: the sample at ``index`` of an ``LMDBDataSet``."""
    number, sample = (int(part) for part in dataset.data_idx_order_list[index])
    return f"{dataset.lmdb_sets[number]['dirpath']}#{sample}"


def image_names(dataset: Any, delimiter: str) -> Iterator[str]:
    """Yield image paths, or names of samples, in the order of the data; none if the dataset has neither."""
    if hasattr(dataset, "lmdb_sets"):
        yield from (sample_name(dataset, index) for index in range(len(dataset)))
    elif hasattr(dataset, "data_lines"):
        for index in dataset.data_idx_order_list:
            yield parse_line(index + 1, dataset.data_lines[index], delimiter).images[0]
