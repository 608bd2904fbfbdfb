"""Random texts and pieces of a corpus: what is asked for, and only what can be drawn."""

from __future__ import annotations

from collections import Counter

import pytest
from error_codes import raises_code
from small_fonts import make_font

from ppocr_ext.errors import DataError
from ppocr_ext.synth.lines import CorpusTexts, FrequentCharacters, RandomTexts, find_fonts
from ppocr_ext.synth.seeded_random import SeededRandom

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROSE = """\
The quick brown fox jumps over the lazy dog, twice a day.

Pack my box with five dozen liquor jugs  and   nine more
a
supercalifragilisticexpialidocious words come rarely
"""


@pytest.fixture(scope="module")
def latin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fonts")
    return find_fonts([make_font(folder / "latin.ttf", f"{LETTERS}TP0123456789,.-")])


@pytest.fixture
def corpus(tmp_path):
    def write(text, name="corpus.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def some(generator, count=300):
    return [generator.text(SeededRandom(1, "t", index)) for index in range(count)]


def test_random_texts_have_the_characters_and_lengths_asked_for(latin):
    texts = some(RandomTexts("abc123", (2, 5)).generator(latin), 600)
    assert {len(text) for text in texts} == {2, 3, 4, 5}
    counts = Counter("".join(texts))
    assert set(counts) == set("abc123") and max(counts.values()) < 1.3 * min(counts.values())


def test_random_texts_are_drawn_by_one_font_and_no_character_is_rare(tmp_path):
    fonts = find_fonts(
        [
            make_font(tmp_path / f"{n}.ttf", c, family=n)
            for n, c in (("A", LETTERS), ("B", "xyz漢"), ("C", "字漢"))
        ]
    )
    generator = RandomTexts(f"{LETTERS}漢字", (3, 6)).generator(fonts)
    texts = some(generator, 1500)
    assert all(generator.coverage.mask(text) for text in texts)
    having = Counter(character for text in texts for character in set(text))
    assert min(having.values()) > 0.9 * 1500 / 28  # each begins one text in 28


def test_random_texts_rich_in_some(latin):
    rich = FrequentCharacters("0o", 0.4)
    counts = Counter("".join(some(RandomTexts(f"{LETTERS}0", (8, 8), rich).generator(latin), 1000)))
    share = (counts["0"] + counts["o"]) / counts.total()
    assert share == pytest.approx(0.4 + 0.6 * 2 / 27, abs=0.02)
    assert counts["0"] == pytest.approx(counts["o"], rel=0.1)


@pytest.mark.parametrize(
    ("texts", "option", "code"),
    [
        (RandomTexts("", (1, 2)), "characters", "bad_value"),
        (RandomTexts("a b", (1, 2)), "characters", "bad_value"),
        (RandomTexts("ab漢", (1, 2)), "characters", "undrawable_characters"),
        (RandomTexts("ab", (0, 2)), "length", "bad_value"),
        (RandomTexts("ab", (3, 2)), "length", "bad_value"),
        (RandomTexts("ab", (1, 2), FrequentCharacters("x", 0.5)), "rich_in", "bad_value"),
        (RandomTexts("ab", (1, 2), FrequentCharacters("a", 1.5)), "rich_in", "bad_value"),
    ],
)
def test_random_texts_that_cannot_be_drawn_are_refused(latin, texts, option, code):
    with pytest.raises(DataError) as error:
        texts.generator(latin)
    assert error.value.code == code and str(error.value).startswith(f"{option}: ")


def test_frequent_characters_come_from_a_text_or_a_file(tmp_path):
    file = tmp_path / "alike.txt"
    file.write_text("0 O\n\n0l", encoding="utf-8-sig")
    assert FrequentCharacters.from_options(str(file), 0.5) == FrequentCharacters("0Ol", 0.5)
    assert FrequentCharacters.from_options("a b a", 0.5) == FrequentCharacters("ab", 0.5)
    long = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))  # longer than a file name can be
    assert FrequentCharacters.from_options(long, 1).characters == long


def test_characters_that_no_font_draws_can_be_left_out(latin):
    generator = RandomTexts("ab漢", (2, 3), skip_undrawable=True).generator(latin)
    assert set("".join(some(generator))) == set("ab")
    assert "".join(generator.characters) == "ab漢"  # the dictionary is as it was
    assert any("漢" in note for note in generator.notes)


def test_pieces_are_whole_words_of_the_corpus(latin, corpus):
    generator = CorpusTexts((corpus(PROSE),), (4, 22)).generator(latin)
    lines = [" ".join(line.split()) for line in PROSE.splitlines()]
    texts = some(generator)
    for text in texts:
        assert 4 <= len(text) <= 22 and text == text.strip()
        assert any(text in line for line in lines), text
        whole = any(f" {text} " in f" {line} " for line in lines)
        assert whole or text in "supercalifragilisticexpialidocious", text
    assert len(set(texts)) > 40
    assert "".join(generator.characters) == "".join(sorted(set("".join(PROSE.split()))))


def test_scripts_without_spaces_are_cut_anywhere(tmp_path, corpus):
    text = "天地玄黄宇宙洪荒日月盈昃"
    fonts = find_fonts([make_font(tmp_path / "han.ttf", text)])
    texts = some(CorpusTexts((corpus(text),), (2, 4)).generator(fonts), 400)
    assert {text[:2], text[-4:], text[3:6]} <= set(texts)


def test_stops_and_brackets_stay_where_they_belong(tmp_path, corpus):
    text = "天地，玄黄「宇宙」洪荒。"
    fonts = find_fonts([make_font(tmp_path / "han.ttf", text)])
    texts = set(some(CorpusTexts((corpus(text),), (2, 5)).generator(fonts), 400))
    assert not any(text[0] in "，」。" or text[-1] == "「" for text in texts)
    assert "天地，" in texts and any(text.startswith("「宇") for text in texts)


def test_a_line_is_cut_where_no_font_draws_it_and_where_fonts_change(tmp_path, corpus):
    fonts = find_fonts(
        [make_font(tmp_path / f"{n}.ttf", c, family=n) for n, c in (("A", "abc"), ("B", "天地"))]
    )
    generator = CorpusTexts((corpus("abc天地Xcab\nX\n"),), (2, 9)).generator(fonts)
    assert set(some(generator)) == {"abc", "天地", "cab"} | {"ab", "bc", "ca"} & set(some(generator))
    assert all(generator.coverage.mask(text) for text in some(generator))
    assert any("drawn by no font" in note and "X" in note for note in generator.notes)


def test_characters_outside_the_dictionary_are_cut_out_and_counted(latin, corpus):
    generator = CorpusTexts((corpus("one2two\n" * 3),), (3, 9), characters="ownet").generator(latin)
    assert set(some(generator)) == {"one", "two"}
    assert "".join(generator.characters) == "ownet"
    assert any(
        "not in the dictionary" in note and "14.29%" in note and note.endswith("2")
        for note in generator.notes
    )


def test_pieces_are_cut_around_the_characters_asked_for(latin, corpus):
    lines = ["nothing to see in here at all"] * 50 + ["a q in the middle of a long line with 7 at its end"]
    path = corpus("\n".join(lines))
    generator = CorpusTexts((path,), (3, 8), rich_in=FrequentCharacters("q7%", 0.5)).generator(latin)
    texts = some(generator, 800)
    having = [sum(c in text for text in texts) / 800 for c in "q7"]
    assert having == [pytest.approx(0.25, abs=0.06)] * 2
    assert all(len(text) <= 8 for text in texts)
    assert any("no usable line of the corpus has %" in note for note in generator.notes)


@pytest.mark.parametrize(
    ("content", "code", "fact"),
    [
        (b"abc\nd\xff\n", "not_utf8", "corpus.txt:2: "),
        (b"", "no_text", "corpus.txt"),
        ("漢字漢字".encode(), "no_text", "corpus.txt"),
        (None, "unreadable_file", "no.txt"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_refused(latin, corpus, tmp_path, content, code, fact):
    path = str(tmp_path / "no.txt") if content is None else corpus(content)
    for spaces in (True, False):
        with raises_code(DataError, code, fact):
            CorpusTexts((path,), (3, 9), spaces=spaces).generator(latin)
