"""The checkpoints of a run folder: which there are, what killed saves left, which ones go; imports no Paddle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ppocr_ext.checkpoint.journal import ENDINGS, finish_journal
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import remove_temporary_files

_JOURNAL = ".journal"
_NAMES = re.compile(r"latest|best_accuracy|iter_epoch_(?P<epoch>\d+)")


def names_in(folder: Path) -> list[str]:
    """Return the names of the checkpoints that a run left in ``folder``: ``latest`` first, then by name."""
    names = {file.name.removesuffix(".pdparams") for file in folder.glob("*.pdparams")}
    found = [name for name in names if _NAMES.fullmatch(name)]
    return sorted(found, key=lambda name: (name != "latest", name))


def finish_saves(folder: Path) -> None:
    """Finish the saves of killed processes in ``folder``, and remove the temporary files that no save needs.

    No other process may save there meanwhile.
    """
    for journal in folder.glob(f"*{_JOURNAL}"):
        try:
            finish_journal(folder / journal.name.removesuffix(_JOURNAL))
        except WeightsError:  # not one of ours; who opens that checkpoint is told
            return
    remove_temporary_files(folder)


def remove_checkpoints(folder: Path, names: Sequence[str]) -> None:
    """Remove the files of the checkpoints ``names`` in ``folder``, the weights last."""
    for name in names:
        for ending in (_JOURNAL, *reversed(ENDINGS)):
            (folder / f"{name}{ending}").unlink(missing_ok=True)


def keep_newest(folder: Path, name: str, count: int) -> None:
    """Keep the ``count`` newest checkpoints ``iter_epoch_N`` up to ``name``, which has just been saved.

    Later ones stay: the run has gone back to an earlier checkpoint and writes them again.
    """
    if (saved := _epoch(name)) is not None:
        remove_checkpoints(folder, epoch_names(folder, saved)[:-count])


def epoch_names(folder: Path, last: int) -> list[str]:
    """Return the names of the checkpoints ``iter_epoch_N`` up to the epoch ``last``, in their order."""
    epochs = {epoch: name for name in names_in(folder) if (epoch := _epoch(name)) is not None}
    return [epochs[epoch] for epoch in sorted(epochs) if epoch <= last]


def _epoch(name: str) -> int | None:
    match = _NAMES.fullmatch(name)
    return int(match["epoch"]) if match and match["epoch"] else None
