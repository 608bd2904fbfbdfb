"""The data of a run: checked once per machine, then PaddleOCR's datasets and samplers over the usable samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from paddle import nn

import ppocr_ext.synth.synthetic_dataset  # noqa: F401 - registers its datasets
from ppocr_ext.base.parts import OF_LMDB
from ppocr_ext.charset import Charset
from ppocr_ext.check.sub_models import loss_parts
from ppocr_ext.config import Config, plain_copy
from ppocr_ext.data.batch_check import BatchLabelCheck, FramesOfSize
from ppocr_ext.data.batches import MULTI_HEAD, SINGLE_HEAD, BatchLayout, kept_keys
from ppocr_ext.data.load_failures import LoadFailures
from ppocr_ext.data.preflight_report import FileReport, PreflightReport
from ppocr_ext.data.sample_seeds import Views, warn_of_other_views
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import require_no_link, scratch_folder
from ppocr_ext.messages import LOG
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.datasets import (
    label_file_dataset_class,
    label_files_of,
    lmdb_dataset_class,
    run_preflight,
    sample_rules,
    second_label_kind,
    unusable_limit_of,
)
from ppocr_ext.run.frame_counts import FrameCounts, count_frames, is_ctc_loss
from ppocr_ext.run.host_config import host_config, settings_of, warn_of_other_settings
from ppocr_ext.run.loader import Loader, LoaderParts, loader_parts
from ppocr_ext.run.team import is_leader


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The loaders of a run and what they read.

    Attributes:
        loaders: of ``"Train"`` if the run trains, and of ``"Eval"`` in a process that evaluates.
        preflight: the check of the data, by ``"Train"`` / ``"Eval"``; nothing for datasets that are not checked.
        load_failures: the samples that fail when they are loaded, likewise.
        label_files: as the config names them.
        usable_files: the label files that the host reads, by ``"Train"`` / ``"Eval"``.
    """

    loaders: Mapping[str, Loader]
    preflight: dict[str, PreflightReport]
    load_failures: dict[str, LoadFailures]
    label_files: tuple[Path, ...]
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

    One process of each machine checks the data, since their files may differ. In training, process 0 alone
    evaluates and writes into the run folder; copies of label files for the others lie in a temporary folder.

    Args:
        context: of the run.
        model: its networks.
        views: of the samples of ``Train``; None: each epoch has other random numbers.
        checked: the check of the data, if it is done.

    Raises:
        ConfigError: samples of this kind have no views.
        DataError: the data cannot be used, do not fill a batch, or differ between machines.
    """
    config = context.config
    modes = context.modes
    no_limit = FrameCounts({})
    frames = {
        mode: count_frames(model, config, mode) if mode == "Train" or context.options.reads_ctc else no_limit
        for mode in modes
    }
    preflight = _preflight(context, frames) if checked is None else dict(checked)
    _warn(context, views, preflight)
    failures = {
        mode: LoadFailures(
            mode, report.total, report.unusable_count, unusable_limit_of(config), context.name_of(mode)
        )
        for mode, report in preflight.items()
    }
    classes = {mode: _dataset_class(context, mode, preflight[mode], failures[mode]) for mode in preflight}
    usable_files = _usable_files(context, preflight)
    trained = frames.get("Train", no_limit)
    check = label_check(config, context.charset, trained, trained.fixed_by) if context.trains else None
    plain = host_config(config, distributed=context.team.size > 1, label_files=usable_files)
    loaders = {mode: _loader(context, plain, classes, check, views, mode) for mode in modes}
    for mode, loader in loaders.items():
        _require_batch(config, mode, loader)
    if check is not None and "Train" in loaders:
        check.set_epoch_size(len(loaders["Train"].dataset))
    return RunData(
        loaders=loaders,
        preflight=preflight,
        load_failures=failures,
        label_files=tuple(path for mode in modes for path in label_files_of(config, mode)),
        usable_files=usable_files,
    )


def _warn(context: RunContext, views: Views | None, preflight: Mapping[str, PreflightReport]) -> None:
    """Say that a resumed run has other views or settings, and that a run has no evaluation."""
    evaluates = context.options.evaluates
    if _writes(context) and evaluates and context.checkpoint is not None:
        warn_of_other_views(context.checkpoint.train_state().views, views, context.checkpoint.prefix)
        warn_of_other_settings(context.checkpoint, settings_of(context.config, preflight))
    if evaluates and context.config.at("Eval", default=None) is None:
        LOG.warning("Eval: the section is missing: no evaluation, and no best checkpoint.")


def _writes(context: RunContext) -> bool:
    return context.trains and context.is_first


def _loader(
    context: RunContext,
    plain: Mapping[str, Any],
    classes: Mapping[str, Any],
    check: BatchLabelCheck | None,
    views: Views | None,
    mode: str,
) -> Loader:
    """Build the loader of a section; ``check`` of labels and ``views`` are only for ``Train``."""

    def parts(seed: int) -> LoaderParts:
        config = plain_copy(plain)  # a dataset may change it
        return loader_parts(
            context.host, config, mode, seed, device=context.device, dataset_class=classes.get(mode)
        )

    seed = context.seed
    rank = context.team.rank
    processes = context.team.size
    if mode == "Eval":
        return Loader(parts(seed), seed=seed, rank=rank)
    # the data's order decides which samples RecConAug joins
    first = parts(seed if views is None else views.seed)
    return Loader(first, check, seed=seed, rank=rank, processes=processes, views=views, rebuild=parts)


def _preflight(context: RunContext, frames: Mapping[str, FrameCounts]) -> dict[str, PreflightReport]:
    """Check the data in one process of each machine; see :func:`ppocr_ext.run.datasets.run_preflight`."""
    reports = context.team.once_per_machine(
        "preflight",
        lambda: run_preflight(
            context.config,
            context.charset,
            frames,
            context.folder / "preflight.json" if _writes(context) else None,
            context.options.eval_section,
            config_warnings=context.config_warnings,
        ),
        lambda found: {mode: _told(report) for mode, report in found.items()},
        lambda told: {mode: _heard(context, mode, content) for mode, content in told.items()},
    )
    if is_leader() and "Train" in reports:
        _require_same_count(context, reports["Train"])
    return reports


def _told(report: PreflightReport) -> dict[str, Any]:
    """Return what the processes need that have not checked the data themselves."""
    files = [(str(file.path), file.lines.hex()) for file in report.files]
    return {"data_dir": str(report.data_dir), "counts": report.counts, "files": files}


def _heard(context: RunContext, mode: str, content: Mapping[str, Any]) -> PreflightReport:
    """Return a report with the samples and counts of another process's check, without its examples."""
    files = [FileReport(Path(path), lines=bytearray.fromhex(text)) for path, text in content["files"]]
    return PreflightReport(
        Path(content["data_dir"]),
        sample_rules(context.config, mode, context.charset, None),
        context.config.at(f"{mode}.dataset.delimiter", default="\t"),
        files=files,
        counts=Counter(content["counts"]),
    )


def _usable_files(context: RunContext, preflight: Mapping[str, PreflightReport]) -> dict[str, list[Path]]:
    """Write label files with only the usable samples, once on each machine; return them by section."""
    folder = context.folder if _writes(context) else scratch_folder()
    files = {}
    for mode, report in preflight.items():
        if not _is_lmdb(context.config, mode):
            write = partial(report.write_usable, require_no_link(folder / f"usable_{mode.lower()}"))
            files[mode] = context.team.once_per_machine(
                f"copies {mode}",
                write,
                lambda paths: [str(path) for path in paths],
                lambda names: [Path(name) for name in names],
            )
    return files


def _is_lmdb(config: Config, mode: str) -> bool:
    return config.at(f"{mode}.dataset.name") in OF_LMDB


def _dataset_class(context: RunContext, mode: str, report: PreflightReport, failures: LoadFailures) -> type:
    """Return the host's dataset, which reads only the usable samples and tells ``failures`` those that fail."""
    config = context.config
    base = DATASETS.get(str(config.at(f"{mode}.dataset.name")))
    if not _is_lmdb(config, mode):
        return label_file_dataset_class(base, failures, label_files_of(config, mode), report.delimiter)
    if config.at(f"{mode}.dataset.ratio_list", default=None) is not None:
        LOG.warning("%s.dataset.ratio_list has no effect: LMDBDataSet reads all samples.", mode)
    return lmdb_dataset_class(base, failures, report.files, str(report.data_dir))


def label_check(
    config: Config, charset: Charset, frames: FramesOfSize | None, fixed_by: Sequence[str] = ()
) -> BatchLabelCheck | None:
    """Return the check of the samples of ``Train``; None if nothing trains with CTC, or labels are not kept.

    Args:
        config: the configuration.
        charset: its dictionary.
        frames: T for an image size (height, width); None if it is not known.
        fixed_by: config paths of ``train_frames`` that give it at any width.
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


def _require_same_count(context: RunContext, report: PreflightReport) -> None:
    count = f"{report.usable} of {report.total}"
    first = context.team.text_of_first("usable lines", count)
    if first != count:
        raise DataError(
            f"Train: {count} samples are usable on this machine, {first} on that of process 0. Every machine needs "
            f"the same label files and images: each process takes its share of the samples by their number.",
            code="data_differs",
        )


def _require_batch(config: Config, mode: str, loader: Loader) -> None:
    if len(loader):
        return
    count = len(loader.dataset)
    size = config.at(f"{mode}.loader.batch_size_per_card", default=None)
    raise DataError(
        f"{mode}: {count} usable sample{'s' if count != 1 else ''} do not fill one batch of {size} and drop_last is "
        f"true. Fix: -o {mode}.loader.drop_last=false, or a smaller {mode}.loader.batch_size_per_card.",
        code="no_batch",
    )
