"""``ppocr-ext lookalikes``: groups of characters whose glyphs look alike in some fonts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from ppocr_ext.characters.look_alikes import read_groups, within
from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer, check_writable, write_text
from ppocr_ext.synth.glyph_maps import GlyphMaps, draw_maps
from ppocr_ext.synth.glyph_sheet import pair_sheet
from ppocr_ext.synth.glyph_similarity import LEAST, SimilarPair, similar_pairs
from ppocr_ext.synth.lines.fonts import find_fonts
from ppocr_ext.synth.lines.line_source import visible
from ppocr_ext.synth.look_alike_groups import groups_of, to_file

NAME = "lookalikes"
HELP = "Find the characters of a dictionary that look alike, from their glyphs in some fonts."
EPILOG = f"""\
examples:
  ppocr-ext lookalikes fonts/ --dict dict.txt --output my_look_alikes.txt --picture pairs.png
  ppocr-ext lookalikes NotoSansSC.otf NotoSerifSC.otf --dict dict.txt --similarity 0.75 > my_look_alikes.txt
  ppocr-ext lookalikes mplfonts --dict dict.txt --pairs 500 --output my_look_alikes.txt

The file has a group a line, most alike first: every two characters of a group look alike. It is what
`confusions --groups` and CenterLoss's `look_alikes` read. Look at the picture, which has pairs from the most
alike down to the limit, and choose --similarity by it: 0.9 is hardly told apart, 0.8 easily confused, below
0.75 every other pair merely shares a part ({LEAST} is the least). Strike out what you do not want, and add what
your lines confuse: glyphs alone do not say what a font never seen, a blur or a language makes of them.

Similarity: the normalised correlation of strokes, in small pictures, as they stand in a line and stretched to
one size; the mean over the fonts that draw both characters. Fonts of the kinds that your lines have give the
best list. Pairs that all fonts draw the same are left out, and named in comments of the file.
"""
_SHOWN = 10  # things that the summary lists
_DEFAULT = 0.8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "fonts", nargs="+", metavar="FONT", help="font file, folder, or package such as mplfonts"
    )
    parser.add_argument(
        "--dict", type=Path, required=True, metavar="FILE", help="dictionary, a character a line"
    )
    parser.add_argument(
        "--similarity",
        type=float,
        default=_DEFAULT,
        metavar="LEAST",
        help=f"of a pair, {LEAST} to 1 ({_DEFAULT})",
    )
    parser.add_argument("--pairs", type=int, metavar="N", help="only the N pairs that are most alike (all)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="groups file to write (standard output)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw pairs on a sheet, a PNG")


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    if not LEAST <= args.similarity <= 1:
        raise DataError(f"--similarity {args.similarity:g}: give {LEAST} to 1.")
    if args.pairs is not None and args.pairs < 1:
        raise DataError(f"--pairs {args.pairs}: give at least 1, or leave it out.")
    for path in filter(None, (args.output, args.picture)):
        check_writable(path)
    characters = visible(Charset.from_file(args.dict, lenient=True).characters)
    if len(characters) < 2:
        raise DataError(
            f"{args.dict}: {len(characters)} visible characters, and it takes two to look alike. Give the "
            f"dictionary of your model."
        )
    maps = draw_maps(find_fonts(args.fonts), characters)
    found = similar_pairs(maps, args.similarity)
    pairs = [pair for pair in found if not pair.same][: args.pairs]
    same = [_text(pair, characters) for pair in found if pair.same]
    if not pairs:
        raise DataError(
            f"No two of {len(characters):,} characters have a similarity of {args.similarity:g} or more in these "
            f"fonts. Give a lower --similarity, {LEAST} at least."
        )
    groups = groups_of(pairs, characters)
    text = to_file(groups, same, _heading(args, maps, len(characters)))
    if args.output is None:
        print(text, end="")
    else:
        write_text(args.output, text)
    if args.picture is not None:
        _write_sheet(args.picture, pairs, characters, maps)
    print(_summary(args, maps, characters, pairs, same, len(groups)), file=sys.stderr)
    return 0


def _text(pair: SimilarPair, characters: Sequence[str]) -> str:
    return characters[pair.first] + characters[pair.second]


def _heading(args: argparse.Namespace, maps: Sequence[GlyphMaps], count: int) -> list[str]:
    limit = "" if args.pairs is None else f", the {args.pairs:,} most alike"
    return [
        f"Look-alike characters among the {count:,} of {args.dict.name}: a group a line, most alike first.",
        f"ppocr-ext lookalikes: pairs of similarity {args.similarity:g} or more{limit}, in",
        *(
            f"  {font.font.name}: {font.font.family}, {int(font.drawn.sum()):,} of the characters"
            for font in maps
        ),
    ]


def _write_sheet(
    path: Path, pairs: Sequence[SimilarPair], characters: Sequence[str], maps: Sequence[GlyphMaps]
) -> None:
    with atomic_writer(path) as stream:
        stream.write(pair_sheet(pairs, characters, maps))


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
        lines.append(f"no font draws {_listed([characters[int(number)] for number in undrawn])}")
    lines.append(
        f"{len(characters):,} characters in {_counted(len(maps), 'font')}: {_counted(len(pairs), 'pair')} of "
        f"similarity {pairs[-1].similarity:.2f} to {pairs[0].similarity:.2f}, in {_counted(groups, 'group')}"
    )
    if same:
        lines.append(f"drawn the same in every font, and left out: {_listed(same)}")
    shipped = _pairs_of(within(read_groups(), characters))
    if shipped:
        held = shipped & {frozenset(_text(pair, characters)) for pair in pairs}
        lines.append(f"pairs of the shipped groups among them: {len(held):,} of {len(shipped):,}")
    written = [str(path) for path in (args.output, args.picture) if path is not None]
    return "\n".join([*lines, *([f"written: {', '.join(written)}"] if written else [])])


def _pairs_of(groups: Sequence[str]) -> set[frozenset[str]]:
    return {frozenset(pair) for group in groups for pair in combinations(group, 2)}


def _listed(things: Sequence[str]) -> str:
    return f"{' '.join(things[:_SHOWN])}{f' … ({len(things):,})' if len(things) > _SHOWN else ''}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
