"""What the monitors of a training judge in recorded runs, and the ranges that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ppocr_ext.loop.hooks.collapse_rules import ALL_BLANK, IN_A_ROW, LEARNT
from ppocr_ext.report.run_folder import Metrics

_KEPT = ("first_loss", "blank_share", "blank_probability", "text_length", "distinct_texts", "nrtr_end_share")
_KEPT_EVAL = ("acc", "nrtr_empty")


def columns_of(metrics: Metrics) -> dict[str, dict[str, list[float | None]]]:
    """Return the values that the monitors judge: ``train`` and ``eval``, each ``step`` and a column for each value."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for kind, lines, keys in (("train", metrics.train, _KEPT), ("eval", metrics.evals, _KEPT_EVAL)):
        plain = [{_plain(key): value for key, value in line.items()} for line in lines]
        measured = [line for line in plain if any(key in line for key in keys)]
        found[kind] = {
            key: [_rounded(line.get(key)) for line in measured]
            for key in ("step", *keys)
            if any(key in line for line in measured)
        }
    return found


def _plain(key: str) -> str:
    return key.removesuffix("_Student")


def _rounded(value: Any) -> float | None:
    return None if value is None else value if isinstance(value, int) else float(f"{value:.6g}")


def ranges_of(runs: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return for each range the extreme that healthy runs recorded, and the limit with a margin to it."""

    def values(kind: str, key: str) -> list[float]:
        return [value for run in runs.values() for value in run[kind].get(key, ()) if value is not None]

    learnt = [_after_learning(run) for run in runs.values()]
    ends = [min(part) for run in learnt for part in _in_a_row(run["train"]["nrtr_end_share"])]
    drops = [
        max(run["eval"]["acc"][: place + 1]) - value
        for run in runs.values()
        for place, value in enumerate(run["eval"].get("acc", ()))
    ]
    recorded = {
        "first_loss": max(values("train", "first_loss")),
        "blank_probability": max(values("train", "blank_probability")),
        "blank_steps": max(_longest(run["train"], _is_blank) for run in runs.values()),
        "same_text_steps": max(_longest(run["train"], _is_same) for run in runs.values()),
        "nrtr_steps": max(_longest(run["train"], _is_end) for run in runs.values()),
        "nrtr_end_share": max(ends, default=0.0),
        "nrtr_empty": max((value for run in learnt for value in run["eval"]["nrtr_empty"]), default=0.0),
        "accuracy_drop": max(drops),
    }
    limits = {
        "first_loss": max(2.0, 2 * recorded["first_loss"]),
        # one frame in ten thousand
        "blank_probability": max(0.9999, 1 - (1 - recorded["blank_probability"]) / 10),
        # full-size runs on large data need longer for this than these short ones
        "blank_steps": max(2000, 4 * recorded["blank_steps"]),
        "same_text_steps": max(2000, 4 * recorded["same_text_steps"]),
        "nrtr_steps": max(2000, 4 * recorded["nrtr_steps"]),
        "nrtr_end_share": max(0.5, (1 + recorded["nrtr_end_share"]) / 2),
        "nrtr_empty": max(0.5, (1 + recorded["nrtr_empty"]) / 2),
        "accuracy_drop": max(0.4, 2 * recorded["accuracy_drop"]),
    }
    return {name: {"recorded": recorded[name], "limit": round(limits[name], 6)} for name in limits}


def _in_a_row(column: Sequence[float | None]) -> Iterator[list[float]]:
    kept = [value for value in column if value is not None]
    yield from (kept[start : start + IN_A_ROW] for start in range(len(kept) - IN_A_ROW + 1))


def _is_blank(row: Mapping[str, float | None]) -> bool:
    return (row.get("blank_share") or 0) >= ALL_BLANK


def _is_same(row: Mapping[str, float | None]) -> bool:
    return row.get("distinct_texts") == 1 and (row.get("text_length") or 0) > 0


def _is_end(row: Mapping[str, float | None]) -> bool:
    return (row.get("nrtr_end_share") or 0) > 0.5


def _after_learning(run: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return the values of NRTR from the evaluation on that first reaches the accuracy of a run that has learnt."""
    evaluations = zip(run["eval"].get("step", ()), run["eval"].get("acc", ()), strict=True)
    first = next((step for step, accuracy in evaluations if accuracy >= LEARNT), None)
    found = {}
    for kind, key in (("train", "nrtr_end_share"), ("eval", "nrtr_empty")):
        points = zip(run[kind].get("step", ()), run[kind].get(key, ()), strict=False)
        kept = [value for step, value in points if first is not None and step >= first and value is not None]
        found[kind] = {key: kept}
    return found


def _longest(columns: Mapping[str, Sequence[float | None]], state: Callable[[Any], bool]) -> float:
    """Return for how many steps a run was in a state."""
    longest, since = 0.0, None
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        if not state(row):
            since = None
        else:
            since = row["step"] if since is None else since
            longest = max(longest, row["step"] - since)
    return longest
