"""``ppocr-ext verify``: check that everything that can read an exported model reads what the network reads."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.cli.options import (
    add_data_dir_argument,
    add_host_argument,
    add_number,
    add_option_argument,
    add_trust_argument,
)
from ppocr_ext.config.global_keys import ValueRule

if TYPE_CHECKING:
    from ppocr_ext.export.verify import Comparison
    from ppocr_ext.export.verify_export import Verification

EPILOG = """\
The same images are read by the trained network, by inference.json with and without oneDNN, by inference.onnx, and by
PaddleOCR 2.x and RapidOCR 3.x if they are installed. A row for each gives the largest difference of the probabilities
(equal texts alone hide a second softmax), how many texts are equal, and with labels, how many are right. Where a
reader differs, the first image with another result is named.

exit code: 0 equal, 1 something differs by more than the limit, 2 it cannot be checked.

examples:
  ppocr-ext verify output/run/inference                    # on some images of Eval and drawn ones
  ppocr-ext verify model --run output/run --data data/lines/val_list.txt
  ppocr-ext verify model --run output/run -o Global.checkpoints=output/run/latest
  ppocr-ext verify model --images 'scans/*.png'            # without the run: the forms of the model are compared
"""

_HINT = (
    "export the model again. For a client, compare how it decodes, orders channels, resizes, pads and normalises an "
    "image, and its dictionary: docs/deploy.md, Your own program."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("folder", type=Path, metavar="EXPORT_DIR", help="folder that `ppocr-ext export` wrote")
    add(
        "--run",
        type=Path,
        metavar="RUN",
        dest="run_folder",
        help="folder or config of the run (default: the folder that holds EXPORT_DIR, if its weights were exported)",
    )
    add_option_argument(parser, "set keys of the run's config")
    images = parser.add_mutually_exclusive_group()
    images.add_argument(
        "--images", nargs="+", default=(), metavar="IMAGES", help="files, folders, patterns in quotes"
    )
    images.add_argument(
        "--data", metavar="LIST", help="label file (image<TAB>text): its images, and the share read right"
    )
    add_number(
        parser,
        "--tolerance",
        ValueRule("number", above=0, most=0.999),
        metavar="X",
        help="largest difference of two probabilities that is accepted (default: 0.0001, and what the network's own "
        "noise explains)",
    )
    add_data_dir_argument(parser)
    add("--no-clients", action="store_true", help="leave out the installed clients, which start slowly")
    add_trust_argument(parser)
    add_host_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.export.verify_export import verify_export
    from ppocr_ext.run.logs import set_up_logs

    set_up_logs(args.host)
    result = verify_export(
        args.folder,
        run=args.run_folder,
        options=args.opt,
        host_path=args.host,
        images=[args.data] if args.data else args.images,
        data_dir=args.data_dir,
        tolerance=args.tolerance,
        with_clients=not args.no_clients,
        trust_model=args.trust_model,
    )
    _print(result)
    return 0 if result.agrees() else 1


def _print(result: Verification) -> None:
    """Print a row for each reader, what differs, and what could not be compared."""
    width = max(len(row.name) for row in result.rows)
    labelled = any(row.labelled for row in result.rows)
    print(f"compared with: {result.reference}; {result.rows[0].limits}")
    print(f"{'':<{width}}  images  largest difference  equal texts{'  accuracy' if labelled else ''}")
    for number, row in enumerate(result.rows):
        print(f"{row.name:<{width}}  {_cells(row, number == 0, labelled)}".rstrip())
    lines = [
        *(f"{row.name}: {row.note}" for row in result.rows if row.note),
        *result.notes,
        *(f"not read: {reason}" for reason in result.unreadable),
        *(f"differs: {fault}" for fault in result.faults),
        *("\n  ".join([f"\n{row.name} differs:", *row.faults]) for row in result.rows if row.faults),
        "equal" if result.agrees() else f"NOT equal. Fix: {_HINT}",
    ]
    print("\n".join(lines))


def _cells(row: Comparison, is_reference: bool, labelled: bool) -> str:
    if not row.images:
        return "cannot be read"
    largest = "" if is_reference else "not comparable" if math.isinf(row.largest) else f"{row.largest:.1e}"
    equal = "" if is_reference else f"{row.images - row.different}/{row.images}"
    accuracy = f"  {row.correct / row.labelled:8.2%}" if labelled and row.labelled else ""
    return f"{row.images:>6}  {largest:>18}  {equal:>11}{accuracy}"
