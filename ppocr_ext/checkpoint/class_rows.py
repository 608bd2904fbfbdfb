"""Carry classifier and embedding rows from one dictionary to another, character by character."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import WeightsError
from ppocr_ext.messages import shortened

# (pattern of the parameter name, kind of class index, axis that runs over the classes)
_CLASS_PARAMETERS = (
    (re.compile(r"(^|\.)(ctc_head|head)\.(fc|fc2)\.weight$"), "ctc", 1),
    (re.compile(r"(^|\.)(ctc_head|head)\.(fc|fc2)\.bias$"), "ctc", 0),
    (re.compile(r"(^|\.)tgt_word_prj\.weight$"), "nrtr", 1),
    (re.compile(r"(^|\.)embedding\.embedding\.weight$"), "nrtr", 0),
)
_SHOWN = 20  # new characters in a message


def carried_rows(
    source: Path, values: Mapping[str, np.ndarray], state: Mapping[str, Any], old: Charset, new: Charset
) -> dict[str, np.ndarray]:
    """Return the parameters with a class axis, with the rows of the old dictionary in the new order.

    New characters keep the initial values of the model.

    Args:
        source: the file of weights, for messages.
        values: its entries, by the model's names.
        state: the model's parameters.
        old: dictionary of the file; whether it has the space is found out from the class count.
        new: dictionary of the model.

    Raises:
        WeightsError: the file's class count is not that of the old dictionary.
    """
    parameters = [
        (name, values[name], kind, axis)
        for name in values
        if name in state
        for pattern, kind, axis in _CLASS_PARAMETERS
        if pattern.search(name)
    ]
    without = old.characters[:-1] if old.use_space else (*old.characters, " ")  # the added space comes last
    other = replace(old, characters=without, use_space=not old.use_space)
    if any(value.shape[axis] == len(_symbols(other, kind)) for _, value, kind, axis in parameters):
        old = other
    carried = {}
    for name, value, kind, axis in parameters:
        before, now = _symbols(old, kind), _symbols(new, kind)
        if value.shape[axis] != len(before):
            raise WeightsError(
                f"{source}: {name} has {value.shape[axis]} classes, but the old dictionary {old.path} gives "
                f"{len(before)}. Fix: give the dictionary that these weights were trained with.",
                code="charset_mismatch",
            )
        row_of = {symbol: index for index, symbol in enumerate(before)}
        rows = np.moveaxis(state[name].numpy().copy(), axis, 0)
        old_rows = np.moveaxis(value, axis, 0)
        for index, symbol in enumerate(now):
            if symbol in row_of:
                rows[index] = old_rows[row_of[symbol]]
        carried[name] = np.ascontiguousarray(np.moveaxis(rows, 0, axis))
    return carried


def carried_characters(old: Charset, new: Charset) -> str:
    """Return how many characters both dictionaries have, and which are new, for the log."""
    known = set(old.characters)
    fresh = [c for c in new.characters if c not in known]
    note = f"{len(new.characters) - len(fresh)} characters carried over from {old.path}, {len(fresh)} new"
    return f"{note} ({shortened(fresh, _SHOWN, ' ')})" if fresh else note


def _symbols(charset: Charset, kind: str) -> list[str]:
    if kind == "ctc":
        return list(charset.ctc_symbols)
    # PaddleOCR's NRTR tables have one row more than its vocabulary; it belongs to no character
    return [*charset.nrtr_symbols, "<unused row>"]
