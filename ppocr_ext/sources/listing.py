"""List a data folder, read its text files in any encoding, and find images by the paths in label files; no Paddle."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path, PurePosixPath
from posixpath import basename, dirname, getsize, isfile, islink, join, normpath, realpath, relpath
from typing import Any, BinaryIO
from xml.etree import ElementTree

from ppocr_ext.errors import DataError
from ppocr_ext.io.image_pixels import shown_size
from ppocr_ext.limits import MAX_RECORD_BYTES, MAX_TEXT_BYTES, open_regular
from ppocr_ext.sources.encodings import UNKNOWN, USUAL, encoding_of
from ppocr_ext.sources.names import (
    IMAGE_ENDINGS,
    IN_DOUBT,
    LIST_ENDINGS,
    ending,
    in_two_splits,
    split_in,
    splits_of,
    stem,
)
from ppocr_ext.sources.samples import Sample

RECORD = "init.json"  # tells a folder that `init` wrote; what it drew or cut is no data
# by ending: guesses of a tool, files of the past, and what has formats of its own
_NOT_LISTS = ("bak", "cach", "cal", "json", "log", "mdb", "old", "orig", "tmp", "xml")
_NOT_LABELS = re.compile(  # by name: dictionaries, PPOCRLabel's state, predictions, texts for people
    r"(.*_)?dict|classes|readme.*|requirements.*|licen[cs]e|filestate|.*predict.*|.*submission|system_results|_annotations.*",
    re.IGNORECASE,
)
_HIDDEN = (".", "__MACOSX")  # how names of files begin that are not the user's
_MOST_FILES = 1000  # of each kind, whose beginnings are read
_MOST_ALIKE = 20  # images of the same name, among which one is chosen; lists of an unusual ending
_HEAD = 1 << 14  # bytes of a file that tell its format
_MOST_VALUES = 10_000_000  # of a text that is parsed as a whole: a value may take 100 bytes
_BLOCK = 1 << 20
_VERSIONS = ("", ".raw", ".nrm", ".dew", ".bin")  # what ocropus adds to a name, the best first
# a folder of what was cut out of images, in a path
_CROPS = re.compile(r"(?<![a-z])(crop|cut|line|plate|roi|snippet|word)[^/]*/|裁|切", re.IGNORECASE)
_ABSOLUTE = re.compile(r"/|[A-Za-z]:/|\w+://")
_HASH = re.compile(r"^[0-9a-f]{8,}-(?=.)")  # Label Studio puts it before the name of an uploaded file


class Listing:
    """The files of a data folder, without hidden ones and without links that lead out of it.

    Args:
        root: the data folder.
        labels: the only files that may be label files, relative to the current folder or to ``root``.
        ask_for_split: True if :meth:`split_of` raises an error for a name that is in doubt.

    Attributes:
        root: the real path of the folder.
        starts: the strings that an absolute path of a file in the folder may begin with.
        images: the paths of the images, relative to ``root``, sorted.
        files: the paths of all other files.
        labels: those of the other files that may be label files.
        by_user: True if the user has named the label files.
        guesses: by label file, the image of a line that was chosen, although there is a larger one of the same name.
        encodings: the encoding of each text file that has been read.
        most: how many label files of a kind are looked at, at most.
        choices: by format, what it has decided for the whole folder, and what it has read for that.
        moved: the first samples whose polygon begins elsewhere than at the top left of the text.
        image_size: returns width and height of an image when it is decoded; None if they cannot be read.

    Raises:
        DataError: ``root`` is not a folder, or one of ``labels`` is not in it.
    """

    def __init__(self, root: Path, labels: Sequence[str] = (), *, ask_for_split: bool = True) -> None:
        self.root = Path(realpath(root))
        self.starts = (f"{self.root}/", f"{root.absolute()}/")
        if not self.root.is_dir():
            raise DataError(
                f"{root}: it is not a folder. Fix: give the folder of the images.", code="missing_folder"
            )
        files = sorted(self._scan())
        self.images = dict.fromkeys(file for file in files if ending(file) in IMAGE_ENDINGS)
        self.files = [file for file in files if file not in self.images]
        others = [file for file in self.files if not _NOT_LABELS.fullmatch(stem(file))]
        self.labels = list(map(self._label, labels)) or others
        self.by_user = bool(labels)
        self.guesses: dict[str, str] = {}
        self.encodings: dict[str, str] = {}
        self.choices: dict[str, Any] = {}
        self.moved: list[Sample] = []
        self._heads: dict[str, str] = {}
        self._short: dict[str, bytes] = {}  # the content of files that their heads show whole
        self.most = max(_MOST_FILES, len(labels))
        self._asks_for_split = ask_for_split
        self.image_size = lru_cache(maxsize=8)(lambda image: shown_size(self.root / image))

    def _scan(self) -> Iterator[str]:
        start = self.starts[0]
        for folder, folders, names in os.walk(self.root):
            folders[:] = [
                name
                for name in folders
                if not name.startswith(_HIDDEN) and not isfile(f"{folder}/{name}/{RECORD}")
            ]
            for name in names:
                path = f"{folder}/{name}"
                inside = isfile(path) and (not islink(path) or realpath(path).startswith(start))
                if inside and not name.startswith(_HIDDEN):
                    yield path[len(start) :]

    def _label(self, name: str) -> str:
        for start in ("", self.root):  # the current folder, then the data folder
            path = relpath(realpath(join(start, name)), self.root)
            if path in self.files:
                return path
        raise DataError(f"{name}: it is no file in {self.root}. Fix: correct the path.", code="missing_file")

    def with_ending(self, *endings: str) -> list[str]:
        """Return the first label files with one of these endings, those that belong to one image last."""
        files = (file for file in self.labels if ending(file) in endings)
        return sorted(files, key=self.image_beside.__contains__)[: self.most]

    @cached_property
    def lists(self) -> list[str]:
        """The first label files that may hold a list, those of a usual ending first."""
        others = {
            kind
            for kind, count in Counter(map(ending, self.labels)).items()
            if self.by_user or count <= _MOST_ALIKE and kind not in _NOT_LISTS  # others are no lists
        }
        return self.with_ending(*LIST_ENDINGS) + self.with_ending(*others.difference(LIST_ENDINGS))

    def beside(self, kind: str) -> tuple[str, ...]:
        """Return the label files with one ending that are named as an image."""
        return tuple(file for file in self.image_beside if ending(file) == kind)

    @cached_property
    def image_beside(self) -> dict[str, str]:
        """Label file → whole path of the image of its name, without ``gt_`` before it or ``.gt`` behind it."""
        names = {
            file: [
                name + version
                for version in _VERSIONS
                for name in (stem(file), stem(file).removesuffix(".gt"), stem(file).removeprefix("gt_"))
            ]
            for file in self.labels
        }
        wanted = set(map(_folded, chain.from_iterable(names.values())))
        images = _by_name((name, image) for image in self.images if (name := _folded(stem(image))) in wanted)
        pairs = {
            file: self.nearest(
                next(filter(None, (_spelled(name, images, stem) for name in each)), []), file, file
            )
            for file, each in names.items()
        }
        # an image belongs to the nearest file, not to those elsewhere whose images are missing
        away = {file: _away(file, image) for file, image in pairs.items() if image}
        nearest = {pairs[file]: away[file] for file in sorted(away, key=away.__getitem__, reverse=True)}
        return {
            file: f"{self.root}/{image if is_own else file}"
            for file, image in pairs.items()
            if (is_own := file in away and away[file] == nearest[image])
            or file.lower().endswith(".gt.txt")  # this is reported as missing_image
        }

    @cached_property
    def splits(self) -> dict[str, str]:
        """Folder or label file with a word of a split in its name → the split; see :func:`splits_of`."""
        lists = [file for file in self.labels if file not in self.image_beside]
        folders = set(map(dirname, chain(self.images, self.labels)))
        folders |= {str(parent) for folder in folders for parent in PurePosixPath(folder).parents}
        splits = {}
        for paths in (lists, folders - {"", "."}):
            beside: dict[str, list[str]] = {}
            for path in paths:
                beside.setdefault(dirname(path), []).append(path.rpartition("/")[2])
            for parent, names in beside.items():
                found = splits_of(names, paths is not lists)
                splits.update({join(parent, name): split for name, split in found.items()})
        return splits

    def split_of(self, path: str) -> str:
        """Return the split that a label file or folder stands for, else the folder that it is in; else empty.

        Raises:
            DataError: a name may stand for a part, or not.
        """
        while path:
            split = self.splits.get(path, "")
            if split == IN_DOUBT and self._asks_for_split:
                raise DataError(
                    f"{path}: it may be a part of a split, or not. Fix: name the folders or lists train, val and "
                    "test, or give `--split`, which splits all anew.",
                    code="ambiguous_split",
                )
            if split not in ("", IN_DOUBT):
                return split
            path = dirname(path)
        return ""

    @cached_property
    def _encoding_beside(self) -> str:
        """The encoding of the text files beside images, as of one text: some are too short to tell it alone."""
        files = self.beside("txt")[:_MOST_FILES]
        heads = [self._short[file] for file in files if self.head(file) and file in self._short]
        return encoding_of(lambda: iter(heads))

    def nearest(self, options: Sequence[str], path: str, file: str) -> str | None:
        """Return the one of several images of the same name that a label file means; None if that is not clear.

        Args:
            options: the paths of these images.
            path: the path as it stands in the label file.
            file: the label file.
        """
        folder = file.rpartition("/")[0]
        tests: tuple[Callable[[str], bool], ...] = (
            lambda image: True,
            lambda image: image.split("/")[-2:-1] == path.split("/")[-2:-1],
            lambda image: image.rpartition("/")[0] == folder,
            lambda image: image.startswith(f"{folder}/"),
            lambda image: split_in(dirname(image)) == split_in(file),
        )
        # a list may be of another part than the only folder of images
        split = split_in(dirname(path)) or (split_in(file) if split_in(file) in self._image_splits else "")
        options = [image for image in options if not in_two_splits(split_in(dirname(image)), split)]
        return _only(tests, options) or self.line_among(options, file)

    def line_among(self, options: Sequence[str], file: str) -> str | None:
        """Return the one of several images of the same name that was cut out of another one; None if none is."""
        sizes = sorted(getsize(self.root / image) for image in options)
        image = len(options) > 1 and _only(
            (
                _CROPS.search,
                lambda image: not split_in(image) and 4 * getsize(self.root / image) < sizes[1],
            ),
            options,
        )
        if image:
            self.guesses[file] = image
        return image or None

    @cached_property
    def _image_splits(self) -> set[str]:
        """The splits that folders of images are of."""
        return set(map(split_in, set(map(dirname, self.images))))

    @cached_property
    def by_path(self) -> dict[str, list[str]]:
        """Folded path → images."""
        return _by_name((_folded(image), image) for image in self.images)

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """Folded file name → images."""
        return _by_name((_folded(image.rpartition("/")[2]), image) for image in self.images)

    def head(self, file: str) -> str:
        """Return the first characters of a file; empty if it cannot be read."""
        if file not in self._heads:
            block = b""
            with suppress(OSError), open_regular(self.root / file) as stream:
                block = stream.read(_HEAD)
                if len(block) < _HEAD:
                    self._short[file] = block
            text = block.decode(encoding_of(lambda: iter([block])), "ignore")
            self._heads[file] = text.lstrip("\ufeff").replace("\0", "")
        return self._heads[file]

    @contextmanager
    def _opened(self, file: str) -> Iterator[tuple[BinaryIO, str]]:
        """Open a text file, unless its head was the whole of it, and find its encoding.

        Raises:
            DataError: the encoding is not known, or the file cannot be read.
        """
        short = self._short.get(file)
        with (
            reading(file),
            open_regular(self.root / file) if short is None else io.BytesIO(short) as stream,
        ):
            if file not in self.encodings:
                encoding = encoding_of(partial(_blocks, stream))
                if file in self.image_beside and self._encoding_beside in USUAL:
                    stream.seek(0)
                    text = stream.read(MAX_TEXT_BYTES).decode("utf-8", "replace")
                    # what is UTF-8 by chance has letters of two bytes
                    if "\ufffd" in text or max(text, default="") < "\u0800":
                        encoding = self._encoding_beside
                self.encodings[file] = encoding
            if self.encodings[file] == UNKNOWN:
                raise DataError(
                    f"{file}: the encoding is unknown (expected UTF-8 or UTF-16, or enough text to tell "
                    f"{', '.join(map(str.upper, USUAL))} apart). Fix: save it as UTF-8.",
                    code="bad_encoding",
                )
            stream.seek(0)
            yield stream, self.encodings[file]

    def lines(self, file: str) -> Iterator[str]:
        """Yield the lines of a text file with their ends; of one longer than the limit only the start.

        Raises:
            DataError: its encoding is not known, or it cannot be read.
        """
        end = "\r" if "\r" in (head := self.head(file)) and "\n" not in head else "\n"
        with self._opened(file) as (binary, encoding):
            stream = io.TextIOWrapper(binary, encoding, "replace", newline=end)
            while line := stream.readline(MAX_RECORD_BYTES + 1):
                yield line
                while len(line) > MAX_RECORD_BYTES and not line.endswith(end):
                    line = stream.readline(MAX_RECORD_BYTES + 1)

    def text(self, file: str) -> str:
        """Return the whole text of a file.

        Raises:
            DataError: it is larger than the limit, its encoding is not known, or it cannot be read.
        """
        with self._opened(file) as (stream, encoding):
            content = stream.read(MAX_TEXT_BYTES + 1)
            if len(content) > MAX_TEXT_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than the limit of {MAX_TEXT_BYTES:,} bytes")
            text = content.decode(encoding, "replace")
            if sum(map(text.count, ",[{<")) > _MOST_VALUES:
                raise ValueError(f"it has more than {_MOST_VALUES:,} values; export it in parts")
            return text


def finder(
    listing: Listing, file: str, doubts: Counter[str], first: Iterable[str]
) -> Callable[[str], str | None]:
    """Return the function that finds the image which a label file names by a path; None: there is none.

    A path is relative to the label file, to its parent folder or to the data folder. An image elsewhere is found by its
    file name if the path is absolute, or if none of the first paths is right. A name without a folder means an image
    of a line rather than its photo.

    Args:
        listing: the data folder.
        file: the label file, relative to the data folder.
        doubts: counts the images that may be wrong, by the sentence that tells the user.
        first: the first paths in the label file.
    """
    folder = file.rpartition("/")[0]
    starts = [f"{each}/" if each else "" for each in (folder, folder.rpartition("/")[0], "")]

    def find_there(name: str, path: str) -> str | None:
        inside = path.removeprefix(listing.starts[0]).removeprefix(listing.starts[1])
        places = (
            [start + path for start in (*starts, f"{starts[0]}images/")]
            + [path.removeprefix(f"{listing.root.name}/")]  # PPOCRLabel writes FOLDER/img.jpg
            if inside == path and not _ABSOLUTE.match(path)
            else [inside]
        )
        paths = chain((start + name for start in starts), map(normpath, places))
        exact = (each for each in paths if each in listing.images)
        folded = (listing.by_path.get(_folded(normpath(place)), []) for place in places)
        return next(chain(exact, (images[0] for images in folded if len(images) == 1)), None)

    as_written = any(find_there(name, name.replace("\\", "/")) for name in first)

    def find(name: str) -> str | None:
        path = name.replace("\\", "/")
        image = find_there(name, path)
        if "/" in path if image else as_written and not _ABSOLUTE.match(path):
            return image
        base = path.rpartition("/")[2]
        options = _spelled(base, listing.by_name, basename) or _spelled(
            _HASH.sub("", base), listing.by_name, basename
        )
        if image is None:
            image = listing.nearest(options, path, file)
            doubts["Images found by file name, because their paths lead elsewhere"] += (
                bool(image) and base != path
            )
            return image
        # what was cut out of an image beside the list stands in a folder below
        near = [each for each in options if dirname(image) != folder or each.startswith(starts[0])]
        return listing.line_among(near, file) or image

    return find


def _only(tests: Iterable[Callable[[str], object]], options: Sequence[str]) -> str | None:
    """Return the option that alone passes the first test which one alone passes; None if there is no such test."""
    matches = (list(filter(test, options)) for test in tests)
    return next((each[0] for each in matches if len(each) == 1), None)


def _away(file: str, image: str) -> tuple[bool, int, bool]:
    """Return how far an image is from a label file.

    These are whether their folders have other names, the steps between, and whether the name has another spelling.
    """
    folders = dirname(file), dirname(image)
    return (
        basename(folders[0]) != basename(folders[1]),
        relpath(image, folders[0] or ".").count("/"),
        stem(image) not in basename(file),
    )


def _by_name(images: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, image in images:
        names.setdefault(name, []).append(image)
    return names


def _spelled(name: str, images: Mapping[str, list[str]], of: Callable[[str], str]) -> list[str]:
    """Return the images of a name; of another spelling only one that is alone in its folder.

    Args:
        name: the name as a label file spells it.
        images: folded name → images.
        of: returns the name of an image.
    """
    options = images.get(_folded(name), [])
    if not 1 < len(options) <= _MOST_ALIKE:  # among very many, none is chosen
        return options if len(options) == 1 else []
    folders = Counter(map(dirname, options))
    return [image for image in options if of(image) == name or folders[dirname(image)] == 1]


def _folded(path: str) -> str:
    """Return a path as systems compare it that ignore case and the composition of accents."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Raise a DataError if a file cannot be read, or if its content is not in its format."""
    try:
        yield
    except (OSError, ValueError, RecursionError, csv.Error, ElementTree.ParseError) as error:
        raise DataError(
            f"{file}: it cannot be read: {getattr(error, 'strerror', None) or error}. Fix: export it again, or name "
            "the other label files by `--labels`.",
            code="unreadable_file" if isinstance(error, OSError) else "bad_content",
        ) from error


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    stream.seek(0)
    yield from iter(partial(stream.read, _BLOCK), b"")
