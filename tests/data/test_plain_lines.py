"""Lines that one regular expression decides get the report that the rules one by one give them."""

from __future__ import annotations

import os
import random
import re
from dataclasses import fields, replace
from pathlib import Path

import cv2
import lmdb
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.data import preflight
from ppocr_ext.data.image_check import ImageFolder
from ppocr_ext.data.preflight import LmdbSamples, check_label_files, check_lmdbs
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import FrameLimit, SampleRules, frames_needed, frames_needed_each
from ppocr_ext.limits import MAX_LABEL_LINE_BYTES

SMALL = Charset(tuple("abc019-^]\\[ é中\U00020000\t") + ("more",), use_space=True)
MAPPED = replace(SMALL, unknown_symbol="c")
NAMES = ["a.png", "b.jpg", "sub/c.bmp", "sub/d.webp", "sub/e.tiff", "photo.jpg"]
NAMES += ["filled.jpg", "between.jpg"]
NAMES += ["link.png", "out.png", "../secret.png", "sub/../a.png", "./a.png", "in/c.bmp", "sub//c.bmp", "pipe"]
NAMES += [
    "gone.png",
    "empty.png",
    "cut.png",
    "large.png",
    "sub",
    "sub/",
    "",
    " ",
    " a.png",
    "\u3000",
    "a\0.png",
]
NAMES += ['["a.png", "b.jpg"]', '["a.png", "gone.png"]', "[x].png", "[", "sub\\c.bmp", '"a.png"', "n" * 300]
RULES = {
    "CTC": SampleRules(SMALL, 6, allow_outside_data_dir=False),
    "NRTR": SampleRules(SMALL, 8, "nrtr", FrameLimit(7), allow_outside_data_dir=False),
    "outside, SAR": SampleRules(SMALL, 5, "sar", min_text_length=2),
    "drop_char": SampleRules(replace(SMALL, drops_unknown=True), 6, frames=FrameLimit(5)),
    "map, misfits count": SampleRules(MAPPED, 6, frames=FrameLimit(4, required=False)),
    "capitals": SampleRules(Charset.default(), 6, "nrtr", allow_outside_data_dir=False),
    "no charset": SampleRules(None, None, max_pixels=500),
    "no label fits": SampleRules(SMALL, 2, "nrtr"),
    "decode": SampleRules(SMALL, 6, image_check="decode"),
    "none": SampleRules(SMALL, 6, image_check="none"),
}
LETTERS = {"capitals": "aA01"}  # of plain labels, where case makes no repeats elsewhere


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of many kinds, good and bad, and links."""
    data = tmp_path_factory.mktemp("top") / "data"
    (data / "sub").mkdir(parents=True)
    image = np.random.default_rng(0).integers(0, 256, (16, 30, 3), np.uint8)
    for name in ("a.png", "b.jpg", "sub/c.bmp", "sub/d.webp", "sub/e.tiff", "../secret.png"):
        assert cv2.imwrite(str(data / name), image)
    assert cv2.imwrite(str(data / "large.png"), np.tile(image, (20, 20, 1)))  # of several reads
    jpeg = (data / "b.jpg").read_bytes()
    (data / "photo.jpg").write_bytes(jpeg[:2] + b"\xff\xe1\x50\x00" + b"\0" * 0x4FFE + jpeg[2:])  # long EXIF
    (data / "filled.jpg").write_bytes(jpeg[:2] + b"\xff\xff" + jpeg[2:])
    (data / "between.jpg").write_bytes(jpeg[:20] + b"\0\1\2" + jpeg[20:])  # after the first segment
    (data / "empty.png").touch()
    (data / "cut.png").write_bytes((data / "a.png").read_bytes()[:-3])
    (data / "link.png").symlink_to("a.png")
    (data / "out.png").symlink_to("../secret.png")
    (data / "in").symlink_to("sub")
    os.mkfifo(data / "pipe")
    (data / " a.png").write_bytes(jpeg)
    (data / "\u3000").write_bytes(jpeg)
    return data


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many labels in a row each call of ``add_plain`` gets."""
    lengths: list[int] = []
    add_plain = PreflightReport.add_plain
    monkeypatch.setattr(
        PreflightReport, "add_plain", lambda self, each: lengths.append(len(each)) or add_plain(self, each)
    )
    return lengths


def plain_labels(letters: str) -> list[str]:
    """384 labels, plain for all rules up to their limit: six blocks."""
    draw = random.Random(7)
    return ["".join(draw.choices(letters, k=draw.randint(2, most))) for most in (2, 3, 4) for _ in range(128)]


def drawn_lines(data: Path, delimiter: str, letters: str = "ab01") -> list[bytes]:
    """Plain lines, then lines of all kinds, half of them plain."""
    draw = random.Random(4)
    lines = [f"{draw.choice(NAMES[:4])}{delimiter}{label}\n".encode() for label in plain_labels(letters)]
    for _ in range(400):
        plain = draw.random() < 0.5
        name = draw.choice(NAMES[:5] if plain else [*NAMES, f"{data}/a.png"])
        label = "".join(
            draw.choices("abc01" if plain else 'abc019-^]\\[ é中\U00020000xAZ\r"\t', k=draw.randrange(9))
        )
        columns = [name, label] + ["4", "8"] * (draw.random() < 0.2)
        line = delimiter.join(columns).encode() if plain or draw.random() < 0.9 else label.encode()
        if not plain and draw.random() < 0.1:
            line += draw.choice([b"\xff", b"\xed\xa0\x80", b"\xc3", b"\0"])
        lines.append(line + draw.choice([b"\n", b"\n", b"\n", b"\r\n"] if not plain else [b"\n"]))
    label = delimiter.encode() + b"a" + delimiter.encode()
    for size in (MAX_LABEL_LINE_BYTES, MAX_LABEL_LINE_BYTES + 1, MAX_LABEL_LINE_BYTES + 2):
        lines.append(b"a.png" + label + b"." * (size - len(label) - 6) + b"\n")
    return [*lines, b"a.png" + delimiter.encode() + b"ab"]  # without an end


def found(report: PreflightReport) -> dict[str, object]:
    return {field.name: getattr(report, field.name) for field in fields(report) if field.name != "rules"}


@pytest.mark.parametrize("delimiter", ["\t", "^", "::"])
@pytest.mark.parametrize("kind", RULES)
def test_the_report_is_that_of_the_rules_one_by_one(
    kind: str, delimiter: str, data: Path, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, rules = drawn_lines(data, delimiter, LETTERS.get(kind, "ab01")), RULES[kind]
    files = [data / "first.txt", data / "second.txt"]
    files[0].write_bytes(b"\xef\xbb\xbf" + b"".join(lines[:600]))
    files[1].write_bytes(b"".join(lines[600:]))
    quick = check_label_files(files, data, rules, delimiter=delimiter, examples=1000)
    by_rules = rules.image_check != "header" or kind == "no label fits" or delimiter == "::"
    assert (preflight._BLOCK in runs) != by_rules and bool(runs) != by_rules
    runs.clear()
    monkeypatch.setattr(SampleRules, "plain_lines", lambda *_: re.compile("()()(?:[^\n]*\n|[^\n]+)").findall)
    one_by_one = check_label_files(files, data, rules, delimiter=delimiter, examples=1000)
    assert found(quick) == found(one_by_one) and not runs
    assert 0 < one_by_one.usable < one_by_one.total or kind == "no label fits"


def test_slow_blocks_are_shared_among_threads_in_order(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = data / "list.txt"
    file.write_bytes(b"".join(drawn_lines(data, "\t")))
    at_once = check_label_files(file, data, RULES["CTC"], examples=1000)
    monkeypatch.setattr("ppocr_ext.data.preflight._SLOW", 0.0)
    assert found(check_label_files(file, data, RULES["CTC"], examples=1000)) == found(at_once)


@pytest.mark.parametrize("kind", ["CTC", "capitals", "no charset", "decode"])
def test_the_report_on_an_lmdb_is_that_of_the_rules_one_by_one(
    kind: str, data: Path, tmp_path: Path, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, rules = random.Random(5), RULES[kind]
    images = [(data / name).read_bytes() for name in (*NAMES[:4], "cut.png", "empty.png")] + [None]
    labels: list[bytes | None] = [label.encode() for label in plain_labels(LETTERS.get(kind, "ab01"))]
    plain = len(labels)
    labels += ["".join(draw.choices("aAbB01", k=draw.randrange(7))).encode() for _ in range(200)]
    odd = [b"a\tb", b"a\nb", b"a\0b", b"a\rb", b"\0", b"\xff", b"\n", "\u2028".encode(), b" ", None]
    labels += [draw.choice(odd) if draw.random() < 0.1 else draw.choice(labels) for _ in range(100)]
    with lmdb.open(str(tmp_path), map_size=1 << 24) as environment, environment.begin(write=True) as put:
        for number, label in enumerate([*labels, b"b"], start=1):
            image = images[0] if number <= plain or draw.random() < 0.7 else draw.choice(images)
            for key, value in ((b"label", label), (b"image", image)):
                if value is not None:
                    put.put(b"%b-%09d" % (key, number), value)
        put.put(b"num-samples", b"685")
    lines: list[int] = []
    line = LmdbSamples.line
    monkeypatch.setattr(LmdbSamples, "line", lambda *args: lines.append(1) or line(*args))
    quick = check_lmdbs(tmp_path, rules, examples=1000)
    by_rules = rules.image_check != "header"
    # a sample that is looked at is read again
    assert by_rules or len(lines) - quick.looked_at <= quick.total - plain
    assert (preflight._BLOCK in runs) != by_rules
    monkeypatch.setattr(SampleRules, "plain_lines", lambda *_: re.compile("()()(?:[^\n]*\n|[^\n]+)").findall)
    assert found(quick) == found(check_lmdbs(tmp_path, rules, examples=1000))
    assert 50 < quick.usable < quick.total == 685


@pytest.mark.parametrize("count", [1, 2, 64])
def test_frames_of_many_labels_are_those_of_each(count: int) -> None:
    draw = random.Random(count)
    for _ in range(20):
        labels = ["".join(draw.choices("ab\U00020000", k=draw.randint(1, 9))) for _ in range(count)]
        assert list(frames_needed_each(labels, "".join(labels))) == [*map(frames_needed, labels)]


@pytest.mark.parametrize("name", ["b.jpg", "filled.jpg", "between.jpg"])
def test_the_first_bytes_of_a_jpeg_settle_that_it_is_whole(name: str, data: Path) -> None:
    assert ImageFolder(data, True).is_whole(name)
