"""Suggest where a key belongs that stands in the wrong section."""

from __future__ import annotations

from collections.abc import Callable

from ppocr_ext.check.signatures import component_keys
from ppocr_ext.config.global_keys import GLOBAL_KEYS
from ppocr_ext.messages import near_match
from ppocr_ext.registry import SCHEDULES

Path = tuple[str, ...]
# Keys of the parts of `Train` and `Eval`: all of a loader, and those that every dataset of PaddleOCR has.
DATA_KEYS = {
    "dataset": ("data_dir", "label_file_list", "transforms"),
    "loader": (
        "batch_size_per_card",
        "shuffle",
        "drop_last",
        "num_workers",
        "use_shared_memory",
        "collate_fn",
    ),
}
_SECTION_DEPTH = 2  # of `Global.seed`
_NEAR = 0.85  # higher than within a section: among the keys of all sections a lower ratio is often chance
GIVEN_TO_SCHEDULE = ("epochs", "step_each_epoch", "last_epoch")  # by the program


def suggest_path(path: Path) -> Path | None:
    """Return the known path in another section whose key is, starts with or is nearest to the key of ``path``.

    Only a key at the top or directly in a section gets a suggestion: a path in ``Global``, ``Optimizer.lr``, or the
    dataset or loader of ``Train`` and ``Eval``. Return None if there is none.
    """
    if len(path) > _SECTION_DEPTH:
        return None
    key = path[-1]
    others = [known for known in _known_paths() if known[:-1] != path[:-1]]
    others.sort(key=lambda known: known[0] != path[0])  # the section of the key itself first
    near = near_match(key, {known[-1] for known in others}, cutoff=_NEAR)
    rules: tuple[Callable[[str], bool], ...] = (
        lambda name: name == key,
        lambda name: name.startswith(f"{key}_"),
        lambda name: name == near,
    )
    return next((known for fits in rules for known in others if fits(known[-1])), None)


def _known_paths() -> list[Path]:
    """Return the paths of all keys that a user may put into another section by mistake."""
    schedules = {key for name in SCHEDULES.names() for key in component_keys(SCHEDULES.get(name)).named}
    return [
        *(("Global", key) for key in GLOBAL_KEYS),
        *(("Optimizer", "lr", key) for key in sorted(schedules.difference(GIVEN_TO_SCHEDULE))),
        *(
            (mode, part, key)
            for mode in ("Train", "Eval")
            for part, keys in DATA_KEYS.items()
            for key in keys
        ),
    ]
