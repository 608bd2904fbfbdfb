"""Report and count the samples that fail when they are loaded, over all worker processes.

PaddleOCR's datasets replace a sample that cannot be decoded, or that a transform refuses, by another one without a
message. This module reports the sample, and counts it against the limit of unusable samples. An evaluation ends at such
a sample, since its result would be wrong.
"""

from __future__ import annotations

import multiprocessing
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ppocr_ext.base import Proxy
from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import DataError
from ppocr_ext.messages import LOG

_NAMED = 20  # the first failed samples are reported by name; later, only their number at each power of ten
_IN_A_ROW = 100  # so many failures in a row are the fault of the transforms, not of the samples
# Limit for one sample; RecConAug asks for partners until PaddleOCR accepts one, perhaps forever.
_REFUSALS = 1000
_Dataset: Any = object  # stands for the host's dataset class, which follows _Reporting in the order of bases


def passes_power_of_ten(before: int, count: int) -> bool:
    """Return True if a count that grows from ``before`` to ``count`` reaches 1, 10, 100, …"""
    return count > before and (before == 0 or len(str(count)) > len(str(before)))


class LoadFailures:
    """Count the samples of ``Train`` or ``Eval`` that fail when they are loaded.

    The count is shared with worker processes that are forked later. A table of two bits per sample remembers which
    samples have failed, so that a sample that fails in each epoch counts once.

    Args:
        mode: ``"Train"`` or ``"Eval"``.
        total: how many samples the data have, usable or not.
        unusable: how many of them preflight has skipped.
        limit: how many may be unusable, the samples that fail here included.
        name: what messages call the data; empty: ``mode``.
    """

    def __init__(self, mode: str, total: int, unusable: int, limit: UnusableLimit, name: str = "") -> None:
        self.mode = mode
        self.name = name or mode
        self._total = total
        self._before = unusable
        self._limit = limit
        self._seen: Any = multiprocessing.RawArray("B", max(1024, total // 4))
        self._count: Any = multiprocessing.Value("q", 0)

    @property
    def count(self) -> int:
        """Return how many different samples have failed so far."""
        return int(self._count.value)

    def add(self, key: bytes, place: Callable[[], str], reason: str) -> None:
        """Count a sample that cannot be loaded.

        Args:
            key: identifies the sample.
            place: returns the name of the sample for a message; called only if it is needed.
            reason: why it cannot be loaded.

        Raises:
            DataError: the data are those of ``Eval``, or more samples have failed than the limit allows.
        """
        byte, bit = divmod(zlib.crc32(key) % (8 * len(self._seen)), 8)
        with self._count.get_lock():
            new = not self._seen[byte] >> bit & 1
            self._seen[byte] |= 1 << bit
            self._count.value += new
            count = self._count.value
        if self.mode != "Train":
            raise DataError(
                f"{self.name}: {place()}: {reason}. An evaluation cannot replace a sample by another. Fix: correct "
                f"or remove this one.",
                code="sample_failed",
            )
        if not new:
            return
        together = self._before + count
        if not self._limit.allows(together, self._total):
            raise DataError(
                f"{self.name}: {place()}: {reason}. With it {together:,} of {self._total:,} samples are unusable; "
                f"{self._limit.text}.",
                code="too_many_unusable",
            )
        if count <= _NAMED:
            LOG.warning("%s: %s: %s; the next sample is used instead.", self.name, place(), reason)
        elif passes_power_of_ten(count - 1, count):
            LOG.warning("%s: %d samples could not be loaded so far.", self.name, count)

    def summary(self) -> str:
        """Return one sentence about the samples of ``Train`` that have failed so far; empty if there are none."""
        if self.mode != "Train" or not self.count:
            return ""
        samples = "1 sample" if self.count == 1 else f"{self.count:,} samples"
        return f"{self.name}: {samples} could not be loaded; others were used instead."


class _AnotherSampleError(Exception):
    """Raised when the host's dataset asks itself for another sample, since the one at this index has failed."""


class _HostLog(Proxy):
    """Replace the logger of a dataset, and keep why the current sample fails."""

    def __init__(self, logger: Any) -> None:
        super().__init__(logger)
        self.begin()

    def begin(self) -> None:
        """Forget the previous sample."""
        self.reason = ""
        self.failing = ""
        self.refusals = 0
        self.is_joined = False

    def error(self, message: str, *args: Any) -> None:
        """Keep the last line of the traceback that the host logs, which names the exception."""
        lines = [line for line in str(message).splitlines() if line.strip()]
        self.reason = f"{self.failing}: {lines[-1].strip()}".removeprefix(": ") if lines else ""


class _ReportingTransform(Proxy):
    """A transform that tells the log when it refuses a sample or fails."""

    def __init__(self, transform: Any, log: _HostLog) -> None:
        super().__init__(transform)
        self._log = log

    def __call__(self, data: Any) -> Any:
        name = type(self.real).__name__
        # RecConAug, which joins samples, has this attribute
        label = data.get("label") if hasattr(self.real, "ext_data_num") else None
        try:
            result = self.real(data)
        except Exception:
            self._log.failing = name
            raise
        if result is None:
            reason = "the image cannot be decoded" if name == "DecodeImage" else f"{name} refuses it"
            self._log.reason = reason
            self._log.refusals += 1
            if self._log.refusals > _REFUSALS:
                raise RuntimeError(reason)
        elif label is not None:
            self._log.is_joined = result.get("label") != label
        return result


class _Reporting(_Dataset):
    """The first base class of the class that :func:`report_failures` returns, with its arguments as attributes."""

    def __init__(self, config: Any, mode: str, logger: Any, seed: int | None = None) -> None:
        self._inside = False
        super().__init__(config, mode, logger, seed)
        self._log = self.logger = _HostLog(logger)
        self.ops = [_ReportingTransform(each, self._log) for each in getattr(self, "ops", None) or ()]

    def __getitem__(self, index: Any) -> Any:
        if self._inside:
            raise _AnotherSampleError
        sample = b""
        reason = ""
        tries = min(_IN_A_ROW, len(self))
        for _ in range(tries):
            result, reason = self._attempt(index)
            if not reason:
                return result
            sample = self._key(self, position_of(index))
            # RecConAug may join labels up to max_text_length, and NRTR and SAR then refuse the two longest lengths:
            # this is not the fault of the sample
            if self._failures.mode != "Train" or self._log.failing or not self._log.is_joined:
                self._failures.add(sample, partial(self._place, sample), reason)
            index = with_position(index, (position_of(index) + 1) % len(self))
        raise DataError(
            f"{self._failures.name}: {tries} samples in a row cannot be loaded. The last: {self._place(sample)}: "
            f"{reason}. Fix: correct {self._failures.mode}.dataset.transforms, or the data.",
            code="samples_failed",
        )

    def _attempt(self, index: Any) -> tuple[Any, str]:
        """Return the host's sample, and why it fails; an empty text if it does not fail."""
        self._inside = True
        self._log.begin()
        try:
            return super().__getitem__(index), ""
        except _AnotherSampleError:
            return None, self._log.reason or "a transform refuses it"
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:
            return None, f"{type(error).__name__}: {error}".rstrip(": ")
        finally:
            self._inside = False


def report_failures(
    base: Any, failures: LoadFailures, key: Callable[[Any, int], bytes], place: Callable[[bytes], str]
) -> type:
    """Return a subclass of the host's dataset ``base`` that reports to ``failures`` which samples fail.

    If a sample fails, the host's dataset asks itself for a random other one. Here that call ends the attempt, the
    sample is reported, and the next sample in the data's order is used, so that a repeated run uses the same one. A
    sample of ``Train`` that is refused after other samples were joined to it is not reported.

    Args:
        base: a dataset class of the host: ``(config, mode, logger, seed)``.
        failures: counts the samples.
        key: returns the bytes that identify a sample, from dataset and index.
        place: returns the name of a sample for messages, from its key.
    """
    attributes = {"_failures": failures, "_key": staticmethod(key), "_place": staticmethod(place)}
    return type(base.__name__, (_Reporting, base), attributes)


def sample_key(dataset: Any, index: Any) -> bytes:
    """Return what identifies the sample at ``index``: its line, its place in an LMDB, or its number."""
    key = getattr(dataset, "_key", None)
    position = position_of(index)
    return str(position).encode() if key is None else key(dataset, position)


def position_of(index: Any) -> int:
    """Return the place of a sample in the data. An index of a multi-scale sampler is (width, height, place, ratio)."""
    return int(index[2] if isinstance(index, list | tuple) else index)


def with_position(index: Any, position: int) -> Any:
    """Return the index of another sample, with the image size of ``index`` if it has one."""
    return (*index[:2], position, *index[3:]) if isinstance(index, list | tuple) else position
