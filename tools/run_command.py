"""Run a command of this clone; the scripts beside this file call it."""

import sys
from pathlib import Path


def run(name: str) -> None:
    """Run the command with the arguments of this process, and exit."""
    # The clone instead of this folder: its scripts must not hide other modules.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from ppocr_ext.cli.main import main

    sys.exit(main([name, *sys.argv[1:]]))
