"""Run ``ppocr-ext`` as ``python -m ppocr_ext``; `ppocr_ext/loop/launch.py` gives this file to Paddle's launcher."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the current folder, or the folder of this file, first into the path. A checkout in the current folder
    # would become the host, unlike with `ppocr-ext`; our folder would hide modules of others.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(__file__).resolve().parents[1])
    from ppocr_ext.cli.main import main

    sys.exit(main())
