#!/usr/bin/env python3
"""Train and evaluate each recognition config of PaddleOCR for a few steps: what each gives, as a table.

The configs are written from the stored facts (tests/fixtures/networks/configs_facts.json), or are the files of a
checkout (`--configs PaddleOCR/configs/rec`). Each runs by `ppocr-ext train` and `ppocr-ext eval`, with its own
dictionary and from random weights, changed by `-o` for paths, sizes and the device alone. Data are CAPTCHAs of digits.
OUT/results.json and OUT/results.md have the table; a config that stands there is not run again, unless `--only` names
it or another option has changed.
"""

import argparse
import sys
from pathlib import Path

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.official_runs import Settings, run_configs  # noqa: E402
from experiments.runs import RunStopped  # noqa: E402
from ppocr_ext.errors import PPOCRExtError  # noqa: E402


def main() -> int:
    """Run the configs; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("official"), metavar="DIR", help="(official)")
    parser.add_argument("--configs", type=Path, metavar="DIR", help="configs/rec of a checkout of PaddleOCR")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="only configs with this in their name, again"
    )
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="of training, at least (2)")
    parser.add_argument("--batch", type=int, default=2, metavar="N", help="images of a batch (2)")
    args = parser.parse_args()
    if min(args.steps, args.batch) < 1:
        parser.error("--steps and --batch must be at least 1")
    try:
        print(f"\n{run_configs(args.out, Settings(args.steps, args.batch, args.configs), args.only)}")
    except (PPOCRExtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, RunStopped):
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
