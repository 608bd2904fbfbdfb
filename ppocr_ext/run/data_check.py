"""Check the samples of ``Train`` and ``Eval`` before a run.

Unusable samples are counted. Warnings tell about data that is usable, but with which a training rarely succeeds, or is
not measured correctly.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import paddle.distributed as dist

from ppocr_ext.base.parts import BRANCH_ROWS, OF_LABEL_FILES, OF_LMDB
from ppocr_ext.charset import Charset
from ppocr_ext.check.data import reads_key
from ppocr_ext.check.objective import LONG_WARM_UP, long_warm_up
from ppocr_ext.config import Config
from ppocr_ext.config.derive import model_paths
from ppocr_ext.data.batches import samples_per_step
from ppocr_ext.data.equal_images import compare_images
from ppocr_ext.data.preflight import (
    OTHER_SIZE,
    UNSEEN_FIXES,
    check_label_files,
    check_lmdbs,
)
from ppocr_ext.data.preflight_report import EXAMPLES, FileReport, PreflightReport
from ppocr_ext.data.sample_rules import FRAMES_A_CHARACTER, FrameLimit, Gtc, SampleRules
from ppocr_ext.data.unusable_limit import CASE_FIX, UnusableLimit, case_text, limit_errors
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.messages import LOG, printable, shortened
from ppocr_ext.run.frame_counts import FrameCounts
from ppocr_ext.text_direction import (
    LEFT_TO_RIGHT,
    LOGICAL,
    RIGHT_TO_LEFT,
    RIGHT_TO_LEFT_VISUAL,
    VISUAL,
    order_of,
)

Reports = dict[str, PreflightReport]  # "Train", "Eval" -> the report


def second_label_kind(transforms: Any) -> Gtc | None:
    """Return the kind of the second label that the transforms make: ``"nrtr"``, ``"sar"`` or None."""
    kinds: dict[str, Gtc] = {BRANCH_ROWS["gtc"].encoder: "nrtr", BRANCH_ROWS["sar"].encoder: "sar"}
    for entry in transforms or ():
        name, options = next(iter(entry.items())) if isinstance(entry, Mapping) else (entry, None)
        if name == "MultiLabelEncode":
            return kinds.get((options or {}).get("gtc_encode") or BRANCH_ROWS["sar"].encoder)
        if name in kinds:
            return kinds[name]
    return None


def label_files_of(config: Config, mode: str) -> tuple[Path, ...]:
    """Return the label files of ``Train`` or ``Eval``; empty for a dataset without label files."""
    if not reads_key(config.at((mode, "dataset", "name"), None), "label_file_list"):
        return ()
    files = config.at(f"{mode}.dataset.label_file_list", default=None) or ()
    return tuple(Path(f) for f in ((files,) if isinstance(files, str) else files))


def unusable_limit_of(config: Config) -> UnusableLimit:
    """Return the limit by ``Global.max_unusable`` and ``Global.strict``."""
    return UnusableLimit(config.settings.max_unusable, config.settings.strict)


def run_preflight(
    config: Config,
    charset: Charset,
    frames: Mapping[str, FrameCounts],
    record: Path | None = None,
    names: Mapping[str, str] | None = None,
    seconds: float | None = None,
    report: Callable[[str], None] = LOG.info,
    config_warnings: Sequence[Issue] = (),
    warn: Callable[[list[Issue]], None] | None = None,
) -> Reports:
    """Check the data of each mode; return the reports by mode. Only label files and LMDBs are checked.

    Args:
        config: the configuration.
        charset: its dictionary.
        frames: T of the CTC output, for each mode to check (``"Train"``, ``"Eval"``); its notes are reported too.
        record: the ``preflight.json`` to write, also if the data is not usable.
        names: names of the data of modes in messages, if they are not those of the modes.
        seconds: stop the check of each mode after this time; None checks every sample.
        report: called with a summary of usable data.
        config_warnings: warnings of the config check, which ``record`` gets too.
        warn: called with the issues of the data. With None, warnings are logged, and errors (with ``Global.strict`` all
            issues) are raised.

    Raises:
        DataError: label files or LMDBs cannot be read, or more samples are unusable than
            ``Global.max_unusable`` and ``Global.strict`` allow. The message covers all modes.
        ConfigError: a key that these checks read has a bad value.
        InvalidConfigError: there is an issue of level error, or any issue with ``Global.strict``.
    """
    limit = unusable_limit_of(config)
    names = {mode: mode for mode in frames} | dict(names or {})
    found, errors = _check_sections(config, charset, frames, names, seconds, report)
    if "Train" in found and all(map(limit.allows_report, found.values())):
        found["Train"].warnings.extend(shared_image_warnings(config, found, report))
    if record is not None and found:
        content = preflight_json(found, config_warnings)
        write_text(record, printable(json.dumps(content, indent=2, ensure_ascii=False)) + "\n")
    _refuse_unusable({names[mode]: checked for mode, checked in found.items()}, errors, limit, record)
    (warn or partial(report_issues, strict=limit.strict))(
        [issue for checked in found.values() for issue in checked.warnings]
    )
    return found


def _check_sections(
    config: Config,
    charset: Charset,
    frames: Mapping[str, FrameCounts],
    names: Mapping[str, str],
    seconds: float | None,
    report: Callable[[str], None],
) -> tuple[Reports, list[DataError]]:
    """Check the data of each mode, and report usable data; return the reports by mode, and errors of unreadable data.

    Arguments are those of :func:`run_preflight`; ``names`` has the name of each mode's data in messages.
    """
    limit = unusable_limit_of(config)
    found: Reports = {}
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
            forgotten = forgotten_characters(config, charset, checked) if names[mode] == "Train" else ""
            for text in filter(None, (checked.summary(), checked.frames_summary(), forgotten)):
                report(f"{names[mode].lower()} data: {text}")
        for text in count.notes(0 if checked is None else checked.most_frames):
            report(text)
    return found, errors


def forgotten_characters(config: Config, charset: Charset, report: PreflightReport) -> str:
    """Return how many characters no label of ``Train`` has, and the first of them, if it begins from weights.

    The network unlearns them, since no sample asks for them. The space of ``use_space_char`` comes first.
    """
    settings = config.settings
    trained = (part for part in model_paths(config) if not config.at((*part, "freeze_params"), False))
    own = [config.at((*part, "pretrained"), None) for part in trained]
    lacking = [each for each in dict.fromkeys(charset.characters) if each not in report.characters]
    if settings.checkpoints or report.stopped or not (settings.pretrained_model or any(own)) or not lacking:
        return ""
    named = [repr(each) for each in sorted(lacking, key=lambda each: each != " ")]
    return (
        f"no label has {len(lacking):,} of {len(charset.characters):,} characters of the dictionary, which the weights "
        f"may know and this training unlearns: {shortened(named, _NAMED)}"
    )


def preflight_json(reports: Reports, config_warnings: Sequence[Issue] = ()) -> dict[str, Any]:
    """Return the content of ``preflight.json``: a report for each section, and a list of all warnings."""
    warnings = [*config_warnings, *(issue for report in reports.values() for issue in report.warnings)]
    return {
        **{mode: report.to_json() for mode, report in reports.items()},
        "warnings": [issue.to_json() for issue in warnings],
    }


def _refuse_unusable(
    found: Reports,
    errors: Sequence[DataError],
    limit: UnusableLimit,
    record: Path | None,
) -> None:
    """Raise one error for all data that cannot be read and all sections with too many unusable samples.

    Args:
        found: the reports, by the name of their data in messages.
        errors: the error messages of data that cannot be read.
        limit: the limit of unusable samples.
        record: the file with examples of them.

    Raises:
        DataError: there is such data.
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
    """Return the rules by which a sample of ``mode`` is usable."""
    return SampleRules(
        charset,
        config.settings.max_text_length,
        second_label_kind(config.at(f"{mode}.dataset.transforms", default=None)),
        frames,
        # Decode all images of Eval, since a bad one would change the result.
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


_SHOWN = 40  # characters of a label in a message
_Doubt = tuple[str, str, str, bool]  # code, key in the section, message, whether it is an error
_WARM_UP = "Optimizer.lr.warmup_steps"
_DEFAULT_STEPS = 5000  # default of warmup_steps in LinearWarmupCosine
_MANY = 10  # samples of one text that may be a first try
_NAMED = 10  # characters that no label has
_TAB = 'a tab between image and label, and `delimiter: "\\t"`'
_CSV_FIX = f"write no quotes, but {_TAB}"
_CUT_FIXES = {  # whether the delimiter is common in texts -> key to change, and what to do
    False: ("dataset.label_file_list", "write labels without it, and no columns after them"),
    True: ("dataset.delimiter", f"write {_TAB}"),
}
_FILTERING = ("RecMetric", "DistillationMetric")  # metrics that have `is_filter`
_SHARED = {  # code -> config path, and what is wrong
    "trained_samples": (
        "Eval.dataset",
        "have an image of Train: the accuracy says nothing about new images. Fix: evaluate on other samples.",
    ),
    "conflicting_labels": (
        "",
        "have the image of an earlier sample, but another label. Fix: correct the labels.",
    ),
    "repeated_samples": (
        "",
        "have image and label of a sample in another file: they count twice. Fix: name a label file once.",
    ),
}
MOST_READ = 20_000  # samples whose images a run compares by content
_FEW = 0.02  # share of odd images without a warning, since most data have some


def data_warnings(config: Config, mode: str, report: PreflightReport, section: str) -> Iterator[Issue]:
    """Yield an issue for each kind of doubtful samples of ``Train`` or ``Eval``.

    Args:
        config: resolved.
        mode: ``"Train"`` or ``"Eval"``.
        report: the report of preflight.
        section: name of the data of ``mode`` in messages.
    """
    doubts = chain(_unseen(config, report), _label_order(report), _cut_labels(report))
    for code, key, message, is_error in doubts:
        issue = data_warning(config, code, f"{mode}.{key}", message, f"{section}.{key}")
        yield replace(issue, level="error") if is_error else issue
    if (
        report.mapped and 2 * report.other_case[0] >= report.mapped
    ):  # else they are unusable, and the limit decides
        message = f"{section}: {case_text(report)}. Fix: {CASE_FIX}"
        yield data_warning(config, "other_case", "Global.character_dict_path", message)
    if mode == "Train" != section:  # a list beside it
        return
    if mode == "Train":
        if len(report.texts) == 1 < _MANY < report.usable:
            message = (
                f"all {report.usable:,} samples have the label {min(report.texts)[:_SHOWN]!r}: nothing can be learned. "
                "Fix: write the text of each image in the column after its path."
            )
            yield replace(data_warning(config, "one_text", f"Train.{report.key}", message), level="error")
        yield from _few_frames(config, report)
        yield from _long_warm_up(config, report)
    elif config.at("Metric.is_filter", None) and config.at("Metric.name", None) in _FILTERING:
        yield from _filtered_labels(config, report, section)


def _unseen(config: Config, report: PreflightReport) -> Iterator[_Doubt]:
    """Yield a doubt for each reason why images show no text; an error if most are of another shape."""
    for reason, count in Counter(sample.reason for sample in report.unseen).most_common():
        if reason == "tall_image" and config.settings.turn_tall_images or count < _FEW * report.looked_at:
            continue
        first = next(sample for sample in report.unseen if sample.reason == reason)
        what = "have another shape than their lines say" if reason == OTHER_SIZE else "cannot be read"
        message = (
            f"{count:,} of {report.looked_at:,} images that were looked at {what} "
            f"({report.place(first.file, first.line)}: {first.detail}). Fix: {UNSEEN_FIXES[reason]}"
        )
        yield reason, report.key, message, reason == OTHER_SIZE and 2 * count > report.looked_at


def _cut_labels(report: PreflightReport) -> Iterator[_Doubt]:
    """Yield a doubt if labels are quoted or cut at a delimiter; an error if the delimiter is common in texts."""
    is_text = report.delimiter.strip(" ") in ("", ",")
    key, fix = _CUT_FIXES[is_text]
    # Files with equal columns of numbers on each line, such as scores or widths, are fine.
    mixed = [file for file in report.files if len(file.further.kinds) > 1 or -1 in file.further.kinds]
    for code, files, text in (
        ("quoted_label", report.files, f"begin with a quotation mark, as in CSV. Fix: {_CSV_FIX}"),
        ("cut_label", mixed, f"are cut at another delimiter {report.delimiter!r}. Fix: {fix}"),
    ):
        if count := sum(file.further.counts[code] for file in files):
            message = f"{count:,} of {report.usable:,} labels {text}.{_examples(report, files, code)}"
            yield code, key, message, is_text


def _label_order(report: PreflightReport) -> Iterator[_Doubt]:
    """Yield a doubt if words are stored in another order than ``Global.text_direction`` says."""
    order = order_of(report.orders)
    direction = report.rules.charset.direction if report.rules.charset else LEFT_TO_RIGHT
    if order in ("", LOGICAL if direction == RIGHT_TO_LEFT else VISUAL):
        return
    fix = RIGHT_TO_LEFT if order == LOGICAL else RIGHT_TO_LEFT_VISUAL
    stored = {LOGICAL: "as they are read", VISUAL: "from the left of the image to its right"}[order]
    message = (
        f"{report.orders[order]:,} of {report.orders.total():,} words that show it are stored {stored}, but "
        f"Global.text_direction is {direction}: a network does not learn them. Fix: -o Global.text_direction={fix}"
    )
    yield "label_order", report.key, message, False


def _examples(report: PreflightReport, files: Sequence[FileReport], code: str) -> str:
    """Return examples of lines with the issue ``code``: the label, and the text that is cut off."""
    left_out = " without {!r}; the whole rest of the line is {!r}".format
    shown = [
        f"\n  {report.place(file.path, number)}: the label is {label[:_SHOWN]!r}"
        + (left_out(rest[:_SHOWN], f"{label}{report.delimiter}{rest}"[:_SHOWN]) if rest else "")
        for file in files
        for kind, number, label, rest in file.further.examples
        if kind == code
    ]
    return "".join(shown[:EXAMPLES])


def _few_frames(config: Config, report: PreflightReport) -> Iterator[Issue]:
    limit = report.rules.frames
    if limit is None or limit.by_ratio or limit.frames >= FRAMES_A_CHARACTER * report.longest_usable:
        return
    if limit.fixed_by:
        fix = " or ".join(f"`{key}: width` and wider images" for key in limit.fixed_by)
    else:
        fix = f"images {math.ceil(10 * FRAMES_A_CHARACTER * report.longest_usable / limit.frames) / 10:g} times as wide"
    yield data_warning(
        config,
        "few_frames",
        limit.key,
        f"CTC has {limit.frames} frames for labels of up to {report.longest_usable} characters, fewer than twice as "
        f"many: it may learn slowly, or only blanks. Fix: {fix}, or shorter labels.",
    )


def _filtered_labels(config: Config, report: PreflightReport, section: str) -> Iterator[Issue]:
    """Yield an error if the metric removes all characters of all labels, a warning if it does so for some labels."""
    gone = report.usable - report.plain
    if not gone:
        return
    message = (
        f"{gone:,} of {report.usable:,} labels of {section} have no digit or ASCII letter, and it compares nothing "
        f"else. Fix: `is_filter: false`."
    )
    issue = data_warning(config, "filtered_labels", "Metric.is_filter", message)
    yield issue if report.plain or report.stopped else replace(issue, level="error")


def _long_warm_up(config: Config, report: PreflightReport) -> Iterator[Issue]:
    samples = samples_per_step(config, dist.get_world_size())
    if config.at("Optimizer.lr.name", None) != "LinearWarmupCosine" or samples is None or report.stopped:
        return
    steps = math.ceil(report.usable / samples) * config.settings.epoch_num
    warm_up = config.at(_WARM_UP, None)
    warm_up = _DEFAULT_STEPS if warm_up is None else warm_up
    if isinstance(warm_up, int) and warm_up >= LONG_WARM_UP * steps:
        yield data_warning(config, "long_warm_up", _WARM_UP, long_warm_up(f"{warm_up:,} steps", f"{steps:,}"))


def data_warning(config: Config, code: str, path: str, message: str, shown: str = "") -> Issue:
    """Return a warning about the value at ``path``, under the name ``shown`` if that is given."""
    where = config.where(path) if path and config.node(path) is not None else ""
    return Issue(code, "warning", shown or path, where, message)


def shared_image_warnings(config: Config, found: Reports, report: Callable[[str], None]) -> Iterator[Issue]:
    """Yield a warning for each kind of samples that share an image with another sample.

    Args:
        config: resolved.
        found: reports on ``Train``, and on ``Eval`` if that is checked.
        report: called with a note if the contents of the images are not compared.
    """
    reports = [found[mode] for mode in ("Train", "Eval") if mode in found]
    total = sum(each.usable for each in reports)
    by_content = total <= MOST_READ and not any(each.stopped for each in reports)
    if not by_content:
        report(
            f"images are compared by path; by content only if all of at most {MOST_READ:,} samples are checked"
        )
    for code, (count, examples) in compare_images(reports, by_content).items():
        path, text = _SHARED[code]
        usable = found["Eval"].usable if path else total
        message = f"{count:,} of {usable:,} samples ({100 * count / usable:.3g} %) {text}"
        for (first, image, label), (place, own, other) in examples:
            message += f"\n  {place}: {own} {other[:_SHOWN]!r}; {first}: {image} {label[:_SHOWN]!r}"
        yield data_warning(config, code, path, message)
