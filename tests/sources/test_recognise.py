"""Each format is recognised, and its neighbours are not taken for it; counts are exact."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from folders import (
    POLYGON,
    TEXTS,
    draw,
    images,
    page_line,
    quoted,
    rows,
    tabs,
    write,
    write_json,
    write_lmdb,
)

from ppocr_ext.data.issue_rules import RULES
from ppocr_ext.sources.recognise import FORMATS, recognise
from ppocr_ext.sources.samples import Sample, Skipped, Source


class Case(NamedTuple):
    format: str
    draw: Callable[[Path], None]
    texts: dict[str, str]  # image → text
    skipped: dict[str, int] = {}
    splits: dict[str, str] = {}  # image → split


def entries(source: Source) -> tuple[list[Sample], list[Skipped]]:
    everything = list(source.read())
    assert everything == list(source.read())
    samples = [entry for entry in everything if isinstance(entry, Sample)]
    return samples, [entry for entry in everything if isinstance(entry, Skipped)]


def texts_of(source: Source) -> dict[str, str]:
    samples, _ = entries(source)
    assert len({sample.image for sample in samples}) == len(samples)
    return {sample.image: sample.text for sample in samples}


def drawn(*files: tuple[str, str], names: Any = TEXTS, end: str = "\n") -> Callable[[Path], None]:
    def make(root: Path) -> None:
        images(root, names)
        for name, text in files:
            write(root, name, text.replace("\n", end))

    return make


def tab_case(root: Path) -> None:
    """A list with everything that is skipped, in CRLF, beside files that are no label files."""
    images(root, TEXTS)
    draw(root / "grey.png", 1)
    draw(root / "rgba.png", 4)
    draw(root / "deep.tif", 3, np.uint16)
    odd = {"grey.png": "", "rgba.png": "###", "deep.tif": "deep", "gone.png": "x", "a.jpg": TEXTS["a.jpg"]}
    again = tabs({"a.jpg": TEXTS["a.jpg"]})
    write(root, "labels.txt", tabs({**TEXTS, **odd}, "\r\n") + again + "no tab\r\n\r\n")
    for name in (
        "dict.txt",
        "fileState.txt",
        "README.txt",
        "predictions.tsv",
        "sample_submission.csv",
        ".git/labels.txt",
    ):
        write(root, name, tabs(dict.fromkeys(TEXTS, "wrong")))


SIZE = {"original_width": 96, "original_height": 48}
PERCENT = {"x": 10, "y": 20, "width": 40, "height": 40, "rotation": 0}
QUADRILATERAL = {"points": [[0, 0], [50, 0], [50, 50], [0, 50]], "text": ["two"]}


def label_studio(root: Path) -> None:
    images(root, ["0a1b2c3d-page 1.jpg", "page2.jpg"])
    one = [{**SIZE, "value": {**PERCENT, **each}} for each in ({"labels": ["Text"]}, {"text": ["one"]})]
    two = [{**SIZE, "value": QUADRILATERAL}]
    pages = {"/data/upload/1/0a1b2c3d-page%201.jpg": one, "/data/local-files/?d=x/page2.jpg": two}
    tasks = [{"annotations": [{"result": result}], "data": {"ocr": path}} for path, result in pages.items()]
    write_json(root, "project-1.json", tasks)


CVAT = """<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version>
<image id="0" name="images/p.jpg" width="96" height="48">
<box label="plate" xtl="10" ytl="10" xbr="50" ybr="30"><attribute name="plate number">AB &amp; C</attribute></box>
<polygon label="plate" points="10,10;50,10;50,30;10,30"><attribute name="text">poly</attribute>
<attribute name="color">red</attribute></polygon><tag label="page"><attribute name="text">whole</attribute></tag>
<box label="plate" xtl="1" ytl="1" xbr="9" ybr="9"></box></image></annotations>"""

PAGE = """<?xml version="1.0"?>
<pc:PcGts xmlns:pc="http://x/2019"><pc:Page imageFilename="images/p.jpg"><pc:TextRegion><pc:Coords points="0,0 9,9"/>
<pc:TextLine><pc:Coords points="10,10 50,10 50,30 10,30"/><pc:Word><pc:TextEquiv><pc:Unicode>o</pc:Unicode>
</pc:TextEquiv></pc:Word><pc:TextEquiv index="0"><pc:Unicode>one</pc:Unicode></pc:TextEquiv><pc:TextEquiv index="1">
<pc:Unicode>0ne</pc:Unicode></pc:TextEquiv></pc:TextLine><pc:TextLine><pc:Coords points="10,10 50,30"/></pc:TextLine>
<pc:TextLine><pc:TextEquiv><pc:Unicode>no box</pc:Unicode></pc:TextEquiv></pc:TextLine></pc:TextRegion></pc:Page>
</pc:PcGts>"""
ALTO = """<alto xmlns="http://x/v4#"><Description><MeasurementUnit>{}</MeasurementUnit><sourceImageInformation>
<fileName>gone.jpg</fileName></sourceImageInformation></Description><Layout><Page><PrintSpace>
<TextLine HPOS="10" VPOS="10" WIDTH="40" HEIGHT="20"><String CONTENT="A &amp;"/><SP/><String CONTENT="B"/>
<HYP CONTENT="-"/></TextLine></PrintSpace></Page></Layout></alto>"""


COCO_TEXT = {
    "cats": {},
    "anns": {
        "1": {"image_id": 7, "bbox": [10, 10, 40, 20], "utf8_string": "one", "legibility": "legible"},
        "2": {"image_id": 7, "bbox": [10, 10, 40, 20], "utf8_string": "o", "legibility": "illegible"},
        "a_3": {
            "image_id": 7,
            "bbox": [10, 10, 40, 20],
            "points": [10, 30, 50, 30, 50, 50, 10, 50],
            "utf8_string": "two",
        },
        "a_4": {
            "image_id": 7,
            "bbox": [10, 10, 40, 20],
            "utf8_string": ".",
        },  # of TextOCR, where nobody could read it
    },
    "imgs": {"7": {"id": 7, "set": "val", "file_name": "train2014/p.jpg"}},
}
COCO = {
    "images": [{"id": 7, "file_name": "p.jpg"}],
    "annotations": [
        {"image_id": 7, "bbox": [10, 10, 40, 20], "text": "one", "category_id": 1},
        {"image_id": 7, "bbox": [10, 10, 40, 20], "attributes": {"transcription": "two"}},
        {"image_id": 8, "bbox": [1, 1, 5, 5], "text": "of no image"},
        {"image_id": 7, "bbox": [10, 10, "wide", 20], "text": "bad"},
    ],
}
SHAPES = [
    {"label": "one", "points": [[10, 10], [50, 30]], "shape_type": "rectangle"},
    {"label": "two", "points": [[10, 10], [50, 10], [50, 30], [10, 30]], "shape_type": "polygon"},
]


def lmdb_case(root: Path) -> None:
    write_lmdb(root / "training" / "A", ["one", "###"])
    write_lmdb(root / "validation", ["two"])


def huggingface(root: Path) -> None:
    for split in ("train", "validation", "test"):
        draw(root / split / "1.png")
        write_json(root, f"{split}/metadata.jsonl", {"file_name": "1.png", "text": split})


def split_pages(root: Path) -> None:  # as PPOCRLabel's script writes them, on another machine
    for split in ("train", "val"):
        draw(root / "det" / split / f"{split}.jpg")
        write(root, f"det/{split}.txt", page_line(f"/x/det/{split}/{split}.jpg", (split, False)))


def pages(root: Path) -> None:
    images(root, ["F/1.jpg", "F/2.jpg", "F/3.jpg"])
    lines = page_line("F/1.jpg", ("one", False), ("###", False), ("hard", True)) + page_line("F/2.jpg")
    write(root, "F/Label.txt", lines)
    write(root, "F/Cache.cal", page_line("F/3.jpg", ("guess", False)))
    write(root, "F/fileState.txt", "/x/F/1.jpg\t1\n")


def crops(root: Path) -> None:
    pages(root)
    images(root, ["F/crop_img/1_crop_0.jpg", "F/crop_img/1_crop_1.jpg"])
    write(root, "F/rec_gt.txt", tabs({"crop_img/1_crop_0.jpg": "one", "crop_img/1_crop_1.jpg": "two"}))


def icdar2015(root: Path) -> None:
    """The pages of both splits have the same names, and the texts stand in folders of their own."""
    for split, gt in (("training", "ch4_training_gt"), ("test", "Challenge4_Test_Task1_GT")):
        draw(root / f"ch4_{split}_images" / "img_1.jpg")
        write(root, f"{gt}/gt_img_1.txt", f"\ufeff{POLYGON},a, {split}\r\n{POLYGON},###\r\n")


NAMES = {f"{name}.png": name for name in ("one", "two")}
SPACES = {"a.jpg": "A B", "中/b.PNG": "12", "c.png": "1, 2"}
WHOLE = dict(zip(TEXTS, ("one", "two", "three"), strict=True))
AB = {"a.jpg": "A", "b c.PNG": "B"}
AB_SPLITS = {"a.jpg": "train", "b c.PNG": "val"}
DOCTR = {f"train/images/{name}": text for name, text in TEXTS.items()}
HF = {f"{split}/1.png": split for split in ("train", "validation", "test")}
ICDAR = {f"ch4_{split}_images/img_1.jpg": split for split in ("training", "test")}
DET = {f"det/{split}/{split}.jpg": split for split in ("train", "val")}
SHORT = {"training": "train", "validation": "val"}
CASES = {
    "tabs": Case("tsv", tab_case, {**TEXTS, "deep.tif": "deep"},
        {"no_text": 1, "illegible": 1, "missing_image": 1, "bad_line": 1}),
    "tabs, splits": Case("tsv", drawn(("rec_gt_train.txt", "a.jpg\tA\n"), ("rec_gt_val.txt", "b c.PNG\tB\n")),
        AB, splits=AB_SPLITS),
    "tabs, further columns": Case("tsv", drawn(("l.txt", "a.jpg\tA\t96\t48\nb c.PNG\tB\na.jpg\ta\ttab\n")), AB,
        {"bad_line": 1}),
    "csv": Case("csv", drawn(("l.csv", "image,text\n" + quoted(TEXTS))), TEXTS),
    "csv, semicolon": Case("csv", drawn(("l.csv", "Filename;x;Words\n" + quoted(WHOLE, ";1;"))), WHOLE),
    "csv, tabs": Case("csv", drawn(("l.tsv", "image_path\tplate_text\n" + tabs(WHOLE))), WHOLE),
    "csv, splits": Case("csv", drawn(("l.csv", "file_name,label,split\na.jpg,A,Train\nb c.PNG,B,dev\n")),
        AB, splits=AB_SPLITS),
    "csv, other names": Case("csv",
        drawn(("l.csv", "name;x;ground_truth\n" + tabs(WHOLE).replace("\t", ";1;"))), WHOLE),
    "csv, unknown names": Case("csv", drawn(("l.csv", "Ảnh,Chữ\n" + quoted(WHOLE))), WHOLE),
    "csv, commas": Case("csv", drawn(("l.csv", "image,text\na.jpg,A, B,C \nb c.PNG,\"x,y\"\n")),
        {"a.jpg": "A, B,C", "b c.PNG": "x,y"}),
    "csv, returns": Case("csv", drawn(("l.csv", "image,text\n" + quoted(WHOLE)), end="\r"), WHOLE),
    "tabs, returns": Case("tsv", drawn(("l.txt", tabs(TEXTS)), end="\r"), TEXTS),
    "csv, spaces": Case("csv", drawn(("l.csv", 'image, text\na.jpg, "A, B"\n')), {"a.jpg": "A, B"}),
    "csv, bad rows": Case("csv", drawn(("l.csv", 'image,text\na.jpg,"two\nlines"\nb c.PNG,"x",y\na.jpg\na.jpg,A\n')),
        {"a.jpg": "A"}, {"several_lines": 1, "bad_line": 1, "no_text": 1}),
    "csv, no header": Case("csv_no_header", drawn(("l.csv", quoted(TEXTS))), TEXTS),
    "csv, no header, spaces": Case("csv_no_header", drawn(("l.csv", tabs(WHOLE).replace("\t", ", "))), WHOLE),
    "csv, no header, commas": Case("csv_no_header",
        drawn(("train.txt", '/a.jpg, A, B\n/x/b c.PNG, C\n/图 1.png, "D,""E"""\n/x/gone.jpg,A,B\n/x/a.jpg, A, B\n')),
        {"a.jpg": "A, B", "b c.PNG": "C", "中文/图 1.png": 'D,"E"'}, {"missing_image": 1},
        dict.fromkeys(TEXTS, "train")),
    "csv, no quotes": Case("csv_no_header", drawn(("l.csv", tabs(WHOLE).replace("\t", ","))), WHOLE),
    "spaces": Case("spaces", drawn(("l.txt", "a.jpg A B\n中/b.PNG  12\nc.png 1, 2\n"), names=SPACES), SPACES),
    "spaces, another ending": Case("spaces",
        drawn(("all.tags", tabs(SPACES).replace("\t", " ")), ("get.sh", "get a.jpg A\n"), names=SPACES), SPACES),
    "tabs, no ending": Case("tsv", drawn(("labels", tabs(TEXTS)), ("log.log", tabs(WHOLE))), TEXTS),
    "words": Case("icdar_words", drawn(("gt.txt", rows(TEXTS, lambda i, t: i + ', "' + t.replace('"', '\\"') + '"'))),
        TEXTS),
    "json lines": Case("json_lines",
        drawn(("l.jsonl", rows(TEXTS, lambda i, t: json.dumps({"image": i, "text": t})))), TEXTS),
    "json lines, numbers": Case("json_lines", drawn(("l.jsonl", '{"image": "a.jpg", "text": 0}\n1\n')), {"a.jpg": "0"},
        {"bad_line": 1}),
    "hugging face": Case("json_lines", huggingface, HF, splits={image: SHORT.get(t, t) for image, t in HF.items()}),
    "hugging face, csv": Case("csv", drawn(("train/metadata.csv", "file_name,text\n1.png,train\n"), names=HF),
        {"train/1.png": "train"}, splits={"train/1.png": "train"}),
    "doctr": Case("json", drawn(("train/labels.json", json.dumps(TEXTS)), names=DOCTR), DOCTR,
        splits=dict.fromkeys(DOCTR, "train")),
    "json array": Case("json",
        drawn(("l.json", json.dumps([{"Path": i, "Label": t} for i, t in TEXTS.items()]))), TEXTS),
    "json, array in an object": Case("json",
        drawn(("l.json", json.dumps({"type": "x", "images": [{"filename": i, "text": t} for i, t in TEXTS.items()]}))),
        TEXTS),
    "page xml, cut": Case("text_files",
        drawn(("p.xml", PAGE), ("one.gt.txt", "one"), names=["images/p.jpg", "one.png"]), {"one.png": "one"}),
    "page xml": Case("page_xml",
        drawn(("GT/p1.xml", PAGE), ("A/p1.xml", PAGE.replace(">one<", ">read<")), ("GT/mets.xml", "<mets/>"),
            names=["images/p.jpg"]),
        {"images/p.jpg": "one"}, {"no_text": 1, "bad_box": 1}),
    "alto": Case("page_xml",
        drawn(("one.xml", ALTO.format("pixel")), ("two.xml", ALTO.format("mm10")),
            ("one.changed.xml", ALTO.format("pixel").replace("gone.jpg", "one.png").replace("B", "b")), names=NAMES),
        {"one.png": "A & B-"}, {"bad_box": 1}),
    "text files": Case("text_files",
        drawn(("one.txt", "one\r\n\f"), ("two.gt.txt", "two\n"), ("3.txt", "a\nb"), names=[*NAMES, "3.JPG"]),
        NAMES, {"several_lines": 1}),
    "ocropus": Case("text_files", drawn(("train/1.gt.txt", "one\n"), ("train/2.gt.txt", "two"), ("train/3.gt.txt", "x"),
        names=[f"train/{name}.png" for name in ("1.bin", "1.nrm", "2", "2.bin", "3.bin")]),
        {"train/1.nrm.png": "one", "train/2.png": "two", "train/3.bin.png": "x"},
        splits={f"train/{name}.png": "train" for name in ("1.nrm", "2", "3.bin")}),
    "pages": Case("ppocrlabel", pages, {"F/1.jpg": "one"}, {"illegible": 2}),
    "pages, splits": Case("ppocrlabel", split_pages, DET, splits=DET),
    "crops": Case("tsv", crops, {"F/crop_img/1_crop_0.jpg": "one", "F/crop_img/1_crop_1.jpg": "two"}),
    "lmdb": Case("lmdb", lmdb_case, {"training/A#1": "one", "validation#1": "two"}, {"illegible": 1},
        {"training/A#1": "train", "validation#1": "val"}),
    "polygons": Case("icdar_polygons", icdar2015, {image: f"a, {split}" for image, split in ICDAR.items()},
        {"illegible": 2}, {image: SHORT.get(split, split) for image, split in ICDAR.items()}),
    "polygons beside": Case("icdar_polygons", drawn(("one.txt", f"{POLYGON},A\n{POLYGON},\n1,2\n"), names=NAMES),
        {"one.png": "A"}, {"bad_line": 1, "no_text": 1}),
    "polygons, csv": Case("icdar_polygons",
        drawn(("box/one.csv", f"{POLYGON},A,B\n{POLYGON},###\n"), ("box/two.csv", f"{POLYGON},C"), names=NAMES),
        {"one.png": "A,B", "two.png": "C"}, {"illegible": 1}),
    "polygons, scripts": Case("icdar_polygons", drawn(("one.txt", f"{POLYGON},Latin,A,B\n{POLYGON},None,###\n"),
        names=NAMES), {"one.png": "A,B"}, {"illegible": 1}),
    "boxes": Case("icdar_boxes", drawn(("one.txt", '9, 9, 50, 40, "A, "B""\r\n'), ("gt_two.txt", '9 9 50 40 "A"\n'),
        names=NAMES), {"one.png": 'A, "B"', "two.png": "A"}),
    "boxes of RCTW": Case("icdar_boxes", drawn(("one.txt", f'\ufeff{POLYGON},0,"A"\n{POLYGON},1,"###"\n'), names=NAMES),
        {"one.png": "A"}, {"illegible": 1}),
    "mjsynth": Case("mjsynth", drawn(("annotation_train.txt", "./1/115_Lube_45.jpg 45\n./1/2_GONE_3.jpg 3\n"),
        ("lexicon.txt", "lube\n"), names=["1/115_Lube_45.jpg"]),
        {"1/115_Lube_45.jpg": "Lube"}, {"missing_image": 1}, {"1/115_Lube_45.jpg": "train"}),
}  # fmt: skip
P = "p.jpg"
NUMBERS = [10, 10, 50, 10, 50, 30, 10, 30]
FUNSD = [
    {
        "box": [1, 1, 90, 30],
        "text": "one two",
        "words": [{"box": [10, 10, 50, 30], "text": t} for t in ("one", "two")],
    }
]
MMOCR = {
    "metainfo": {},
    "data_list": [
        {"img_path": P, "height": 48, "instances": [{"polygon": NUMBERS, "text": "one", "ignore": False}]},
        {
            "img_path": P,
            "instances": [
                {"polygon": NUMBERS, "text": "two", "ignore": True},
                {"bbox": [1, 1, 9, 9], "text": "three"},
                {"text": "whole"},
            ],
        },
    ],
}
WILDRECEIPT = {
    "file_name": P,
    "height": 48,
    "width": 96,
    "annotations": [{"box": NUMBERS, "text": "one", "label": 1}],
}
DESCRIBED = [{**SHAPES[0], "description": "D"}, SHAPES[1]]
PAGES = {
    "label studio": ("label_studio", label_studio, [("0a1b2c3d-page 1.jpg", "one"), ("page2.jpg", "two")], {}),
    "cvat": ("cvat", drawn(("annotations.xml", CVAT), names=["images/p.jpg"]),
        [("images/p.jpg", "AB & C"), ("images/p.jpg", "poly"), ("images/p.jpg", "whole")], {"no_text": 1}),
    "coco": ("coco", drawn(("_x.json", json.dumps(COCO)), names=[P]), [(P, "one"), (P, "two")],
        {"missing_image": 1, "bad_box": 1}),
    "COCO-Text": ("coco", drawn(("cocotext.v2.json", json.dumps(COCO_TEXT)), names=[P]), [(P, "one"), (P, "two")],
        {"illegible": 2}),
    "labelme": ("labelme", drawn(("p.json", json.dumps({"version": "5", "shapes": SHAPES})), names=[P]),
        [(P, "one"), (P, "two")], {}),
    "funsd": ("funsd", drawn(("annotations/p.json", json.dumps({"form": FUNSD})), names=["images/p.jpg"]),
        [("images/p.jpg", "one"), ("images/p.jpg", "two")], {}),
    "mmocr": ("mmocr", drawn(("textrecog_train.json", json.dumps(MMOCR)), names=[P]), [(P, "one"), (P, "whole")],
        {"illegible": 1, "bad_box": 1}),
    "wildreceipt": ("wildreceipt", drawn(("train.txt", json.dumps(WILDRECEIPT) + "\n"), names=[P]), [(P, "one")], {}),
    "labelme, described": ("labelme", drawn(("p.json", json.dumps({"shapes": DESCRIBED})), names=[P]),
        [(P, "D")], {"no_text": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_format_is_recognised_and_read(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    case.draw(tmp_path)
    source = recognise(tmp_path)
    samples, skipped = entries(source)
    assert source.format == case.format
    assert texts_of(source) == case.texts
    assert Counter(each.reason for each in skipped) == case.skipped
    assert {each.image: each.split for each in samples if each.split} == case.splits
    assert all((tmp_path / file).is_file() for file in source.files)


@pytest.mark.parametrize("name", PAGES)
def test_a_format_of_pages_is_recognised_and_read(tmp_path: Path, name: str) -> None:
    format, make, texts, reasons = PAGES[name]
    make(tmp_path)
    source = recognise(tmp_path)
    samples, skipped = entries(source)
    assert source.format == format
    assert [(each.image, each.text) for each in samples] == texts
    assert Counter(each.reason for each in skipped) == reasons
    assert all(each.group == (each.image if each.box else "") for each in samples)


@pytest.mark.parametrize("key", ["difficult", "illegible"])
@pytest.mark.parametrize(
    ("value", "is_read"),
    [(0, True), ("0", True), ("False", True), ("no", True), ("", True), (None, True), (1, False), ("1", False),
     ("true", False), (True, False)],
)  # fmt: skip
def test_a_mark_may_be_a_word(tmp_path: Path, key: str, value: Any, is_read: bool) -> None:
    images(tmp_path, ["a.jpg", "b.jpg"])
    records = [{"image": "a.jpg", "text": "A", key: value}, {"image": "b.jpg", "text": "B"}]
    write(tmp_path, "l.jsonl", "".join(json.dumps(each) + "\n" for each in records))
    assert texts_of(recognise(tmp_path)) == ({"a.jpg": "A"} if is_read else {}) | {"b.jpg": "B"}


@pytest.mark.parametrize("described", [1, 12])
def test_labelme_is_read_in_one_way_in_a_folder(tmp_path: Path, described: int) -> None:
    """A remark on one of twelve shapes is no text; with a text for each, a shape without one has none."""
    for number in range(12):
        draw(tmp_path / f"{number}.jpg")
        shape = {
            **SHAPES[0],
            "label": f"label {number}",
            "description": f"D{number}" if number < described else "",
        }
        write_json(tmp_path, f"{number}.json", {"shapes": [shape]})
    samples, _ = entries(recognise(tmp_path))
    start = "label " if described == 1 else "D"
    assert sorted(each.text for each in samples) == sorted(f"{start}{number}" for number in range(12))


def test_polygons_that_begin_elsewhere_are_shown_first(tmp_path: Path) -> None:
    draw(tmp_path / "p.png")
    box = [[10, 10], [50, 10], [50, 30], [10, 30]]
    shapes = [{"label": "as written", "points": box}, {"label": "moved", "points": [*box[2:], *box[:2]]}]
    write_json(tmp_path, "p.json", {"shapes": shapes})
    source = recognise(tmp_path)
    first, second = source.samples()
    assert source.moved == (second,) and first.box == second.box and len(source.notes) == 1


def test_every_format_and_reason_has_a_case() -> None:
    assert {case.format for case in CASES.values()} | {case[0] for case in PAGES.values()} == set(FORMATS)
    assert RULES.keys() >= {reason for case in CASES.values() for reason in case.skipped}
