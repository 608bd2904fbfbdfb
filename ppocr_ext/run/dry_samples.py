"""Take a few samples of a section through its own dataset, one transform at a time.

The dry step takes two samples, and `run/one_batch.py` a batch.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import paddle
import paddle.distributed as dist

from ppocr_ext.base import Proxy
from ppocr_ext.base.parts import OF_LABEL_FILES, OF_LMDB, kind_of
from ppocr_ext.charset import Charset
from ppocr_ext.check.findings import Findings, KeyPath, described_error
from ppocr_ext.config import Config, named_items
from ppocr_ext.data.batches import equal_runs, images_of
from ppocr_ext.data.load_failures import report_failures
from ppocr_ext.data.preflight import judge, open_sources
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import FrameLimit
from ppocr_ext.errors import DataError, PPOCRExtError
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.data_check import label_files_of, sample_rules
from ppocr_ext.run.host_config import host_config, own_transforms
from ppocr_ext.run.loader import LoaderParts, loader_parts
from ppocr_ext.run.loader_setup import lmdb_dataset_class

SILENT = logging.Logger("silent", logging.CRITICAL + 1)
_SAMPLES = 2
_LEAST_SPREAD = 0.01  # standard deviation; up to 0.008 for pixels from -1 to 1 that are normalised again
_TRIED = 1000  # samples of a file to try before two are drawn
_DECODE = "Fix: put `- DecodeImage: {img_mode: BGR}` before all transforms that work on pixels."


@dataclass(frozen=True)
class DryBatch:
    """A batch of a section as the loop gets it.

    Attributes:
        entries: the entries that KeepKeys keeps, as tensors.
        texts: the label of each sample before it is encoded; None if unknown.
        keys: names of the entries; empty if unknown.
        keys_path: config path of these names.
        drawn: True if no sample could be read, so images and labels are random.
    """

    entries: list[Any]
    texts: list[str | None]
    keys: tuple[str, ...]
    keys_path: KeyPath
    drawn: bool

    @property
    def is_uniform(self) -> bool:
        """True if the pixels of each column hardly differ, as after a second division by 255, but are not all equal."""
        images = images_of(self.entries)
        if not isinstance(images, paddle.Tensor) or images.ndim != 4:
            return False
        # NumPy's: Paddle's `std` mixes types, and warns of it on standard error
        return 0 < float(images.numpy().astype("float32").std(axis=2, ddof=1).max()) < _LEAST_SPREAD

    def texts_of(self, charset: Charset, head: str, place: int, length: int | None) -> list[str | None]:
        """Return the texts of the labels [B, L] at ``place``, by the rule of PaddleOCR's encoder of ``head``.

        Args:
            charset: the dictionary.
            head: ``"ctc"``, ``"gtc"`` (NRTR) or ``"sar"``.
            place: the place of the labels among the entries.
            length: place of their lengths, which a CTC loss reads; None if a label ends at its first blank.

        Returns:
            None for each label that this encoder cannot make.
        """
        arrays = [each.numpy() if isinstance(each, paddle.Tensor) else None for each in self.entries]
        arrays += [None] * 4
        labels = arrays[place]
        lengths = arrays[length] if head == "ctc" and length else None
        lacks_lengths = head == "ctc" and length and np.size(np.asarray(lengths)) != len(self.texts)
        if labels is None or labels.ndim != 2 or lacks_lengths:
            return [None] * len(self.texts)
        begin, end = {"ctc": (0, 0), "gtc": (2, 3), "sar": (charset.ctc_classes,) * 2}[head]
        symbols = dict(enumerate(charset.characters, start={"ctc": 1, "gtc": 4, "sar": 0}[head]))
        texts: list[str | None] = []
        for number, row in enumerate(labels.tolist()):
            if head != "ctc":
                ids: list[Any] = row[1 : row.index(end, 1)] if row[0] == begin and end in row[1:] else [None]
            elif lengths is None:
                ids = row[: row.index(end)] if end in row else row
            else:
                ids = row[: int(lengths.reshape(-1)[number])]
            texts.append("".join(symbols[i] for i in ids) if symbols.keys() >= set(ids) else None)
        return texts


class DrySection:
    """``Train`` or ``Eval`` with a few samples.

    Args:
        context: of the run.
        mode: the section.
        folder: for temporary files.
        findings: gets the issues.
        samples: number of samples with different labels, at most a batch of the config; None for the first two.
        frames: limit of the labels, if there is one.
    """

    def __init__(
        self,
        context: RunContext,
        mode: str,
        folder: Path,
        findings: Findings,
        samples: int | None = None,
        frames: FrameLimit | None = None,
    ) -> None:
        self._context = context
        self._config = config = context.components
        self._mode = mode
        self._folder = folder
        self._findings = findings
        self._dataset = config.at(f"{mode}.dataset")
        self._name = self._dataset["name"]
        self._path = (mode, "dataset", "transforms")
        most = samples or _SAMPLES
        self._size = min(most, config.at((mode, "loader", "batch_size_per_card"), most))
        self._drawn = False
        self._distinct = samples is not None
        self._labels: set[str] = set()
        self._rules = sample_rules(config, mode, context.charset, frames)

    def batch(self) -> DryBatch | None:
        """Return the batch of the first usable samples; None if a stage failed, which is reported.

        An exception of a dataset that is not PaddleOCR's is raised unless it is one of this package, since only its
        author knows what it means.
        """
        of_host = self._name in (*OF_LABEL_FILES, *OF_LMDB)
        trace = TransformTrace([])
        samples: list[Any] = []
        texts: list[str | None] = []
        try:
            parts = self._parts()
            trace = trace_transforms(parts.dataset, self._config, self._mode)
            # Only one batch, since the next one of a MultiScaleSampler may have another size.
            for index in next(iter(parts.batch_sampler)):
                if len(samples) == self._size:
                    break
                trace.text = None
                sample = parts.dataset[index]
                if not (self._distinct and trace.text is not None and trace.text in texts):
                    samples.append(sample)
                    texts.append(trace.text)
        except Exception as error:
            if of_host or trace.failed:
                self._findings.error(*self._explain(trace, error))
            elif isinstance(error, PPOCRExtError):
                self._findings.raised((self._mode, "dataset"), "dataset", error)
            else:
                raise
            return None
        return self._collate(samples, texts, parts)

    def _parts(self) -> LoaderParts:
        """Build the section's own dataset and sampler over usable samples."""
        plain = host_config(self._config)
        section = plain[self._mode]
        dataset_class = None
        # A dataset that draws images may draw the same text twice, so it draws more than needed.
        size = self._size * (2 if self._distinct else 1)
        section["loader"] |= {"batch_size_per_card": size, "num_workers": 0, "drop_last": False}
        if self._name in (*OF_LABEL_FILES, *OF_LMDB):
            usable = list(islice(self._usable(), self._size if self._distinct else _SAMPLES))
            self._drawn = not usable
            # The host's sampler gives every process a share, so there is a copy for each.
            copies = dist.get_world_size() * (1 if self._distinct else _SAMPLES)
            dataset_class = self._limited_class(section["dataset"], usable, copies)
        return loader_parts(
            self._context.host,
            plain,
            self._mode,
            self._context.seed,
            dataset_class=dataset_class,
            logger=SILENT,
        )

    def _limited_class(self, dataset: dict[str, Any], usable: list[Any], copies: int) -> type:
        """Return the class of the section's dataset over copies of the ``usable`` samples, or over drawn ones.

        Args:
            dataset: the config section, which is changed.
            usable: rows of LMDBs, or lines of label files; empty: two samples are drawn.
            copies: how often each sample is repeated.
        """
        dataset.pop("ratio_list", None)
        if self._name in OF_LMDB and usable:
            rows = np.asarray(usable * copies, np.int64)
            base = DATASETS.get(self._name)
            every: Any = lmdb_dataset_class(base, _NO_REPLACEMENT, (), self._dataset["data_dir"])
            return type(self._name, (every,), {"dataset_traversal": lambda self: rows})
        if not usable:
            usable = [line.encode() for line in self._draw()]
            dataset["data_dir"] = str(self._folder)
        if self._name not in OF_LABEL_FILES:
            dataset["name"] = "SimpleDataSet"
        file = self._folder / f"{self._mode}.txt"
        file.write_bytes(b"\n".join(usable * copies) + b"\n")
        dataset["label_file_list"] = [str(file)]
        base = DATASETS.get(dataset["name"])
        return report_failures(base, _NO_REPLACEMENT, lambda *sample: b"", bytes.decode)

    def _usable(self) -> Iterator[Any]:
        """Yield usable lines, or pairs of the number of an LMDB and that of the sample.

        The label check reports what cannot be read.
        """
        is_lmdb = self._name in OF_LMDB
        report = PreflightReport(
            Path(self._dataset["data_dir"]),
            replace(self._rules, image_check="decode"),
            self._dataset.get("delimiter", "\t"),
            bool(self._dataset.get("ds_width")),
            is_lmdb=is_lmdb,
        )
        with suppress(PPOCRExtError):
            for place, source in enumerate(open_sources(report, label_files_of(self._config, self._mode))):
                for number, item in enumerate(islice(source.items(), _TRIED), start=1):
                    line, issue, _ = judge(source, number, item)
                    if issue is None and self._is_new(line.label):
                        yield (place, number) if is_lmdb else line.content

    def _is_new(self, label: str) -> bool:
        """Return False if the labels must differ and an earlier sample has this one."""
        seen = self._distinct and label in self._labels
        self._labels.add(label)
        return not seen

    def _draw(self) -> Iterator[str]:
        """Write images of noise, and yield lines of a label file for them, with characters of the dictionary."""
        delimiter = self._dataset.get("delimiter", "\t")
        known = [c for c in self._context.charset.characters if len(c) == 1 and c.strip() and c != delimiter]
        # NRTR adds a start and an end mark.
        length = max(1, min(4, self._config.settings.max_text_length - 2))
        for number in range(_SAMPLES):
            draw = np.random.default_rng(number)
            cv2.imwrite(str(self._folder / f"{number}.png"), draw.integers(0, 256, (48, 160, 3), np.uint8))
            text = "".join(draw.choice(known, length))
            size = ("160", "48") if self._dataset.get("ds_width") else ()
            yield delimiter.join((f"{number}.png", text, *size))

    def _explain(self, trace: TransformTrace, error: Exception) -> tuple[KeyPath, str, str]:
        """Return config path, code and message of the stage at which a sample has failed."""
        data = trace.data
        name, path = trace.names[trace.position] if trace.position >= 0 else ("", self._path)
        image = data.get("image") if isinstance(data, Mapping) else None
        if isinstance(image, bytes) and name != "DecodeImage":
            where = path if trace.failed else self._path
            return where, "image_not_decoded", f"the image is not decoded yet. {_DECODE}"
        if not trace.failed:  # the dataset itself or its sampler has failed
            files = [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]
            of_sampler = self._config.at((self._mode, "sampler"), None) and (
                data or any("sampler" in f for f in files)
            )
            where = (self._mode, "sampler" if of_sampler else "dataset")
            return where, "dataset_failed", f"{self._name} fails on a sample: {described_error(error)}"
        if not isinstance(data, Mapping):
            kept = next((each for each in trace.names if each[0] == "KeepKeys"), (name, path))[1]
            return (
                kept,
                "transform_order",
                f"{name} comes after KeepKeys, which makes a list. Fix: put KeepKeys last.",
            )
        key = str(trace.error.args[0]) if isinstance(trace.error, KeyError) else ""
        if name == "KeepKeys" and key:
            return (*path, "keep_keys"), "unknown_sample_key", _unknown_key(trace, key)
        if key in trace.last_seen and key not in data:
            loser = trace.names[trace.last_seen[key]][0]
            return path, "transform_order", f"{loser} removes {key!r}. Fix: put {name} before {loser}."
        given = self._config.at((*path, "image_shape"), None) or ()
        if isinstance(image, np.ndarray) and given[:1] == (1,) and image.shape[2:] == (3,):
            fix = [3, *given[1:]]
            return (
                (*path, "image_shape"),
                "bad_value",
                f"images have 3 channels, not 1. Fix: `image_shape: {fix}`.",
            )
        what = "it refuses the sample." if trace.error is None else described_error(trace.error)
        shape = f" (image {list(image.shape)})" if isinstance(image, np.ndarray) else ""
        return path, "transform_failed", f"{what}{shape} Fix: check its options and the transforms before it."

    def _collate(self, samples: list[Any], texts: list[str | None], parts: LoaderParts) -> DryBatch | None:
        listed = named_items(self._config, *self._path)
        kept = next((path for name, path in listed if name == "KeepKeys"), None)
        path = self._path if kept is None else (*kept, "keep_keys")
        collate = self._config.at((self._mode, "loader", "collate_fn"), None)
        if not collate and not isinstance(samples[0], list | tuple):
            self._findings.error(
                self._path,
                "missing_transform",
                "no transform makes a list of the sample. Fix: end with KeepKeys and its keep_keys.",
            )
            return None
        if (
            self._mode == "Eval" and not collate
        ):  # an evaluation reads images of another width in another batch
            samples = equal_runs(samples)[0]
        try:
            batch = parts.collate(samples)
        except Exception as error:
            where = (self._mode, "loader", "collate_fn") if collate else path
            text = f"samples cannot be put together as a batch: {described_error(error)}"
            self._findings.error(where, "collate_failed", text)
            return None
        entries = [paddle.to_tensor(each) if isinstance(each, np.ndarray) else each for each in batch]
        keys = () if kept is None else tuple(map(str, self._config.at(path, ())))
        if "image" in keys[1:]:
            self._findings.error(path, "keep_keys_order", f"the image must come first, not {keys[0]!r}.")
            return None
        if isinstance(samples[0], list) and isinstance(samples[0][0], bytes):
            self._findings.error(self._path, "image_not_decoded", f"the image is not decoded. {_DECODE}")
            return None
        return DryBatch(entries, texts[: len(samples)], keys, path, self._drawn)


def _fail(key: bytes, place: Any, reason: str) -> None:
    raise DataError(reason, code="sample_failed")


_NO_REPLACEMENT: Any = SimpleNamespace(mode="Train", name="", add=_fail)  # in place of LoadFailures


# What most configs make an entry of a sample with.
_MAKERS = {
    "valid_ratio": "RecResizeImg",
    "length": "CTCLabelEncode",
    **dict.fromkeys(("label_ctc", "label_gtc", "label_sar"), "MultiLabelEncode"),
}


def _unknown_key(trace: TransformTrace, key: str) -> str:
    if key in trace.last_seen:
        loser = trace.names[trace.last_seen[key]][0]
        return f"{key!r} is made before {loser}, which removes it. Fix: make it after {loser}."
    fix = f"add {_MAKERS[key]}, which makes it" if key in _MAKERS else "remove it, or add what makes it"
    return f"no transform makes {key!r} (found {', '.join(sorted(map(str, trace.data)))}). Fix: {fix}."


@dataclass
class TransformTrace:
    """Record how the transforms process a sample.

    Attributes:
        names: name and config path of each transform.
        position: the position of the last transform that was called; -1 before the first.
        data: its input.
        text: the last label that was a text.
        last_seen: for each key of a sample, the last transform whose input had it.
        failed: True if this transform raised, or refused the sample.
        error: the exception that it raised.
    """

    names: list[tuple[str, KeyPath]]
    position: int = -1
    data: Any = None
    text: str | None = None
    last_seen: dict[str, int] = field(default_factory=dict)
    failed: bool = False
    error: Exception | None = None


class _TracedTransform(Proxy):
    """A transform that records its input and its failure in a trace."""

    def __init__(self, operator: Any, position: int, trace: TransformTrace) -> None:
        super().__init__(operator)
        self._position = position
        self._trace = trace
        self._needs_pixels = kind_of(trace.names[position][0]) in ("random", "resize")

    def __call__(self, data: Any) -> Any:
        trace = self._trace
        trace.position = self._position
        trace.data = data
        if isinstance(data, Mapping):
            trace.last_seen.update(dict.fromkeys(map(str, data), self._position))
            trace.text = data["label"] if isinstance(data.get("label"), str) else trace.text
        try:
            if self._needs_pixels and isinstance(data["image"], bytes):  # some are applied only now and then
                raise DataError("the image is not decoded", code="image_not_decoded")
            result = self.real(data)
        except Exception as error:
            trace.failed = True
            trace.error = error
            raise
        trace.failed = result is None
        return result


def trace_transforms(dataset: Any, config: Config, mode: str) -> TransformTrace:
    """Wrap the transforms of ``dataset``, which are the last ones of the config, and return their trace."""
    operators = list(getattr(dataset, "ops", None) or ())
    listed = list(named_items(config, mode, "dataset", "transforms"))
    for at, name in own_transforms(config, mode):  # the config does not list them
        listed.insert(at, (name, listed[at][1]))
    trace = TransformTrace(listed[len(listed) - len(operators) :])
    if len(trace.names) == len(operators) > 0:
        dataset.ops = [_TracedTransform(each, number, trace) for number, each in enumerate(operators)]
    return trace
