"""Boxes of pages: their corners, and their pixels cut out as PaddleOCR cuts them."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
import pytest

from ppocr_ext.sources.page_formats import corners, crop
from ppocr_ext.sources.samples import Box

SQUARE = ((10, 10), (50, 10), (50, 30), (10, 30))
SIZE = {"original_width": 200, "original_height": 100}
BOXES: dict[str, tuple[dict[str, Any], Any]] = {
    "four corners": ({"points": SQUARE}, SQUARE),
    "counterclockwise": ({"points": [SQUARE[0], SQUARE[3], SQUARE[2], SQUARE[1]]}, SQUARE),
    "two corners": ({"points": [[50, 30], [10, 10]]}, SQUARE),
    "a polygon": ({"points": [*SQUARE[:2], (50, 20), *SQUARE[2:]]}, SQUARE),
    "numbers of TextOCR": ({"points": [10, 10, 50.0, 10, 50, 30, 10, 30]}, SQUARE),
    "a text": ({"points": "10,10;50,10;50,30;10,30"}, SQUARE),
    "COCO": ({"bbox": [10, 10, 40, 20]}, SQUARE),
    "COCO of CVAT, turned": ({"bbox": [10, 10, 40, 20], "rotation": 90.0}, ((40, 0), (40, 40), (20, 40), (20, 0))),
    "CVAT": ({"xtl": "10", "ytl": "10", "xbr": "50", "ybr": "30"}, SQUARE),
    "CVAT, turned": ({"xtl": 10, "ytl": 10, "xbr": "50", "ybr": "30", "rotation": "90"},
        ((40, 0), (40, 40), (20, 40), (20, 0))),
    "percent": ({**SIZE, "x": 5, "y": 10, "width": 20, "height": 20, "rotation": 0}, SQUARE),
    "percent, turned": ({**SIZE, "x": 25, "y": 10, "width": 20, "height": 20, "rotation": 90},
        ((50, 10), (50, 50), (30, 50), (30, 10))),
    "percent, turned image": ({**SIZE, "x": 5, "y": 10, "width": 20, "height": 20, "image_rotation": 90}, None),
    "percent, polygon": ({**SIZE, "points": [[5, 10], [25, 10], [25, 30], [5, 30]]}, SQUARE),
    "from the bottom right": ({"points": [*SQUARE[2:], *SQUARE[:2]]}, SQUARE),
    "upside down": ({**SIZE, "x": 25, "y": 30, "width": 20, "height": 20, "rotation": 180}, (*SQUARE[2:], *SQUARE[:2])),
    "ICDAR 2013": ({"points": "10 10 50 30 "}, SQUARE),
    "a line": ({"points": [[1, 1], [9, 1]]}, None),
    "crossed": ({"points": [SQUARE[0], SQUARE[1], SQUARE[3], SQUARE[2]]}, None),
    "no points": ({"points": []}, None), "one point": ({"points": [[1, 1]]}, None), "none": ({"points": None}, None),
    "no numbers": ({"points": [["x", 1]] * 4}, None), "numbers": ({"points": [1, 2, 3]}, None),
    "not a number": ({"points": [[math.nan, 1], *SQUARE[1:]]}, None), "infinite": ({"bbox": [0, 0, math.inf, 5]}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", BOXES)
def test_corners_are_clockwise_from_the_first(name: str) -> None:
    box, expected = BOXES[name]
    if expected is None:
        with pytest.raises((KeyError, TypeError, ValueError)):
            corners(box)
    else:
        found, _ = corners(box)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        assert found in {found}  # it can be hashed, which finds repeated samples


STEEP = 60  # degrees
HIGH = ((10, 10), (30, 10), (30, 50), (10, 50))
COLUMN = ((10, 10), (30, 14), (20, 64), (0, 60))


def lines() -> dict[str, Box]:
    """Return the corners of lines of text, the top left one of the text first."""
    boxes: dict[str, Box] = {"upright": SQUARE, "short and high": ((10, 10), (30, 10), (30, 35), (10, 35))}
    for degrees in (30, -30, STEEP, -STEEP):
        turn = cmath.rect(1, math.radians(degrees))
        ends = [(100 + 100j) + side * turn for side in (0, 100, 100 + 20j, 20j)]
        boxes[f"turned by {degrees}"] = tuple((each.real, each.imag) for each in ends)  # type: ignore[assignment]
    return boxes


def orders(box: Box) -> list[tuple[int, list[Any]]]:
    """Return the start and the points of the eight polygons of a box."""
    return [
        (start, [box[(start + step * at) % 4] for at in range(4)]) for start in range(4) for step in (1, -1)
    ]


@pytest.mark.parametrize("name", lines())
def test_a_line_of_text_is_not_upside_down(name: str) -> None:
    box = lines()[name]
    for start, order in orders(box):
        assert corners({"points": order}) == (box, start != 0)


@pytest.mark.parametrize("box", [HIGH, COLUMN])
def test_a_column_of_chinese_reads_from_above(box: Box) -> None:
    for start, order in orders(box):
        assert corners({"points": order}, "\u4e2d\u6587") == (box, start != 0)


def test_letters_along_a_high_box_read_as_their_polygon_begins() -> None:
    for start, order in orders(HIGH):
        assert corners({"points": order}, "ABC")[0][0] == (order[0] if start % 2 else HIGH[0])


def test_more_than_four_points_are_cut_along_the_line() -> None:
    box = lines()["turned by 30"]
    middle = [tuple(np.mean([box[at], box[at - 1]], axis=0)) for at in range(4)]
    points = [point for at in (2, 3, 0, 1) for point in (middle[at], box[at])]
    found, begins_elsewhere = corners({"points": points})
    np.testing.assert_allclose(found, box, atol=1e-3)
    assert not begins_elsewhere


def page() -> Any:
    """Return a page whose pixels are all different: row and column."""
    rows, columns = np.mgrid[0:60, 0:80]
    return np.stack([rows, columns, rows + columns], axis=-1).astype(np.uint8)


def test_an_upright_box_is_cut_to_the_pixel() -> None:
    pixels, turned = crop(page(), ((10, 20), (50, 20), (50, 40), (10, 40)))
    np.testing.assert_array_equal(pixels, page()[20:40, 10:50])
    assert not turned


@pytest.mark.parametrize(("height", "turned"), [(29, False), (30, True)])
def test_a_box_is_turned_if_it_is_high(height: int, turned: bool) -> None:
    pixels, is_turned = crop(page(), ((10, 10), (30, 10), (30, 10 + height), (10, 10 + height)))
    plain = page()[10 : 10 + height, 10:30]
    np.testing.assert_array_equal(pixels, np.rot90(plain) if turned else plain)
    assert is_turned == turned and pixels.flags["C_CONTIGUOUS"]


def test_a_slanted_box_is_cut_as_paddleocr_cuts_it() -> None:
    utility = pytest.importorskip("paddleocr.tools.infer.utility")
    box: Box = ((12.5, 8.0), (60.2, 15.1), (57.0, 33.3), (9.9, 27.4))
    for each in (box, (box[1], box[2], box[3], box[0])):
        theirs = utility.get_rotate_crop_image(page(), np.array(each, np.float32))
        np.testing.assert_array_equal(crop(page(), each)[0], theirs)


@pytest.mark.parametrize("scale", [0.01, 1e3])
def test_a_box_that_is_not_of_the_page_is_refused(scale: float) -> None:
    with pytest.raises(ValueError):
        crop(page(), ((0, 0), (40 * scale, 0), (40 * scale, 20 * scale), (0, 20 * scale)))


@pytest.mark.parametrize(("x", "y"), [(90, 10), (10, 70), (-40, 10)])
def test_a_box_outside_the_page_is_refused(x: int, y: int) -> None:
    with pytest.raises(ValueError):
        crop(page(), ((x, y), (x + 20, y), (x + 20, y + 9), (x, y + 9)))
