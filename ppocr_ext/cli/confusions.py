"""``ppocr-ext confusions``: show which characters are confused, and whether this has improved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.characters.look_alikes import read_groups, within
from ppocr_ext.charset import Charset
from ppocr_ext.cli.options import add_number
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import Prediction, read_predictions, samples_of_both
from ppocr_ext.io.atomic import check_writable, write_text
from ppocr_ext.messages import shortened

if TYPE_CHECKING:
    from ppocr_ext.recognition.images import ListedImage
    from ppocr_ext.report.page_samples import SampleImages

EPILOG = """\
examples:
  ppocr-ext predict output/run data/test.txt --output after.tsv
  ppocr-ext predict PP-OCRv6_small_rec data/test.txt --output before.tsv
  ppocr-ext confusions after.tsv --before before.tsv --data-dir data --run output/run
  ppocr-ext confusions after.tsv --groups my_look_alikes.txt
  ppocr-ext confusions after.tsv --general g_after.tsv --general-before g_before.tsv --max-drop 0.002

Spaces count like other characters; `acc` of an evaluation ignores them (Metric.ignore_space: true).
Look-alike error: the share of the characters in a group that were read as another character of the group.
--general is a second list that a fine-tuning must still read: if its accuracy falls by more than --max-drop,
the exit code is 1.
--before tells which lines are newly right and newly wrong, and whether that is more than chance (McNemar's exact
test, Tango's score interval). A column `group`, or PPOCRLabel's names page_crop_3.jpg, give the page of a line; then
limits are for losses that correlate by up to 0.2 within a page.

Output, in the folder DIR: confusions.html (one page with samples), confusions.json, lines.tsv (newly wrong and right),
pairs.tsv, deletions.tsv, insertions.tsv, groups.tsv, characters.tsv.

exit codes: 0 done; 1 the general accuracy fell by more than --max-drop; 2 error
"""
_PAGE = "confusions.html"
_SHOWN = 3  # images that an error names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    files = {
        "--before": "earlier predictions; samples that are not in both files are left out",
        "--groups": "look-alikes, one group per line (default: a shipped list)",
        "--dict": "use only groups of characters in this dictionary",
        "--general": "predictions on a general list",
        "--general-before": "earlier predictions on the general list",
    }
    parser.add_argument(
        "predictions", type=Path, metavar="PREDICTIONS", help="file of `eval --save-predictions`"
    )
    for option, text in files.items():
        parser.add_argument(option, type=Path, metavar="FILE", help=text)
    add_number(
        parser,
        "--max-drop",
        ValueRule("number", 0, 1),
        metavar="SHARE",
        help="limit for the fall of the general accuracy, such as 0.002",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="start of image paths, to show the images"
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="RUN",
        dest="run_folder",
        help="run that was tested: no image of the lists that chose its checkpoint may be among the predictions",
    )
    parser.add_argument("--title", default="Confusions", help="heading of the page (default: Confusions)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("confusions"),
        metavar="DIR",
        help="folder of the output files (default: confusions)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ppocr_ext.report import confusion_report as report
    from ppocr_ext.report.page_samples import SampleImages

    _check_options(args)
    after, before = _read_both(args.predictions, args.before)
    groups = read_groups(args.groups)
    if args.dict is not None:
        groups = within(groups, Charset.from_file(args.dict, lenient=True).characters)
        if not groups:
            raise DataError(
                f"{args.dict}: no group of look-alikes has two characters of this dictionary. Fix: give groups of its "
                "characters with --groups: a text file with one group per line, such as 未末.",
                code="no_look_alikes",
            )
    general, general_before = _read_both(args.general, args.general_before)
    images = SampleImages(args.data_dir)
    comparison = report.compare(
        after or [],
        groups,
        before,
        general,
        general_before,
        args.max_drop,
        _lists(args, after or [], images),
    )
    texts = {
        _PAGE: report.confusion_page(comparison, args.title, images),
        "confusions.json": report.to_json(comparison),
        **report.tables(comparison),
    }
    for name, text in texts.items():
        write_text(args.out / name, text)
    print(report.to_text(comparison))
    if images.note:
        print(images.note)
    print(f"written: {args.out / _PAGE}; beside it {', '.join([*texts][1:])}")
    changes = comparison.changed.get(report.GENERAL)
    if changes is None or args.max_drop is None or -changes.gain <= args.max_drop:
        return 0
    print(
        f"the accuracy on the general list has fallen by {-changes.gain:.2%} "
        f"(limit: {args.max_drop:.2%}, --max-drop)"
    )
    return 1


def _check_options(args: argparse.Namespace) -> None:
    if (args.general_before or args.max_drop is not None) and not (args.general and args.general_before):
        raise DataError(
            "--max-drop and --general-before need --general and --general-before: give both",
            code="missing_option",
        )
    page = args.out / _PAGE
    if args.out.is_dir() and any(args.out.iterdir()) and not page.exists():
        raise DataError(f"{args.out} holds other files. Fix: give another --out.", code="folder_not_empty")
    check_writable(page)


def _read_both(
    after: Path | None, before: Path | None
) -> tuple[list[Prediction] | None, list[Prediction] | None]:
    """Read the predictions after and before, if given; of both, keep the samples that they have in common."""
    later = None if after is None else read_predictions(after)
    earlier = None if before is None else read_predictions(before)
    if later is not None and earlier is not None:
        earlier, later, note = samples_of_both(earlier, later, (str(before), str(after)))
        print(note, end="\n" * bool(note))
    return later, earlier


def _lists(args: argparse.Namespace, tested: list[Prediction], images: SampleImages) -> str:
    """Return which list is tested, and which ones chose the checkpoint, in words.

    Raises:
        ConfigError: the run has no config.
        DataError: the tested list and one of these have images in common.
    """
    from ppocr_ext.config import load
    from ppocr_ext.config.derive import of_general
    from ppocr_ext.recognition.images import images_of_eval
    from ppocr_ext.report.page_samples import SampleImages

    text = f"tested: {args.predictions.name}; chose the checkpoint: "
    if args.run_folder is None:
        return f"{text}unknown without --run"
    config = load([args.run_folder / "config.yml"])
    lists = []
    for each in (config, *([of_general(config)] if config.at("Eval.general", None) else [])):
        dataset = each.at("Eval.dataset", default=None) or {}
        files = dataset.get("label_file_list") or dataset.get("data_dir") or "none"
        names = shortened([files] if isinstance(files, str) else files, _SHOWN)
        try:
            chosen = list(images_of_eval(each))
        except DataError:
            lists.append(f"{names}, which cannot be read from this folder")
            continue
        if same := _same_images(chosen, SampleImages(Path(dataset.get("data_dir") or ".")), tested, images):
            raise DataError(
                f"{args.predictions}: {len(same):,} of {len(tested):,} images also chose the checkpoint, by {names}: "
                f"{shortened(same, _SHOWN)}. Fix: predict images that no evaluation of the run has read, such as the "
                f"test.txt of `ppocr-ext init --test`; if the images differ, give their folder by --data-dir",
                code="images_in_both",
            )
        lists.append(f"{names} ({len(chosen):,} images, none of them tested)")
    return text + "; and, as Eval.general, ".join(lists)


def _same_images(
    chosen: list[ListedImage], chosen_images: SampleImages, tested: list[Prediction], images: SampleImages
) -> list[str]:
    """Return the tested images with the content of a chosen one, or with its name and label if one cannot be read."""
    named = {(each.name, each.label): _key(chosen_images, each.name) for each in chosen}
    known = {*named.values()} - {None}
    same = []
    for each in tested:
        key = _key(images, each.image)
        name = (each.image, each.label)
        if key in known or (name in named and None in (key, named[name])):
            same.append(each.image)
    return same


def _key(images: SampleImages, name: str) -> int | None:
    """Return the hash of an image's content; None if it cannot be read."""
    content = images.content(name)
    return hash(content) if content else None
