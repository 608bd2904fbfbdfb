"""Read label files that name an image and its text: lists, tables, JSON, texts beside images, LMDBs; no Paddle."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ppocr_ext.data.label_file import BOXES
from ppocr_ext.data.lmdb_sets import DATA_FILE, open_set
from ppocr_ext.data.preflight_report import ILLEGIBLE
from ppocr_ext.sources.listing import Listing, reading
from ppocr_ext.sources.names import IMAGE_ENDINGS, LIST_ENDINGS, ending, split_named
from ppocr_ext.sources.samples import Fields, Row, Rows, Skipped

IMAGE_KEYS = ("image", "image_path", "img_path", "file_name", "filename", "path", "file", "img")
TEXT_KEYS = ("text", "transcription", "words", "plate_text", "utf8_string", "label", "identity")
# of a part of a page
BOX_KEYS = {
    "points",
    "poly",
    "polygon",
    "box",
    "bbox",
    "xtl",
    "xmin",
    "x_min",
    "x1",
    "left",
    "original_width",
}
# how a column of texts may be named, and how the other one of two columns is not
_LIKE_TEXT = re.compile(r"text|label|word|transcri|truth|\bgt\b|plate|caption|string|content", re.IGNORECASE)
_NO_TEXT = re.compile(r"class(es)?|width|height|size|score|split|url|(.*_)?id|index|pred.*")
# what a mark is in a table or in XML that is not set
_NO = ("", "0", "0.0", "false", "no", "n", "none", "null")
_HEAD_FILES = 20  # that tell what stands beside images
_IMAGE = rf"\.(?i:{'|'.join(IMAGE_ENDINGS)})"
_IN_OBJECT = re.compile(r'\{[^[]*"\s*:\s*\[\s*\{')  # an array of objects is its first one
_DOCTR = re.compile(rf'\{{\s*"[^"]*{_IMAGE}"\s*:\s*["\d]')
PAGE = rf"(?P<image>[^\t]+{_IMAGE})\t(?P<text>\[\s*[{{\]].*)"
_BOX = r"-?\d+(\.\d+)?([ ,;]+-?\d+(\.\d+)?){3}"  # four numbers in place of a text
_QUOTED = r'"[^"]*(""[^"]*)*"\s*'
_COMMA = rf'"?(?P<image>[^,;"\t]+{_IMAGE})"?(?P<comma>[,;])(?! *{_BOX})'
_SCRIPTS = (
    "Arabic|Bangla|Chinese|Hindi|Japanese|Korean|Latin|Mixed|None|Symbols"  # of ICDAR MLT, before a text
)
_BESIDE = {
    "icdar_boxes": r'\s*(?P<points>(-?\d+(\.\d+)?[ ,]+){4}|(-?\d+,){8}(?=[01],))([01],)?"(?P<text>.*)"\s*',
    "icdar_polygons": rf"(?P<points>(\s*-?\d+(\.\d+)?\s*,){{8}})(({_SCRIPTS}),)?(?P<text>.*)",
    "boxes": (  # without text: YOLO, DOTA, KITTI
        r"-?[\d.]+([ ,]+-?[\d.]+(e-?\d+)?){4,}\s*|(-?[\d.]+ ){8}\S+ \d\s*|\S+( -?[\d.]+){14,}\s*"
    ),
}

FileGroups = list[tuple[str, ...]]  # label files, of which each group is read alone


@dataclass(frozen=True)
class Format:
    """A format of label files.

    Attributes:
        description: what files in this format look like, for messages.
        find: a function that returns the label files in this format: a tuple for each that can be read
            alone, or one of all files if each image has its own.
        read: a function that yields the rows of one label file.
    """

    description: str
    find: Callable[[Listing], FileGroups]
    read: Callable[[Listing, str], Rows]


def numbered_lines(listing: Listing, file: str) -> Iterator[tuple[str, str]]:
    """Yield the place of each line that is not empty, and the line without its end."""
    for number, line in enumerate(listing.lines(file), start=1):
        content = line.rstrip("\r\n")
        if content:
            yield f"{file}:{number}", content


def load_json(listing: Listing, file: str) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: it is not JSON, or cannot be read.
    """
    with reading(file):
        return json.loads(listing.text(file))


def parse_json(text: str) -> Any:
    """Return the first value in a JSON text; None if it is not JSON, or is cut off."""
    with suppress(ValueError, RecursionError):
        return json.JSONDecoder().raw_decode(text)[0]
    return None


def objects(value: object) -> list[Fields]:
    """Return the objects in a JSON array; none if it is anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def row(record: Fields, place: str, page: object = None) -> Row | Skipped:
    """Return what an object or a row of a table says about an image or, with a box, about a part of a page.

    Args:
        record: the values of the object or of the row, by name.
        place: the file and line where it stands.
        page: the path of the page that it is a part of; None if the path of the image is one of the values.
    """
    attributes = record.get("attributes")
    if isinstance(attributes, dict):
        texts = {key: value for key, value in attributes.items() if isinstance(value, str)}
        names = texts_in(texts)
        record = {**attributes, **({"text": texts[names[0]]} if len(names) == 1 else {}), **record}
        if texts and first_of(record, TEXT_KEYS) is None:
            return Skipped("unnamed_text", place, ", ".join(f"{key} {texts[key]!r:.20}" for key in texts))
    image = page or first_of(record, IMAGE_KEYS)
    text = first_of(record, TEXT_KEYS)
    if any(str(record.get(key) or "").casefold() not in _NO for key in ("difficult", "illegible")):
        text = ILLEGIBLE
    text = "\n".join(map(str, text)) if isinstance(text, list) else text
    if not isinstance(image, str) or type(text) not in (str, int, type(None)):
        return Skipped("bad_line", place, f"image {image!r:.60}, text {text!r:.60}")
    split, words = split_named(str(record.get("split", "")))
    return Row(
        image,
        "" if text is None else str(text),
        place,
        "" if words else split,
        record if page or BOX_KEYS & record.keys() else None,
    )


def texts_in(names: Collection[str]) -> list[str]:
    """Return the names of values that may be the text: the best known one, else all that are like it."""
    known = [name for key in TEXT_KEYS for name in names if name.casefold() == key]
    return known[:1] or list(filter(_LIKE_TEXT.search, names))


def first_of(record: Fields, keys: Iterable[str]) -> Any:
    """Return the value of the first of ``keys`` that ``record`` has; None if it has none."""
    return next((record[key] for key in keys if key in record), None)


def has_lines(listing: Listing, file: str, pattern: str) -> bool:
    """Return whether most lines at the beginning of a file match ``pattern``, and it has no header."""
    lines = [line for line in re.split(r"[\r\n]+", listing.head(file)) if line.strip()]
    matches = [re.fullmatch(pattern, line) is not None for line in lines]
    return (
        2 * sum(matches) > len(lines)
        and (matches[0] or not re.fullmatch(r'"?[^\W\d]\w*"?([,;\t] ?"?[^\W\d]\w*"?)+', lines[0]))
        and not _is_table(listing, file)
    )


def find_lists(listing: Listing, pattern: str) -> FileGroups:
    """Return the files in which most lines match ``pattern``."""
    return [(file,) for file in listing.lists if has_lines(listing, file, pattern)]


def _read_lines(pattern: str, clean: Callable[[str], str], listing: Listing, file: str) -> Rows:
    """Read lines by the groups ``image`` (else it is the image beside the file), ``text`` and ``points``."""
    for place, line in numbered_lines(listing, file):
        match = re.fullmatch(pattern, line, re.DOTALL)
        if match is None:
            yield Skipped("bad_line", place, repr(line[:60]))
        else:
            groups = match.groupdict()
            image = groups.get("image") or listing.image_beside[file]
            yield Row(image, clean(groups["text"]), place, box=groups if "points" in groups else None)


def _list(
    description: str, pattern: str, clean: Callable[[str], str] = str, most: str | None = None
) -> Format:
    """Return the format of lines that match ``pattern``, and most of them ``most``."""
    return Format(
        description, partial(find_lists, pattern=most or pattern), partial(_read_lines, pattern, clean)
    )


def _header(listing: Listing, file: str) -> tuple[str, list[str]]:
    """Return the delimiter and the column names of a table: ``image`` and ``text``, if these can be told."""
    lines = [*re.split(r"[\r\n]+", listing.head(file).lstrip()), ""]
    delimiter = max(",;\t", key=lines[0].count)
    names = [name.strip('" ').casefold() for name in lines[0].split(delimiter)]
    images = [
        name
        for name, *cell in zip(names, *csv.reader(lines[1:2], delimiter=delimiter), strict=False)
        if re.search(rf"{_IMAGE}\s*$", "".join(cell))
    ]
    others = [name for name in names if name not in images]
    texts = texts_in(others) or [name for name in others if len(names) == 2 and not _NO_TEXT.fullmatch(name)]
    known = {
        each[0]: name
        for each, name in ((images, "image"), (texts, "text"))
        if len(each) == 1 and not re.search(rf"{_IMAGE}\b", lines[0])
    }
    return delimiter, [known.get(name, name) for name in names]


def _is_table(listing: Listing, file: str) -> bool:
    return _has_texts(dict.fromkeys(_header(listing, file)[1]))


def _has_texts(record: Fields) -> bool:
    """Return whether a record is of a whole image, with its text."""
    return [*map(record.keys().isdisjoint, (IMAGE_KEYS, TEXT_KEYS, BOX_KEYS))] == [False, False, True]


def _read_table(listing: Listing, file: str) -> Rows:
    delimiter, names = _header(listing, file)
    reader = csv.DictReader(
        (raw := line for line in listing.lines(file)), names, delimiter=delimiter, skipinitialspace=True
    )
    with reading(file):
        next(reader, None)
        for record in reader:
            if None in record and '"' not in raw and names[-1] == "text":  # commas in the text
                record = dict(zip(names, map(str.strip, raw.split(delimiter, len(names) - 1)), strict=True))
            place = f"{file}:{reader.line_num}"
            yield (
                Skipped("bad_line", place, "too many columns: a text with a comma needs quotes")
                if None in record
                else row(record, place)
            )


def lack(listing: Listing, file: str) -> str:
    """Return the end of a sentence that says what a file lacks to be a list of images and texts; empty if unknown."""
    head = listing.head(file).lstrip()
    kind = "field" if head.startswith(("{", "[")) else "column"
    keys = list(_first_object(head)) if kind == "field" else _header(listing, file)[1]
    needs = [name for name, known in (("image", IMAGE_KEYS), ("text", TEXT_KEYS)) if not {*known} & {*keys}]
    lines = _first_lines(listing, file) if needs and kind == "column" else []
    is_beside = any(has_lines(listing, file, pattern) for pattern in _BESIDE.values())
    what = f"has no {kind} `{'` and no `'.join(needs)}`" if needs else "its boxes are not read"
    return next(
        sentence
        for sentence, is_true in (
            (
                f", and it does not name its columns. Fix: write as its first line {', or '.join(lines)}",
                lines,
            ),
            (f", and {what}", len(keys) > 1 and (len(needs) < 2 or re.search(_IMAGE, head))),
            (", and its lines have no text", has_lines(listing, file, rf"[^,;\s]+{_IMAGE}")),
            (", and no image has its name", is_beside and file not in listing.image_beside),
            ("", True),
        )
        if is_true
    )


def _first_lines(listing: Listing, file: str) -> list[str]:
    """Return lines that name the columns of a table, with what each reads; the column of most texts comes first."""
    delimiter, names = _header(listing, file)
    head = re.split(r"[\r\n]+", listing.head(file).strip())[:_HEAD_FILES]
    is_named = not re.search(_IMAGE, head[0])
    lines = (line for line in csv.reader(head[is_named:], delimiter=delimiter) if len(line) == len(names))
    columns = [*zip(*lines, strict=True)]
    images = [
        at for at, cells in enumerate(columns) if all(re.search(rf"{_IMAGE}\s*$", cell) for cell in cells)
    ]
    numbers = sum(all(re.fullmatch(r"\s*-?[\d.]+\s*", cell) for cell in cells) for cells in columns)
    texts = (
        at for at, cells in enumerate(columns) if len({*cells}) > 1 and not _NO_TEXT.fullmatch(names[at])
    )
    order = sorted({*texts}.difference(images), key=lambda at: (-len({*columns[at]}), at))
    if len(images) != 1 or numbers > 3:  # four numbers are a box
        return []
    others = names if is_named else [f"column{at}" for at, _ in enumerate(names, start=1)]
    return [
        f"`{delimiter.join({images[0]: 'image', text: 'text'}.get(at, name) for at, name in enumerate(others))}`, "
        f"which reads {', '.join(map(repr, columns[text][:3]))}"
        for text in order[:3]
    ]


def _first_object(text: str) -> Fields:
    """Return the first object in a JSON text, its keys in lower case; empty if there is none."""
    return _lower(parse_json("{" + text.partition("{")[2]) or {})


def _lower(record: Fields) -> Fields:
    return {key.casefold(): value for key, value in record.items()}


def _find_json(listing: Listing, is_array: bool) -> FileGroups:
    """Return the files of objects with an image and its text, in an array or one after another."""
    files = listing.with_ending("json", *LIST_ENDINGS)
    return [(file,) for file in files if _is_json(listing.head(file).lstrip(), is_array)]


def _is_json(head: str, is_array: bool) -> bool:
    if is_array and _IN_OBJECT.match(head):
        head = head[head.index("[") :]
    is_list = head.startswith("[" if is_array else "{") and _has_texts(_first_object(head))
    return is_list or (is_array and _DOCTR.match(head) is not None)


def _read_json_lines(listing: Listing, file: str) -> Rows:
    for place, line in numbered_lines(listing, file):
        yield row(_first_object(line), place)


def _read_json(listing: Listing, file: str) -> Rows:
    content = load_json(listing, file)
    if isinstance(content, dict):  # with the array beside facts about it, or docTR's texts by image
        arrays = filter(None, map(objects, content.values()))
        content = next(arrays, [{"image": name, "text": text} for name, text in content.items()])
    for number, record in enumerate(objects(content), start=1):
        yield row(_lower(record), f"{file}#{number}")


def _kind_beside(listing: Listing, files: Sequence[str]) -> str:
    """Return what text files named as images hold: a key of ``_BESIDE``, ``text_files``, or nothing known."""
    kinds = (
        name
        for name, pattern in _BESIDE.items()
        if 2 * sum(has_lines(listing, file, pattern) for file in files[:_HEAD_FILES])
        > len(files[:_HEAD_FILES])
    )
    return next(kinds, "text_files" if ending(files[0]) in ("txt", "gt") else "")


def _find_beside(listing: Listing, kind: str) -> FileGroups:
    """Return the text files named as images, by ending, that hold ``kind``."""
    groups = map(listing.beside, ("txt", "csv", "gt", "tsv"))
    return [files for files in groups if files and _kind_beside(listing, files) == kind]


def _read_lmdb(listing: Listing, file: str) -> Iterator[Row]:
    folder = file.rpartition("/")[0]
    data = open_set(listing.root / folder)
    for number in range(1, data.count + 1):
        name = f"{folder or '.'}#{number}"
        yield Row(name, bytes(data.label(number) or b"").decode("utf-8", "replace"), name)


LINE_FORMATS = {
    "tsv": _list(
        "lines `path<TAB>text`, as PaddleOCR reads them",
        rf"(?P<image>[^\t]+{_IMAGE})\t(?!{BOXES})(?P<text>[^\t]*)(\t[\d.]*){{0,2}}",
    ),
    "csv": Format(
        "CSV or TSV with a header such as `image,text`",
        lambda listing: [(file,) for file in listing.lists if _is_table(listing, file)],
        _read_table,
    ),
    "csv_no_header": _list(
        "lines `image.jpg,text`",
        rf'{_COMMA}(?P<text> *({_QUOTED}|(?!").*))',
        lambda text: (
            text.strip()[1:-1].replace('""', '"') if text.lstrip().startswith('"') else text.lstrip(" ")
        ),
        # commas in a few texts are no further columns, nor are those before a space
        most=rf'{_COMMA}({_QUOTED}|(?! *")((?!(?P=comma)\S).)*)',
    ),
    "spaces": _list(
        "lines `path text`, no space in the path",
        rf"(?!(\S*/)?\d+_[^_/\s]+_(?P<id>\d+){_IMAGE} (?P=id)\s*$)"  # of MJSynth
        rf"(?P<image>[^\s\",;]+{_IMAGE}) +(?!{_BOX}|{BOXES})(?P<text>.*)",
    ),
    "icdar_words": _list(
        'ICDAR words: lines `word_1.png, "text"`',
        rf'(?P<image>[^,"\t]+{_IMAGE}), "(?P<text>.*)"\s*',
        lambda text: re.sub(r'\\(["\\])', r"\1", text),
    ),
    "mjsynth": _list(
        "MJSynth: lines `./1/2_TEXT_3.jpg 3`",
        rf"(?P<image>(\S*/)?\d+_(?P<text>[^_/\s]+)_(?P<id>\d+){_IMAGE}) (?P=id)\s*",
    ),
    "json_lines": Format(
        'lines `{"file_name": "a.jpg", "text": "…"}`', partial(_find_json, is_array=False), _read_json_lines
    ),
    "json": Format(
        'JSON `{"a.jpg": "text"}`, or an array of objects, maybe in an object',
        partial(_find_json, is_array=True),
        _read_json,
    ),
    "text_files": Format(
        "NAME.txt or NAME.gt.txt for each image",
        partial(_find_beside, kind="text_files"),
        lambda listing, file: iter(
            [Row(listing.image_beside[file], listing.text(file).rstrip("\r\n\f"), file)]
        ),
    ),
    "lmdb": Format(
        "folders of LMDBs",
        lambda listing: [(file,) for file in listing.labels if file.split("/")[-1] == DATA_FILE],
        _read_lmdb,
    ),
    **{
        kind: Format(text, partial(_find_beside, kind=kind), partial(_read_lines, _BESIDE[kind], str))
        for kind, text in (
            ("icdar_boxes", 'ICDAR 2013: lines `x1, y1, x2, y2, "text"`; RCTW: lines `x1,…,y4,0,"text"`'),
            ("icdar_polygons", "ICDAR: lines `x1,y1,x2,y2,x3,y3,x4,y4,text` in gt_NAME.txt or NAME.txt"),
        )
    },
}
