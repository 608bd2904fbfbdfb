"""Paths of checkpoints as configs write them, and what is said where there is none; imports no Paddle."""

from __future__ import annotations

from pathlib import Path

from ppocr_ext.messages import shortened

SHOWN = 8  # names in a message before "and N more"


def parameter_file(path: str | Path) -> Path:
    """``path`` with the ending ``.pdparams``, which PaddleOCR's configs leave out."""
    text = str(path)
    return Path(text if text.endswith(".pdparams") else f"{text}.pdparams")


def why_missing(path: str | Path) -> str:
    """What is to be said of ``path``, where no weights are: which checkpoints lie there instead."""
    folder = Path(path)
    if folder.is_dir():
        return f"{folder} is a folder, not a checkpoint in it.{_those_in(folder) or ' It holds none.'}"
    file = parameter_file(path)
    remedy = _those_in(file.parent) or " Give the path of weights, with or without .pdparams."
    return f"there is no file {file}.{remedy}"


def _those_in(folder: Path) -> str:
    """The checkpoints in ``folder`` as a remedy; empty where there are none."""
    names = sorted(str(file.with_suffix("")) for file in folder.glob("*.pdparams"))
    latest = str(folder / "latest")
    if latest not in names:
        return f" There is {shortened(names, SHOWN)}." if names else ""
    others = [name for name in names if name != latest]
    return f" Give {latest}{f' (or {shortened(others, SHOWN)})' if others else ''}."
