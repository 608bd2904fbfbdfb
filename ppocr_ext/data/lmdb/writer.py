"""An LMDB of text lines for PaddleOCR's ``LMDBDataSet``, written in one pass that can be interrupted.

Samples and the place in the label files stand in the same transaction, so that a process that is killed
leaves an LMDB which the next one continues. ``num-samples``, without which nobody reads it, comes last.
Imports no Paddle.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.data.lmdb.samples import Entry, LmdbInput, Position, entries
from ppocr_ext.data.preflight_report import REASONS
from ppocr_ext.data.unusable_limit import MAX_UNUSABLE, UnusableLimit
from ppocr_ext.errors import DataError, MissingPackageError

_STATE = b"ppocr-ext-make-lmdb"  # how far it is, in JSON
_DATA = "data.mdb"
_BATCH = 32 << 20  # bytes of a transaction
_EXAMPLES = 5  # unusable lines of each reason that are kept by name
_HOPELESS = 1000  # lines without a single sample after which nothing else is expected
_FIRST_MAP = 1 << 30  # bytes
_MOST_SAMPLES = 999_999_999  # that nine digits can number
_ADVICE = {  # where this command has other words than a config
    "bad_format": "A line is a path, --delimiter and the label, in UTF-8.",
    "too_long": "Raise --max-text-length.",
    "unknown_char": "Is --dict the dictionary of these labels?",
    "missing_image": "Paths are relative to --data-dir.",
    "outside_data_dir": "",
}
_REMEDY = "Give another --out, or delete that folder first."


@dataclass
class LmdbState:
    """How far an LMDB is.

    Attributes:
        parameters: what determines its samples.
        position: the place in the label files up to which it holds everything.
        samples: images in it.
        lines: lines looked at.
        unusable: lines left out, by reason; exact.
        examples: the first of them: file, line, reason, detail.
        complete: it has its ``num-samples``.
    """

    parameters: dict[str, Any]
    position: Position = Position()
    samples: int = 0
    lines: int = 0
    unusable: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, int, str, str]] = field(default_factory=list)
    complete: bool = False

    @property
    def left_out(self) -> int:
        """Lines left out."""
        return sum(self.unusable.values())

    def note(self, entry: Entry) -> None:
        """Count a line, and keep it by name if it is one of the first with its fault."""
        self.position, self.lines = entry.after, self.lines + 1
        self.samples += len(entry.images)
        if entry.fault is not None:
            reason, detail = entry.fault
            count = self.unusable[reason] = self.unusable.get(reason, 0) + 1
            if count <= _EXAMPLES:
                self.examples.append((str(entry.file), entry.line, reason, detail))

    def by_reason(self) -> str:
        """``3 too_long, 1 missing_image``: the most frequent first."""
        ordered = sorted(self.unusable, key=lambda reason: -self.unusable[reason])
        return ", ".join(f"{self.unusable[reason]:,} {reason}" for reason in ordered)

    def named(self) -> list[str]:
        """The examples, a line each."""
        return [f"{file}:{line}: {reason}: {detail}" for file, line, reason, detail in self.examples]


@dataclass(frozen=True)
class LmdbMade:
    """What :func:`make_lmdb` did: the state of the LMDB, samples written now, seconds, bytes on the disk."""

    state: LmdbState
    written: int
    seconds: float
    size: int


def make_lmdb(
    out: str | Path, wanted: LmdbInput, max_unusable: float = MAX_UNUSABLE, map_size: int = _FIRST_MAP
) -> LmdbMade:
    """Write the images of label files, as they are, with their labels; go on where an earlier call ended.

    Args:
        out: folder of the LMDB.
        wanted: what goes into it. Of a line with several images each is a sample with the line's label.
        max_unusable: the LMDB is not completed if more than this share of the lines is unusable.
        map_size: bytes that the LMDB may take at first; it grows as it needs to.

    Raises:
        DataError: ``out`` holds something else, too many lines are unusable, or it cannot be written.
        MissingPackageError: the package ``lmdb`` is not installed.
    """
    started = time.perf_counter()
    if not wanted.label_files:
        raise DataError("No label file is given. Name at least one.")
    if not wanted.data_dir.is_dir():
        raise DataError(f"--data-dir: there is no folder {wanted.data_dir}.")
    parameters = wanted.to_json()
    with _opened(Path(out), map_size) as store:
        state = store.resumed(parameters)
        before = state.samples
        if not state.complete:
            _write(store, state, wanted)
            _judge(state, wanted, max_unusable)
            store.complete(state)
    size = (Path(out) / _DATA).stat().st_size
    return LmdbMade(state, state.samples - before, time.perf_counter() - started, size)


def _write(store: _Store, state: LmdbState, wanted: LmdbInput) -> None:
    sizes = [path.stat().st_size for path in wanted.label_files]
    done = sum(sizes[: state.position.file]) + state.position.offset
    pending: list[tuple[bytes, bytes]] = []
    weight = 0
    bar = tqdm(total=sum(sizes), initial=done, desc="label files", unit="B", unit_scale=True, disable=None)
    with bar:
        for chunk in entries(wanted, state.position):
            for entry in chunk:
                for number, image in enumerate(entry.images, start=state.samples + 1):
                    pending += [
                        (b"image-%09d" % number, image),
                        (b"label-%09d" % number, entry.label.encode()),
                    ]
                    weight += len(image)
                state.note(entry)
            done_now = sum(sizes[: state.position.file]) + state.position.offset
            bar.update(done_now - bar.n)
            if weight >= _BATCH:
                store.commit(pending, state)
                pending, weight = [], 0
            if state.samples > _MOST_SAMPLES:
                raise DataError(
                    f"More than {_MOST_SAMPLES:,} samples: PaddleOCR numbers them with nine digits."
                )
            if state.lines >= _HOPELESS and not state.samples:
                break
    store.commit(pending, state)


def _judge(state: LmdbState, wanted: LmdbInput, max_unusable: float) -> None:
    """Refuse to complete an LMDB of label files that are mostly unusable.

    Raises:
        DataError: the counts by reason, examples, and how to have it nevertheless.
    """
    if state.lines == 0:
        raise DataError(
            f"{', '.join(map(str, wanted.label_files))}: no line. A line is a path, a tab, a label."
        )
    # without a sample the rest of the lines may not have been looked at, and there is nothing to read
    if state.samples and UnusableLimit(max_unusable).allows(state.left_out, state.lines):
        return
    listed = "\n".join(f"  {line}" for line in state.named())
    share = state.left_out / state.lines
    if not state.samples:
        reason = max(state.unusable, key=lambda key: state.unusable[key])
        advice = f" {_ADVICE.get(reason, REASONS[reason])}".rstrip()
    else:
        admitting = f"--max-unusable {_up(share):g}"
        advice = f" Fix them, delete --out and make it anew, or complete it without them: {admitting}."
    outside = " --allow-outside-data-dir admits such paths." if "outside_data_dir" in state.unusable else ""
    raise DataError(
        f"{state.left_out:,} of {state.lines:,} lines cannot be used: {state.by_reason()}.{advice}{outside}\n{listed}"
    )


def _up(share: float) -> float:
    """``share`` with two digits, rounded up."""
    return -(-round(share * 10_000) // 100) / 100


@contextmanager
def _opened(out: Path, map_size: int) -> Iterator[_Store]:
    try:
        import lmdb
    except ModuleNotFoundError as error:
        raise MissingPackageError("An LMDB needs the package lmdb: pip install lmdb") from error
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file. {_REMEDY}")
    if out.is_dir() and any(out.iterdir()) and not (out / _DATA).is_file():
        raise DataError(f"{out} is not empty and holds no LMDB. {_REMEDY}")
    out.mkdir(parents=True, exist_ok=True)
    try:
        there = (out / _DATA).stat().st_size if (out / _DATA).exists() else 0
        with lmdb.open(str(out), map_size=max(map_size, 2 * there)) as environment:
            yield _Store(out, environment, lmdb)
    except lmdb.Error as error:
        said = str(error).removeprefix(f"{out}: ")
        raise DataError(
            f"{out} cannot be written: {said}. Free space or fix the cause; the same command goes on."
        ) from error


class _Store:
    """The LMDB that is written."""

    def __init__(self, out: Path, environment: Any, lmdb: Any) -> None:
        self._out, self._environment, self._lmdb = out, environment, lmdb
        with environment.begin() as transaction:
            self._known: bytes | None = transaction.get(_STATE)
            entries_there = transaction.stat()["entries"]
        if self._known is None and entries_there:
            raise DataError(f"{out} is an LMDB that was not made by this command. {_REMEDY}")

    def resumed(self, parameters: dict[str, Any]) -> LmdbState:
        """How far it is; a new state where there is no sample yet.

        Raises:
            DataError: it was begun with other parameters.
        """
        if self._known is None:
            return LmdbState(parameters)
        known = json.loads(self._known)
        if not known["samples"]:  # what was not usable then may be by now
            return LmdbState(parameters)
        made = known["parameters"]
        differing = [key for key in {**made, **parameters} if made.get(key) != parameters.get(key)]
        if differing:
            listed = ", ".join(
                f"{key} {made.get(key)!r} (asked: {parameters.get(key)!r})" for key in differing
            )
            raise DataError(f"{self._out} was made with other parameters or label files: {listed}. {_REMEDY}")
        return LmdbState(**{**known, "position": Position(*known["position"])})

    def commit(self, pending: list[tuple[bytes, bytes]], state: LmdbState) -> None:
        """Write samples and how far it is now, all or nothing; the map grows as they need.

        Raises:
            DataError: another process writes to the same LMDB.
        """
        content = json.dumps(asdict(state), ensure_ascii=False).encode()
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    if transaction.get(_STATE) != self._known:
                        raise DataError(f"Another process writes to {self._out}. Wait for it, or end it.")
                    for key, value in pending:
                        transaction.put(key, value)
                    transaction.put(_STATE, content)
                break
            except self._lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
        self._known = content

    def complete(self, state: LmdbState) -> None:
        """Write ``num-samples``: from now on it is read."""
        state.complete = True
        self.commit([(b"num-samples", str(state.samples).encode())], state)
