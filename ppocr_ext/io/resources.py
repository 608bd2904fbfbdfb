"""Find files of this and other packages and the cache folder, and compute digests of files; imports no Paddle."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

from ppocr_ext.errors import ConfigError, PPOCRExtError
from ppocr_ext.limits import open_regular

_PACKAGE = Path(__file__).resolve().parents[1]
CACHE_VARIABLE = "PPOCR_EXT_CACHE"
DICTIONARY_FOLDER = ("ppocr", "utils", "dict")


def config_root() -> Path:
    """Return the folder of shipped configurations.

    It is inside an installed package, and next to the package in a source tree, also for an editable install.
    """
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def config_path(name: str) -> Path:
    """Return the shipped file or folder ``name``, such as ``"quickstart/teacher.yml"``.

    Raises:
        ConfigError: there is none; the message lists the shipped files.
    """
    root = config_root()
    path = (root / name).resolve()
    if path.is_relative_to(root) and path.exists():
        return path
    shipped = sorted(str(file.relative_to(root)) for file in root.rglob("*.yml"))
    raise ConfigError(
        f"ppocr-ext ships no configuration {name!r}. It ships: {', '.join(shipped) or 'none'}. "
        f"Fix, if one is missing: pip install --force-reinstall --no-deps ppocr-ext",
        code="missing_file",
    )


def find_config(path: str, folder: Path | None = None) -> Path:
    """Return ``path``, relative to ``folder``, if it exists, else the shipped file of that name.

    An installed package has its configs (``configs/svtrv2/distill.yml``) in its own folder, not in the current one.

    Args:
        path: as the user wrote it.
        folder: base of a relative path; None: the current folder.
    """
    file = Path(path)
    here = file if folder is None else folder / file
    if not here.exists() and file.parts[:1] == ("configs",):
        shipped = config_root().joinpath(*file.parts[1:])
        if shipped.is_file():
            return shipped
    return here


def shown_path(path: Path) -> str:
    """Return a short form of the config ``path`` for messages; ``-c`` and an editor can open it.

    A shipped file is ``configs/…``; a file inside the current folder is relative to it.
    """
    file = path.resolve()
    root = config_root().resolve()
    here = Path.cwd()
    if file.is_relative_to(root):
        shipped = str(Path("configs", file.relative_to(root)))
        if find_config(shipped).resolve() == file:  # no file of that name in the current folder
            return shipped
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(path)


def find_dictionary(path: str | Path) -> Path | None:
    """Return the shipped dictionary that PaddleOCR 3.7 has at `path` (`ppocr/utils/dict/NAME`); None if there is none.

    The wheel of PaddleOCR 2.10 lacks the dictionaries of PP-OCRv5 and v6; sources.json beside them names the source.
    """
    file = Path(path)
    shipped = _PACKAGE / "dictionaries" / file.name
    return shipped if file.parts[:-1] == DICTIONARY_FOLDER and shipped.is_file() else None


def find_file(path: str | Path, host_root: Path) -> Path | None:
    """Return a file of the current folder, else of the host's folder, else a shipped dictionary; else None."""
    candidates = (Path(path), host_root / path, find_dictionary(path))
    return next((each.resolve() for each in candidates if each is not None and each.is_file()), None)


def shipped_dictionaries() -> dict[str, str]:
    """Return the paths for :func:`find_dictionary` of all shipped dictionaries, by their names."""
    names = (each.name for each in (_PACKAGE / "dictionaries").glob("*.txt"))
    return {name: "/".join((*DICTIONARY_FOLDER, name)) for name in names}


def is_shipped_dictionary(path: Path) -> bool:
    """Return True if the file at `path` is a copy of a shipped dictionary, such as one in a clone of PaddleOCR."""
    size = path.stat().st_size
    same_size = (each for each in (_PACKAGE / "dictionaries").glob("*.txt") if each.stat().st_size == size)
    return any(each.read_bytes() == path.read_bytes() for each in same_size)


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, read in pieces.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(1 << 20):  # hashlib.file_digest needs Python 3.11
            digest.update(block)
    return digest.hexdigest()


def named_by_content(path: str | Path) -> str:
    """Return ``NAME sha256:DIGEST``, without the folder.

    Raises:
        OSError: the file cannot be read.
    """
    return f"{Path(path).name} sha256:{file_digest(path)}"


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed top-level package, without importing it; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was put into sys.modules by hand has no spec
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def cache_folder(kind: str) -> Path:
    """Return ``$PPOCR_EXT_CACHE/KIND``, by default ``~/.cache/ppocr_ext/KIND``; it may not exist.

    Raises:
        PPOCRExtError: the variable is not set, and this user has no home folder.
    """
    try:
        return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "ppocr_ext") / kind
    except RuntimeError as error:
        raise PPOCRExtError(
            f"The cache folder is not known: this user has no home folder. Fix: set {CACHE_VARIABLE} to a folder that "
            f"you may write to.",
            code="cache_folder",
        ) from error
