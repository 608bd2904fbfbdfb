"""A run's loaders: label files looked at once, then the host's datasets and samplers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ppocr_ext.data.captcha_dataset  # noqa: F401 - registers CaptchaDataSet
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.data.label_rules import Gtc
from ppocr_ext.data.preflight import Preflight, check
from ppocr_ext.errors import DataError
from ppocr_ext.host import Host

_LOG = logging.getLogger("ppocr_ext")
_LABEL_FILE_DATASETS = ("SimpleDataSet", "MultiScaleDataSet", "TextRecDataset", "MSTextRecDataset")


@dataclass(frozen=True)
class Loaded:
    """A loader, and what preflight said of its label files (None where it has none)."""

    loader: Any
    preflight: Preflight | None
    label_files: tuple[Path, ...]


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
    """Label files of ``Train`` or ``Eval``; empty where the dataset has none."""
    files = config.at(f"{mode}.dataset.label_file_list", default=None) or ()
    return tuple(Path(f) for f in ((files,) if isinstance(files, str) else files))


def _look_at_lines(config: Config, mode: str, charset: Charset, frames: int | None) -> Preflight:
    dataset = config.at(f"{mode}.dataset")
    return check(
        label_files_of(config, mode),
        Path(dataset["data_dir"]),
        charset,
        int(config.at("Global.max_text_length", default=25)),
        frames=frames,
        gtc=label_kind(dataset.get("transforms")),
        unknown_char=config.at("Global.unknown_char", default="drop_line"),
        allow_outside_data_dir=bool(config.at("Global.allow_outside_data_dir", default=False)),
        delimiter=dataset.get("delimiter", "\t"),
        ds_width=bool(dataset.get("ds_width", False)),
        # a bad image in evaluation would be replaced by its neighbour without a word
        image_check="decode" if mode == "Eval" else "header",
    )


def build_loader(
    host: Host,
    config: Config,
    host_config: dict[str, Any],
    mode: str,
    charset: Charset,
    device: str,
    seed: int,
    scratch: Path,
    frames: int | None = None,
) -> Loaded:
    """The loader of ``Train`` or ``Eval``; ``frames`` is T of the CTC output, if known.

    Lines that cannot be used are left out, counted and named: where there are some (or a byte order
    mark, or carriage returns), the host reads copies of the label files from ``scratch``.

    Raises:
        DataError: no line can be used, or there is no full batch.
    """
    report = None
    files: tuple[Path, ...] = ()
    if config.at(f"{mode}.dataset.name") in _LABEL_FILE_DATASETS:
        report = _look_at_lines(config, mode, charset, frames)
        report.raise_if_nothing_usable()
        _LOG.info("%s data: %s", mode.lower(), report.summary())
        files = label_files_of(config, mode)
        kept = report.write_usable(scratch / f"usable_{mode.lower()}")
        host_config[mode]["dataset"]["label_file_list"] = [str(path) for path in kept]
    loader = host.build_dataloader(host_config, mode, device, host.logger, seed)
    if len(loader) == 0:
        raise DataError(_no_batch(config, mode, len(loader.dataset)))
    return Loaded(loader, report, files)


def _no_batch(config: Config, mode: str, lines: int) -> str:
    size = config.at(f"{mode}.loader.batch_size_per_card", default=None)
    return (
        f"{mode}: {lines} usable line{'s' if lines != 1 else ''} do not fill one batch of {size} and drop_last is "
        f"true. Set -o {mode}.loader.drop_last=false, or a smaller {mode}.loader.batch_size_per_card."
    )
