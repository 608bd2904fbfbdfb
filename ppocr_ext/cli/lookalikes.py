"""``ppocr-ext lookalikes``: find groups of characters whose glyphs look alike in some fonts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from ppocr_ext.characters.look_alikes import read_groups, within
from ppocr_ext.charset import Charset
from ppocr_ext.cli.options import add_count, add_number
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer, check_writable, write_text
from ppocr_ext.messages import for_people, shortened
from ppocr_ext.synth.glyph_similarity import (
    MIN_SIMILARITY,
    GlyphMaps,
    SimilarPair,
    draw_maps,
    groups_of,
    pair_sheet,
    similar_pairs,
    to_file,
)
from ppocr_ext.synth.lines.fonts import find_fonts
from ppocr_ext.synth.lines.line_source import visible

EPILOG = f"""\
examples:
  ppocr-ext lookalikes fonts/ --dict dict.txt --output my_look_alikes.txt --picture pairs.png
  ppocr-ext lookalikes NotoSansSC.otf NotoSerifSC.otf --dict dict.txt --similarity 0.75 > my_look_alikes.txt
  ppocr-ext lookalikes mplfonts --dict dict.txt --pairs 500 --output my_look_alikes.txt

The file has one group per line, most alike first: every two characters of a group look alike. `confusions --groups`
reads it. Look at the picture, which shows pairs from the most alike down to the limit,
and choose --similarity by it: pairs of 0.9 are hard to tell apart, pairs of 0.8 easy to confuse, and below 0.75 every
other pair only shares a part (the least is {MIN_SIMILARITY}). Delete what you do not want, and add the characters that
your samples confuse: glyphs do not show the effect of an unknown font, a blur or a language.

Similarity is the normalised correlation of strokes in small pictures, as the characters appear in a line and
stretched to one size; the mean over the fonts that draw both characters. Use fonts like those of your images.
Pairs that all fonts draw the same are skipped, and named in comments of the file.
"""
_SHOWN = 10  # items in a line of the summary
_DEFAULT = 0.8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("fonts", nargs="+", metavar="FONT", help="font file, folder, or package such as mplfonts")
    add("--dict", type=Path, required=True, metavar="FILE", help="dictionary, one character per line")
    add_number(
        parser,
        "--similarity",
        ValueRule("number", MIN_SIMILARITY, 1),
        default=_DEFAULT,
        metavar="LEAST",
        help=f"of a pair, {MIN_SIMILARITY} to 1 ({_DEFAULT})",
    )
    add_count(parser, "--pairs", help="only the N pairs that are most alike (all)")
    add("--output", type=Path, metavar="FILE", help="file of groups to write (standard output)")
    add("--picture", type=Path, metavar="FILE", help="also draw pairs on a sheet, a PNG")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    for path in filter(None, (args.output, args.picture)):
        check_writable(path)
    characters = visible(Charset.from_file(args.dict, lenient=True).characters)
    if len(characters) < 2:
        raise DataError(
            f"{args.dict}: too few visible characters (found {len(characters)}, expected at least 2). Fix: give the "
            f"dictionary of your model.",
            code="too_few_characters",
        )
    maps = draw_maps(find_fonts(args.fonts), characters)
    similar = similar_pairs(maps, args.similarity)
    pairs = [pair for pair in similar if not pair.same][: args.pairs]
    same = [_text(pair, characters) for pair in similar if pair.same]
    if not pairs:
        raise DataError(
            f"No pair of {len(characters):,} characters has a similarity of {args.similarity:g} or more in these "
            f"fonts. Fix: give a lower --similarity, at least {MIN_SIMILARITY}.",
            code="no_pairs",
        )
    groups = groups_of(pairs, characters)
    limit = "" if args.pairs is None else f", the {args.pairs:,} most alike"
    heading = [
        f"Look-alike characters among the {len(characters):,} of {args.dict.name}: one group per line, most alike "
        f"first.",
        f"ppocr-ext lookalikes: pairs of similarity {args.similarity:g} or more{limit}, in",
        *(f"  {m.font.name}: {m.font.family}, {int(m.drawn.sum()):,} of the characters" for m in maps),
    ]
    text = to_file(groups, same, heading)
    if args.output is None:
        print(text, end="")
    else:
        write_text(args.output, text)
    if args.picture is not None:
        with atomic_writer(args.picture) as stream:
            stream.write(pair_sheet(pairs, characters, maps))
    print(for_people(_summary(args, maps, characters, pairs, same, len(groups))), file=sys.stderr)
    return 0


def _text(pair: SimilarPair, characters: Sequence[str]) -> str:
    return characters[pair.first] + characters[pair.second]


def _summary(
    args: argparse.Namespace,
    maps: Sequence[GlyphMaps],
    characters: Sequence[str],
    pairs: Sequence[SimilarPair],
    same: Sequence[str],
    groups: int,
) -> str:
    lines = []
    undrawn = np.flatnonzero(~np.any([font.drawn for font in maps], axis=0))
    if len(undrawn):
        lines.append(f"no font draws {shortened([characters[n] for n in undrawn.tolist()], _SHOWN, ' ')}")
    lines.append(
        f"{len(characters):,} characters in {_counted(len(maps), 'font')}: {_counted(len(pairs), 'pair')} of "
        f"similarity {pairs[-1].similarity:.2f} to {pairs[0].similarity:.2f}, in {_counted(groups, 'group')}"
    )
    if same:
        lines.append(f"skipped, since every font draws them the same: {shortened(same, _SHOWN, ' ')}")
    shipped = {
        frozenset(pair) for group in within(read_groups(), characters) for pair in combinations(group, 2)
    }
    if shipped:
        held = shipped & {frozenset(_text(pair, characters)) for pair in pairs}
        lines.append(f"pairs of the shipped groups among them: {len(held):,} of {len(shipped):,}")
    files = [str(path) for path in (args.output, args.picture) if path is not None]
    return "\n".join([*lines, *([f"written: {', '.join(files)}"] if files else [])])


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
