"""``ppocr-ext checkpoint``: show what a checkpoint holds, or write one sub-model of it to its own file."""

from __future__ import annotations

import argparse
from numbers import Real
from pathlib import Path

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import (
    branch_classes,
    checkpoint_line,
    extract,
    other_weights,
    parts_of,
    weights_note,
    write_weights,
)
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.resources import file_digest

EPILOG = """\
examples:
  ppocr-ext checkpoint inspect output/run/best_accuracy
  ppocr-ext checkpoint inspect PP-OCRv5_mobile_rec --names
  ppocr-ext checkpoint extract output/run/best_accuracy --model Student -o student
  ppocr-ext checkpoint other output/run/latest -o averaged
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="inspect|extract|other")
    inspect = commands.add_parser("inspect", help="print parts, classes, epoch, metric, dictionary")
    inspect.add_argument(
        "checkpoint", help="its path, with or without .pdparams, or a name of official weights"
    )
    inspect.add_argument("--names", action="store_true", help="also print name and shape of each entry")
    take = commands.add_parser("extract", help="write one sub-model, under the names of a single model")
    take.add_argument("checkpoint", help="its path, with or without .pdparams")
    take.add_argument("--model", default="Student", metavar="NAME", help="the sub-model (default: Student)")
    other = commands.add_parser(
        "other",
        help="for a run with Global.ema: write the averaged weights of `latest`, or the raw ones of the best",
    )
    other.add_argument("checkpoint", help="its path, with or without .pdparams")
    for parser in (take, other):
        parser.add_argument("-o", "--output", required=True, metavar="FILE", help="with or without .pdparams")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; return the exit code."""
    checkpoint = Checkpoint(args.checkpoint)
    if args.action == "inspect":
        _inspect(checkpoint, args.names)
        return 0
    target = Path(str(args.output).removesuffix(".pdparams"))
    if args.action == "other":
        weights = other_weights(checkpoint)
        write_weights(target, weights, checkpoint.train_state())
        print(f"written: {target}.pdparams, {target}.states, {len(weights)} entries")
        return 0
    count = extract(checkpoint, args.model, target)
    print(f"written: {target}.pdparams, {target}.states")
    print(f"{count} entries, each equal in every bit to {args.model} of {checkpoint.prefix}")
    return 0


def _inspect(checkpoint: Checkpoint, names: bool) -> None:
    weights = checkpoint.weights()
    file = checkpoint.weights_file()
    print(checkpoint_line(checkpoint.prefix))
    for each in (file, checkpoint.file(".pdopt"), checkpoint.file(".states")):
        if each.is_file():
            print(f"{each}: {each.stat().st_size:,} bytes")
    print(f"sha256 of the weights: {file_digest(file)}\n")
    parts = parts_of(weights)
    width = max(len(part.name) for part in parts)
    for part in parts:
        print(f"{part.name:<{width}}  {len(part.shapes):>5} entries  {part.numbers:>12,} numbers")
        for name, shape in part.shapes.items() if names else ():
            print(f"  {name} {list(shape)}")
    counts = ", ".join(f"{name} {count}" for name, count in branch_classes(weights).items())
    print(f"\nclasses: {counts or 'no CTC, NRTR or SAR classifier'}")
    if not checkpoint.file(".states").is_file():
        print("no .states file: epoch, metric and dictionary are not known")
        return
    try:
        state = checkpoint.train_state()
    except WeightsError as error:  # the contents of the weights have been printed
        print(error)
        return
    position = state.position
    print(
        f"epochs finished: {position.epoch}, steps: {position.global_step} of {state.total_steps or 'unknown'}"
    )
    best = ", ".join(
        f"{name} {value:.4g}"
        for name, value in state.best.items()
        if name != "fps" and isinstance(value, Real)
    )
    print(f"best evaluation of the run: {best or 'none'}")
    if note := weights_note(state):
        print(note)
    print(f"optimizer: {state.optimizer or 'unknown'}")
    print(f"sha256 of the dictionary: {state.charset_digest or 'unknown'}")
    for name, digest in state.frozen.items():
        print(f"trained beside the frozen {name}: {digest}")
