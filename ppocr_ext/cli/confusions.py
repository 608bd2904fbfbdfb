"""``ppocr-ext confusions``: which characters are taken for which, and whether that has become better."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.characters.look_alikes import read_groups, within
from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import pair_up, read_predictions
from ppocr_ext.io.atomic import check_writable, write_text

NAME = "confusions"
HELP = "Say which characters a recogniser takes for which, before and after a fine-tuning."
EPILOG = """\
examples:
  ppocr-ext eval -c config.yml -o Global.checkpoints=… --save-predictions after.tsv
  ppocr-ext confusions after.tsv --data-dir data
  ppocr-ext confusions after.tsv --before before.tsv --groups my_look_alikes.txt
  ppocr-ext confusions after.tsv --general g_after.tsv --general-before g_before.tsv --max-drop 0.002

Spaces count as other characters do; `acc` of an evaluation ignores them (Metric.ignore_space: true).
Look-alike error: of the characters in a group, how many were read as another one of their group. --general is a
second list on which the fine-tuning must not forget: with --max-drop a greater fall of its accuracy is exit code 1.

Written: OUT.html (one page with the lines), OUT.json, OUT_pairs.tsv, OUT_groups.tsv, OUT_characters.tsv.
exit codes: 0 done; 1 the general list has fallen by more than --max-drop; 2 it could not be done
"""


_ROUNDING = 1e-12  # of the difference of two shares


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="of `eval --save-predictions`")
    parser.add_argument("--before", type=Path, metavar="FILE", help="predictions before, of the same lines")
    parser.add_argument(
        "--groups", type=Path, metavar="FILE", help="look-alikes, a group a line (a shipped list)"
    )
    parser.add_argument("--dict", type=Path, metavar="FILE", help="keep to groups of characters in it")
    parser.add_argument("--general", type=Path, metavar="FILE", help="predictions on a general list")
    parser.add_argument("--general-before", type=Path, metavar="FILE", help="and those before")
    parser.add_argument(
        "--max-drop",
        type=float,
        metavar="SHARE",
        help="most that the general accuracy may fall, such as 0.002",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where image paths start, to show the lines"
    )
    parser.add_argument("--title", default="Confusions", help="over the page")
    parser.add_argument("--out", type=Path, default=Path("confusions"), metavar="OUT", help="(confusions)")


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    from ppocr_ext.report import confusion_report as report
    from ppocr_ext.report.confusion_page import render
    from ppocr_ext.report.pictures import Pictures

    _check_options(args)
    after = read_predictions(args.predictions)
    before = None if args.before is None else read_predictions(args.before)
    if before is not None:
        pair_up(before, after, (str(args.before), str(args.predictions)))
    groups = read_groups(args.groups)
    if args.dict is not None:
        groups = _within_dictionary(groups, args.dict)
    general = None if args.general is None else read_predictions(args.general)
    general_before = None if args.general_before is None else read_predictions(args.general_before)
    if general is not None and general_before is not None:
        pair_up(general_before, general, (str(args.general_before), str(args.general)))
    comparison = report.compare(after, groups, before, general, general_before)
    pictures = Pictures(args.data_dir)
    written = {
        args.out.with_name(f"{args.out.name}.html"): render(comparison, args.title, pictures),
        args.out.with_name(f"{args.out.name}.json"): report.to_json(comparison),
        args.out.with_name(f"{args.out.name}_pairs.tsv"): report.pairs_tsv(comparison),
        args.out.with_name(f"{args.out.name}_groups.tsv"): report.groups_tsv(comparison),
        args.out.with_name(f"{args.out.name}_characters.tsv"): report.characters_tsv(comparison),
    }
    for path, text in written.items():
        write_text(path, text)
    print(report.to_text(comparison))
    if pictures.note:
        print(pictures.note)
    print(f"written: {', '.join(map(str, written))}")
    return _verdict(comparison.drop, args.max_drop)


def _check_options(args: argparse.Namespace) -> None:
    if args.max_drop is not None and not (args.general and args.general_before):
        raise DataError("--max-drop compares --general with --general-before: give both.")
    if args.general_before and not args.general:
        raise DataError("--general-before is compared with --general: give both.")
    if args.max_drop is not None and not 0 <= args.max_drop <= 1:
        raise DataError(f"--max-drop {args.max_drop:g} is no share. Give 0.002, for example.")
    check_writable(args.out.with_name(f"{args.out.name}.html"))


def _within_dictionary(groups: tuple[str, ...], dictionary: Path) -> tuple[str, ...]:
    kept = within(groups, Charset.from_file(dictionary, lenient=True).characters)
    if not kept:
        raise DataError(
            f"No group of look-alikes has two characters of {dictionary}. Give groups of its characters with --groups, "
            f"such as `ppocr-ext lookalikes` finds."
        )
    return kept


def _verdict(drop: float | None, most: float | None) -> int:
    if drop is None or most is None or drop <= most + _ROUNDING:
        return 0
    print(f"forgotten: the accuracy on the general list has fallen by {drop:.2%}, more than {most:.2%}")
    return 1
