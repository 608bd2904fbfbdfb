"""Drawn lines that judge are of another kind than drawn lines that train."""

import string

import pytest

from ppocr_ext.first_run import general_lines as module
from ppocr_ext.first_run.general_lines import general_lines
from ppocr_ext.synth.lines import find_fonts

KNOWN = {*string.printable.strip(), " ", "é", "日"}
OPTIONS = ((2, 5, 7), 40, 1)


def test_they_share_no_typeface_no_background_and_no_kind_of_text():
    judging, training, notes = general_lines(KNOWN, "01", *OPTIONS)
    fonts = [{source.font("train", index)[0] for index in range(60)} for source in (judging, training)]
    assert fonts[0].isdisjoint(fonts[1]) and all(fonts)
    assert set(judging.style.backgrounds).isdisjoint(training.style.backgrounds)
    texts = {judging.label("train", index) for index in range(300)}
    lines = set(module.TEXTS.read_text(encoding="utf-8").split("\n"))
    assert len(texts & lines) > 0.8 * len(texts) and KNOWN.issuperset("".join(texts))
    assert max(map(len, texts)) > 15 and min(map(len, texts)) <= 2
    assert all(2 <= len(training.label("train", index)) <= 7 for index in range(60))
    assert "draws 1 characters" in notes[0] and "日" in notes[0]  # no font of the tests has it


def test_a_typeface_judges_or_trains_whatever_the_order_of_the_fonts(monkeypatch):
    def halves():
        return [
            sorted(source.to_json()["splits"]["train"]["fonts"])
            for source in general_lines(KNOWN, "01", *OPTIONS)[:2]
        ]

    first = halves()
    monkeypatch.setattr(module, "find_fonts", lambda _: find_fonts(())[::-1])
    assert halves() == first


@pytest.mark.parametrize("known", [{"1", "2"}, KNOWN])
def test_typefaces_of_one_kind_judge_and_train_and_that_is_said(monkeypatch, known):
    some = tuple(font for font in find_fonts(()) if font.family.startswith("DejaVu"))
    monkeypatch.setattr(module, "find_fonts", lambda _: some)
    judging, training, notes = general_lines(known, "12", *OPTIONS)
    assert "one kind (DejaVu)" in notes[-1]
    assert known.issuperset(judging.label("train", 0) + training.label("train", 0))
