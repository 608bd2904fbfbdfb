"""``ppocr-ext benchmark``: what a step costs, as ratios measured in one run."""

from __future__ import annotations

import argparse
import os

NAME = "benchmark"
HELP = "measure what a training step costs against the bare network and against PaddleOCR's own"
EPILOG = """\
examples:
  ppocr-ext benchmark step --size tiny --batch 64
  ppocr-ext benchmark step --size full --batch 16 --peer /path/to/PaddleOCR
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    kinds = parser.add_subparsers(dest="what", required=True)
    step = kinds.add_parser("step", help="seconds a distillation step")
    step.add_argument(
        "--size", choices=("tiny", "full"), default="tiny", help="quickstart's models, or full size"
    )
    step.add_argument("--batch", type=int, default=16, help="images in a batch (default: 16)")
    step.add_argument("--image", type=int, nargs=2, metavar=("H", "W"), help="default: 32 128, full: 48 320")
    step.add_argument(
        "--threads", type=int, help="CPU threads (default: OMP_NUM_THREADS, else 1, as Paddle has it)"
    )
    step.add_argument("--rounds", type=int, default=5, help="measured rounds; the median counts (default: 5)")
    step.add_argument("--peer", metavar="DIR", help="a PaddleOCR checkout to measure in the same run")


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    if args.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read once, when Paddle is imported
    from ppocr_ext.training.benchmark import measure_step

    print(measure_step(args.size, args.batch, args.image, args.rounds, args.peer).to_markdown())
    return 0
