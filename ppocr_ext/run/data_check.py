"""Check the samples of ``Train`` and ``Eval`` before a run.

Unusable samples are counted. Warnings tell about data that is usable, but with which a training rarely succeeds, or is
not measured correctly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import paddle.distributed as dist

from ppocr_ext.base.parts import BRANCH_ROWS, OF_LABEL_FILES, OF_LMDB
from ppocr_ext.characters.look_alikes import look_alikes_of, read_groups
from ppocr_ext.charset import Charset
from ppocr_ext.check.data import reads_key
from ppocr_ext.check.objective import LONG_WARM_UP, long_warm_up
from ppocr_ext.config import Config
from ppocr_ext.config.derive import model_paths
from ppocr_ext.data.batches import samples_per_step
from ppocr_ext.data.equal_images import compare_images
from ppocr_ext.data.issue_rules import RULES, counted_issue
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.data.mixing import mixed_lists
from ppocr_ext.data.preflight import check_label_files, check_lmdbs
from ppocr_ext.data.preflight_report import EXAMPLES, PreflightReport
from ppocr_ext.data.sample_rules import FRAMES_A_CHARACTER, FrameLimit, Gtc, SampleRules
from ppocr_ext.data.unusable_limit import UnusableLimit, case_issue, limit_errors
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.issues import Issue, Level, report_issues
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
    """Return the label files of ``Train``, ``Eval`` or a list of ``Train.mix``; empty for a dataset without any."""
    if not reads_key(config.at(f"{mode}.dataset.name", None), "label_file_list"):
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
        shared = shared_image_warnings(config, [found["Train"]], found.get("Eval"), report=report)
        found["Train"].warnings.extend(shared)
    if record is not None and found:
        content = preflight_json(found, config_warnings)
        write_text(record, printable(json.dumps(content, indent=2, ensure_ascii=False)) + "\n")
    texts = limit_errors({names[mode]: checked for mode, checked in found.items()}, limit)
    if texts and record is not None:
        texts.append(f"{record} names the first {next(iter(found.values())).examples} of each reason.")
    if errors or texts:
        code = errors[0].code if errors else "too_many_unusable"
        failure = DataError("\n".join([*map(str, errors), *texts]), code=code)
        failure.record = record if texts else None
        raise failure
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
    """Return how many characters no label of a training has, and the first of them, if it begins from weights.

    The network unlearns them, since no sample asks for them. The space of ``use_space_char`` comes first, then those
    that look like a character of the labels, which they will be read as. Empty if the labels of a list of ``Train.mix``
    are not in files, or teach nothing: what its images show is not known.
    """
    settings = config.settings
    parts = (part for part in model_paths(config) if not config.at((*part, "freeze_params"), False))
    begins = settings.pretrained_model or any(config.at((*part, "pretrained"), None) for part in parts)
    mixed = {
        each.section: label_files_of(config, each.section) * each.labelled for each in mixed_lists(config)
    }
    if settings.checkpoints or report.stopped or not begins or not all(mixed.values()):
        return ""
    labels = [
        line.label
        for section, files in mixed.items()
        for file in files
        for line in read_label_file(file, config.at(f"{section}.dataset.delimiter", report.delimiter))
        if line.issue is None
    ]
    trained = report.characters.union(charset.encoded("".join(labels)))
    lacking = [each for each in dict.fromkeys(charset.characters) if each not in trained]
    alike = look_alikes_of(read_groups())
    read_as = {each: sorted(alike.get(each, set()) & trained) for each in lacking}
    named = [
        f"{each!r}{f' (like {read_as[each][0]!r})' if read_as[each] else ''}"
        for each in sorted(lacking, key=lambda each: (each != " ", not read_as[each]))
    ]
    return (
        f"no label has {len(lacking):,} of {len(charset.characters):,} characters of the dictionary, which the weights "
        f"may know and this training unlearns: {shortened(named, _NAMED)}"
    ) * bool(lacking)


def preflight_json(reports: Reports, config_warnings: Sequence[Issue]) -> dict[str, Any]:
    """Return the content of ``preflight.json``: a report for each section, and a list of all warnings."""
    warnings = [*config_warnings, *(issue for report in reports.values() for issue in report.warnings)]
    return {
        **{mode: report.to_json() for mode, report in reports.items()},
        "warnings": [issue.to_json() for issue in warnings],
    }


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
_WARM_UP = "Optimizer.lr.warmup_steps"
_DEFAULT_STEPS = 5000  # default of warmup_steps in LinearWarmupCosine
_MANY = 10  # samples of one text that may be a first try
_NAMED = 10  # characters that no label has
_FILTERING = ("RecMetric", "DistillationMetric")  # metrics that have `is_filter`
_OF_CUT: dict[bool, tuple[str, Level]] = {  # whether the delimiter is common in texts -> key to change, level
    False: ("dataset.label_file_list", "warning"),
    True: ("dataset.delimiter", "error"),
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
    for key, issue in chain(_unseen(config, report), _label_order(report), _cut_labels(report)):
        yield _placed(config, issue, f"{mode}.{key}", f"{section}.{key}")
    # else they are unusable, and the limit decides
    if report.mapped and 2 * report.other_case[0] >= report.mapped:
        yield _placed(config, case_issue(report), "Global.character_dict_path")
    if mode == "Train" != section:  # a list beside it
        return
    if mode == "Train":
        if len(report.texts) == 1 < _MANY < report.usable:
            fix = RULES["one_text"].fix_in("run")
            example = ("", repr(min(report.texts)[:_SHOWN]))
            count = report.usable
            issue = counted_issue("one_text", count, count, [example], fix=fix, level="error")
            yield _placed(config, issue, f"Train.{report.key}")
        yield from _few_frames(config, report)
        yield from _long_warm_up(config, report)
    elif config.at("Metric.is_filter", None) and config.at("Metric.name", None) in _FILTERING:
        yield from _filtered_labels(config, report, section)


def _unseen(config: Config, report: PreflightReport) -> Iterator[tuple[str, Issue]]:
    """Yield an issue for each reason why images show no text, and its key; an error if most are of another shape."""
    for code, rule in RULES.items():
        samples = [sample for sample in report.unseen if sample.reason == code]
        may_be_tall = code == "tall_image" and config.settings.turn_tall_images
        if not samples or may_be_tall or len(samples) < max(_FEW, rule.least) * report.looked_at:
            continue
        examples = [(report.place(each.file, each.line), each.detail) for each in samples[:EXAMPLES]]
        level: Level | None = (
            "error" if code == "other_size" and 2 * len(samples) > report.looked_at else None
        )
        yield (
            report.key,
            counted_issue(
                code, len(samples), report.looked_at, examples, of="that were looked at", level=level
            ),
        )


def _cut_labels(report: PreflightReport) -> Iterator[tuple[str, Issue]]:
    """Yield an issue if labels are quoted or cut at a delimiter; an error if the delimiter is common in texts."""
    is_text = report.delimiter.strip(" ") in ("", ",")
    # Files with equal columns of numbers on each line, such as scores or widths, are fine.
    mixed = [file for file in report.files if len(file.further.kinds) > 1 or -1 in file.further.kinds]
    fix = "" if is_text else "Write labels without it, and no columns after them."
    for code, files, own_fix in (("quoted_label", report.files, ""), ("cut_label", mixed, fix)):
        if count := sum(file.further.counts[code] for file in files):
            examples = [
                (
                    report.place(file.path, number),
                    f"{label[:_SHOWN]!r}"
                    + (f" without {f'{report.delimiter}{rest}'[:_SHOWN]!r}" if rest else ""),
                )
                for file in files
                for number, label, rest in file.further.of(code)
            ]
            key, level = _OF_CUT[is_text]
            yield (
                key,
                counted_issue(code, count, report.usable, examples[:EXAMPLES], fix=own_fix, level=level),
            )


def _label_order(report: PreflightReport) -> Iterator[tuple[str, Issue]]:
    """Yield an issue if words are stored in another order than ``Global.text_direction`` says."""
    order = order_of(report.orders)
    direction = report.rules.charset.direction if report.rules.charset else LEFT_TO_RIGHT
    if order in ("", LOGICAL if direction == RIGHT_TO_LEFT else VISUAL):
        return
    right = RIGHT_TO_LEFT if order == LOGICAL else RIGHT_TO_LEFT_VISUAL
    stored = {LOGICAL: "as they are read", VISUAL: "from the left of the image to its right"}[order]
    what = (
        f"words that show it are stored {stored}, but Global.text_direction is {direction}: a network does not learn "
        "them"
    )
    fix = f"-o Global.text_direction={right}"
    yield (
        report.key,
        counted_issue("label_order", report.orders[order], report.orders.total(), what=what, fix=fix),
    )


def _few_frames(config: Config, report: PreflightReport) -> Iterator[Issue]:
    limit = report.rules.frames
    if limit is None or limit.by_ratio or limit.frames >= FRAMES_A_CHARACTER * report.longest_usable:
        return
    if limit.fixed_by:
        fix = " or ".join(f"`{key}: width` and wider images" for key in limit.fixed_by)
    else:
        fix = f"images {math.ceil(10 * FRAMES_A_CHARACTER * report.longest_usable / limit.frames) / 10:g} times as wide"
    message = (
        f"CTC has {limit.frames} frames for labels of up to {report.longest_usable} characters, fewer than twice as "
        "many: it may learn slowly, or only blanks"
    )
    issue = Issue("few_frames", "warning", "", "", message, f"{fix}, or shorter labels.")
    yield _placed(config, issue, limit.key)


def _filtered_labels(config: Config, report: PreflightReport, section: str) -> Iterator[Issue]:
    """Yield an error if the metric removes all characters of all labels, a warning if it does so for some labels."""
    gone = report.usable - report.plain
    if not gone:
        return
    level: Level = "warning" if report.plain or report.stopped else "error"
    issue = counted_issue("filtered_labels", gone, report.usable, of=f"of {section}", level=level)
    yield _placed(config, issue, "Metric.is_filter")


def _long_warm_up(config: Config, report: PreflightReport) -> Iterator[Issue]:
    samples = samples_per_step(config, dist.get_world_size())
    if config.at("Optimizer.lr.name", None) != "LinearWarmupCosine" or samples is None or report.stopped:
        return
    steps = math.ceil(report.usable / samples) * config.settings.epoch_num
    warm_up = config.at(_WARM_UP, None)
    warm_up = _DEFAULT_STEPS if warm_up is None else warm_up
    if isinstance(warm_up, int) and warm_up >= LONG_WARM_UP * steps:
        message = long_warm_up(f"{warm_up:,} steps", f"{steps:,}")
        yield _placed(config, Issue("long_warm_up", "warning", "", "", message), _WARM_UP)


def _placed(config: Config, issue: Issue, path: str, shown: str = "") -> Issue:
    """Return an issue with the place of the value at ``path``, under the name ``shown`` if that is given."""
    where = config.where(path) if path and config.node(path) is not None else ""
    return replace(issue, path=shown or path, where=where)


def warn_of_trained(
    config: Config, trained: Sequence[PreflightReport], judge: PreflightReport | None, path: str
) -> None:
    """Warn of samples that judge and have an image that trains; see :func:`shared_image_warnings`.

    Raises:
        InvalidConfigError: there are some, with ``Global.strict``.
    """
    found = shared_image_warnings(config, trained, judge, path) if trained and judge else ()
    leaked = [issue for issue in found if issue.code == "trained_samples"]
    report_issues(leaked, strict=unusable_limit_of(config).strict)


def shared_image_warnings(
    config: Config,
    trained: Sequence[PreflightReport],
    judge: PreflightReport | None,
    path: str = "Eval.dataset",
    report: Callable[[str], None] = LOG.info,
) -> Iterator[Issue]:
    """Yield a warning for each kind of samples that share an image with another sample.

    Args:
        config: resolved.
        trained: reports on the samples that train.
        judge: the report on those that are evaluated; None if they are not checked.
        path: the config path of their dataset.
        report: called with a note if the contents of the images are not compared.
    """
    reports = [*trained, *([judge] if judge else [])]
    total = sum(each.usable for each in reports)
    by_content = total <= MOST_READ and not any(each.stopped for each in reports)
    if not by_content:
        report(
            f"images are compared by path; by content only if all of at most {MOST_READ:,} samples are checked"
        )
    for code, (count, examples) in compare_images(reports, by_content, len(trained)).items():
        pairs = [
            (place, f"{other[:_SHOWN]!r} of {own} and {label[:_SHOWN]!r} of {image} ({first})")
            for (first, image, label), (place, own, other) in examples
        ]
        where = path if code == "trained_samples" else ""
        issue = counted_issue(code, count, reports[-1].usable if where else total, pairs)
        yield _placed(config, issue, where)
