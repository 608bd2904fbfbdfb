"""``ppocr-ext export-center``: one feature center for each character of a trained recogniser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocr_ext.cli.options import add_config_arguments, add_host_argument
from ppocr_ext.cli.terminate import Terminated
from ppocr_ext.commands import command_line, setting
from ppocr_ext.errors import DataError

if TYPE_CHECKING:
    from ppocr_ext.config import Config

NAME = "export-center"
_OVERLAY = "configs/overlays/center_loss.yml"
HELP = "Write one feature center for each character: what CenterLoss pulls the frames of a character to."
EPILOG = """\
examples:
  ppocr-ext export-center -c config.yml -o Global.pretrained_model=output/run/best_accuracy
  ppocr-ext export-center -c distill.yml -o Global.checkpoints=… --model Student --frames aligned
  ppocr-ext export-center -c config.yml -o Global.checkpoints=… --pkl train_center.pkl

The lines of Train go once through the transforms of Eval and the recogniser in evaluation mode; of several
sub-models only the one named is built. A center is the mean of what the CTC classifier sees in the frames of
a character: with `argmax` the frames whose best class it is, in lines read correctly (as in PaddleOCR), with
`aligned` the frames that CTC forced alignment of the label gives it, in all lines. The blank has one too.

Beside centers.npz: centers.json (coverage, nearest pairs) and centers.png (a map, near pairs joined).
Ctrl-C leaves what was added up so far; --resume goes on from it. Under paddle.distributed.launch each
process takes a share of the lines.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_config_arguments(parser)
    add_host_argument(parser)
    parser.add_argument("--model", metavar="NAME", help="sub-model (default: Metric.key, or Student)")
    parser.add_argument("--split", choices=("train", "eval"), default="train", help="lines to use (train)")
    parser.add_argument(
        "--output", type=Path, default=Path("centers.npz"), metavar="FILE", help="(centers.npz)"
    )
    parser.add_argument(
        "--pkl", type=Path, metavar="FILE", help="also {class id: float32 [D]}, as PaddleOCR's"
    )
    parser.add_argument(
        "--frames", choices=("argmax", "aligned"), default="argmax", help="which frames count (argmax)"
    )
    parser.add_argument("--all-lines", action="store_true", help="with argmax: lines read wrongly count too")
    parser.add_argument(
        "--keep-blank", action="store_true", help="without effect: the blank is always exported"
    )
    parser.add_argument("--limit", type=_positive, metavar="N", help="lines at most")
    parser.add_argument("--resume", action="store_true", help="go on from a pass that was interrupted")
    parser.add_argument("--old-dict", metavar="FILE", help="dictionary of the weights, where it differs")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    import paddle.distributed as dist

    from ppocr_ext.centers.collect import CollectOptions, collect, remove_partial, require_frames
    from ppocr_ext.centers.single_model import config_of_model
    from ppocr_ext.config import load
    from ppocr_ext.host import open_host
    from ppocr_ext.io.resources import find_config
    from ppocr_ext.run.logs import quiet_host, set_up_console
    from ppocr_ext.run.run import Run

    set_up_console()
    quiet_host(open_host(args.host).logger)
    _check_files(args)
    given = load([find_config(path) for path in args.config], args.opt)
    config, name = config_of_model(given, args.model, args.split)
    built = Run.build(
        config,
        "eval",
        host_path=args.host,
        old_dictionary=args.old_dict,
        weights_of=name or "Student",
        data_of=args.split.capitalize(),
        reads_ctc=False,  # which lines count is decided by --frames
    )
    options = CollectOptions(
        args.frames, args.all_lines, args.limit, args.output.with_suffix(".partial.npz"), args.resume
    )
    try:
        result = collect(built, options)
    except (KeyboardInterrupt, Terminated):
        if dist.get_rank() == 0 and any(file.is_file() for file in options.partial_files()):
            again = args.again if args.resume else f"{args.again} --resume"
            print(f"go on with: {again}", file=sys.stderr)
        raise
    require_frames(result, options)
    if dist.get_rank() == 0:
        _write(args, built, result, name)
        print(f"use it: {_training_command(args, given)}")
        remove_partial(options)
    return 0


def _check_files(args: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or of which one would replace another."""
    from ppocr_ext.io.atomic import check_writable

    check_writable(args.output)
    files = [args.output, *(args.output.with_suffix(kind) for kind in (".json", ".png"))]
    if args.pkl is not None:
        files.append(args.pkl)
    if len({path.resolve() for path in files}) < len(files):
        raise DataError(
            f"{files[0]}, its summary {files[1]}, its map {files[2]} and --pkl must be different files. Give --output "
            f"a name that ends in .npz, and --pkl one that ends in .pkl."
        )
    for path in files[1:]:
        check_writable(path)


def _write(args: argparse.Namespace, built: Any, result: Any, name: str | None) -> None:
    from ppocr_ext.centers.collect import table_of
    from ppocr_ext.centers.summary import (
        coverage,
        nearest_pairs,
        rival_distance,
        rival_separations,
        to_json,
        to_text,
    )
    from ppocr_ext.characters.look_alikes import read_groups
    from ppocr_ext.io.atomic import write_text

    table = table_of(
        result,
        built,
        {
            "model": name,
            "split": args.split,
            "frames": args.frames,
            "all_lines": args.all_lines,
            "limit": args.limit,
        },
    )
    table.save(args.output)
    covered, pairs = coverage(table, built.charset), nearest_pairs(table)
    groups = read_groups()
    rivals, separations = rival_distance(table, groups), rival_separations(table, groups)
    written = [args.output, args.output.with_suffix(".json")]
    write_text(written[1], to_json(table, covered, pairs, rivals, separations, result.accuracy, result.lines))
    if args.pkl is not None:
        table.save_pickle(args.pkl)
        written.append(args.pkl)
    picture = _draw(args.output.with_suffix(".png"), table, pairs)
    written += [] if picture is None else [picture]
    print(f"lines: {result.lines:,}, read correctly: {result.accuracy:.1%}")
    print(f"centers: {len(table.class_ids):,} (the blank among them) of {table.feat_dim} features")
    print(to_text(covered, pairs, rivals, separations))
    print(f"{result.lines / max(result.seconds, 1e-9):.0f} images/s")
    print(f"written: {', '.join(map(str, written))}")


def _training_command(args: argparse.Namespace, config: Config) -> str:
    """Return the command that trains ``config`` with the centers, from the weights that they were made with.

    Without a CenterLoss in the config the overlay brings one, and a run folder of its own.
    """
    from ppocr_ext.config import CENTER_LOSSES, named_items

    names = [entry for entry, _ in named_items(config, "Loss", "loss_config_list") if entry in CENTER_LOSSES]
    left_out = ("Global.checkpoints=",) if names else ("Global.checkpoints=", "Global.save_model_dir=")
    options = [option for option in args.opt if not option.strip().removeprefix("+").startswith(left_out)]
    checkpoint = config.at("Global.checkpoints", default=None)
    if checkpoint:  # to train, it is where the run begins, not a run to go on with
        options += [setting("Global.pretrained_model", checkpoint), "Global.checkpoints=null"]
    name = names[0] if names else "CenterLoss"
    options.append(setting(f"Loss.loss_config_list.{name}.center_file_path", args.output))
    files = args.config if names else [*args.config, _OVERLAY]
    old = [] if args.old_dict is None else ["--old-dict", args.old_dict]
    return command_line("train", "-c", *files, "-o", *options, *old, host=args.host)


def _draw(path: Path, table: Any, pairs: Any) -> Path | None:
    try:
        from ppocr_ext.centers.center_map import draw_center_map
    except ModuleNotFoundError as missing:
        if missing.name != "matplotlib":
            raise
        print("no map: matplotlib is not installed (pip install 'ppocr-ext[quickstart]')")
        return None
    draw_center_map(path, table, pairs, f"{len(table.class_ids) - 1:,} character centers")
    return path
