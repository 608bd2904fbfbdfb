"""Drawn lines that show what a training forgets, and lines of another kind that train so that it forgets less."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from ppocr_ext.data.label_file import LabelLine
from ppocr_ext.first_run.decisions import DIRECTION, Plan
from ppocr_ext.first_run.inspect import DRAWABLE, line_source
from ppocr_ext.limits import read_text
from ppocr_ext.messages import shortened
from ppocr_ext.synth.lines import CorpusTexts, LineSource, LineSplit, LineStyle, find_fonts
from ppocr_ext.synth.lines.fonts import FontCoverage
from ppocr_ext.text_direction import in_order

# Words, dates, prices and short sentences of many scripts, a text on each line.
TEXTS = Path(__file__).with_name("general_texts.txt")
# More blur, noise and perspective do not show better what real words lose (docs/results.md).
_JUDGING = LineStyle(backgrounds=("texture",))
_TRAINING = LineStyle(backgrounds=("plain", "gradient"))


def general_lines(
    known: set[str], labels: Container[str], lengths: Sequence[float], most: int, seed: int
) -> tuple[LineSource, LineSource, list[str]]:
    """Return what draws lines that judge and lines that train, and what they do not measure.

    Words judge. Random characters in other typefaces train, on other backgrounds. Typefaces whose names begin with the
    same word, such as DejaVu Sans and DejaVu Serif, are of one kind. Every second kind judges, first the one with most
    characters.

    Args:
        known: the characters that the weights and the network know.
        labels: the characters of the labels. Of many known characters, only these and ASCII train: no network reads
            random texts of thousands of rare characters.
        lengths: of lines that train, as :func:`line_source` takes them.
        most: the most characters of a line that judges.
        seed: the seed of the lines.

    Raises:
        DataError: no font is installed, or none draws these characters.
    """
    fonts = find_fonts(())
    wanted = "".join(sorted({*read_text(TEXTS)}.intersection(known)))
    coverage = FontCoverage(fonts, wanted)
    rows = sorted(zip(fonts, coverage.drawn, strict=True), key=lambda row: (-len(row[1]), row[0].family))
    kinds = list(dict.fromkeys(font.family.split()[0] for font, _ in rows))
    judging, training = (
        tuple(font for font in fonts if font.family.split()[0] in kinds[at::2]) for at in (0, 1)
    )
    missing = coverage.missing()
    notes = {
        f"No installed font draws {len(missing)} characters of other scripts that the base reads "
        f"({shortened(missing, 10, ' ')}): what is forgotten of these scripts is not measured. Fix: pip install "
        "mplfonts (Chinese), or give --general.": bool(missing),
        f"All installed fonts are of one kind ({kinds[0]}), so general.txt has typefaces of lines that train. Fix: pip "
        "install 'ppocr-ext[quickstart]', or give --general.": not training,
    }
    taught = [each for each in sorted(known) if len(known) <= DRAWABLE or each.isascii() or each in labels]
    texts = CorpusTexts((str(TEXTS),), (1, min(40, most)), wanted, spaces=" " in known)
    return (
        LineSource({"train": LineSplit(texts, judging)}, _JUDGING, seed),
        line_source(taught, lengths, seed, training or judging, _TRAINING),
        [note for note, holds in notes.items() if holds],
    )


def usable(
    plan: Plan, lines: Iterable[LabelLine], known: set[str], most: int, *, is_drawn: bool = True
) -> list[tuple[str, str]]:
    """Return image and label of the lines that have only known characters, and at most so many."""
    lines = [line for line in lines if line.label and known.issuperset(line.label)]
    texts = [line.label for line in lines]
    labels = [plan.of_drawn(text) for text in texts] if is_drawn else in_order(texts, plan[DIRECTION])
    return [(line.images[0], label) for line, label in zip(lines, labels, strict=True) if len(label) <= most]
