"""Run ``ppocr-ext`` as ``python -m ppocr_ext``."""

import sys

from ppocr_ext.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
