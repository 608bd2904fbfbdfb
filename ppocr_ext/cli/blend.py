"""``ppocr-ext blend``: read weights between two checkpoints, and take those that forget least."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocr_ext.cli.options import add_config_arguments, add_number, read_config
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.errors import ConfigError

if TYPE_CHECKING:
    from ppocr_ext.config import Config

EPILOG = """\
A fine-tuning gains on its own lines, and forgets others. Weights on the way back read most of both. Nothing is trained:
the way from BEFORE to AFTER is halved until the weights lose no more than --max-drop of the general list, and then at
most by half as long as they read as many new lines, within a standard error or one line, and at most 3 points. Half of
the general list, at most 300 lines, choose; the log and FILE.json tell what the others lose.

BEFORE is a run with Eval.general (its weights before the training), a checkpoint, or a name of released weights. Both
must be of one network and dictionary. The config is the one beside AFTER, or -c FILE.

exit code: 0 weights were found, 1 none read more and keep the general list, 2 they cannot be read.

examples:
  ppocr-ext blend output/run output/run/latest --out kept        # with the lists of the run
  ppocr-ext blend PP-OCRv6_small_rec output/run/latest --list new.txt --general general.txt
  ppocr-ext eval output/run -o Global.checkpoints=kept
"""
_OF_LABELS = "label file (image<TAB>text, paths from its folder)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add(
        "before",
        metavar="BEFORE",
        help="run folder, checkpoint or released weights: what must not be forgotten",
    )
    add("after", metavar="AFTER", help="checkpoint of the fine-tuning")
    add(
        "--list", type=Path, metavar="LIST", help=f"the new lines: {_OF_LABELS} (default: Eval of the config)"
    )
    add(
        "--general",
        type=Path,
        metavar="LIST",
        help="the lines that must still be read (default: Eval.general)",
    )
    add_number(
        parser,
        "--max-drop",
        ValueRule("number", 0, 0.99),
        default=0.01,
        metavar="X",
        help="how much of the general accuracy may be lost (default: 0.01, one point)",
    )
    add(
        "--out",
        metavar="FILE",
        help="write the best weights there as a checkpoint, and the table as FILE.json and FILE.svg",
    )
    add_config_arguments(parser, required=False)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.checkpoint.contents import BEFORE, new_files
    from ppocr_ext.evaluation.blend import blend_checkpoints, least_general
    from ppocr_ext.io.atomic import write_text
    from ppocr_ext.report.curves import plots_file, way_plot
    from ppocr_ext.run.logs import set_up_logs

    set_up_logs(args.host)
    target = Path(args.out.removesuffix(".pdparams")) if args.out else None
    if target:
        new_files(target, (".pdparams", ".states", ".json", ".svg"))
    own = Path(args.before) / BEFORE
    before = str(own) if Path(f"{own}.pdparams").is_file() else args.before
    points, best = blend_checkpoints(_config(args), before, args.max_drop, target=target, host_path=args.host)
    print(f"{'of the way':>10}  {'new list':>8}  general list")
    for point in points:
        mark = "  best" if point == best else ""
        print(f"{point.share:>10.1%}  {point.accuracy:>8.2%}  {point.general:>12.2%}{mark}")
    if not best.share:
        print(f"no weights read more than {before}, and lose at most {args.max_drop:.2%} of the general list")
    elif target:
        limit = max(0.0, least_general(points[0].general, args.max_drop))
        plot = way_plot(points, round(100 * best.share), limit)
        legend = [("new list", "new list"), ("general list", f"general list (at least {limit:.2%})")]
        write_text(Path(f"{target}.svg"), plots_file([plot], legend, 1, f"best: {best.share:.1%} of the way"))
        print(f"written: {target}.pdparams, {target}.states, {target}.json, {target}.svg")
    return 0 if best.share else 1


def _config(args: argparse.Namespace) -> Config:
    """Return the config of the evaluation.

    Raises:
        PPOCRExtError: a file is missing, or there is no general list.
    """
    from ppocr_ext.checkpoint.checkpoints import Checkpoint
    from ppocr_ext.run.general import of_general

    after = Checkpoint(args.after)
    after.weights_file()
    args.config = args.config or [str(after.prefix.with_name("config.yml"))]
    config = read_config(args)
    values: dict[str, Any] = {
        "Global.checkpoints": args.after,
        "Global.pretrained_model": None,
        "Global.pretrained_partial": False,
    }
    if args.list:
        kept = config.at("Eval.dataset.transforms", default=())
        values["Eval.dataset"] = {**_dataset(args.list), "transforms": kept}
    if args.general:
        values["Eval.general"] = {"dataset": _dataset(args.general)}
    elif config.at("Eval.general", default=None) is None:
        raise ConfigError("there is no general list. Fix: give it with --general.", code="bad_arguments")
    elif args.list:  # it has what it does not say from Eval, which is now another list
        values["Eval.general.dataset"] = of_general(config).at("Eval.dataset")
    return config.with_values(values)


def _dataset(file: Path) -> dict[str, Any]:
    return {"name": "SimpleDataSet", "data_dir": str(file.parent), "label_file_list": [str(file)]}
