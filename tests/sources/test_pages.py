"""Pages with boxes: their sizes, shapes, attributes and images, in the formats of several tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from error_codes import raises_code
from folders import BOX, draw, images, write
from PIL import Image
from test_recognise import entries, texts_of

from ppocr_ext.errors import DataError
from ppocr_ext.sources.recognise import recognise

PAGE_LINE = (
    '<PcGts><Page imageFilename="p.png" {}><TextLine><Coords points="10,10 50,10 50,30 10,30"/>{}</TextLine>'
    "</Page></PcGts>"
)
UNICODE = "<TextEquiv><Unicode>A</Unicode></TextEquiv>"
ALTO_LINE = (
    '<alto>{}<Layout><Page {}><TextLine HPOS="10" VPOS="10" WIDTH="40" HEIGHT="20"><Shape>'
    '<Polygon POINTS="10,10 50,10 50,30 10,30"/></Shape><String CONTENT="A"/></TextLine></Page></Layout></alto>'
)
CVAT_BOX = '<box xtl="10" ytl="10" xbr="50" ybr="30">{}</box>'
ATTRIBUTE = '<attribute name="{}">{}</attribute>'
TEXT = ATTRIBUTE.format("text", "A")


def cvat(shape: str, size: str = "") -> str:
    return f'<annotations><image name="p.png" {size}>{shape}</image></annotations>'


def labelme(**fields: Any) -> str:
    return json.dumps({"shapes": [{"label": "A", "points": [[10, 10], [50, 30]], **fields}], **fields})


def coco(part: dict[str, Any], **size: int) -> str:
    image = {"id": 1, "file_name": "p.png", **size}
    return json.dumps({"images": [image], "annotations": [{"image_id": 1, "text": "A", **part}]})


def label_studio(value: dict[str, Any], **size: int) -> str:
    return json.dumps([{"annotations": [{"result": [{**size, "value": value}]}], "image": "p.png"}])


def sized(form: str, width: int, height: int) -> tuple[str, str]:
    """Return the name and the text of a label file that states the size of p.png."""
    size = {"width": width, "height": height}
    across, along = 100 / max(1, width), 100 / max(1, height)
    percent = {"x": 10 * across, "y": 10 * along, "width": 40 * across, "height": 20 * along, "text": ["A"]}
    box = {"box": [10, 10, 50, 10, 50, 30, 10, 30], "text": "A"}
    return {
        "coco": ("l.json", coco({"bbox": [10, 10, 40, 20]}, **size)),
        "page": ("p.xml", PAGE_LINE.format(f'imageWidth="{width}" imageHeight="{height}"', UNICODE)),
        "alto": ("p.xml", ALTO_LINE.format("", f'WIDTH="{width}" HEIGHT="{height}"')),
        "cvat": ("l.xml", cvat(CVAT_BOX.format(TEXT), f'width="{width}" height="{height}"')),
        "labelme": ("p.json", labelme(imageWidth=width, imageHeight=height)),
        "label studio": ("l.json", label_studio(percent, original_width=width, original_height=height)),
        "wildreceipt": ("l.txt", json.dumps({"file_name": "p.png", **size, "annotations": [box]})),
    }[form]


@pytest.mark.parametrize("form", ["coco", "page", "alto", "cvat", "labelme", "label studio", "wildreceipt"])
def test_boxes_are_scaled_to_a_page_of_another_size(tmp_path: Path, form: str) -> None:
    draw(tmp_path / "p.png", size=(48, 97))
    for scale, stated in (
        (1.0, (97, 48)),
        (0.5, (194, 97)),
        (2.0, (48, 24)),
        (1.0, (0, 0)),
        (0, (48, 97)),
        (0, (97, 60)),
    ):
        write(tmp_path, *sized(form, *stated))
        if not scale or (form == "label studio" and 0 in stated):
            with raises_code(DataError, "no_samples", "page_size" if any(stated) else "bad_box"):
                recognise(tmp_path)
            continue
        source = recognise(tmp_path)
        (sample,) = source.samples()
        np.testing.assert_allclose(sample.box, np.multiply(BOX, scale), rtol=0.02)
        assert any("Boxes scaled" in note for note in source.notes) == (scale != 1)


def test_the_size_of_a_page_is_that_of_the_turned_photo(tmp_path: Path) -> None:
    """A phone stores it lying, with a mark in EXIF that OpenCV and the tools heed."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (48, 97)).save(tmp_path / "p.png", exif=exif)
    assert cv2.imread(str(tmp_path / "p.png")).shape[:2] == (48, 97)
    write(tmp_path, *sized("coco", 97, 48))
    (sample,) = recognise(tmp_path).samples()
    assert sample.box == BOX


STRANGE = {
    **{name: ("l.xml", cvat(f"<{name} {fields}>{TEXT}</{name}>")) for name, fields in {
        "ellipse": 'cx="30" cy="20" rx="20" ry="9"', "mask": 'rle="1" left="10" top="10" width="40" height="20"',
        "cuboid": 'xtl1="1" ytl1="1"', "polyline": 'points="10,30;50,30;50,31"', "skeleton": ""}.items()},
    **{name: ("p.json", labelme(shape_type=name)) for name in ("circle", "line", "linestrip")},
    "mm10": ("p.xml", ALTO_LINE.format("<MeasurementUnit>mm10</MeasurementUnit>", "")),
    "PAGE without Coords": ("p.xml", PAGE_LINE.replace("Coords", "Baseline").format("", UNICODE)),
    "COCO without a box": ("l.json", coco({"segmentation": []})),
    "percent of no size": ("l.json", label_studio({"text": ["A"], "x": 1, "y": 1, "width": 9, "height": 9})),
    "ellipse of Label Studio": ("l.json", label_studio({"text": ["A"], "x": 9, "y": 9, "radiusX": 9, "radiusY": 9},
        original_width=96, original_height=48)),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_shape_that_is_not_known_is_not_the_whole_page(tmp_path: Path, name: str) -> None:
    draw(tmp_path / "p.png")
    write(tmp_path, *STRANGE[name])
    with raises_code(DataError, "no_samples", "1 bad_box"):
        recognise(tmp_path)


def test_a_text_alone_is_that_of_the_whole_image(tmp_path: Path) -> None:
    draw(tmp_path / "p.png")
    write(tmp_path, "l.json", label_studio({"text": ["A"]}))
    assert texts_of(recognise(tmp_path)) == {"p.png": "A"}


def test_an_attribute_that_is_not_named_text_is_asked_for(tmp_path: Path) -> None:
    draw(tmp_path / "p.png")
    asked = CVAT_BOX.format(ATTRIBUTE.format("color", "red") + ATTRIBUTE.format("number", "A1"))
    write(tmp_path, "l.xml", cvat(asked))
    with raises_code(DataError, "no_samples", "unnamed_text", "color 'red', number 'A1'", "Rename it `text`"):
        recognise(tmp_path)
    named = CVAT_BOX.format(ATTRIBUTE.format("color", "red") + ATTRIBUTE.format("Plate Number", "A1"))
    write(tmp_path, "l.xml", cvat(named + asked))
    samples, skipped = entries(recognise(tmp_path))
    assert [each.text for each in samples] == ["A1"] and [each.reason for each in skipped] == ["unnamed_text"]


def test_the_text_of_the_lowest_index_counts(tmp_path: Path) -> None:
    draw(tmp_path / "p.png")
    equiv = '<TextEquiv index="{}"><Unicode>{}</Unicode></TextEquiv>'
    texts = "".join(equiv.format(*each) for each in ((10, "ten"), (2, "two"), (1, "one")))
    write(tmp_path, "p.xml", PAGE_LINE.format("", texts))
    assert texts_of(recognise(tmp_path)) == {"p.png": "one"}


@pytest.mark.parametrize(
    ("file", "path", "image"),
    [
        ("1.json", "2.png", "2.png"),
        ("1.json", "gone.png", "1.png"),
        ("json/scan.json", "..\\2.png", "2.png"),
        ("json/scan.json", "/home/me/2.png", "2.png"),
    ],
)
def test_labelme_names_the_image(tmp_path: Path, file: str, path: str, image: str) -> None:
    images(tmp_path, ["1.png", "2.png"])
    write(tmp_path, file, labelme(imagePath=path))
    assert texts_of(recognise(tmp_path)) == {image: "A"}


@pytest.mark.parametrize("folder", ["", "changed/"])
def test_lines_of_a_missing_page_are_counted_once(tmp_path: Path, folder: str) -> None:
    draw(tmp_path / "p.png")
    write(tmp_path, "p.xml", PAGE_LINE.format("", UNICODE))
    gone = PAGE_LINE.replace("p.png", "images/gone.png" if folder else "gone.png").format("", UNICODE)
    write(tmp_path, "q.xml", gone)
    write(tmp_path, f"{folder}q.chocomufin.xml", gone)
    _, skipped = entries(recognise(tmp_path))
    assert [each.reason for each in skipped] == ["missing_image"]
