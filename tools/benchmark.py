#!/usr/bin/env python3
"""Measure what training, centers, reading and the check of label files cost, as ratios within one run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import whole_command
from benchmarks.options import classes, picture, positive, several

HELP = (
    "measure what a training step, evaluation, compiled networks, center loss and the export of centers cost, against "
    "plain forms of them, how fast an exported recogniser reads, and how fast label files are checked"
)
EPILOG = """\
examples:
  python tools/benchmark.py all --peer /path/to/PaddleOCR --out measured
  python tools/benchmark.py all --size tiny --batch 4 --rounds 1 --lines 100 --only step memory
  python tools/benchmark.py step --size tiny --batch 64
  python tools/benchmark.py step --size full --batch 16 --peer /path/to/PaddleOCR
  python tools/benchmark.py step --size full --batch 16 --processes 2
  python tools/benchmark.py guard --size full --batch 8
  python tools/benchmark.py engine --size full --batch 16 --threads 2
  python tools/benchmark.py kernels --size full --batch 8 --threads 1
  python tools/benchmark.py center
  python tools/benchmark.py export-center --size full --peer /path/to/PaddleOCR
  python tools/benchmark.py infer --size full --peer /path/to/PaddleOCR --chart speed.png
  python tools/benchmark.py labels --lines 1000 10000 100000 1000000 10000000 --chart labels.png
  python tools/benchmark.py loader
"""
_SIZES = ("tiny", "full")
_BAD = 1  # exit code: done, and the verdict is bad


def build_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(
        description=HELP, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="what", required=True)
    whole_command.add_arguments(
        kinds.add_parser(
            "all", help="step, evaluation, centers, memory, cost against data: one table, one chart"
        )
    )
    _add_step(kinds.add_parser("step", help="seconds a distillation step"))
    guard = "the check for bad values, its copies and the monitors, as shares of a step"
    _add_networks(kinds.add_parser("guard", help=guard), 32)
    _add_networks(kinds.add_parser("engine", help="seconds and memory of compiled networks"), 16)
    _add_networks(kinds.add_parser("kernels", help="other forms of operators in the student's own step"), 8)
    _add_center(kinds.add_parser("center", help="center loss against the dense formula: seconds, memory"))
    _add_export_center(
        kinds.add_parser("export-center", help="images/s and memory of the pass that makes centers")
    )
    _add_infer(kinds.add_parser("infer", help="images/s and latency of exported recognisers, by engine"))
    _add_labels(
        kinds.add_parser("labels", help="lines/s and memory of the check of label files, by their length")
    )
    _add_loader(kinds.add_parser("loader", help="images/s that a worker of a loader prepares"))
    return parser


def _add_step(step: argparse.ArgumentParser) -> None:
    step.add_argument("--size", choices=_SIZES, default="tiny", help="quickstart's models, or full size")
    step.add_argument("--batch", type=positive, default=16, help="images in a batch (default: 16)")
    step.add_argument("--image", type=int, nargs=2, metavar=("H", "W"), help="default: 32 128, full: 48 320")
    _add_common(step)
    step.add_argument("--peer", metavar="DIR", help="a PaddleOCR checkout to measure in the same run")
    step.add_argument(
        "--processes",
        type=several,
        metavar="N",
        help="compare, on the CPU, one process with N threads and N processes with one thread; --batch is of all",
    )


def _add_networks(parser: argparse.ArgumentParser, batch: int) -> None:
    parser.add_argument("--size", choices=_SIZES, default="tiny", help="quickstart's networks, or full size")
    parser.add_argument(
        "--batch", type=positive, default=batch, help="images in a batch (default: %(default)s)"
    )
    _add_common(parser)


def _add_center(center: argparse.ArgumentParser) -> None:
    center.add_argument(
        "--batch", type=positive, nargs="+", default=[64, 192], metavar="B", help="lines (default: 64 192)"
    )
    center.add_argument("--frames", type=positive, default=40, metavar="T", help="of a line (default: 40)")
    center.add_argument("--classes", type=classes, default=6625, metavar="C", help="(default: 6625)")
    center.add_argument("--features", type=positive, default=256, metavar="D", help="(default: 256)")
    center.add_argument("--labels", choices=("argmax", "aligned"), help="measure CenterLoss with it too")
    center.add_argument("--margin", type=float, help="measure CenterLoss with it too")
    center.add_argument("--update", choices=("frozen", "ema"), help="measure CenterLoss with it too")
    _add_common(center)


def _add_export_center(export: argparse.ArgumentParser) -> None:
    export.add_argument("--size", choices=_SIZES, default="tiny", help="quickstart's models, or full size")
    export.add_argument("--batch", type=positive, default=16, help="lines in a batch (default: 16)")
    export.add_argument("--lines", type=positive, default=128, help="lines of a pass (default: 128)")
    export.add_argument("--frames", choices=("argmax", "aligned"), default="argmax", help="(default: argmax)")
    _add_common(export)
    export.add_argument("--peer", metavar="DIR", help="a PaddleOCR checkout to measure too")


def _add_infer(infer: argparse.ArgumentParser) -> None:
    infer.add_argument("--size", choices=_SIZES, default="tiny", help="quickstart's models, or full size")
    infer.add_argument(
        "--batch", type=positive, nargs="+", default=[1, 16], metavar="B", help="images (default: 1 16)"
    )
    infer.add_argument(
        "--threads",
        dest="engine_threads",
        type=positive,
        nargs="+",
        default=[1, 2],
        metavar="N",
        help="CPU threads of an engine (default: 1 2)",
    )
    infer.add_argument(
        "--images", type=positive, default=48, help="that Recognizer.read reads in a call (default: 48)"
    )
    infer.add_argument("--rounds", type=positive, default=5, help="measured rounds (default: 5)")
    infer.add_argument(
        "--peer", metavar="DIR", help="a PaddleOCR checkout, to measure what it would export too"
    )
    infer.add_argument(
        "--chart", type=picture, metavar="FILE", help="draw images/s: .png, .svg (needs matplotlib)"
    )


def _add_labels(labels: argparse.ArgumentParser) -> None:
    labels.add_argument(
        "--lines",
        type=positive,
        nargs="+",
        default=[10**power for power in range(3, 7)],
        metavar="N",
        help="of each label file (default: 1000 10000 100000 1000000)",
    )
    labels.add_argument("--rounds", type=positive, default=3, help="the fastest one counts (default: 3)")
    labels.add_argument(
        "--chart", type=picture, metavar="FILE", help="draw both curves: .png, .svg (needs matplotlib)"
    )


def _add_loader(loader: argparse.ArgumentParser) -> None:
    loader.add_argument("--images", type=positive, default=500, help="of each kind (default: 500)")
    loader.add_argument("--rounds", type=positive, default=3, help="the fastest one counts (default: 3)")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=positive, help="CPU threads (default: OMP_NUM_THREADS, else 1, as Paddle has it)"
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, help="measured rounds; the median counts (default: 5)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    from ppocr_ext.errors import PPOCRExtError

    args = build_parser().parse_args(argv)
    if getattr(args, "threads", None) is not None:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read once, when Paddle is imported
    measures: dict[str, Callable[[argparse.Namespace], int]] = {
        "all": whole_command.run,
        "step": _step,
        "guard": _guard,
        "engine": _engine,
        "kernels": _kernels,
        "center": _center,
        "export-center": _export_center,
        "infer": _infer,
        "labels": _labels,
        "loader": _loader,
    }
    try:
        return measures[args.what](args)
    except PPOCRExtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _verdict(costs: Any) -> int:
    """Print the table; the exit code."""
    print(costs.to_markdown())
    return 0 if costs.agrees else _BAD


def _step(args: argparse.Namespace) -> int:
    if args.processes is not None:
        from benchmarks.processes import measure_processes

        turns = measure_processes(args.size, args.batch, args.image, args.rounds, args.processes)
        print(turns.to_markdown("step of", next(iter(turns.seconds))))
        return 0
    from benchmarks.step import BARE_SUM, measure_step

    turns = measure_step(args.size, args.batch, args.image, args.rounds, args.peer)
    print(turns.to_markdown("step", BARE_SUM))
    return 0


def _guard(args: argparse.Namespace) -> int:
    from benchmarks.guard import measure_guard

    return _verdict(measure_guard(args.size, args.batch, args.rounds))


def _engine(args: argparse.Namespace) -> int:
    from benchmarks.engine import measure_engine

    return _verdict(measure_engine(args.size, args.batch, args.rounds))


def _kernels(args: argparse.Namespace) -> int:
    from benchmarks.kernels import measure_kernels

    return _verdict(measure_kernels(args.size, args.batch, args.rounds))


def _center(args: argparse.Namespace) -> int:
    from benchmarks.center import measure_center

    options = {key: getattr(args, key) for key in ("labels", "margin", "update")}
    costs = measure_center(
        args.batch,
        args.rounds,
        args.frames,
        args.classes,
        args.features,
        {key: value for key, value in options.items() if value is not None},
    )
    return _verdict(costs)


def _export_center(args: argparse.Namespace) -> int:
    from benchmarks.export_center import measure_export_center

    costs = measure_export_center(args.size, args.batch, args.lines, args.frames, args.rounds, args.peer)
    return _verdict(costs)


def _infer(args: argparse.Namespace) -> int:
    from benchmarks.infer import measure_infer

    costs = measure_infer(args.size, args.batch, args.engine_threads, args.rounds, args.images, args.peer)
    print(costs.to_markdown())
    if args.chart is not None:
        from benchmarks.infer_chart import draw

        draw(costs, Path(args.chart))
    return 0 if costs.agrees else _BAD


def _labels(args: argparse.Namespace) -> int:
    from benchmarks.labels import measure_labels

    costs = measure_labels(args.lines, args.rounds)
    print(costs.to_markdown())
    if args.chart is not None:
        from benchmarks.labels_chart import draw

        draw(costs, Path(args.chart))
    return 0 if costs.agrees else _BAD


def _loader(args: argparse.Namespace) -> int:
    from benchmarks.loader import measure_loader

    print(measure_loader(args.images, args.rounds))
    return 0


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The clone in place of this folder, which comes last: the scripts in it hide nobody's modules.
    sys.path[:] = [str(here.parent), *sys.path[1:], str(here)]
    sys.exit(main())
