"""Write an LMDB of text lines for PaddleOCR's ``LMDBDataSet`` in one pass that can be interrupted; imports no Paddle.

Samples and the number of lines that they come from are in the same transaction, so that a process that is killed
leaves an LMDB which the next one continues. ``num-samples``, without which nobody reads it, comes last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from posixpath import abspath
from typing import Any

from tqdm import tqdm

from ppocr_ext.data.image_check import ImageFolder
from ppocr_ext.data.label_file import LabelLine, read_label_file, unreadable_label_file
from ppocr_ext.data.lmdb.reader import COUNT_KEY, DATA_FILE, check_complete, import_lmdb
from ppocr_ext.data.preflight_report import by_reason
from ppocr_ext.data.sample_rules import FIXES, SampleIssue, SampleRules
from ppocr_ext.data.unusable_limit import MAX_UNUSABLE, UnusableLimit, share_above
from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.limits import MAX_IMAGE_PIXELS

_STATE = b"ppocr-ext-make-lmdb"  # the LmdbState, in JSON
_CHUNK = 64  # lines whose images are in memory at a time
_BATCH = 32 << 20  # bytes of a transaction
_EXAMPLES = 5  # unusable lines of each reason that are kept by name
_NONE_USABLE = 1000  # lines without a single sample after which the rest is not read
_FIRST_MAP = 1 << 30  # bytes
_FIXES = {  # instead of FIXES: this command has options where a config has keys
    "bad_format": "A line is a path, --delimiter and the label, in UTF-8.",
    "too_long": "Raise --max-text-length.",
    "unknown_char": "Is --dict the dictionary of these labels?",
    "missing_image": "Paths are relative to --data-dir.",
    "too_many_pixels": "Cut the text lines out of them, or raise --max-image-pixels.",
    "outside_data_dir": "",
}
_FIX_OUT = "Fix: give another --out, or delete that folder first."


@dataclass(frozen=True)
class LmdbInput:
    """What goes into an LMDB.

    Args:
        label_files: PaddleOCR label files, in the order of the samples.
        data_dir: folder that relative image paths start from.
        rules: what makes a line usable.
        delimiter: separates the columns; columns after the label are not used.
    """

    label_files: tuple[Path, ...]
    data_dir: Path
    rules: SampleRules = field(repr=False)
    delimiter: str = "\t"

    def to_json(self) -> dict[str, Any]:
        """Return what determines the samples, as plain values; label files by name and content.

        Raises:
            DataError: a label file cannot be read.
        """
        rules, named = self.rules, []
        for path in self.label_files:
            try:
                named.append(named_by_content(path))
            except OSError as error:
                raise unreadable_label_file(path, error) from error
        return {
            "label_files": named,
            "data_dir": abspath(str(self.data_dir)),
            "delimiter": self.delimiter,
            "check": rules.image_check,
            "dictionary": rules.charset.digest if rules.charset else None,
            "max_text_length": rules.max_text_length,
            "allow_outside_data_dir": rules.allow_outside_data_dir,
            # not in an LMDB that was begun before there was this limit
            **({} if rules.max_pixels == MAX_IMAGE_PIXELS else {"max_image_pixels": rules.max_pixels}),
        }


@dataclass
class LmdbState:
    """How far an LMDB is.

    Attributes:
        parameters: what determines its samples.
        samples: images in it.
        lines: lines that were read; the next call continues after them.
        unusable: lines that were skipped, by reason; exact.
        examples: the first of them: file, line, reason, detail.
        complete: it has its ``num-samples``.
    """

    parameters: dict[str, Any]
    samples: int = 0
    lines: int = 0
    unusable: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, int, str, str]] = field(default_factory=list)
    complete: bool = False

    @property
    def skipped(self) -> int:
        """Lines that were skipped because they are unusable."""
        return sum(self.unusable.values())

    def skip(self, file: Path, number: int, issue: SampleIssue) -> None:
        """Count an unusable line, and keep it by name if it is one of the first with its reason."""
        count = self.unusable[issue.reason] = self.unusable.get(issue.reason, 0) + 1
        if count <= _EXAMPLES:
            self.examples.append((str(file), number, *issue))

    def example_lines(self) -> str:
        """Return the examples, a line each."""
        return "\n".join("  {}:{}: {}: {}".format(*example) for example in self.examples)


def make_lmdb(
    out: str | Path, source: LmdbInput, max_unusable: float = MAX_UNUSABLE, map_size: int = _FIRST_MAP
) -> tuple[LmdbState, int]:
    """Write the images of label files, as they are, with their labels; continue where an earlier call ended.

    Args:
        out: folder of the LMDB.
        source: what goes into it. Of a line with several images each is a sample with the line's label.
        max_unusable: the LMDB is not completed if more than this share of the lines is unusable.
        map_size: bytes that the LMDB may take at first; it grows as needed.

    Returns:
        The state of the LMDB, and how many samples this call wrote.

    Raises:
        DataError: ``out`` holds something else, too many lines are unusable, or it cannot be written.
        MissingPackageError: the package ``lmdb`` is not installed.
    """
    if not source.data_dir.is_dir():
        raise DataError(f"--data-dir: there is no folder {source.data_dir}.", code="missing_folder")
    parameters = source.to_json()
    with _opened(Path(out), map_size) as store:
        state = store.resume(parameters)
        before = state.samples
        if not state.complete:
            _write(store, state, source)
            _check_limit(state, source, UnusableLimit(max_unusable))
            state.complete = True
            store.commit([(COUNT_KEY.encode(), str(state.samples).encode())], state)
    return state, state.samples - before


def _write(store: _Store, state: LmdbState, source: LmdbInput) -> None:
    """Write the samples of all lines after those that ``state`` counts, and keep ``state`` up to date."""
    rules = source.rules
    folder = ImageFolder(source.data_dir, rules.image_check, rules.allow_outside_data_dir, rules.max_pixels)

    def read(item: tuple[Path, LabelLine]) -> tuple[SampleIssue | None, list[bytes]]:
        line = item[1]
        issue = rules.label_issue(line) or folder.issue(line.images)
        return issue, [] if issue else [folder.read(name) for name in line.images]

    lines = ((file, line) for file in source.label_files for line in read_label_file(file, source.delimiter))
    done = sum(len(line.content) + 1 for _, line in islice(lines, state.lines))
    size = sum(path.stat().st_size for path in source.label_files)
    pending: list[tuple[bytes, bytes]] = []
    bar = tqdm(total=size, initial=done, desc="label files", unit="B", unit_scale=True, disable=None)
    with bar, ThreadPoolExecutor(4) as pool:
        while chunk := list(islice(lines, _CHUNK)):
            for (file, line), (issue, images) in zip(chunk, pool.map(read, chunk), strict=True):
                for image in images:
                    state.samples += 1
                    pending.append((b"image-%09d" % state.samples, image))
                    pending.append((b"label-%09d" % state.samples, line.label.encode()))
                if issue is not None:
                    state.skip(file, line.number, issue)
                bar.update(len(line.content) + 1)
            state.lines += len(chunk)
            if sum(len(value) for _, value in pending) >= _BATCH:
                store.commit(pending, state)
                pending = []
            if state.lines >= _NONE_USABLE and not state.samples:
                break
    store.commit(pending, state)


def _check_limit(state: LmdbState, source: LmdbInput, limit: UnusableLimit) -> None:
    """Refuse to complete an LMDB of label files with too many unusable lines.

    Raises:
        DataError: the counts by reason, examples, and how to complete it nevertheless.
    """
    if state.lines == 0:
        raise DataError(
            f"{', '.join(map(str, source.label_files))}: no line. Fix: write a line `path<tab>label` for each sample.",
            code="empty_file",
        )
    # without a sample the rest of the lines may not have been read, and there is nothing to read
    if state.samples and limit.allows(state.skipped, state.lines):
        return
    if state.samples:
        share = share_above(state.skipped / state.lines)
        fix = (
            f"Fix them, delete --out and start again, or complete it without them: --max-unusable {share:g}."
        )
    else:
        reason = max(state.unusable, key=lambda key: state.unusable[key])
        fix = _FIXES.get(reason, FIXES[reason])
    outside = " --allow-outside-data-dir allows such paths." if "outside_data_dir" in state.unusable else ""
    raise DataError(
        f"{state.skipped:,} of {state.lines:,} lines are unusable ({by_reason(state.unusable)}). {fix}".rstrip()
        + f"{outside}\n{state.example_lines()}",
        code="too_many_unusable",
    )


@contextmanager
def _opened(out: Path, map_size: int) -> Iterator[_Store]:
    """Open the LMDB in ``out``, or a new one; refuse a folder or a file with something else."""
    lmdb = import_lmdb()
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file. {_FIX_OUT}", code="not_an_lmdb")
    if out.is_dir() and any(out.iterdir()) and not (out / DATA_FILE).is_file():
        raise DataError(f"{out} is not empty and holds no LMDB. {_FIX_OUT}", code="not_an_lmdb")
    out.mkdir(parents=True, exist_ok=True)
    size = (out / DATA_FILE).stat().st_size if (out / DATA_FILE).exists() else 0
    try:
        with lmdb.open(str(out), map_size=max(map_size, 2 * size)) as environment:
            check_complete(out, environment)
            yield _Store(out, environment, lmdb)
    except lmdb.Error as error:
        reason = str(error).removeprefix(f"{out}: ")
        raise DataError(
            f"{out} cannot be written: {reason}. Fix: free space or remove the cause; the same command continues.",
            code="unwritable_file",
        ) from error


class _Store:
    """The LMDB that is written."""

    def __init__(self, out: Path, environment: Any, lmdb: Any) -> None:
        self._out, self._environment, self._lmdb = out, environment, lmdb
        with environment.begin() as transaction:
            self._known: bytes | None = transaction.get(_STATE)
            if self._known is None and transaction.stat()["entries"]:
                raise DataError(
                    f"{out} is an LMDB that was not made by this command. {_FIX_OUT}", code="not_an_lmdb"
                )

    def resume(self, parameters: dict[str, Any]) -> LmdbState:
        """Return how far the LMDB is; a new state if there is no sample yet.

        Raises:
            DataError: it was begun with other parameters.
        """
        known = json.loads(self._known or b"{}")
        if not known.get("samples"):  # what was unusable then may be usable now
            return LmdbState(parameters)
        made = known["parameters"]
        changed = [key for key in {**made, **parameters} if made.get(key) != parameters.get(key)]
        if changed:
            listed = ", ".join(f"{key} {made.get(key)!r} (now: {parameters.get(key)!r})" for key in changed)
            raise DataError(
                f"{self._out} was made with other parameters or label files: {listed}. {_FIX_OUT}",
                code="other_parameters",
            )
        return LmdbState(**known)

    def commit(self, pending: list[tuple[bytes, bytes]], state: LmdbState) -> None:
        """Write samples and the state, all or nothing; the map grows as needed.

        Raises:
            DataError: another process writes to the same LMDB.
        """
        content = json.dumps(asdict(state)).encode()
        while self._known != content:
            try:
                with self._environment.begin(write=True) as transaction:
                    if transaction.get(_STATE) != self._known:
                        raise DataError(
                            f"Another process writes to {self._out}. Fix: wait for it, or end it.",
                            code="in_use",
                        )
                    for key, value in [*pending, (_STATE, content)]:
                        transaction.put(key, value)
            except self._lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
            else:
                self._known = content
