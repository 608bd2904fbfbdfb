"""``ppocr-ext eval``: evaluate a trained recogniser on the data of ``Eval``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.cli.options import add_config_arguments, add_host_argument, add_strict_argument, read_config

NAME = "eval"
HELP = "evaluate a trained recogniser: accuracy by sub-model and head, predictions to a file"
EPILOG = """\
examples:
  ppocr-ext eval -c output/run/config.yml -o Global.checkpoints=output/run/best_accuracy
  ppocr-ext eval -c config.yml -o Global.checkpoints=… --model Teacher --head gtc
  ppocr-ext eval -c config.yml -o Global.checkpoints=… --save-predictions predictions.tsv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_config_arguments(parser)
    add_host_argument(parser)
    add_strict_argument(parser)
    parser.add_argument("--model", metavar="NAME", help="sub-model to evaluate (default: Metric.key)")
    parser.add_argument(
        "--head",
        choices=("ctc", "gtc"),
        default="ctc",
        help="head to read: CTC, or the NRTR branch (default: ctc)",
    )
    parser.add_argument(
        "--save-predictions",
        metavar="FILE",
        help="TSV with a header: image (in an LMDB: folder#12), label, prediction, confidence",
    )
    parser.add_argument("--old-dict", metavar="FILE", help="dictionary of the weights, if it differs")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.host.quiet import import_paddle

    import_paddle()
    from ppocr_ext.evaluation.evaluate import evaluate, select_model
    from ppocr_ext.evaluation.predictions import write_predictions
    from ppocr_ext.io.atomic import check_writable
    from ppocr_ext.metrics import space_note
    from ppocr_ext.run.logs import set_up_logs
    from ppocr_ext.run.run import Run

    set_up_logs(args.host)
    config = read_config(args, args.strict)
    if args.model is not None:
        config = select_model(config, args.model)
    if args.save_predictions:
        check_writable(Path(args.save_predictions))
    built = Run.build(
        config, "eval", host_path=args.host, old_dictionary=args.old_dict, reads_ctc=args.head == "ctc"
    )
    result = evaluate(built, args.head)
    for name, value in result.metrics.items():
        print(f"{name}: {value:.4f}" if name != "fps" else f"{name}: {value:.1f}")
    note = space_note(built.metric)
    if note:
        print(f"in acc and norm_edit_dis: {note}")
    print(f"evaluated: {len(result.predictions)}")
    print(f"skipped: {result.skipped}")
    if args.save_predictions:
        write_predictions(Path(args.save_predictions), result.predictions)
        print(f"predictions: {args.save_predictions}")
    return 0
