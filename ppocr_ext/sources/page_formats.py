"""Read label files with boxes around the texts of a page, and cut the boxes out; no Paddle."""

from __future__ import annotations

import cmath
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from ppocr_ext.io.image_pixels import is_tall
from ppocr_ext.sources.line_formats import (
    IMAGE_KEYS,
    PAGE,
    FileGroups,
    Format,
    find_lists,
    first_of,
    load_json,
    numbered_lines,
    objects,
    parse_json,
    row,
)
from ppocr_ext.sources.listing import Listing, finder, reading
from ppocr_ext.sources.names import IMAGE_ENDINGS, LIST_ENDINGS, ending
from ppocr_ext.sources.samples import Box, Corner, Fields, Rows, Skipped

_COCO = r'\s*\{\s*"(info|licenses|images|annotations|categories|type|imgs|anns|cats|imgToAnns)"'
_LABELME = r'"(shapes|imageData)"\s*:'
_POLYGONS = {"box", "points", "polygon"}  # keys of corners, or of two opposite ones
_OF_ONE_PAGE = {"form", "shapes"}  # the lists of shapes in files that are about one page
_SHAPES = {None, "", "box", "polygon", "quadrilateral", "rectangle", "rotation"}  # the others are no boxes
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
    if (
        not 1 <= abs(area) / 2 < _LARGEST  # nor if it is not a number
        or box.get("shape_type") not in _SHAPES
        or box.get("image_rotation")
    ):
        raise ValueError(
            f"a box of {area / 2} square pixels, of another shape, or on an image that is turned"
        )
    clockwise = (first, second, third, fourth) if area > 0 else (first, fourth, third, second)
    left = sorted(range(4), key=lambda at: clockwise[at][0])[:2]
    start = min(left, key=lambda at: clockwise[at][1]) if _POLYGONS & box.keys() else 0
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


class PageSizeError(ValueError):
    """A page has another shape than when it was labelled."""


def page_scale(box: Fields, size_of: Callable[[], tuple[int, int] | None]) -> Corner:
    """Return how many times wider and higher a page is than its label file says.

    Args:
        box: with the size of the page that was labelled, if the label file states it.
        size_of: returns width and height of the page; None if they cannot be read. It is called if a size is stated.

    Raises:
        PageSizeError: the page has another shape.
        TypeError, ValueError: the stated size is no number.
    """
    stated = [float(first_of(box, (f"original_{side}", f"page_{side}")) or 0) for side in ("width", "height")]
    size = size_of() if min(stated) >= 1 else None
    if size is None:
        return 1.0, 1.0
    scale = size[0] / stated[0], size[1] / stated[1]
    # rounding, and a seam that is cut off, change little
    if not abs(scale[0] - scale[1]) <= max(1 / stated[0] + 1 / stated[1], scale[0] / 100):
        raise PageSizeError("{} × {} pixels, but {:g} × {:g} when it was labelled".format(*size, *stated))
    return scale


def _points(box: Fields) -> list[tuple[float, float]]:
    x, y = (float(box.get(key, 100)) / 100 for key in ("original_width", "original_height"))
    if polygon := _POLYGONS & box.keys():
        points = box[min(polygon)]
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
        ValueError: the box is larger than the page, lies outside it, or is thinner than a pixel; the message begins
            with a verb.
    """
    import cv2
    import numpy as np

    source = np.array(box, np.float32)
    sides = np.linalg.norm(source - np.roll(source, -1, axis=0), axis=1)  # upper, right, lower, left
    width, height = int(max(sides[0], sides[2])), int(max(sides[1], sides[3]))
    middle = source.mean(axis=0)
    if (
        np.any((middle < 0) | (middle > page.shape[1::-1]))
        or not min(width, height)
        or width + height > 2 * sum(page.shape[:2])
    ):
        raise ValueError(
            f"has a box of {width} × {height} pixels around {middle.round().tolist()} on a page of "
            f"{page.shape[1]} × {page.shape[0]}"
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
            yield row(box, place, image)


def _read_label_studio(listing: Listing, file: str) -> Rows:
    for number, task in enumerate(objects(load_json(listing, file)), start=1):
        data = task["data"] if isinstance(task.get("data"), dict) else task
        paths = [unquote(value).split("?d=")[-1] for value in data.values() if isinstance(value, str)]
        image = next((path for path in paths if ending(path) in IMAGE_ENDINGS), "?")
        for region in _results(task):
            yield row({"image": image, **region}, f"{file}#{number}")


def _results(task: Fields) -> list[Fields]:
    """Return the texts of the first annotation that counts, each with its box."""
    annotations = [each for each in objects(task.get("annotations")) if not each.get("was_cancelled")]
    results = objects(annotations[0].get("result")) if annotations else []
    return [
        # a text alone is that of the whole image; else it is in percent, of a size that may not be stated
        {"original_width": None, **each, **value} if len(value) > 1 else value
        for each in results
        for value in objects([each.get("value")])
        if "text" in value
    ]


def _read_cvat(listing: Listing, file: str) -> Rows:
    for image in _xml(listing, file).findall("image"):
        name = image.get("name", "?")
        for number, shape in enumerate(image, start=1):
            texts = {each.get("name", ""): each.text or "" for each in shape.findall("attribute")}
            page = {"image": name, "shape_type": shape.tag, "label": None, **_page_size(image.attrib)}
            record = {**shape.attrib, **page, "attributes": texts}
            yield row(record, f"{file}: {name}#{number}", None if shape.tag == "tag" else name)


def _page_size(record: Fields) -> Fields:
    """Return the size of the page that a tool labelled."""
    return {
        f"page_{side}": first_of(record, (side, f"image{side.title()}", side.upper()))
        for side in ("width", "height")
    }


def _xml(listing: Listing, file: str) -> ElementTree.Element:
    text = listing.text(file)
    with reading(file):
        if re.search("<!(DOCTYPE|ENTITY)", text):
            raise ValueError("it has a document type or entities")
        return ElementTree.fromstring(text)


def _read_page_xml(listing: Listing, file: str) -> Rows:
    root = _xml(listing, file)
    page = next(root.iterfind(".//{*}Page"), root)
    name = page.get("imageFilename") or root.findtext(".//{*}fileName", "?")
    in_pixels = root.findtext(".//{*}MeasurementUnit", "pixel") == "pixel"
    for number, line in enumerate(root.iterfind(".//{*}TextLine"), start=1):
        words = " ".join(each.get("CONTENT", "") for each in line.iterfind("{*}String"))
        hyphen = "".join(each.get("CONTENT", "-") for each in line.iterfind("{*}HYP"))
        readings = sorted(line.iterfind("{*}TextEquiv"), key=lambda each: each.get("index", "").zfill(9))
        texts = [each.findtext("{*}Unicode") for each in readings] or [words + hyphen]
        points = [
            shape.get("points") or shape.get("POINTS")
            for shape in (*line.iterfind("{*}Coords"), *line.iterfind("{*}Shape/{*}Polygon"))
        ]
        sides = [line.get(key) for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT")]
        box = {"points": points[-1]} if points else {"bbox": sides}
        record = {**(box if in_pixels else {}), **_page_size(page.attrib), "text": texts[0]}
        yield row(record, f"{file}#{number}", listing.image_beside.get(file, name))


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
        path = name[1].strip() if name else file
        image = finder(listing, file, Counter(), [path])(path)
        missing = path if "/" in path else join(dirname(file), path)  # it is counted once, too
        pages.setdefault(listing.image_beside.get(file) or f"{listing.root}/{image or missing}", file)
    return [tuple(sorted(pages.values()))] if pages else []


def _read_parts(listing: Listing, file: str) -> Rows:
    """Read pages in JSON, each an object with shapes that have a text, or an image with its text alone."""
    if "labelme" not in listing.choices:
        listing.choices["labelme"] = _labelme_key(listing)
    for number, (page, part) in enumerate(_parts(listing, file), start=1):
        path = str(first_of(page, (*IMAGE_KEYS, "imagePath")) or "?").replace("\\", "/")
        is_beside = _OF_ONE_PAGE & page.keys() and normpath(join(dirname(file), path)) not in listing.images
        name = listing.image_beside.get(file, path) if is_beside else path
        record = {
            "illegible": part.get("ignore")
            or part.get("legibility") == "illegible"
            or part.get("utf8_string") == ".",
            "split": page.get("set", ""),
            **_page_size(page),
            **part,
            **({"text": part.get(listing.choices["labelme"])} if "shapes" in page else {}),
            **(
                {"bbox": None} if "instances" in page and "bbox" in part else {}
            ),  # MMOCR's has corners, COCO's has sides
            "image": name,
        }
        yield row(record, f"{file}#{number}", name if len(part) > 1 else None)


def _parts(listing: Listing, file: str) -> Iterator[tuple[Fields, Fields]]:
    """Yield each page with each of its shapes, which are in a list of the page, or refer to it."""
    lines = numbered_lines(listing, file) if ending(file) != "json" else ()
    contents = [parse_json(line) for _, line in lines] or [load_json(listing, file)]
    for content in objects(contents):
        # str: numbers could be chosen so that all have one hash
        images = {str(each.get("id")): each for each in _members(content, "images", "imgs")}
        for page in _members({"": [content], **content}, "data_list", ""):
            for shape in _members(page, *_OF_ONE_PAGE, "annotations", "anns", "instances"):
                for part in objects(shape.get("words")) or [shape]:
                    yield images.get(str(part.get("image_id")), {}) if images else page, part


def _labelme_key(listing: Listing) -> str:
    """Return where Labelme's texts are: descriptions are remarks if most shapes have none and labels differ."""
    shapes = [
        (shape.get("description"), str(shape.get("label")))
        for file in islice(chain(*_find_pages(listing, _LABELME)), 100)
        for content in objects([load_json(listing, file)])
        for shape in objects(content.get("shapes"))
    ]
    described = sum(bool(description) for description, _ in shapes)
    is_one = len({label for _, label in shapes}) == 1
    return "description" if described and (2 * described >= len(shapes) or is_one) else "label"


def _find_pages(listing: Listing, pattern: str) -> FileGroups:
    """Return the JSON files of a page each: those whose beginning matches ``pattern``."""
    files = (file for file in listing.labels if ending(file) == "json")
    found = tuple(file for file in files if re.search(pattern, listing.head(file)))
    return [found] if found else []


def _members(content: Fields, *keys: str) -> list[Fields]:
    """Return the objects of an array, or those that COCO-Text, TextOCR and VIA keep by their ids."""
    value = first_of(content, keys)
    return objects([*value.values()] if isinstance(value, dict) else value)


def _heads(listing: Listing, pattern: str, *endings: str) -> FileGroups:
    """Return the files whose beginning matches ``pattern``."""
    files = listing.with_ending(*endings)
    return [(file,) for file in files if re.match(pattern, listing.head(file), re.DOTALL)]


PAGE_FORMATS = {
    "ppocrlabel": Format(
        "PPOCRLabel's Label.txt: boxes of pages", partial(find_lists, pattern=PAGE), _read_pages
    ),
    "label_studio": Format(
        "Label Studio: JSON",
        lambda listing: _heads(listing, r'\s*\[\s*\{.*"annotations"\s*:', "json"),
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
        _read_parts,
    ),
    "page_xml": Format(
        "PAGE or ALTO: an XML file for each image",
        _find_page_xml,
        _read_page_xml,
    ),
    "labelme": Format(
        "Labelme: a JSON file for each image", partial(_find_pages, pattern=_LABELME), _read_parts
    ),
    "funsd": Format(
        "FUNSD: a JSON file for each image",
        partial(_find_pages, pattern=r'\A\s*\{\s*"form"\s*:'),
        _read_parts,
    ),
    "mmocr": Format(
        "MMOCR's JSON with a data_list",
        lambda listing: _heads(listing, r'\s*\{.*"data_list"\s*:', "json"),
        _read_parts,
    ),
    "wildreceipt": Format(
        "WildReceipt: a JSON object of a page on each line",
        lambda listing: _heads(
            listing, r'\s*\{\s*"file_name".*"annotations"\s*:\s*\[\s*\{\s*"box"\s*:', *LIST_ENDINGS
        ),
        _read_parts,
    ),
}
