"""Run ``ppocr-ext`` as ``python -m ppocr_ext``; `ppocr_ext/loop/launch.py` gives this file to Paddle's launcher."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the current folder first, or that of this file. A checkout in the former would become the host,
    # unlike with `ppocr-ext`; the latter would hide modules of others.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(__file__).resolve().parents[1])
    from ppocr_ext.cli.main import main

    sys.exit(main())
