"""Carry classifier and embedding rows from one dictionary to another, character by character."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import WeightsError

if TYPE_CHECKING:
    from ppocr_ext.checkpoint.weights import Fit

# (pattern of the parameter name, kind of class index, axis that runs over the classes)
_CLASS_PARAMETERS = (
    (re.compile(r"(^|\.)(ctc_head|head)\.(fc|fc2)\.weight$"), "ctc", 1),
    (re.compile(r"(^|\.)(ctc_head|head)\.(fc|fc2)\.bias$"), "ctc", 0),
    (re.compile(r"(^|\.)tgt_word_prj\.weight$"), "nrtr", 1),
    (re.compile(r"(^|\.)embedding\.embedding\.weight$"), "nrtr", 0),
)


def _symbols(charset: Charset, kind: str) -> list[str]:
    if kind == "ctc":
        return list(charset.ctc_symbols)
    # PaddleOCR's NRTR tables have one row more than its vocabulary; it belongs to no character
    return [*charset.nrtr_symbols, "<unused row>"]


def _row_map(old: Sequence[str], new: Sequence[str]) -> tuple[list[int], list[int]]:
    """Indices (new, old) of the symbols that both have."""
    where = {symbol: index for index, symbol in enumerate(old)}
    pairs = [(i, where[symbol]) for i, symbol in enumerate(new) if symbol in where]
    return [i for i, _ in pairs], [j for _, j in pairs]


def _carry(
    old: np.ndarray, initial: np.ndarray, axis: int, kind: str, before: Charset, now: Charset
) -> np.ndarray:
    to, origin = _row_map(_symbols(before, kind), _symbols(now, kind))
    result = np.moveaxis(initial.copy(), axis, 0)
    result[to] = np.moveaxis(old, axis, 0)[origin]
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


def _class_parameter(name: str) -> tuple[str, int] | None:
    """Kind of class index and axis that runs over the classes; None for any other parameter."""
    return next(((kind, axis) for pattern, kind, axis in _CLASS_PARAMETERS if pattern.search(name)), None)


def _with_the_files_space(fit: Fit, state: Mapping[str, Any], old: Charset) -> Charset:
    """``old``, or it with or without the space, whichever has as many classes as the file."""
    without = old.characters[:-1] if old.use_space else (*old.characters, " ")  # the added space comes last
    other = replace(old, characters=without, use_space=not old.use_space)
    for name, value in fit.values.items():
        found = _class_parameter(name) if name in state else None
        if found is not None and value.shape[found[1]] == len(_symbols(other, found[0])):
            return other
    return old


def carry_over(fit: Fit, state: Mapping[str, Any], old: Charset, new: Charset) -> Fit:
    """``fit`` with the class rows of the old dictionary brought into the new order.

    New characters keep the initial values of ``state``; all other entries are as they were.

    Raises:
        WeightsError: the file's class count is not that of the old dictionary.
    """
    old = _with_the_files_space(fit, state, old)
    matched, wrong = dict(fit.matched), dict(fit.wrong_shape)
    carried = 0
    for name, value in fit.values.items():
        if name not in state:
            continue
        found = _class_parameter(name)
        if found is None:
            continue
        kind, axis = found
        count = len(_symbols(old, kind))
        if value.shape[axis] != count:
            raise WeightsError(
                f"{fit.source}: {name} has {value.shape[axis]} classes, but the old dictionary {old.path} makes "
                f"{count}. Give the dictionary that these weights were trained with."
            )
        matched[name] = _carry(value, state[name].numpy(), axis, kind, old, new)
        wrong.pop(name, None)
        carried += 1
    if not carried:
        return fit
    kept = [c for c in new.characters if c in set(old.characters)]
    fresh = [c for c in new.characters if c not in set(old.characters)]
    note = f"{len(kept)} characters carried over from {old.path}, {len(fresh)} new"
    if fresh:
        note += f" ({' '.join(fresh[:20])}{' …' if len(fresh) > 20 else ''})"
    return replace(fit, matched=matched, wrong_shape=wrong, carried=note)
