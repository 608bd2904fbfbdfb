"""``ppocr-ext export-center``: compute one feature center for each character of a trained recogniser."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.base.parts import CENTER_LOSSES
from ppocr_ext.characters.look_alikes import read_groups
from ppocr_ext.cli.options import (
    add_count,
    add_old_dictionary_argument,
    add_run_argument,
    read_recogniser_config,
)
from ppocr_ext.config import Config, named_items
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import check_writable, write_text
from ppocr_ext.messages import command_line, setting
from ppocr_ext.run.logs import set_up_logs

if TYPE_CHECKING:
    from ppocr_ext.centers.collect import CenterAccumulator
    from ppocr_ext.run.run import Run

_OVERLAY = "configs/overlays/center_loss.yml"
EPILOG = """\
examples:
  ppocr-ext export-center output/run                             # the best checkpoint of a run
  ppocr-ext export-center output/run --model Student --frames aligned --pkl train_center.pkl
  ppocr-ext export-center -c config.yml -o Global.pretrained_model=weights

The recogniser reads the samples of Train once, with the transforms of Eval and in evaluation mode; of several
sub-models only the named one is built. A center is the mean of the features of a character's frames, as the CTC
classifier receives them. `argmax` takes the frames whose best class is the character, in samples read correctly (as
in PaddleOCR); `aligned` takes the frames that CTC forced alignment of the label gives it, in all samples. The blank
has a center too.

Also written: centers.json (coverage, nearest pairs) and centers.png (a map, near pairs joined).
Ctrl-C keeps the sums so far; --resume continues from them. Under paddle.distributed.launch each process
takes a share of the samples.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_run_argument(parser)
    add = parser.add_argument
    add("--model", metavar="NAME", help="sub-model (default: Metric.key, or Student)")
    add("--split", choices=("train", "eval"), default="train", help="samples to use (train)")
    add("--output", type=Path, default=Path("centers.npz"), metavar="FILE", help="(centers.npz)")
    add(
        "--pkl",
        type=Path,
        metavar="FILE",
        help="also write {class id: float32 [D]}, as PaddleOCR does (default: if CenterLoss names a .pkl)",
    )
    add("--frames", choices=("argmax", "aligned"), default="argmax", help="which frames count (argmax)")
    add("--all-lines", action="store_true", help="with argmax: samples read wrongly count too")
    add_count(parser, "--limit", help="the largest number of samples")
    add("--resume", action="store_true", help="continue a pass that was interrupted")
    add_old_dictionary_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    import paddle.distributed as dist

    from ppocr_ext.centers.collect import (
        CollectOptions,
        collect,
        config_of_model,
        remove_partial,
        require_frames,
    )
    from ppocr_ext.run.run import Run

    set_up_logs(args.host)
    whole = read_recogniser_config(args)
    args.pkl = args.pkl or _named_pickle(whole, args.output)
    _check_options(args)
    config, name = config_of_model(whole, args.model, args.split)
    built = Run.build(
        config,
        "eval",
        host_path=args.host,
        old_dictionary=args.old_dict,
        weights_of=name or "Student",
        eval_section=args.split.capitalize(),
        reads_ctc=False,  # samples that CTC cannot read may count too: --frames decides
    )
    options = CollectOptions(
        args.frames, args.all_lines, args.limit, args.output.with_suffix(".partial.npz"), args.resume
    )
    began = time.perf_counter()
    try:
        result = collect(built, options)
    except KeyboardInterrupt:
        if dist.get_rank() == 0 and any(file.is_file() for file in options.partial_files()):
            print(f"resume with: {args.again}{'' if args.resume else ' --resume'}", file=sys.stderr)
        raise
    speed = result.samples / (time.perf_counter() - began)
    require_frames(result, options)
    if dist.get_rank() == 0:
        files = _write(args, built, result, name)
        print(f"{speed:.0f} images/s")
        print(f"written: {', '.join(map(str, files))}")
        print(f"use it: {_training_command(args, whole)}")
        remove_partial(options)
    return 0


def _named_pickle(config: Config, output: Path) -> Path | None:
    """Return the file beside ``output`` with the name of the pickle that a center loss names; None if none does."""
    for name, path in named_items(config, "Loss", "loss_config_list"):
        file = config.at((*path, "center_file_path"), None) if name in CENTER_LOSSES else None
        if isinstance(file, str) and file.endswith(".pkl"):
            return output.with_name(Path(file).name)
    return None


def _check_options(args: argparse.Namespace) -> None:
    """Refuse files that cannot be written, and files with the same name."""
    files = [args.output, *map(args.output.with_suffix, (".json", ".png")), *filter(None, [args.pkl])]
    if len({path.resolve() for path in files}) < len(files):
        raise DataError(
            f"{files[0]}, its summary {files[1]}, its map {files[2]} and --pkl must be different files. Fix: give "
            f"--output a name that ends in .npz, and --pkl one that ends in .pkl.",
            code="same_file",
        )
    for path in () if args.resume else files:  # what is resumed has written some of them
        check_writable(path)


def _write(args: argparse.Namespace, built: Run, result: CenterAccumulator, name: str | None) -> list[Path]:
    """Write and print the centers and their summary; return the files."""
    from ppocr_ext.centers.center_summary import CenterSummary
    from ppocr_ext.centers.collect import table_of
    from ppocr_ext.modeling.digests import state_digest

    options = {key: getattr(args, key) for key in ("split", "frames", "all_lines", "limit")}
    charset = built.context.charset
    meta = {"model": name, "model_digest": state_digest(built.model), **options}
    table = table_of(result, charset, meta)
    table.save(args.output)
    summary = CenterSummary.of(table, charset, read_groups())
    files = [args.output, args.output.with_suffix(".json")]
    write_text(files[1], summary.to_json(table, result.accuracy, result.samples))
    if args.pkl is not None:
        table.save_pickle(args.pkl)
        files.append(args.pkl)
    try:
        from ppocr_ext.centers.center_map import draw_center_map
    except ModuleNotFoundError as missing:
        if missing.name != "matplotlib":
            raise
        print("no map: matplotlib is not installed (pip install 'ppocr-ext[quickstart]')")
    else:
        files.append(args.output.with_suffix(".png"))
        draw_center_map(files[-1], table, summary.pairs, f"{len(table.class_ids) - 1:,} character centers")
    print(f"samples: {result.samples:,}, read correctly: {result.accuracy:.1%}")
    print(f"centers: {len(table.class_ids):,} (with the blank) of {table.feat_dim} features")
    print(summary.to_text())
    return files


def _training_command(args: argparse.Namespace, config: Config) -> str:
    """Return the command that trains ``config`` with the centers, from the weights that made them.

    If the config has no CenterLoss, the overlay adds one, and another run folder.
    """
    names = [entry for entry, _ in named_items(config, "Loss", "loss_config_list") if entry in CENTER_LOSSES]
    dropped = ("Global.checkpoints=",) if names else ("Global.checkpoints=", "Global.save_model_dir=")
    options = [option for option in args.opt if not option.strip().removeprefix("+").startswith(dropped)]
    checkpoint = config.settings.checkpoints
    if checkpoint:  # the new run starts from these weights, but does not resume that run
        options += [setting("Global.pretrained_model", checkpoint), "Global.checkpoints=null"]
    loss = f"Loss.loss_config_list.{names[0] if names else 'CenterLoss'}"
    options.append(setting(f"{loss}.center_file_path", args.output))
    run = Path(args.run_folder or "")
    own = args.config or [run / "config.yml" if run.is_dir() else run]
    files = own if names else [*own, _OVERLAY]
    old = [] if args.old_dict is None else ["--old-dict", args.old_dict]
    return command_line("train", "-c", *files, "-o", *options, *old, host=args.host)
