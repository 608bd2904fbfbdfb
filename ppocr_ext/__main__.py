"""Run ``ppocr-ext`` as ``python -m ppocr_ext``; `ppocr_ext/loop/launch.py` gives this file to Paddle's launcher."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # started as a file: its folder would hide modules of others
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from ppocr_ext.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
