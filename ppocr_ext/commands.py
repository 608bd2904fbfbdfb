"""Write commands that a user can paste into a shell: whole, and quoted."""

from __future__ import annotations

import shlex
from pathlib import Path

PROGRAM = "ppocr-ext"


def command_line(name: str, *words: str | Path, host: str | None = None) -> str:
    """Return the command ``ppocr-ext NAME WORDS``, with ``--host DIR`` if one is given, quoted for a shell."""
    given = [] if host is None else ["--host", host]
    return shlex.join([PROGRAM, name, *given, *map(str, words)])


def setting(key: str, value: str | Path) -> str:
    """Return ``KEY=VALUE`` for ``-o``, whose value is read back as the same text."""
    from ppocr_ext.config.yaml_io import dump_line  # the command line starts without reading YAML

    return f"{key}={dump_line(str(value))}"
