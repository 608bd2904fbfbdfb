"""The data of a run: check it once on each machine, and build PaddleOCR's datasets and samplers on usable samples.

The host's datasets then skip unusable samples, and name a sample that fails when it is loaded.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

import ppocr_ext.synth.synthetic_dataset  # noqa: F401 - registers its datasets
from ppocr_ext.base.parts import OF_LMDB
from ppocr_ext.charset import Charset
from ppocr_ext.check.sub_models import loss_parts
from ppocr_ext.config import Config, plain_copy
from ppocr_ext.data.batch_check import BatchLabelCheck, FramesOfSize
from ppocr_ext.data.batches import MULTI_HEAD, SINGLE_HEAD, BatchLayout, kept_keys
from ppocr_ext.data.label_file import parse_line, read_raw_lines
from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.data.load_failures import LoadFailures, report_failures
from ppocr_ext.data.mixing import SECTION as MIX
from ppocr_ext.data.mixing import MixedList, MixedSamples, mixed_lists
from ppocr_ext.data.preflight_report import FileReport, PreflightReport
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.data.sample_seeds import Views, generators_kept, warn_of_other_views
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer, require_no_link, scratch_folder
from ppocr_ext.messages import LOG
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.data_check import (
    label_files_of,
    run_preflight,
    sample_rules,
    second_label_kind,
    unusable_limit_of,
    warn_of_trained,
)
from ppocr_ext.run.frame_counts import FrameCounts, count_frames, is_ctc_loss
from ppocr_ext.run.host_config import host_config, settings_of, warn_of_other_settings
from ppocr_ext.run.loader import Loader, LoaderParts, loader_parts

_DATASET = "Train.dataset"


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The loaders of a run and what they read.

    Attributes:
        loaders: the loader of ``"Train"`` if the run trains, and of ``"Eval"`` in a process that evaluates.
        preflight: the report on the data of each section whose dataset can be checked.
        load_failures: for each of these, the samples that fail when they are loaded.
        usable_files: the label files that the host reads, by section.
    """

    loaders: Mapping[str, Loader]
    preflight: dict[str, PreflightReport]
    load_failures: dict[str, LoadFailures]
    usable_files: dict[str, list[Path]]

    @property
    def train_loader(self) -> Loader:
        """The batches of ``Train``."""
        return self.loaders["Train"]

    @property
    def eval_loader(self) -> Loader:
        """The batches of ``Eval``."""
        return self.loaders["Eval"]


def open_data(
    context: RunContext,
    model: nn.Layer,
    views: Views | None = None,
    checked: Mapping[str, PreflightReport] | None = None,
) -> RunData:
    """Check the data and build the loaders that the role and this process need.

    One process of each machine checks the data, since the files may differ. In training, only process 0 evaluates and
    writes into the run folder; the others have copies of the label files in a temporary folder.

    Args:
        context: the context of the run.
        model: its networks.
        views: the views of the samples of ``Train``; None if each epoch has other random numbers.
        checked: reports on the data, by section, if it has been checked.

    Raises:
        ConfigError: this dataset or sampler cannot have views.
        DataError: the data is not usable, or does not fill a batch.
    """
    config = context.config
    modes = context.modes
    reads_ctc = {"Train": True, "Eval": context.options.reads_ctc}
    frames = {
        mode: count_frames(model, config, mode) if reads_ctc[mode] else FrameCounts({}) for mode in modes
    }
    reports = _preflight(context, frames) if checked is None else checked
    preflight = {mode: reports[mode] for mode in modes if mode in reports}  # without those of Train.mix
    failures = {
        mode: LoadFailures(
            mode, report.total, report.unusable_count, unusable_limit_of(config), context.name_of(mode)
        )
        for mode, report in preflight.items()
    }
    classes = {mode: _dataset_class(context, mode, preflight[mode], failures[mode]) for mode in preflight}
    usable_files = _usable_files(context, preflight)
    trained = frames.get("Train")
    check = None if trained is None else label_check(config, context.charset, trained, trained.fixed_by)
    plain = host_config(config, distributed=context.team.size > 1, label_files=usable_files)
    mixed = open_mixed(context, model, views, checked or {}) if "Train" in modes else []
    loaders = {mode: _loader(context, plain, classes, check, views, mode, mixed) for mode in modes}
    _require_batches(context, loaders, preflight)
    if context.is_first:  # the contents of all these images are read
        trained_too = [report for _, data in mixed for report in data.preflight.values()]
        warn_of_trained(config, trained_too, preflight.get("Eval"), "Eval.dataset")
    for each, data in mixed:
        _describe_mixed(config, each, len(data.train_loader.dataset), len(loaders["Train"].dataset))
        failures.update((each.section, failed) for failed in data.load_failures.values())
        preflight.update((each.section, report) for report in data.preflight.values())
    if context.options.evaluates:
        _warn_of_changes(context, preflight, views)
    if check is not None:
        check.set_epoch_size(len(loaders["Train"].dataset))
    return RunData(
        loaders=loaders,
        preflight=preflight,
        load_failures=failures,
        usable_files=usable_files,
    )


def _warn_of_changes(
    context: RunContext, preflight: Mapping[str, PreflightReport], views: Views | None
) -> None:
    """Warn if a run has no ``Eval``, or is resumed with other settings or views than before."""
    before = context.checkpoint
    if context.trains and context.is_first and before is not None:
        warn_of_other_views(before.train_state().views, views, before.prefix)
        warn_of_other_settings(before, settings_of(context.config, preflight))
    if context.config.at("Eval", default=None) is None:
        LOG.warning("Eval: the section is missing: no evaluation, and no best checkpoint.")


def _require_batches(
    context: RunContext, loaders: Mapping[str, Loader], preflight: Mapping[str, PreflightReport]
) -> None:
    """Check that each section fills at least one batch.

    Raises:
        DataError: one does not.
    """
    config = context.config
    for mode in (mode for mode, loader in loaders.items() if not len(loader)):
        count = len(loaders[mode].dataset)
        shares = config.at(path := f"{mode}.dataset.ratio_list", default=None)
        if shares is not None and not count and mode in preflight:
            raise DataError(
                f"{config.where(path)}: {path}: {plain_copy(shares)!r} takes none of {preflight[mode].usable:,} usable "
                f"samples. Fix: greater shares, or leave it out.",
                code="no_samples",
            )
        size = config.at(f"{mode}.loader.batch_size_per_card", default=None)
        raise DataError(
            f"{context.name_of(mode)}: {count} usable sample{'s' if count != 1 else ''} do not fill one batch of "
            f"{size} and drop_last is true. Fix: -o {mode}.loader.drop_last=false, or a smaller "
            f"{mode}.loader.batch_size_per_card.",
            code="no_batch",
        )


def _loader(
    context: RunContext,
    plain: Mapping[str, Any],
    classes: Mapping[str, Any],
    check: BatchLabelCheck | None,
    views: Views | None,
    mode: str,
    mixed: Sequence[tuple[MixedList, RunData]],
) -> Loader:
    """Build the loader of a section; all after ``classes`` but ``mode`` is only for ``Train``."""

    def parts(seed: int) -> LoaderParts:
        config = plain_copy(plain)  # a dataset may change it
        own = loader_parts(
            context.host, config, mode, seed, device=context.device, dataset_class=classes.get(mode)
        )
        if mode == "Eval" or not mixed:
            return own
        lists, others = zip(*mixed, strict=True)
        datasets = [own.dataset, *(each.train_loader.dataset for each in others)]
        return replace(own, dataset=MixedSamples(datasets, lists))

    seed = context.seed
    rank = context.team.rank
    processes = context.team.size
    if mode == "Eval":
        prepared = read_preprocessing(context.config, mode)
        is_free = context.config.at("Eval.loader.collate_fn", None) is None
        splits = is_free and (prepared is None or not prepared.all_sizes)
        return Loader(replace(parts(seed), splits=splits), seed=seed, rank=rank)
    # The order of the data decides which samples RecConAug joins.
    first = parts(seed if views is None else views.seed)
    return Loader(first, check, seed=seed, rank=rank, processes=processes, views=views, rebuild=parts)


def open_mixed(
    context: RunContext, model: nn.Layer, views: Views | None, checked: Mapping[str, PreflightReport]
) -> list[tuple[MixedList, RunData]]:
    """Return each list of ``Train.mix`` and its data, in the order of :func:`mixed_lists`.

    A dataset has its own keys over those of ``Train.dataset``, or over its transforms alone if it is of another class.
    Its images get the size of their batch. What is drawn for views depends on their seed alone.
    """
    config = context.config
    whole = config.at(_DATASET)
    opened = []
    for each in mixed_lists(config):
        own = config.at(f"{each.section}.dataset")
        is_alike = own.get("name", whole["name"]) == whole["name"]
        base = whole if is_alike else {"transforms": whole["transforms"]}
        left_out = {"ds_width", *({"ratio_list"} - own.keys())}
        values = plain_copy({key: value for key, value in {**base, **own}.items() if key not in left_out})
        alone = _of_dataset(context, values, each.section)
        if not each.labelled and label_files_of(alone.config, "Train"):
            values["label_file_list"] = _with_placeholders(alone)
            alone = _of_dataset(context, values, each.section)
        if views is not None:
            alone = replace(alone, seed=views.seed)
        reports = {"Train": checked[each.section]} if each.section in checked else None
        data = open_data(alone, model, checked=reports)
        opened.append((each, data))
    return opened


def _describe_mixed(config: Config, mixed: MixedList, count: int, samples: int) -> None:
    """Log how often a list of ``Train.mix`` is read, of ``count`` samples beside ``samples`` of ``Train.dataset``."""
    read = float(mixed.ratio) * samples
    times = read * config.settings.epoch_num / count
    note = "" if mixed.labelled else "; only a teacher teaches them"
    all_of = f"{mixed.section}: {count} samples"
    LOG.info("%s", f"{all_of}; an epoch reads {read:.0f} of them, the training each {times:.1f} times{note}")


def _of_dataset(context: RunContext, values: Mapping[str, Any], section: str) -> RunContext:
    """Return the context of a training that reads only this dataset, whose config path is ``section``."""
    changed = {_DATASET: values, MIX: None, "Train.loader.drop_last": False}
    return replace(
        context,
        config=context.config.with_values(changed),
        components=context.components.with_values(changed),
        folder=context.folder / section.lower().replace(".", "_"),
        options=replace(context.options, train_section=section, evaluates=False),
    )


def _with_placeholders(context: RunContext) -> list[str]:
    """Write copies of the label files in which each image has a label that every network can learn; return them."""
    delimiter = context.config.at(f"{_DATASET}.delimiter", "\t")
    label = f"{delimiter}{context.charset.characters[0] * (context.config.settings.min_text_length or 1)}\n"
    files = []
    for file in label_files_of(context.config, "Train"):
        files.append(str(scratch_folder() / file.name))
        with atomic_writer(Path(files[-1])) as stream:
            for raw in read_raw_lines(file):
                image = raw.strip().removeprefix(BOM_UTF8).split(delimiter.encode())[0]
                stream.write(image + label.encode() if image else b"\n")
    return files


def _preflight(context: RunContext, frames: Mapping[str, FrameCounts]) -> dict[str, PreflightReport]:
    """Check the data in one process of each machine by :func:`ppocr_ext.run.data_check.run_preflight`."""
    return context.team.once_per_machine(
        "preflight",
        lambda: run_preflight(
            context.config,
            context.charset,
            frames,
            context.folder / "preflight.json" if context.trains and context.is_first else None,
            {mode: context.name_of(mode) for mode in frames},
            config_warnings=context.config_warnings,
        ),
        lambda found: {mode: _told(report) for mode, report in found.items()},
        lambda told: {mode: _heard(context, mode, content) for mode, content in told.items()},
    )


def _told(report: PreflightReport) -> dict[str, Any]:
    """Return the parts of a report that the other processes of a machine need."""
    files = [(str(file.path), file.digest, file.lines.hex()) for file in report.files]
    return {"data_dir": str(report.data_dir), "counts": report.counts, "files": files}


def _heard(context: RunContext, mode: str, content: Mapping[str, Any]) -> PreflightReport:
    """Return a report from these parts; it has samples and counts, but no examples."""
    files = [
        FileReport(Path(path), digest, lines=bytearray.fromhex(text))
        for path, digest, text in content["files"]
    ]
    return PreflightReport(
        Path(content["data_dir"]),
        sample_rules(context.config, mode, context.charset, None),
        context.config.at(f"{mode}.dataset.delimiter", default="\t"),
        files=files,
        counts=Counter(content["counts"]),
    )


def _usable_files(context: RunContext, preflight: Mapping[str, PreflightReport]) -> dict[str, list[Path]]:
    """Write label files with only the usable samples, once on each machine; return them by section."""
    folder = context.folder if context.trains and context.is_first else scratch_folder()
    files = {}
    for mode, report in preflight.items():
        if context.config.at(f"{mode}.dataset.name") not in OF_LMDB:
            write = partial(report.write_usable, require_no_link(folder / f"usable_{mode.lower()}"))
            files[mode] = context.team.once_per_machine(
                f"copies {mode}",
                write,
                lambda paths: [str(path) for path in paths],
                lambda names: [Path(name) for name in names],
            )
    return files


def _dataset_class(context: RunContext, mode: str, report: PreflightReport, failures: LoadFailures) -> type:
    """Return the host's dataset, which reads only the usable samples and adds those that fail to ``failures``."""
    config = context.config
    name = str(config.at(f"{mode}.dataset.name"))
    base = DATASETS.get(name)
    if name not in OF_LMDB:
        return label_file_dataset_class(base, failures, label_files_of(config, mode), report.delimiter)
    if config.at(f"{mode}.dataset.ratio_list", default=None) is not None:
        LOG.warning("%s.dataset.ratio_list has no effect: LMDBDataSet reads all samples.", mode)
    return lmdb_dataset_class(base, failures, report.files, str(report.data_dir))


def label_check(
    config: Config, charset: Charset, frames: FramesOfSize | None, fixed_by: Sequence[str] = ()
) -> BatchLabelCheck | None:
    """Return the check of the batches of ``Train``; None if nothing trains with CTC, or labels are not kept.

    Args:
        config: the configuration.
        charset: its dictionary.
        frames: T for an image size (height, width); None if it is unknown.
        fixed_by: config paths of ``train_frames`` that fix T at any width.
    """
    paths = [path for loss, path in loss_parts(config) if is_ctc_loss(loss)]
    if not paths:
        return None
    transforms = config.at("Train.dataset.transforms", default=None)
    of_two = config.at("Loss.name") == "MultiLoss" or any(
        config.at((*path, "multi_head"), None) is True for path in paths
    )
    layout = BatchLayout.of_keys(kept_keys(transforms) or (MULTI_HEAD if of_two else SINGLE_HEAD))
    if layout.label is None or layout.length is None:
        return None
    second = {"nrtr": charset.nrtr_rows, "sar": charset.sar_classes}.get(second_label_kind(transforms) or "")
    limit = unusable_limit_of(config)
    return BatchLabelCheck(layout, charset.ctc_classes, limit, second, frames, fixed_by)


def label_file_dataset_class(
    base: Any, failures: LoadFailures, label_files: Sequence[Path], delimiter: str
) -> type:
    """Return the host's dataset of label files, ``SimpleDataSet`` or ``MultiScaleDataSet``, with reports.

    Args:
        base: the host's class.
        failures: counts the samples that fail when they are loaded.
        label_files: the label files in the config, in which a sample that fails is searched.
        delimiter: the delimiter of the label files.
    """
    return report_failures(base, failures, _line_of, _line_finder(label_files, delimiter))


def _line_of(dataset: Any, index: int) -> bytes:
    """Return the line of the sample at ``index``; with ``ds_width`` the host sorts samples by width."""
    by_width = getattr(dataset, "wh_ratio_sort", None) if getattr(dataset, "ds_width", False) else None
    return bytes(dataset.data_lines[(dataset.data_idx_order_list if by_width is None else by_width)[index]])


def _line_finder(label_files: Sequence[Path], delimiter: str) -> Callable[[bytes], str]:
    """Return a function that finds the place of a line; it reads the files again, to save memory."""

    def place(line: bytes) -> str:
        wanted = parse_line(2, line, delimiter)  # 2, since the byte order mark of line 1 is already removed
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

    Samplers get the number of usable samples. An LMDB is opened once for all its readers.

    Args:
        base: the host's class.
        failures: counts the samples that fail when they are loaded.
        reports: the reports of preflight, one for each LMDB.
        data_dir: folder of the LMDBs; the keys of samples are relative to it.
    """

    class UsableSamples(base):
        def __init__(self, config: Any, mode: str, logger: Any, seed: int | None = None) -> None:
            with generators_kept():
                np.random.seed(seed)  # the host shuffles here, and a resumed run needs the same order
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
            # 8 bytes for each sample; PaddleOCR needs 16, and lists of numbers to build them.
            lines = [np.frombuffer(report.lines, np.uint8) for report in reports]
            samples = [np.flatnonzero(each).astype(np.int32) + 1 for each in lines]
            sets = np.repeat(np.arange(len(samples), dtype=np.int32), [len(each) for each in samples])
            return np.stack([sets, np.concatenate(samples)], axis=1)

    UsableSamples.__name__ = base.__name__
    root = str(Path(data_dir))
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
    """Yield image paths, or names of samples in LMDBs, in the order of the data; nothing for other datasets."""
    if hasattr(dataset, "lmdb_sets"):
        yield from (sample_name(dataset, index) for index in range(len(dataset)))
    elif hasattr(dataset, "data_lines"):
        for index in dataset.data_idx_order_list:
            yield parse_line(index + 1, dataset.data_lines[index], delimiter).images[0]
