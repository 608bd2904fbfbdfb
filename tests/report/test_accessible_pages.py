"""Each HTML page can be read by everybody: what needs no browser. `tools/accessibility` looks at them in one."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import paddle
import pytest
from test_run_page import EVIL, make_run

from ppocr_ext import inspect_data
from ppocr_ext.data.label_file import write_label_file
from ppocr_ext.evaluation.predictions import Prediction
from ppocr_ext.first_run.report import page_text
from ppocr_ext.first_run.writing import Data
from ppocr_ext.report.confusion_report import compare, confusion_page
from ppocr_ext.report.page_samples import SampleCard, SampleImages
from ppocr_ext.report.run_page import write_report
from ppocr_ext.sanity.learning import Lesson, Point, sanity_page


def report(folder: Path, runs: int = 1, text: str = "") -> str:
    write_report([make_run(folder / f"run{n}", evil=text) for n in range(runs)], folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def empty_report(folder: Path) -> str:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "metrics.jsonl").touch()
    write_report([folder / "a", folder / "b"], folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def confusions(folder: Path, text: str = "O0") -> str:
    after = [Prediction("a.png", "O0", text, 0.5), Prediction("", "未", "末", 0.5)]
    comparison = compare(after, ["O0", "未末"], [Prediction("a.png", "O0", "OO", 0.5), after[1]])
    cv2.imwrite(str(folder / "a.png"), np.zeros([20, 60, 3], np.uint8))
    return confusion_page(comparison, f"Confusions {text}", SampleImages(folder))


def init(folder: Path, text: str = "12") -> str:
    for number in range(12):
        cv2.imwrite(str(folder / f"{number}.png"), np.full([32, 96, 3], 20 * number, np.uint8))
    write_label_file(folder / "labels.txt", [(f"{n}.png", f"{text}{n}") for n in range(12)])
    counts = {"train": 10, "val": 2, "test": 0, "general": 0}
    files = SimpleNamespace(counts=counts, left_out=Counter(), notes=[], val=Data(folder, None), general=None)
    cards = [SampleCard(text, "9", 0.5, False)]
    inspection = inspect_data(folder)
    numbers = {"judged": 8}
    trial = SimpleNamespace(plan=inspection.plan, numbers=numbers, look=b"PNG", doubtful=cards, note=text)
    return page_text(inspection, files, trial)  # type: ignore[arg-type]


def sanity(folder: Path, text: str = "ctc") -> str:
    head = SimpleNamespace(name=text, images=paddle.zeros([2, 3, 32, 64]), takes_labels=False)
    points = [Point(0, 9.0, 0), Point(10, 0.1, 1)]
    lesson = Lesson(head, "together", 3.0, "", points, [("1", "1"), ("", text)])  # type: ignore[arg-type]
    return sanity_page([lesson], f"Sanity {text}", "2 samples", [f"not learned: {text}"])


PAGES: dict[str, Callable[[Path], str]] = {
    "report": report,
    "report of several runs": lambda folder: report(folder, 3),
    "report with hostile text": lambda folder: report(folder, 2, EVIL),
    "report of nothing": empty_report,
    "confusions": confusions,
    "confusions with hostile text": lambda folder: confusions(folder, EVIL),
    "confusions, none": lambda folder: confusion_page(compare([], []), "None", SampleImages(None)),
    "init": init,
    "init with hostile text": lambda folder: init(folder, "<b>&\"'>\u202eש"),
    "sanity": sanity,
    "sanity with hostile text": lambda folder: sanity(folder, EVIL),
}


class Elements(HTMLParser):
    """The elements of a page in their order, each with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attributes}))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_is_and_what_is_in_it(name: str, tmp_path: Path) -> None:
    text = PAGES[name](tmp_path)
    page = Elements(text)
    assert page.all("html") == [{"lang": "en"}] and re.search(r"<title>[^<]+</title>\s*<style>", text)
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert len(page.all("main")) == len(page.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(image["alt"] for image in page.all("img"))
    drawn = [image for image in page.all("svg") if image.get("aria-hidden") != "true"]
    assert all(image["role"] == "img" and image["aria-label"] for image in drawn)
    assert {cell.get("scope") for cell in page.all("th")} <= {"col"}
    assert not {"a", "button", "input", "select", "textarea", "script"} & {tag for tag, _ in page.found}
    assert len(re.findall("<details[^>]*><summary>[^<]", text)) == len(page.all("details"))


@pytest.mark.parametrize("name", PAGES)
def test_what_scrolls_is_reached_by_the_keyboard_and_has_a_name(name: str, tmp_path: Path) -> None:
    text = PAGES[name](tmp_path)
    scrolling = [each for each in Elements(text).all("div") if "scroll" in each.get("class", "").split()]
    assert all(
        (each["tabindex"], each["role"]) == ("0", "group") and each["aria-label"] for each in scrolling
    )
    style = text[text.index("<style>") : text.index("</style>")].replace("\n", "")
    assert re.findall(r"([^{}]*)\{[^}]*overflow:(?:auto|scroll)", style) == [".scroll"]
    assert ":focus-visible{outline:3px" in text


def luminance(color: str) -> float:
    digits = "".join(2 * digit for digit in color) if len(color) == 3 else color
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_differ_enough(scheme: int, tmp_path: Path) -> None:
    """Text has a contrast of 4.5 to what is behind it, a curve and the ring around what has the focus 3 (WCAG 2.1)."""
    named = re.findall(r"--([\w-]+):#(\w+)", confusions(tmp_path))
    colors = dict(named[len(named) // 2 :] if scheme else named[: len(named) // 2])
    signs = ("good", "bad", "warn", "calm")
    texts = [
        *itertools.product(("text", "soft"), ("bg", "card")),
        ("soft", "line"),
        *((s, f"{s}-bg") for s in signs),
    ]
    lines = itertools.product(["calm", *(f"run{index}" for index in range(6))], ("bg", "card"))
    for least, pairs in ((4.5, texts), (3.0, lines)):
        for pair in pairs:
            dark, light = sorted(luminance(colors[name]) for name in pair)
            assert (light + 0.05) / (dark + 0.05) >= least, pair
