"""``benchmark.py all``: its options, its progress on stderr, and the files that it writes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.options import positive

SECTIONS = ("step", "eval", "center", "memory", "data")


def add_arguments(whole: argparse.ArgumentParser) -> None:
    """Add the options of ``benchmark.py all``."""
    whole.add_argument("--size", choices=("tiny", "full"), default="full", help="default: full")
    whole.add_argument("--batch", type=positive, default=16, help="images of a step (default: 16)")
    whole.add_argument(
        "--threads",
        type=positive,
        default=2,
        help="CPU threads; as many processes share a step in some rows (default: 2)",
    )
    whole.add_argument("--rounds", type=positive, default=3, help="measured rounds (default: 3)")
    whole.add_argument(
        "--lines",
        type=positive,
        nargs="+",
        default=[1000, 10_000],
        metavar="N",
        help="of the label files whose cost is compared (default: 1000 10000; the label check: ten times as many too)",
    )
    whole.add_argument("--only", choices=SECTIONS, nargs="+", default=list(SECTIONS), help="default: all")
    whole.add_argument("--peer", type=Path, metavar="DIR", help="a PaddleOCR checkout to measure too")
    whole.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write performance.json, .md and .png (needs matplotlib) to it",
    )
    whole.add_argument(
        "--redraw",
        action="store_true",
        help="measure nothing: table and chart of the performance.json in --out",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, or read what was measured; print the table and write the files; return the exit code."""
    from benchmarks import whole, whole_rows  # they import Paddle
    from ppocr_ext.errors import PPOCRExtError

    if args.out is not None:
        from benchmarks.whole_chart import draw  # now: without matplotlib nothing is measured in vain
    began, file = time.monotonic(), None if args.out is None else args.out / "performance.json"
    if args.redraw:
        if file is None or not file.is_file():
            raise PPOCRExtError(
                f"--redraw: there is no {file or 'folder'}. Fix: --out DIR of an earlier run.",
                code="missing_file",
            )
        found = json.loads(file.read_text(encoding="utf-8"))
    else:
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
        plan = whole.Plan(args.size, args.batch, args.rounds, args.threads, args.lines, args.only, args.peer)

        def say(what: str) -> None:
            print(f"{time.monotonic() - began:5.0f} s: {what}", file=sys.stderr, flush=True)

        def keep(found: dict[str, Any]) -> None:
            if file is not None:
                file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

        found = whole.measure_all(plan, say, keep)
        say("done")
    print(whole_rows.to_markdown(found))
    if file is not None:
        file.with_suffix(".md").write_text(whole_rows.to_markdown(found) + "\n", encoding="utf-8")
        draw(found, file.with_suffix(".png"))
    return 0 if whole_rows.agrees(found) else 1
