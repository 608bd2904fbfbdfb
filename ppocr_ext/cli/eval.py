"""``ppocr-ext eval``: evaluate a trained recogniser on the data of ``Eval``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.cli.options import (
    add_old_dictionary_argument,
    add_run_argument,
    add_strict_argument,
    read_recogniser_config,
)

EPILOG = """\
examples:
  ppocr-ext eval output/run                                      # the best checkpoint of a run
  ppocr-ext eval output/run -o Global.checkpoints=output/run/latest
  ppocr-ext eval output/run --model Teacher --head gtc --save-predictions predictions.tsv
  ppocr-ext eval -c config.yml -o Global.pretrained_model=weights
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_run_argument(parser)
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
    add_old_dictionary_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.evaluation.evaluate import evaluate, select_model
    from ppocr_ext.evaluation.predictions import write_predictions
    from ppocr_ext.host import open_host
    from ppocr_ext.io.atomic import check_writable
    from ppocr_ext.messages import LOG
    from ppocr_ext.metrics import space_note
    from ppocr_ext.run.logs import set_up_logs
    from ppocr_ext.run.run import Run

    set_up_logs(args.host)
    LOG.info("host: %s", open_host(args.host))
    config = read_recogniser_config(args, args.strict)
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
    if note := space_note(built.metric):
        print(f"in acc and norm_edit_dis: {note}")
    print(f"evaluated: {len(result.predictions)}")
    print(f"skipped: {result.skipped}")
    if args.save_predictions:
        write_predictions(Path(args.save_predictions), result.predictions)
        print(f"predictions: {args.save_predictions}")
    return 0
