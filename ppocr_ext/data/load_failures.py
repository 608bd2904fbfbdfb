"""Lines that only fail when they are loaded: named and counted, over all worker processes.

PaddleOCR's datasets replace a sample that cannot be decoded, or that a transform refuses, by another
one without a word. Here it is named; there may be as many as the run's tolerance admits; and an
evaluation, of which the result would be wrong, ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import DataError

_LOG = logging.getLogger("ppocr_ext")
_NAMED = 20  # lines named before only their number is said, at each power of ten
_IN_A_ROW = 100  # failures after which it is not the lines that are wrong
_REFUSALS = 1000  # of one attempt: PaddleOCR looks for a partner (RecConAug) until one can be used


def passes_power_of_ten(before: int, count: int) -> bool:
    """Return whether a count that grows from ``before`` to ``count`` reaches 1, 10, 100, …: worth a warning."""
    return count > before and (before == 0 or len(str(count)) > len(str(before)))


class LoadFailures:
    """Keeps count of the lines of ``Train`` or ``Eval`` that fail when they are loaded.

    The count is shared with worker processes that are forked later. Lines are told apart by two bits
    a line, so that one that fails in each epoch counts once.

    Args:
        mode: ``"Train"`` or ``"Eval"``.
        total: lines of the data, usable or not.
        unusable: of them, those that preflight has left out.
        tolerance: how many are admitted.
        called: how messages call the data; empty: as ``mode``.
    """

    def __init__(
        self, mode: str, total: int, unusable: int, tolerance: UnusableLimit, called: str = ""
    ) -> None:
        self._mode = mode
        self._called = called or mode
        self._total = total
        self._before = unusable
        self._tolerance = tolerance
        self._seen: Any = multiprocessing.RawArray("B", max(1024, total // 4))
        self._count: Any = multiprocessing.Value("q", 0)

    @property
    def count(self) -> int:
        """Different lines that have failed so far."""
        return int(self._count.value)

    def failed(self, key: bytes, place: Callable[[], str], reason: str) -> None:
        """Note that a line cannot be loaded.

        Args:
            key: what tells it from others.
            place: how messages name it; called only where it is named.
            reason: what happened.

        Raises:
            DataError: in ``Eval``; or there are more than the tolerance admits.
        """
        with self._count.get_lock():
            new = self._is_new(key)
            self._count.value += new
            count = self._count.value
        if self._mode != "Train":
            raise DataError(
                f"{self._called}: {place()}: {reason}. An evaluation replaces no line by another: fix this one, or "
                f"take it out."
            )
        if not new:
            return
        together = self._before + count
        if not self._tolerance.allows(together, self._total):
            raise DataError(
                f"{self._mode}: {place()}: {reason}. With it {together:,} of {self._total:,} cannot be used; "
                f"{self._tolerance.limit}."
            )
        if count <= _NAMED:
            _LOG.warning("%s: %s: %s; the next one is used in its place.", self._mode, place(), reason)
        elif passes_power_of_ten(count - 1, count):
            _LOG.warning("%s: %d have failed when they were loaded.", self._mode, count)

    def summary(self) -> str:
        """One sentence on the lines of ``Train`` that have failed so far; empty where none has."""
        if self._mode != "Train" or not self.count:
            return ""
        lines = "1 line" if self.count == 1 else f"{self.count:,} lines"
        return f"{self._mode}: {lines} could not be loaded; others were used in their place."

    def _is_new(self, key: bytes) -> bool:
        byte, bit = divmod(zlib.crc32(key) % (8 * len(self._seen)), 8)
        new = not self._seen[byte] >> bit & 1
        self._seen[byte] |= 1 << bit
        return new

    def hopeless(self, tries: int, place: str, reason: str) -> DataError:
        """The error of ``tries`` lines one after another that fail."""
        return DataError(
            f"{self._called}: {tries} lines one after another cannot be loaded. The last: {place}: {reason}. Correct "
            f"{self._mode}.dataset.transforms, if it is not the data."
        )


class _Refused(Exception):  # noqa: N818 - carries a replacement that was asked for out of the host's code
    """The host wants another sample in place of the one that it was asked for."""


class _Notes:
    """Takes the place of a dataset's logger: keeps what the host says of a sample that fails."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self.begin()

    def begin(self) -> None:
        """Forget the sample before."""
        self.last, self.limit_errors = "", 0

    def error(self, message: str, *args: Any) -> None:
        """Keep the last line of a traceback: the exception."""
        lines = [line for line in str(message).splitlines() if line.strip()]
        self.last = lines[-1].strip() if lines else ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


class _Step:
    """A transform that notes its name when it refuses a sample."""

    def __init__(self, operator: Any, notes: _Notes) -> None:
        self._operator = operator
        self._notes = notes

    def __call__(self, data: Any) -> Any:
        result = self._operator(data)
        if result is None:
            name = type(self._operator).__name__
            said = "the image cannot be decoded" if name == "DecodeImage" else f"{name} refuses it"
            self._notes.last = said
            self._notes.limit_errors += 1
            if self._notes.limit_errors > _REFUSALS:
                raise RuntimeError(said)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by pickle and copy before there is an operator
            raise AttributeError(name)
        return getattr(self._operator, name)


def report_failures(
    base: Any, watch: LoadFailures, key: Callable[[Any, int], bytes], place: Callable[[bytes], str]
) -> type:
    """A subclass of the host's dataset ``base`` that reports to ``watch`` which samples fail.

    The host asks itself for another sample where one fails. Here that call ends the attempt, the sample
    is reported, and the next one in the data's order is taken: the same one in a run that is repeated.

    Args:
        base: a dataset class of the host: ``(config, mode, logger, seed)``.
        watch: what is told.
        key: what tells a sample (dataset, index) from others.
        place: how messages name the sample of a key.
    """

    class Watched(base):
        def __init__(self, config: Any, mode: str, logger: Any, seed: int | None = None) -> None:
            self._asked = False
            super().__init__(config, mode, logger, seed)
            self._notes = _Notes(logger)
            self.logger = self._notes
            operators: Any = getattr(self, "ops", None) or ()
            self.ops = [_Step(operator, self._notes) for operator in operators]

        def __getitem__(self, index: Any) -> Any:
            if self._asked:
                raise _Refused
            sample, reason, tries = b"", "", min(_IN_A_ROW, len(self))
            for _ in range(tries):
                found, reason = self._attempt(index)
                if not reason:
                    return found
                sample = key(self, _position(index))
                watch.failed(sample, partial(place, sample), reason)
                index = _after(index, len(self))
            raise watch.hopeless(tries, place(sample), reason)

        def _attempt(self, index: Any) -> tuple[Any, str]:
            """What the host makes of a sample, and why it fails: ``""`` where it does not."""
            self._asked = True
            self._notes.begin()
            try:
                return super().__getitem__(index), ""
            except _Refused:
                return None, self._notes.last or "a transform refuses it"
            except (MemoryError, KeyboardInterrupt):
                raise
            except Exception as error:
                return None, f"{type(error).__name__}: {error}".rstrip(": ")
            finally:
                self._asked = False

    Watched.__name__ = Watched.__qualname__ = base.__name__
    return Watched


def _position(index: Any) -> int:
    """Place of a sample in the data; a multi-scale sampler gives width, height, place and ratio."""
    return int(index[2] if isinstance(index, list | tuple) else index)


def _after(index: Any, length: int) -> Any:
    after = (_position(index) + 1) % length
    return [*index[:2], after, *index[3:]] if isinstance(index, list | tuple) else after
