"""Read label files with boxes around the texts of a page, and cut the boxes out; no Paddle."""

from __future__ import annotations

import cmath
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from ppocr_ext.io.image_pixels import is_tall
from ppocr_ext.sources.line_formats import (
    PAGE,
    TEXT_KEYS,
    FileGroups,
    Format,
    find_lists,
    first_of,
    load_json,
    numbered_lines,
    objects,
    parse_json,
    row,
    table_records,
)
from ppocr_ext.sources.listing import Listing, finder, reading
from ppocr_ext.sources.names import IMAGE_ENDINGS, ending
from ppocr_ext.sources.samples import Box, Corner, Fields, Rows, Skipped

_LABEL_STUDIO = r'\s*\[\s*\{.*"(annotations|original_width)"|[^\n]*\bannotation_id\b.*original_width'
_COCO = r'\s*\{\s*"(info|licenses|images|annotations|categories|type|imgs|anns|cats|imgToAnns)"'
_LARGEST = 1e12  # square pixels of a box: no page has as many
_FARTHEST = 1e6  # pixels of a corner from that of the page


def corners(box: Fields, text: str = "") -> tuple[Box, bool]:
    """Return the four corners of a box in pixels, clockwise, and whether another one than the first is at the top left.

    The points of a polygon may begin at any corner. Text is not upside down in its photo, so its top left corner
    becomes the first one, as PaddleOCR's detection orders them. A vertical line of letters may read from below: if its
    polygon begins along the line, it keeps its first corner. Chinese, Japanese and Korean read from above.

    Args:
        box: ``points``, as pairs or a text; Label Studio's ``x, y, width, height`` in percent, turned about a corner;
            CVAT's ``xtl, ytl, xbr, ybr``, turned about the center; or COCO's ``bbox``. Two points give the upright
            rectangle, more than four the smallest one around them.
        text: the text in the box.

    Raises:
        KeyError, TypeError, ValueError: the box is written in another way, or has no area.
    """
    points = _points(box)
    is_given = len(points) == 4
    first, second, third, fourth = points if is_given else _around(points)
    area = (third[0] - first[0]) * (fourth[1] - second[1]) - (fourth[0] - second[0]) * (third[1] - first[1])
    if not 1 <= abs(area) / 2 < _LARGEST or box.get("image_rotation"):  # nor if it is not a number
        raise ValueError(f"a box of {area / 2} square pixels, or on an image that Label Studio has turned")
    clockwise = (first, second, third, fourth) if area > 0 else (first, fourth, third, second)
    left = sorted(range(4), key=lambda at: clockwise[at][0])[:2]
    start = min(left, key=lambda at: clockwise[at][1]) if "points" in box else 0
    is_along = is_given and is_tall(math.dist(*clockwise[:2]), math.dist(*clockwise[1:3]))
    if start % 2 and is_along and not any(unicodedata.east_asian_width(each) == "W" for each in text):
        start = 0
    return (*clockwise[start:], *clockwise[:start]), is_given and start != 0  # type: ignore[return-value]


def _around(points: Sequence[Corner]) -> Sequence[Corner]:
    """Return the corners of the upright rectangle around two points, or of the smallest one around more."""
    if len(points) > 2 and all(abs(value) < _FARTHEST for value in chain(*points)):
        import cv2
        import numpy as np

        return [(x, y) for x, y in cv2.boxPoints(cv2.minAreaRect(np.array(points, np.float32))).tolist()]
    xs, ys = zip(*points, strict=True)
    return _rectangle(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys))


def _points(box: Fields) -> list[tuple[float, float]]:
    x, y = (float(box.get(key) or 100) / 100 for key in ("original_width", "original_height"))
    if "points" in box:
        points = box["points"]
        if isinstance(points, str):
            points = re.split("[,; ]+", points.strip(",; "))
        if points and isinstance(points[0], str | int | float):
            points = zip(points[::2], points[1::2], strict=True)
        return [(float(u) * x, float(v) * y) for u, v in points]
    degrees = float(box.get("rotation") or 0)
    if "xtl" in box:
        left, top, right, bottom = (float(box[key]) for key in ("xtl", "ytl", "xbr", "ybr"))
        return _rectangle(left, top, right - left, bottom - top, degrees, 0.5)
    left, top, width, height = map(
        float, box.get("bbox") or map(box.__getitem__, ("x", "y", "width", "height"))
    )
    # a box of COCO that is turned comes from CVAT
    return _rectangle(left * x, top * y, width * x, height * y, degrees, 0.5 if "bbox" in box else 0)


def _rectangle(
    left: float, top: float, width: float, height: float, degrees: float = 0, pivot: float = 0
) -> list[tuple[float, float]]:
    """Return the corners of a rectangle that is turned about its corner (``pivot`` 0) or its center (0.5)."""
    turn = cmath.rect(1, math.radians(degrees))
    center = pivot * complex(width, height)
    sides = (0, width, complex(width, height), complex(0, height))
    points = (complex(left, top) + center + (side - center) * turn for side in sides)
    return [(point.real, point.imag) for point in points]


def crop(page: Any, box: Box, *, may_turn: bool = True) -> tuple[Any, bool]:
    """Cut a box out of a page as PaddleOCR's ``get_rotate_crop_image`` does.

    Args:
        page: uint8 [H, W, 3].
        box: four corners, clockwise, in pixels.
        may_turn: False for a single character, which is higher than wide.

    Returns:
        The pixels, uint8 [h, w, 3], and whether they were turned by 90° because the box is at least 1.5 times as high
        as wide.

    Raises:
        ValueError: the box is larger than the page, or is thinner than a pixel; the message begins with a verb.
    """
    import cv2
    import numpy as np

    source = np.array(box, np.float32)
    sides = np.linalg.norm(source - np.roll(source, -1, axis=0), axis=1)  # upper, right, lower, left
    width, height = int(max(sides[0], sides[2])), int(max(sides[1], sides[3]))
    if not min(width, height) or width + height > 2 * sum(page.shape[:2]):
        raise ValueError(
            f"has a box of {width} × {height} pixels on a page of {page.shape[1]} × {page.shape[0]}"
        )
    target = np.array(_rectangle(0, 0, width, height), np.float32)
    matrix = cv2.getPerspectiveTransform(source, target)
    pixels = cv2.warpPerspective(page, matrix, (width, height), None, cv2.INTER_CUBIC, cv2.BORDER_REPLICATE)
    turned = may_turn and is_tall(height, width)
    return (np.ascontiguousarray(np.rot90(pixels)) if turned else pixels), turned


def _read_pages(listing: Listing, file: str) -> Rows:
    for place, line in numbered_lines(listing, file):
        image, _, content = line.partition("\t")
        boxes = parse_json(content)
        if boxes is None:
            yield Skipped("bad_line", place, repr(line[:60]))
        for box in objects(boxes):
            yield row({"points": (), **box}, place, image)


def _read_label_studio(listing: Listing, file: str) -> Rows:
    is_json = ending(file) == "json"
    tasks = enumerate(objects(load_json(listing, file)), 1) if is_json else table_records(listing, file)
    for number, task in tasks:
        data = task["data"] if isinstance(task.get("data"), dict) else task
        paths = [unquote(value).split("?d=")[-1] for value in data.values() if isinstance(value, str)]
        image = next((path for path in paths if ending(path) in IMAGE_ENDINGS), "?")
        place = f"{file}#{number}" if is_json else str(number)
        regions = _results(task) if "annotations" in task else _pairs(task)
        if regions is None:
            yield Skipped("unpaired", place, image)
        for region in regions or ():
            yield row(region, place, image)


def _results(task: Fields) -> list[Fields]:
    """Return the texts of the first annotation that counts, each with its box."""
    annotations = [each for each in objects(task["annotations"]) if not each.get("was_cancelled")]
    results = objects(annotations[0].get("result")) if annotations else []
    return [
        {**each, **value} for each in results for value in objects([each.get("value")]) if "text" in value
    ]


def _pairs(task: Fields) -> list[Fields] | None:
    """Return the texts and boxes that Label Studio's smaller exports keep in two lists, in a table as JSON.

    None if there are not as many texts as boxes.
    """
    values = {
        key: parse_json(value) if isinstance(value, str) and value[:1] == "[" else value
        for key, value in task.items()
    }
    texts = first_of(values, TEXT_KEYS)
    texts = texts if isinstance(texts, list) else [texts]
    every = [each for each in map(objects, values.values()) if each]
    boxes = next((each for each in every if len(each) == len(texts)), None)
    if boxes is None:
        return None if every else []
    return [{**box, "text": text} for box, text in zip(boxes, texts, strict=True)]


def _read_cvat(listing: Listing, file: str) -> Rows:
    for image in _xml(listing, file).findall("image"):
        name = image.get("name", "?")
        for number, shape in enumerate(image, start=1):
            texts = {each.get("name", "").casefold(): each.text for each in shape.findall("attribute")}
            record = {**shape.attrib, "text": first_of(texts, (*TEXT_KEYS, *texts))}
            yield row(record, f"{file}: {name}#{number}", name)


def _xml(listing: Listing, file: str) -> ElementTree.Element:
    text = listing.text(file)
    with reading(file):
        if re.search("<!(DOCTYPE|ENTITY)", text):
            raise ValueError("it has a document type or entities")
        return ElementTree.fromstring(text)


def _read_page_xml(listing: Listing, file: str) -> Rows:
    root = _xml(listing, file)
    page = root.find("{*}Page")
    name = root.findtext(".//{*}fileName", "?") if page is None else page.get("imageFilename", "?")
    image = listing.image_beside.get(file, name)
    in_pixels = root.findtext(".//{*}MeasurementUnit", "pixel") == "pixel"
    for number, line in enumerate(root.iterfind(".//{*}TextLine"), start=1):
        words = " ".join(each.get("CONTENT", "") for each in line.iterfind("{*}String"))
        hyphen = "".join(each.get("CONTENT", "-") for each in line.iterfind("{*}HYP"))
        record: Fields = {"text": line.findtext("{*}TextEquiv/{*}Unicode", words + hyphen), "bbox": None}
        for shape in (*line.iterfind("{*}Coords"), *line.iterfind("{*}Shape/{*}Polygon")):
            record["points"] = first_of(dict(shape.attrib), ("points", "POINTS"))
        if in_pixels and "points" not in record:
            record["bbox"] = [line.get(key) for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT")]
        yield row(record, f"{file}#{number}", image)


def _find_page_xml(listing: Listing) -> FileGroups:
    """Return the files of PAGE and ALTO, only one for each image.

    Beside NAME.xml there may be NAME.chocomufin.xml with other characters, and in an OCR-D workspace what programs
    have read: a file named as the image comes first, then one in a folder of GT.
    """
    heads = {file: listing.head(file) for file in listing.labels if ending(file) == "xml"}
    files = [file for file, head in heads.items() if re.search(r"<(\w+:)?(PcGts|alto)\b", head)]
    pages: dict[str, str] = {}
    for file in sorted(files, key=lambda file: (file not in listing.image_beside, "GT" not in file)):
        name = re.search(r"(?:imageFilename=\"|<fileName>\s*)([^\"<]*)", heads[file])
        image = finder(listing, file, Counter(), [name[1]])(name[1].strip()) if name else None
        pages.setdefault(listing.image_beside.get(file) or f"{listing.root}/{image or file}", file)
    return [tuple(sorted(pages.values()))] if pages else []


def _read_coco(listing: Listing, file: str) -> Rows:
    for content in objects([load_json(listing, file)]):
        # str: numbers could be chosen so that all have one hash
        images = {str(each.get("id")): each for each in _members(content, "images", "imgs")}
        for number, record in enumerate(_members(content, "annotations", "anns"), start=1):
            image = images.get(str(record.get("image_id")), {})
            is_bad = record.get("legibility") == "illegible" or record.get("utf8_string") == "."
            marks = {"illegible": is_bad, "split": image.get("set", "")}
            yield row({**marks, **record}, f"{file}#{number}", image.get("file_name", "?"))


def _members(content: Fields, *keys: str) -> list[Fields]:
    """Return the objects of an array of COCO, or those that COCO-Text and TextOCR keep by their ids."""
    value = first_of(content, keys)
    return objects([*value.values()] if isinstance(value, dict) else value)


def _labelme(listing: Listing) -> tuple[str, dict[str, list[Fields]]]:
    """Return the key of the texts in a folder, and the shapes in each file.

    Descriptions are remarks if most shapes have none and labels differ.
    """
    every = {
        file: [
            {
                key: shape.get(key) for key in ("points", "description", "label")
            }  # not the image, which may be there too
            for content in objects([load_json(listing, file)])
            for shape in objects(content.get("shapes"))
        ]
        for file in listing.beside("json")
    }
    shapes = list(chain(*every.values()))
    described = sum(bool(shape.get("description")) for shape in shapes)
    is_one = len({str(shape.get("label")) for shape in shapes}) == 1
    return "description" if described and (2 * described >= len(shapes) or is_one) else "label", every


def _read_labelme(listing: Listing, file: str) -> Rows:
    if "labelme" not in listing.choices:
        listing.choices["labelme"] = _labelme(listing)
    key, shapes = listing.choices["labelme"]
    for number, shape in enumerate(shapes[file], start=1):
        record = {"points": shape.get("points"), "text": shape.get(key)}
        yield row(record, f"{file}#{number}", listing.image_beside[file])


def _heads(listing: Listing, pattern: str, *endings: str) -> FileGroups:
    """Return the files whose beginning matches ``pattern``."""
    files = listing.with_ending(*endings)
    return [(file,) for file in files if re.match(pattern, listing.head(file), re.DOTALL)]


def _find_labelme(listing: Listing) -> FileGroups:
    files = listing.beside("json")
    return [files] if any('"shapes"' in listing.head(file) for file in files[:20]) else []


PAGE_FORMATS = {
    "ppocrlabel": Format(
        "PPOCRLabel's Label.txt: boxes of pages", partial(find_lists, pattern=PAGE), _read_pages
    ),
    "label_studio": Format(
        "Label Studio: JSON, JSON-MIN or CSV",
        lambda listing: _heads(listing, _LABEL_STUDIO, "json", "csv"),
        _read_label_studio,
    ),
    "cvat": Format(
        "CVAT for images 1.1: XML with the text in an attribute",
        lambda listing: _heads(listing, ".*<annotations>", "xml"),
        _read_cvat,
    ),
    "coco": Format(
        "COCO, COCO-Text, TextOCR: JSON with a text for each annotation",
        lambda listing: _heads(listing, _COCO, "json"),
        _read_coco,
    ),
    "page_xml": Format(
        "PAGE or ALTO: an XML file for each image",
        _find_page_xml,
        _read_page_xml,
    ),
    "labelme": Format("Labelme: a JSON file for each image", _find_labelme, _read_labelme),
}
