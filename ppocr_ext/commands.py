"""Write complete, quoted commands that a user can paste into a shell."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

PROGRAM = "ppocr-ext"


def command_line(name: str, *words: str | Path, host: str | None = None) -> str:
    """Return the command ``ppocr-ext NAME WORDS``, with ``--host DIR`` if one is given, quoted for a shell."""
    given = [] if host is None else ["--host", host]
    return shlex.join([PROGRAM, name, *given, *map(str, words)])


def run_command(name: str, checkpoint: Path, host: str | None) -> str:
    """Return the command ``name`` for a checkpoint of a run, with the config of its run folder."""
    if (name, checkpoint.name) == ("train", "latest"):
        return command_line(name, "--resume", checkpoint.parent, host=host)
    if (name, checkpoint.name) == ("eval", "best_accuracy"):
        return command_line(name, checkpoint.parent, host=host)
    config = checkpoint.parent / "config.yml"
    weights = setting("Global.checkpoints", checkpoint)
    return command_line(name, "-c", config, "-o", weights, host=host)


def setting(key: str, value: str | Path) -> str:
    """Return ``KEY=VALUE`` for ``-o``, quoted so that YAML reads the same text back."""
    import yaml  # the command line starts faster without it

    text = str(value)
    plain = re.fullmatch(r"[A-Za-z_./~][\w./~ -]*[\w]", text) is not None and yaml.safe_load(text) == text
    return f"{key}={text if plain else json.dumps(text, ensure_ascii=False)}"
