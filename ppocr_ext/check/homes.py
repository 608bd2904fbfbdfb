"""Where a key that stands in the wrong section belongs."""

from __future__ import annotations

from collections.abc import Callable

from ppocr_ext.check.global_keys import DATA_KEYS, GLOBAL_KEYS
from ppocr_ext.check.signatures import keys_of
from ppocr_ext.registry import SCHEDULES, near_match

Path = tuple[str, ...]
_SECTION_DEPTH = 2  # of `Global.seed`
_NEAR = 0.85  # higher than within a section: among the keys of all sections a lower ratio is often chance
GIVEN_TO_SCHEDULE = ("epochs", "step_each_epoch", "last_epoch")  # by the program


def home_of(path: Path) -> Path | None:
    """Return the known path whose key is, begins with, or is nearest to that of ``path``; None if there is none.

    Only a key at the top or directly in a section has a home: in ``Global``, ``Optimizer.lr``, or the dataset or loader
    of ``Train`` and ``Eval``.
    """
    if len(path) > _SECTION_DEPTH:
        return None
    key = path[-1]
    homes = [home for home in _known() if home[:-1] != path[:-1]]
    homes.sort(key=lambda home: home[0] != path[0])  # the section of the key itself first
    near = near_match(key, {home[-1] for home in homes}, cutoff=_NEAR)
    rules: tuple[Callable[[str], bool], ...] = (
        lambda name: name == key,
        lambda name: name.startswith(f"{key}_"),
        lambda name: name == near,
    )
    return next((home for fits in rules for home in homes if fits(home[-1])), None)


def _known() -> list[Path]:
    schedules = {
        key: None for name in SCHEDULES.names() for key in sorted(keys_of(SCHEDULES.get(name)).named)
    }
    return [
        *(("Global", key) for key in GLOBAL_KEYS),
        *(("Optimizer", "lr", key) for key in schedules if key not in GIVEN_TO_SCHEDULE),
        *(
            (mode, part, key)
            for mode in ("Train", "Eval")
            for part, keys in DATA_KEYS.items()
            for key in keys
        ),
    ]
