"""``-o A.b.c=value`` options."""

from __future__ import annotations

from collections.abc import Iterable

from ppocr_ext.config.edit import assign
from ppocr_ext.config.merge import settle
from ppocr_ext.config.node import Mark, Node, Place, PlaceKind, child, dotted, names_in, nearest, split
from ppocr_ext.config.yaml_io import read_value
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import did_you_mean


def override(root: Node, options: Iterable[str]) -> Node:
    """``root`` with options laid on it, one after the other; a later one of the same path wins.

    An option is ``path=value``. The path goes through mappings by key and through lists by index or by
    the key of an item; the value is what follows the first ``=``, read as YAML (nothing is ``null``),
    and replaces what is there. ``path=!remove`` takes it away. A mapping given to a whole section
    (``Global={epoch_num: 3}``) updates its keys, as in PaddleOCR; ``!replace {…}`` does not.

    The first component must be in the config: a key at the top that no section reads would have no
    effect. ``+path=value`` creates it, and appends to a list of single-key mappings what it lacks.

    Raises:
        ConfigError: an option has no ``=``, its value is not YAML, its path cannot be followed, or its
            first component is unknown. The message starts with the option.
    """
    for option in options:
        root = _apply(root, option)
    return root


def _apply(root: Node, option: str) -> Node:
    path, equals, text = option.strip().partition("=")
    shown = f"-o {option.strip()}"
    if not equals:
        raise ConfigError(f"{shown}: an option is `path=value`, for instance `Global.epoch_num=20`.")
    forced = path.startswith("+")
    try:
        parts = split(path.removeprefix("+").strip())
        kind = PlaceKind.FORCED_OPTION if forced else PlaceKind.OPTION
        value = read_value(text, Place("-o", shown, kind, parts))
        section = child(root, parts, 0)
        if section is None and not forced:
            raise ConfigError(_unknown_section(root, parts))
        updates = len(parts) == 1 and value.is_mapping and value.mark is Mark.NONE
        if updates and section is not None and section.is_mapping:
            return _update(root, parts[0], value)
        return assign(root, parts, value if value.mark is Mark.REMOVE else settle(value), append=forced)
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(shown) else f"{shown}: {error}") from error


def _update(root: Node, section: str, values: Node) -> Node:
    for key, value in values.value.items():
        root = assign(root, (section, str(key)), value if value.mark is Mark.REMOVE else settle(value))
    return root


def _unknown_section(root: Node, parts: tuple[str, ...]) -> str:
    """Why the first component is refused; a key given without its section is told where it stands."""
    homes = [
        dotted((key, parts[0])) for key, section in root.value.items() if child(section, parts, 0) is not None
    ]
    hint = did_you_mean(homes[0]) if homes else nearest(parts[0], names_in(root))
    return f"the config has no section {parts[0]!r}.{hint} `+{dotted(parts)}=…` creates it."
