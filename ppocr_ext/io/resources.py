"""Files that come with the package: the configurations."""

from __future__ import annotations

from pathlib import Path

from ppocr_ext.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def config_root() -> Path:
    """The folder of shipped configurations.

    It lies inside an installed package, and beside the package in a source tree (an editable
    install runs from there).
    """
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def config_path(name: str) -> Path:
    """The shipped file or folder ``name``, such as ``"quickstart/teacher.yml"``.

    Raises:
        ConfigError: there is none; the message lists those that are.
    """
    root = config_root()
    path = (root / name).resolve()
    if path.is_relative_to(root) and path.exists():
        return path
    shipped = sorted(str(file.relative_to(root)) for file in root.rglob("*.yml"))
    raise ConfigError(
        f"ppocr-ext ships no configuration {name!r}. It ships: {', '.join(shipped) or 'none'}. "
        f"If a file is missing, install the package again: pip install --force-reinstall --no-deps ppocr-ext"
    )


def find_config(path: str, folder: Path | None = None) -> Path:
    """Return ``path``, relative to ``folder``, if it is there, else the shipped file of that name.

    An installed package has its configs (``configs/svtrv2/distill.yml``) in its own folder, not in the current one.

    Args:
        path: as it was given.
        folder: what it is relative to; None: the current folder.
    """
    given = Path(path)
    here = given if folder is None else folder / given
    if not here.exists() and given.parts[:1] == ("configs",):
        shipped = config_root().joinpath(*given.parts[1:])
        if shipped.is_file():
            return shipped
    return here


def shown_path(path: Path) -> str:
    """Return how to show the config ``path``: short, and such that ``-c`` and an editor still find it.

    A shipped file is ``configs/…``, a file inside the current folder is relative to it.
    """
    file, root, here = path.resolve(), config_root().resolve(), Path.cwd()
    if file.is_relative_to(root):
        shipped = str(Path("configs", file.relative_to(root)))
        if find_config(shipped).resolve() == file:  # no other file of that name goes before it
            return shipped
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(path)
