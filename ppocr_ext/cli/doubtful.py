"""``ppocr-ext doubtful``: find wrong, too easy and worthless lines of a list, and images to label first."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.cli.options import (
    add_count,
    add_data_dir_argument,
    add_number,
    add_option_argument,
    add_trust_argument,
    open_recognizer,
)
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.errors import DataError
from ppocr_ext.messages import for_people

if TYPE_CHECKING:
    from ppocr_ext.recognition.doubtful import JudgedLine
    from ppocr_ext.recognition.images import ListedImage
    from ppocr_ext.recognition.recognizer import Recognizer

EPILOG = """\
MODEL is whatever `predict` takes: a run, a config, an export, a released model by its name or path.

With labels, each line of LIST is of one kind:
  easy        --weak reads the label with a confidence above --easy: it teaches little
  broken      --strong reads with a confidence below --broken: image or label is broken
  suspect     --strong reads another text, --times as probable as the label: the label is probably wrong
  unjudged    --strong does not know a character of the label, or is decoded by NRTR
  unreadable  there is no image that can be read
  kept        all others

PP-OCRv4 trained on lines that were neither easy nor broken, with these limits, and gained 1.2 points. A suspect may
also be a hard line with a right label, which teaches most: look at the page before you drop any.

Files: OUT.tsv (image, label, prediction, loss of the label; the least likely labels first, as `init` writes it),
OUT.html (the page to review), OUT_KIND.txt (a label file of each kind). Train on OUT_kept.txt: it has the suspects too,
unless they are dropped, and the unjudged. Its paths are those of LIST; if there are LISTs in several folders, they
start from the current folder.

Without labels (a folder, or a list with one path a line): OUT_first.txt has the paths in the order in which they are
worth labelling. The least certain readings come first, from all parts of the list in turn. Easy, broken and unreadable
images are left out. OUT.tsv has image, prediction and confidence.

examples:
  ppocr-ext doubtful train.txt --strong PP-OCRv6_small_rec
  ppocr-ext doubtful train.txt --data-dir images --strong output/big --weak PP-OCRv4_mobile_rec --suspects drop
  ppocr-ext doubtful plates.txt --strong PP-OCRv6_small_rec --ignore '·'    # it reads a dot that the labels do not have
  ppocr-ext doubtful scans --strong PP-OCRv6_small_rec --out next           # which images to label first

exit codes: 0 done; 1 an image could not be read; 2 error
"""
_TRIED = 100  # lines that are read first; models that read few of them cannot be used
_SHOWN = 10  # unreadable images in a message
_FLAGS = ("suspect", "easy", "broken")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("images", nargs="+", metavar="LIST", help="label files; or lists of paths, folders, LMDBs")
    add_data_dir_argument(parser)
    add("--strong", required=True, metavar="MODEL", help="a good model, which judges the labels")
    add("--weak", metavar="MODEL", help="a model that reads less; what it reads surely is easy")
    for option, rule, default, text in (
        ("--easy", ValueRule("number", 0, 1), 0.95, "limit for the confidence of --weak"),
        ("--broken", ValueRule("number", 0, 1), 0.15, "limit for the confidence of --strong"),
        (
            "--times",
            ValueRule("number", 1),
            1000.0,
            "how much more probable another text is than a suspect label",
        ),
    ):
        add_number(parser, option, rule, default=default, metavar="N", help=f"{text} ({default:g})")
    add("--suspects", choices=("keep", "drop"), help="whether OUT_kept.txt has the suspects (keep)")
    add("--ignore", default="", metavar="TEXT", help="characters that neither readings nor labels shall have")
    add(
        "--out",
        type=Path,
        default=Path("doubtful"),
        metavar="OUT",
        help="start of the files' names (doubtful)",
    )
    add_count(parser, "--batch-size", default=16, help="the largest number of images in a batch (16)")
    add_option_argument(
        parser, "set keys of the config of --strong, e.g. -o Global.checkpoints=output/run/latest"
    )
    add_trust_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.io.atomic import check_writable, write_text
    from ppocr_ext.recognition.doubtful import KINDS, check_judges, doubtful_page, kind_of
    from ppocr_ext.recognition.images import list_images

    page = Path(f"{args.out}.html")
    lists = (
        () if page.exists() else page.parent.glob(f"{page.stem}_*.txt")
    )  # else they are of an earlier page
    for file in (page, Path(f"{args.out}.tsv"), *lists):
        check_writable(file)
    listed = list_images(args.images, args.data_dir)  # before the networks are opened, which takes longer
    images = [each for each in listed.images if each.label] or listed.images
    has_labels = bool(images[0].label)
    if args.suspects and not has_labels:
        raise DataError(
            f"--suspects needs labels, but {args.images[0]} has none. Fix: give a label file, `path<TAB>label` in each "
            f"line; or leave --suspects out, to learn which images to label first.",
            code="missing_labels",
        )
    models = [
        open_recognizer(
            source, None, options=options, trust_model=args.trust_model, images=len(images)
        ).ignoring(args.ignore)
        for source, options in ((args.strong, args.opt), (args.weak, ()))
        if source
    ]
    tried = _judge(args, images[:: math.ceil(len(images) / _TRIED)], models)
    check_judges(tried)
    lines = tried if len(tried) == len(images) else _judge(args, images, models)
    kinds = [kind_of(line, args.easy, args.broken, args.times) for line in lines]
    errors = [*listed.bad_lines, *filter(None, [each.strong.error for each in lines])]
    for error in errors[:_SHOWN]:
        print(for_people(f"unreadable: {error}"), file=sys.stderr)
    counts = Counter(kinds)
    notes = [f"{kind}: {counts[kind]:,} ({text})" for kind, text in KINDS.items() if counts[kind]]
    gone = ["easy", "broken", "unreadable", *(["suspect"] if args.suspects == "drop" else [])]
    notes += _doubts(lines, counts, gone, len(listed.images) - len(images))
    groups = _write_sorted(args, lines, kinds, gone) if has_labels else _write_first(args, lines, kinds)
    in_lmdb = has_labels and not all(isinstance(each.place, Path) for each in images)
    if in_lmdb:
        notes.append("note: no label file is written, since a sample of an LMDB has no path")
    title = f"Doubtful lines of {', '.join(args.images)}"
    judges = " and ".join(filter(None, (args.strong, args.weak)))
    write_text(page, doubtful_page(title, f"{len(lines):,} lines, judged by {judges}", notes, groups))
    print(for_people("\n".join(notes)))
    print(f"written: {page}, {args.out}.tsv{'' if in_lmdb else f', {args.out}_*.txt'}")
    return 1 if errors else 0


def _judge(
    args: argparse.Namespace, images: Sequence[ListedImage], models: Sequence[Recognizer]
) -> list[JudgedLine]:
    """Read images with the strong model, and with the weak one if it is given."""
    from tqdm import tqdm

    from ppocr_ext.recognition.doubtful import JudgedLine
    from ppocr_ext.text_direction import in_order

    labels = [(each.label or "").translate(dict.fromkeys(map(ord, args.ignore))) for each in images]
    columns = []
    for name, model in zip(("strong", "weak"), models, strict=False):
        sources = (each.source() for each in images)
        own = in_order(labels, model.charset.direction)
        readings = model.stream(sources, args.batch_size, (each or None for each in own))
        bar = tqdm(readings, desc=f"{name} model", total=len(images), unit="image", disable=None, leave=False)
        columns += [map(model.charset.label_to_compare, own), list(bar)]
    return [JudgedLine(*row) for row in zip(images, *columns, strict=True)]


def _doubts(
    lines: Sequence[JudgedLine], counts: Counter[str], gone: Sequence[str], unlabelled: int
) -> list[str]:
    """Return what the user should doubt.

    Raises:
        DataError: no line is left.
    """
    if sum(counts[each] for each in gone) == len(lines):
        found = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
        raise DataError(
            f"of {len(lines):,} lines none is left ({found}). Fix: raise --easy or --times, lower --broken, or correct "
            f"the paths of unreadable images.",
            code="none_left",
        )
    notes = []
    if lines[0].label and not any(counts[each] for each in _FLAGS):
        notes.append(
            "warning: no line is suspect, easy or broken. Fix: lower --times or --easy, or raise --broken."
        )
    if unlabelled:
        notes.append(f"warning: {unlabelled:,} lines without a label are left out. Fix: list them alone.")
    right = sum(line.prediction.correct for line in lines if line.label)
    by_weak = sum(line.weak.text == line.weak_label for line in lines if line.weak and line.label)
    if by_weak > right:
        notes.append(
            f"warning: --weak reads {by_weak:,} labels and --strong {right:,}. Fix: exchange the two models."
        )
    return notes


def _write_sorted(
    args: argparse.Namespace, lines: Sequence[JudgedLine], kinds: Sequence[str], gone: Sequence[str]
) -> dict[str, list[JudgedLine]]:
    """Write the table of labels and a label file of each kind; return what the page shows."""
    from ppocr_ext.data.label_file import write_label_file
    from ppocr_ext.recognition.doubtful import KINDS, write_doubtful

    order = write_doubtful(Path(f"{args.out}.tsv"), [(each.prediction, each.strong.loss) for each in lines])
    by_kind = {kind: [lines[n] for n in order if kinds[n] == kind] for kind in KINDS}
    kept = [line for line, kind in zip(lines, kinds, strict=True) if kind not in gone]
    if all(isinstance(line.image.place, Path) for line in lines):  # else the name of a sample is no path
        for kind, found in {**by_kind, "kept": kept}.items():
            rows = [(line.image.name, line.image.label or "") for line in found]
            write_label_file(Path(f"{args.out}_{kind}.txt"), rows)
    return {f"{kind} ({KINDS[kind]})": by_kind[kind] for kind in ("suspect", "broken", "unjudged", "easy")}


def _write_first(
    args: argparse.Namespace, lines: Sequence[JudgedLine], kinds: Sequence[str]
) -> dict[str, list[JudgedLine]]:
    """Write which images are to be labelled first; return what the page shows."""
    from ppocr_ext.evaluation.predictions import to_tsv
    from ppocr_ext.io.atomic import write_text
    from ppocr_ext.recognition.doubtful import label_first

    first = label_first([line for line, kind in zip(lines, kinds, strict=True) if kind == "kept"])
    read = [line.prediction for line in first]
    rows = [(each.image, each.text, f"{each.confidence:.4f}") for each in read]
    write_text(Path(f"{args.out}.tsv"), to_tsv([("image", "prediction", "confidence"), *rows]))
    write_text(Path(f"{args.out}_first.txt"), "".join(f"{each.image}\n" for each in read))
    broken = [line for line, kind in zip(lines, kinds, strict=True) if kind == "broken"]
    return {"to be labelled first": first, "broken": broken}
