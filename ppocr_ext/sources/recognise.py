"""Recognise how a folder of labelled images says its texts, and read it; no Paddle."""

from __future__ import annotations

import re
import shlex
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from posixpath import dirname, join, splitext
from typing import NamedTuple

from ppocr_ext.data.image_check import in_its_place
from ppocr_ext.data.issue_rules import RULES
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_LABEL_LINE_BYTES
from ppocr_ext.messages import shortened
from ppocr_ext.sources.line_formats import LINE_FORMATS, Format, has_lines, lack
from ppocr_ext.sources.listing import Listing, finder
from ppocr_ext.sources.names import IMAGE_ENDINGS, LIST_ENDINGS, ending, in_two_splits, page_of_crop, stem
from ppocr_ext.sources.page_formats import PAGE_FORMATS, PageSizeError, corners, page_scale
from ppocr_ext.sources.samples import BLOCK, Entries, Records, Row, Rows, Sample, Skipped, Source

FORMATS: dict[str, Format] = {**LINE_FORMATS, **PAGE_FORMATS}
_STREAMS = 100  # label files that stay open until it is known whether they are read
_NAMED = 5  # lists that are not read
_MOST_COMPARED = 200_000
# what may be the text in the name of an image: the first, the last or a middle word, all but the last, all, its folder
_FROM_NAMES = (
    r"^[^-_ ]+",
    r"[^-_ ]+$",
    r"(?<=[-_ ])[^-_ ]+(?=[-_ ])",
    r".+(?=[-_])",
    r".+",
    r"[^/]+(?=/[^/]*$)",
)
_ISSUE = re.compile(  # the name of a group is the reason
    r"(?P<no_text>\A\s*\Z)|(?P<illegible>\A###\Z)|(?P<several_lines>[\r\n\x85\u2028\u2029])"
    rf"|(?P<bad_text>[\t\ufffd\ud800-\udfff]|\A.{{{MAX_LABEL_LINE_BYTES // 8}}})",
    re.DOTALL,
)
_BAD_PATH = re.compile(r"\A\[|[\t\r\n\ud800-\udfff]")
# the path of an image, whatever ocropus has made of it
_plain = partial(re.compile(r"\.(bin|dew|nrm|raw)(?=\.\w+$)").sub, "")
_RESULTS = re.compile(r"(^|/)(res|results?|output|predictions?)/", re.IGNORECASE)
_EXPORT = "export from PPOCRLabel (Export Recognition Result), CVAT (CVAT for images) or Label Studio (JSON)"
_UNSUPPORTED = {  # of the path of a file, or of its beginning: what it is, and what to do
    r"\Aversion https://git-lfs": ("a pointer of Git LFS", "run `git lfs pull` in its repository"),
    r"\.(zip|tar|tgz|gz|bz2|xz|7z|rar)$": ("an archive", "unpack it"),
    r"\.(parquet|arrow)$": ("a binary table", "save it as an image folder with metadata.jsonl"),
    r"\.(xlsx?|ods)$": ("a spreadsheet", "save it as CSV in UTF-8"),
    r"\.(mat|h5|hdf5|tfrecord|pkl|npz)$": ("a binary file", "write images and lines `path<TAB>text`"),
    r"(^|/)_annotations\.": ("Roboflow's export, which has boxes without text,", _EXPORT),
    r"<tagset>|<imagelist>": ("SVT's or ICDAR 2003's XML", "write lines `path<TAB>text`"),
    r'"paragraphs"\s*:': ("HierText", "write PPOCRLabel's Label.txt, or cut the lines"),
    r"\bregion_(shape_)?attributes\b|_via_img_metadata": (
        "VIA's export",
        "write PPOCRLabel's Label.txt, or cut the lines",
    ),
    r'\A(?!(?s:.*)"annotations"\s*:)(?s:.*)\boriginal_width\b': (
        "Label Studio's CSV or JSON-MIN, which lose boxes without text,",
        "export JSON",
    ),
    r'\A\s*\{\s*"source-ref"': ("a manifest of AWS Ground Truth", "write lines `path<TAB>text`"),
    r"\A\[[^\t\n]*\]\t": ("a list with several images for a text", "write a line for each image"),
    rf"\A[^\t\n]*\.(?:{'|'.join(IMAGE_ENDINGS)})(\\|/)t": (
        r"a list with the letters \t or /t in place of a tab",
        "write the tab itself",
    ),
    r"<(\w+:)?(PcGts|alto)\b": (
        "PAGE or ALTO, of which one file is read for an image,",
        "give it by `--labels`, if it is the right one",
    ),
    r"<annotation>": ("Pascal VOC, which has boxes without text,", _EXPORT),
    r"\Ax: \[\[": ("Total-Text", "write PPOCRLabel's Label.txt, or cut the lines"),
    r"(^|/)(data\.ya?ml|obj\.data|classes\.txt)$"
    r"|\A-?[\d.]+(( +-?[\d.]+){4,}( \S+ \d)?|(, *-?[\d.]+){4,7})\s*(?m:$)"
    r"|\A\S+( -?[\d.]+){14}": (
        "YOLO, or other boxes without text,",
        _EXPORT,
    ),
}


class _Reading(NamedTuple):
    """Label files that can be read alone.

    Attributes:
        format: the name of their format.
        files: the paths of the label files.
        records: the samples and the skipped texts of these files.
        samples: the first samples of ``records``.
        doubts: how many images may be wrong so far, by the sentence that tells the user.
    """

    format: str
    files: tuple[str, ...]
    records: Records
    samples: list[Sample]
    doubts: Counter[str]

    def __str__(self) -> str:
        return f"{shortened(self.files, 1)} ({self.format})"


def recognise(
    root: Path,
    *,
    format: str | None = None,
    labels: Sequence[str] = (),
    text_from_name: str | None = None,
    ask_for_split: bool = True,
) -> Source:
    """Recognise the label files of a folder.

    Args:
        root: the folder of images and label files.
        format: a key of ``FORMATS``, if several are possible.
        labels: the label files to read, relative to the current folder or to ``root``; empty: all.
        text_from_name: a regular expression that finds the text in the name of an image without its ending, or in its
            path if it has a ``/``: the group ``text``, else the first group, else all that matches. Label files are
            not read then.
        ask_for_split: a folder or label file that may be a part of a split, or not, is an error (``ambiguous_split``).

    Raises:
        DataError: no label file is in a known format (``no_samples``, ``unsupported_data``), or label files
            contradict each other (``ambiguous_data``); one of ``labels`` gives no sample (``unread_labels``); an
            argument or a file cannot be used.
    """
    if root.is_file() and (message := _unsupported([(root.name, root.name)])):
        raise DataError(message, code="unsupported_data")
    if format not in (None, *FORMATS):
        raise DataError(
            f"--format {format}: there is no such format. Fix: choose one of {', '.join(FORMATS)}.",
            code="bad_value",
        )
    listing = Listing(root, labels if text_from_name is None else (), ask_for_split=ask_for_split)
    formats = {format: FORMATS[format]} if format else FORMATS
    formats = {"file_names": _file_names(text_from_name)} if text_from_name is not None else formats
    readings = list(_readings(listing, formats))
    notes = [_why_unread(reading) for reading in readings if not reading.samples]
    usable = [reading for reading in readings if reading.samples]
    if not usable:
        raise _nothing(listing, notes)
    if text_from_name is None:
        notes += _unread(listing, {file for reading in readings for file in reading.files})
    selection = _select(listing, usable, notes) if len(usable) > 1 else usable
    files = tuple(chain.from_iterable(reading.files for reading in selection))
    for file in listing.labels if listing.by_user else ():
        if file not in files:
            why = next((note for note in notes if note.startswith(f"{file} ")), _why_unknown(listing, file))
            fix = "" if "Fix:" in why else " Fix: write lines `path<TAB>text`, or leave it out of --labels."
            raise DataError(f"--labels: {why}{fix}", code="unread_labels")
    records = Records(_distinct(selection))
    if any(reading.doubts.total() for reading in readings):
        deque(records, maxlen=0)  # to the end
    notes += _remarks(listing, files, sum((reading.doubts for reading in selection), Counter()))
    return Source(
        format=selection[0].format,
        root=listing.root,
        files=files,
        images=tuple(listing.images),
        notes=tuple(notes),
        read=lambda: iter(records),
        moved=tuple(sample for sample in listing.moved if sample.place.startswith(files)),
    )


def _remarks(listing: Listing, files: Sequence[str], doubts: Mapping[str, int]) -> list[str]:
    """Return what a user should know about the label files that are read, a sentence each."""
    guesses = [listing.guesses[file] for file in files if file in listing.guesses]
    no_parts = [path for path, split in listing.splits.items() if not split]
    encodings = {listing.encodings.get(file, "utf-8-sig"): file for file in reversed(files)}
    return [
        *(
            f"{what}: {shortened(paths, count)}."
            for what, paths, count in (
                ("Images of lines are read, not photos of the same name", guesses, 1),
                ("Not taken for parts of a split", no_parts, 3),
            )
            if paths
        ),
        *(f"{what}: {count:,}." for what, count in doubts.items() if count),
        *(f"{file} is read as {each.upper()}." for each, file in encodings.items() if each != "utf-8-sig"),
    ]


def _readings(listing: Listing, formats: Mapping[str, Format]) -> Iterator[_Reading]:
    """Yield each group of label files in a known format, read up to its first sample."""
    found = ((name, files) for name, row in formats.items() for files in row.find(listing))
    for number, (name, files) in enumerate(found):
        doubts: Counter[str] = Counter()
        records = Records(_entries(listing, formats[name], files, doubts))
        first = list(islice(records, BLOCK))
        later = (entry for entry in records if isinstance(entry, Sample))
        samples = [entry for entry in first if isinstance(entry, Sample)] or list(islice(later, 1))
        if number >= _STREAMS:
            deque(records, maxlen=0)  # to the end, which closes the file
        yield _Reading(name, files, records, samples, doubts)


def unlabelled(source: Source) -> tuple[int, tuple[str, ...]]:
    """Return how many images of a folder are named by no label file and are no pages of cut lines, and the first 3."""
    pairs = ((entry.image, entry.group if isinstance(entry, Sample) else "") for entry in source.read())
    named = {name for image, group in pairs for name in (image, _plain(image), group.rpartition("/")[2])}
    if Path(source.root, "dataset.json").is_file():
        named.add("samples.png")  # the overview that `make-dataset` draws
    images = [image for image in source.images if named.isdisjoint((image, _plain(image), stem(image)))]
    return len(images), tuple(images[:3])


def _file_names(pattern: str) -> Format:
    """Return the format of images whose names hold their texts."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise DataError(
            f"--text-from-name {pattern}: it is not a regular expression: {error}.", code="bad_value"
        ) from error
    group = "text" if "text" in expression.groupindex else min(expression.groups, 1)

    def read(listing: Listing, _: str) -> Rows:
        for image in listing.images:
            match = expression.search(_name(image, pattern))
            yield (
                Row(f"{listing.root}/{image}", match[group] or "", image)
                if match
                else Skipped("name_differs", image, pattern, image)
            )

    return Format("names of images", lambda _: [("",)], read)


def _name(image: str, pattern: str) -> str:
    """Return what a pattern is searched in: the name of an image without its ending, with folders if it has a slash."""
    return splitext(image)[0] if "/" in pattern else stem(image)


def _entries(listing: Listing, format: Format, files: Sequence[str], doubts: Counter[str]) -> Entries:
    """Yield a sample, or why there is none, for each text of label files.

    Args:
        listing: the data folder.
        format: the format of the files.
        files: the label files; if there are several, each belongs to one image.
        doubts: counts the images that may be wrong; see :func:`finder`.
    """
    for file in files:
        split = listing.split_of(file if len(files) == 1 else file.rpartition("/")[0])
        rows = format.read(listing, file)
        first = list(islice(rows, BLOCK))
        paths = (row.image for row in first if isinstance(row, Row))
        find = str if format is FORMATS["lmdb"] else finder(listing, file, doubts, paths)
        for row in chain(first, rows):
            yield row if isinstance(row, Skipped) else _entry(listing, row, find, split, doubts)


def _distinct(readings: Sequence[_Reading]) -> Entries:
    """Yield the entries of label files, an image with its text only once in each split."""
    seen: set[int] = set()
    for entry in chain.from_iterable(reading.records for reading in readings):
        if isinstance(entry, Sample):
            key = f"{_place(entry)} {entry.text}"
            if hash(f"{entry.split}:{key}") in seen:
                continue
            # a list of all samples repeats those of the splits, but a sample in two splits is to be seen
            seen.update((hash(f"{entry.split}:{key}"), hash(f":{key}")))
        yield entry


def _entry(
    listing: Listing, row: Row, find: Callable[[str], str | None], split: str, doubts: Counter[str]
) -> Sample | Skipped:
    image = find(row.image)
    if image is None:
        other = in_its_place(join(listing.root, dirname(row.place), row.image))
        return Skipped("missing_image", row.place, f"{row.image!r}{other}")
    issue = _ISSUE.search(row.text)
    if issue or _BAD_PATH.search(image):
        return Skipped(str(issue.lastgroup) if issue else "bad_path", row.place, repr(row.text[:60]), image)
    split = row.split or split or listing.split_of(image.rpartition("/")[0])
    if row.box is None:
        return Sample(image, row.text, row.place, split, page_of_crop(image))
    try:
        box, is_moved = corners(row.box, row.text)
        across, along = page_scale(row.box, partial(listing.image_size, image))
    except PageSizeError as error:
        return Skipped("page_size", row.place, f"{image}: {error}", image)
    except (KeyError, TypeError, ValueError):
        return Skipped("bad_box", row.place, repr(row.text[:60]), image)
    box = tuple((x * across, y * along) for x, y in box)  # type: ignore[assignment]
    sample = Sample(image, row.text, row.place, split, image, box)
    doubts["Boxes scaled, since their pages have another size than their label files say"] += (
        across != 1 or along != 1
    )
    doubts[
        "Polygons that begin elsewhere than at the top left, cut as text that is not upside down (look.png)"
    ] += is_moved
    if is_moved and len(listing.moved) < BLOCK:
        listing.moved.append(sample)
    return sample


def _place(sample: Sample) -> str:
    # a text, not a tuple: numbers could be chosen so that all have one hash
    return sample.image if sample.box is None else f"{sample.image} {sample.box}"


def _select(listing: Listing, usable: list[_Reading], notes: list[str]) -> list[_Reading]:
    """Return the label files to read, all in one format, and add to ``notes`` why others are not read.

    Files named by split come first, so a list of all samples that stands beside them is not read; copies in folders
    below come last. Files that the user has named may give an image different texts.

    Args:
        listing: the data folder.
        usable: the label files that have samples.
        notes: the sentences for the user; see :class:`Source`.

    Raises:
        DataError: label files contradict each other, or several formats are left.
    """
    selection: list[_Reading] = []
    by_place: dict[str, tuple[_Reading, Sample]] = {}
    copies: dict[str, str] = {}  # file name and text of an image -> its split
    for reading in sorted(
        usable,
        key=lambda each: (
            _RESULTS.search(each.files[0]) is not None,
            list(FORMATS).index(each.format),
            not each.samples[0].split,
            each.files[0].count("/"),
        ),
    ):
        for sample in reading.samples:
            other, same = by_place.get(_place(sample), (reading, sample))
            differ = same.text.strip() != sample.text.strip() and not listing.by_user
            if differ and not in_two_splits(same.split, sample.split):
                raise _ambiguous(listing, (other, same), (reading, sample))
        is_copy = not listing.by_user and all(
            _copy(each) in copies and not in_two_splits(copies[_copy(each)], each.split)
            for each in reading.samples
        )
        is_result = not listing.by_user and selection and _RESULTS.search(reading.files[0])
        why = (
            (is_copy and "other label files have the same texts")
            or (is_result and "it stands among results")
            or (
                selection
                and (
                    (reading.format == "ppocrlabel" and page_of_crop(selection[0].samples[0].image))
                    or (reading.format == "page_xml" and selection[0].format == "text_files")
                )
                and f"{selection[0]} has the texts of lines. `--format {reading.format}` cuts the pages"
            )
        )
        if why:
            notes.append(f"{reading} is not read: {why}.")
        elif selection and reading.format != selection[0].format:
            one = selection[0]
            raise _ambiguous(listing, (one, one.samples[0]), (reading, reading.samples[0]))
        else:
            selection.append(reading)
            for entry in islice(reading.records, max(0, _MOST_COMPARED - len(by_place))):
                if isinstance(entry, Sample):
                    by_place[_place(entry)] = (reading, entry)
                    copies.setdefault(_copy(entry), entry.split)
    return selection


def _copy(sample: Sample) -> str:
    return f"{_place(sample).rpartition('/')[2]} {sample.text.strip()}"


def _ambiguous(listing: Listing, one: tuple[_Reading, Sample], other: tuple[_Reading, Sample]) -> DataError:
    """Return the error of two readings; the sample beside each shows in what they differ."""
    is_one_format = one[0].format == other[0].format
    flags = [
        f"--labels {shlex.quote(each.files[0])}" if is_one_format else f"--format {each.format}"
        for each, _ in (one, other)
    ]
    examples = [
        f"  {each}: " + "; ".join(f"{sample.image} {sample.text!r}" for sample in [first, *each.samples[:2]])
        for each, first in (one, other)
    ]
    return DataError(
        f"{listing.root}: its texts can be read in two ways. Fix: give `{flags[0]}` or `{flags[1]}`.\n"
        + "\n".join(examples),
        code="ambiguous_data",
    )


def _why_unread(reading: _Reading) -> str:
    skipped = [entry for entry in islice(reading.records, BLOCK) if isinstance(entry, Skipped)]
    reasons = Counter(each.reason for each in skipped)
    counts = [f"{count} {reason}" for reason, count in reasons.items()] or ["no texts"]
    return (
        f"{reading} is not read: its first texts give no sample: "
        f"{', '.join([*counts, *(each.detail for each in skipped[:3])])}. "
        + "".join(RULES[reason].fix_in("left_out") for reason, _ in reasons.most_common(1))
    )


def _unread(listing: Listing, read: Collection[str]) -> Iterator[str]:
    """Yield why lists are not read, a sentence each for the first; those of ``read`` are in a known format."""
    kinds = (*LIST_ENDINGS, "json", "parquet", "xlsx", "xml")
    lists = [file for file in listing.labels if ending(file) in kinds and file not in listing.image_beside]
    lists += _odd_lists(listing)
    others = [file for file in lists[: listing.most] if file not in read]
    left_out = [file for file in lists[listing.most :] if file not in read]
    yield from (_why_unknown(listing, file) for file in others[:_NAMED])
    if others[_NAMED:]:
        yield f"{shortened(others[_NAMED:], 1)}: not read, their formats are unknown."
    if left_out:
        yield f"{shortened(left_out, 1)}: not read, since there are too many lists. Fix: name all by `--labels`."


def _odd_lists(listing: Listing) -> list[str]:
    """Return the files with an unusual ending in which most lines name an image."""
    odd = (file for file in listing.lists if ending(file) not in LIST_ENDINGS)
    return [file for file in odd if has_lines(listing, file, rf".*\.(?i:{'|'.join(IMAGE_ENDINGS)})\b.*")]


def _why_unknown(listing: Listing, file: str) -> str:
    """Return why a file is in no known format."""
    head = listing.head(file)
    return _unsupported([(file, file), (file, head)]) or (
        f"{file} is not read, its format is unknown: it begins with {head[:80]!r}{lack(listing, file)}."
        if head
        else f"{file} is not read: it has no text."
    )


def _nothing(listing: Listing, notes: Sequence[str]) -> DataError:
    """Return the error of a folder without samples, or of label files named by the user that give none."""
    named = listing.labels if listing.by_user else []
    texts = named or [*listing.with_ending(*LIST_ENDINGS, "json", "xml"), *_odd_lists(listing)]
    other = _unsupported(
        [*((file, file) for file in named or listing.files), *((file, listing.head(file)) for file in texts)]
    )
    if other and not notes:
        return DataError(other, code="unsupported_data")
    files = [*listing.images, *listing.files]
    counts = ", ".join(f"{count:,} .{name}" for name, count in Counter(map(ending, files)).most_common(5))
    lines = [
        f"{shortened(named or [str(listing.root)], 1)}: it has no texts of images (found {counts or 'no files'}: "
        f"{shortened(files, 3)}). Fix: add a label file, or the column that is missing, or give `--text-from-name`.",
        *notes,
        *filter(None, [other]),
    ]
    if named or not notes:
        reasons = [f"  {_why_unknown(listing, file)}" for file in texts[:3]]
        lines += [
            *reasons,
            *([] if named else _from_names(list(listing.images))),
            *(
                f"  {name}: {row.description}"
                for name, row in FORMATS.items()
                if not any("Fix:" in each for each in reasons)
            ),
        ]
    return DataError("\n".join(lines), code="no_samples")


def _from_names(images: Sequence[str]) -> list[str]:
    """Return a line for each of at most four ways to take the texts from the names of images, with what it reads."""
    chosen = images[:: len(images) // 3 or 1][:3]
    readings: dict[str, str] = {}  # what is read, and from what -> the pattern
    for pattern in _FROM_NAMES:
        names = [_name(image, pattern) for image in chosen]
        texts = [match[0] for name in names if (match := re.search(pattern, name))]
        if len(texts) == len(names) and (len({*texts}) > 1 or len({*names}) == 1):
            readings.setdefault(f"{', '.join(map(repr, texts))} from {', '.join(names)}", pattern)
    return [
        f"  `--text-from-name {shlex.quote(pattern)}` reads {what}."
        for what, pattern in islice(readings.items(), 4)
    ]


def _unsupported(looks: Sequence[tuple[str, str]]) -> str | None:
    """Return what is to be said of the first file whose path or beginning shows a format that is not read.

    Args:
        looks: pairs of a file and what is searched: its path, or its beginning.
    """
    return next(
        (
            f"{file}: {what} is not read. Fix: {fix}."
            for pattern, (what, fix) in _UNSUPPORTED.items()
            for file, look in looks
            if re.search(pattern, look, re.IGNORECASE)
        ),
        None,
    )
