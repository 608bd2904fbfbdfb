#!/usr/bin/env python3
"""The same as `ppocr-ext cache-teacher`."""

import sys
from pathlib import Path

# The clone in place of this folder: the package is found, and these scripts hide nobody's modules.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from ppocr_ext.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["cache-teacher", *sys.argv[1:]]))
