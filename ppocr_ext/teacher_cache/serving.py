"""Which losses a cache can serve within 1e-3, and what it has to keep for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ppocr_ext.losses import CombinedLoss, Loss, required_outputs
from ppocr_ext.teacher_cache.shards import BRANCHES
from ppocr_ext.teacher_cache.store import Store

# Mean probability of classes that are not kept, above which a loss that reads only the probable ones differs by 1e-3.
MOST_DROPPED = 5e-4


def readings(loss: Any, model: str) -> Iterator[tuple[str, str, bool]]:
    """Yield what the losses read of a sub-model: name of the loss, output, and whether it needs all classes.

    A loss that does not say what it reads yields the output ``"?"``.
    """
    parts = [part for _, _, part in loss.losses] if isinstance(loss, CombinedLoss) else [loss]
    for part in parts:
        name, refs = type(part).__name__, required_outputs(part)
        everything = not isinstance(part, Loss) or part.needs_all_classes()
        for of, output in [(model, "?")] if refs is None else sorted(refs, key=str):
            if of == model:
                yield name, output, everything


def branches_to_keep(loss: Any, model: str) -> dict[str, bool]:
    """Return the branches that a cache can keep for the losses, and whether all their classes are needed."""
    kept: dict[str, bool] = {}
    for _, output, everything in readings(loss, model):
        if output in BRANCHES:
            kept[output] = kept.get(output, False) or everything
    return kept


def reasons_against(loss: Any, model: str, store: Store | None = None) -> list[str]:
    """Return a line for each loss that a cache cannot serve; empty if it serves all.

    Args:
        loss: of the run.
        model: the sub-model.
        store: the cache; None: a cache that keeps what :func:`branches_to_keep` asks for.
    """
    found = []
    for name, output, everything in readings(loss, model):
        if output not in BRANCHES:
            what = "does not say what it reads" if output == "?" else f"reads {model}'s {output}"
            found.append(f"{name} {what}; a cache has the logits of {' and '.join(BRANCHES)} only")
            continue
        form = None if store is None else store.facts.branches.get(output)
        if store is None or (form is not None and form.kept >= form.classes):
            continue
        if form is None:
            found.append(f"{name} reads {output}, which this cache lacks")
        elif everything:
            found.append(f"{name} needs all {form.classes:,} classes of {output} (found {form.kept} of them)")
        elif store.dropped(output) > MOST_DROPPED:
            found.append(
                f"{name} would differ by more than 1e-3: {store.dropped(output):.1e} of the probability of {output} "
                f"lies outside the {form.kept} classes kept (limit {MOST_DROPPED:.0e})"
            )
    return list(dict.fromkeys(found))
