"""What `init` may replace: files that it wrote itself, and that nothing reads; no Paddle."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import isfile
from typing import Any

from ppocr_ext.config import load
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.errors import DataError
from ppocr_ext.first_run.inspect import Inspection
from ppocr_ext.first_run.writing import CONFIG, NETWORK
from ppocr_ext.io.atomic import digests, require_own, write_text
from ppocr_ext.sources.listing import RECORD
from ppocr_ext.sources.samples import SPLITS

OWN = (  # all that is written, and replaced if it is written anew
    *(CONFIG, NETWORK, "dict.txt", "doubtful.tsv", "look.png", "init.html", "crops", "drawn"),
    *("general", "general_taught"),
    *(f"{name}.txt" for name in (*SPLITS, "drawn", "more", "general", "general_taught")),
)


def require_free(out: Path, force: bool) -> None:
    """Refuse a folder that holds something, unless an earlier command wrote what ``force`` replaces.

    Raises:
        DataError: the folder is not empty, or is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not (force and (out / RECORD).is_file()):
            raise DataError(
                f"{out} is there already. Fix: give another --out; --force replaces what an earlier `init` wrote.",
                code="folder_exists",
            )
        require_own(out, OWN, RECORD)


def remove_lists(out: Path) -> None:
    """Remove the lists of an earlier command, since lines of one that is not written anew may train now."""
    for file in (out / name for name in OWN if name.endswith(".txt")):
        file.unlink(missing_ok=True)


def require_unread(inspection: Inspection) -> None:
    """Refuse to replace what is read: the data, lists and their images, and files of a base or of a run in the folder.

    Raises:
        DataError: a file of these would be replaced.
    """
    out = inspection.out.resolve()
    texts = (
        json.dumps(config.thaw(), ensure_ascii=False, default=str)
        for config in (inspection.plan.base.config, *map(load, sorted(out.glob("*/config.yml"))))
    )
    lists = [file for file in (inspection.general, inspection.more) if file is not None]
    read = [
        inspection.source.root,
        *lists,
        *(file.parent / name for file in lists for line in read_label_file(file) for name in line.images),
        *(out / name for name in inspection.plan.base.files),
        *filter(isfile, (name for text in texts for name in re.findall(r'"([^"]+)"', text))),
    ]
    for file in read:
        place = Path(file).resolve()
        if place.is_relative_to(out) and {*place.relative_to(out).parts[:1]} <= {*OWN}:
            raise DataError(
                f"{file} is read, and would be replaced. Fix: give another --out.", code="file_exists"
            )


def write_record(out: Path, content: Mapping[str, Any]) -> None:
    """Write ``init.json``: ``content``, and which files of the folder are written here, with their digests."""
    write_text(
        out / RECORD,
        json.dumps({**content, "files": digests(out, OWN)}, indent=1, ensure_ascii=False) + "\n",
    )
