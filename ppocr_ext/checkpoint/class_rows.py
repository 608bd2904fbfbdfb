"""Carry classifier and embedding rows from one dictionary to another, character by character."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    (re.compile(r"(^|\.)(sar_head|head)\.decoder\.embedding\.weight$"), "sar_input", 0),
    (re.compile(r"(^|\.)(sar_head|head)\.decoder\.prediction\.weight$"), "sar", 1),
    (re.compile(r"(^|\.)(sar_head|head)\.decoder\.prediction\.bias$"), "sar", 0),
)
_SHOWN = 20  # new characters in a message


@dataclass(frozen=True)
class CarriedRows:
    """Parameters with a class axis, in the order of another dictionary.

    Attributes:
        values: them by name; empty if the file has none.
        old: the dictionary of the weights.
        kept: how many classes of the new dictionary the old one has.
        dropped: how many classes of the old dictionary the new one lacks.
        new: characters that the old dictionary lacks; their rows keep the initial values of the model.
    """

    values: dict[str, np.ndarray]
    old: Charset
    kept: int
    dropped: int
    new: tuple[str, ...]

    def summary(self) -> str:
        """Return the counts and the new characters, for the log."""
        listed = f" ({self.new_characters()})" if self.new else ""
        return (
            f"{self.kept:,} characters carried over from {self.old.path}, {self.dropped:,} dropped, "
            f"{len(self.new):,} new{listed}"
        )

    def restricted(self, prefixes: tuple[str, ...]) -> CarriedRows:
        """Return only the parameters under ``prefixes``."""
        return replace(self, values={n: v for n, v in self.values.items() if n.startswith(prefixes)})

    def new_characters(self) -> str:
        """Return the first new characters, and how many more there are."""
        return shortened(self.new, _SHOWN, " ")


def carried_rows(
    source: Path, values: Mapping[str, np.ndarray], state: Mapping[str, Any], old: Charset, new: Charset
) -> CarriedRows:
    """Return the parameters with a class axis, with the rows of the old dictionary in the new order.

    New characters keep the initial values of the model. A parameter of another width is left out.

    Args:
        source: the file of weights, for messages.
        values: its entries, by the model's names.
        state: the model's parameters.
        old: dictionary of the file; whether it has the space is found out from the class count.
        new: dictionary of the model.

    Raises:
        WeightsError: the file's class count is not that of the old dictionary.
    """
    parameters = _class_parameters(values, state)
    other = with_other_space(old)
    if any(value.shape[axis] == len(_symbols(other, kind)) for _, value, kind, axis in parameters):
        old = other
    rows_by_name = {}
    for name, value, kind, axis in parameters:
        before = _symbols(old, kind)
        now = _symbols(new, kind)
        if value.shape[axis] != len(before):
            classes = value.shape[axis] - len(before) + old.ctc_classes
            same = new.path is not None and new.path == old.path
            config = "" if same else f", and that of the config, {new.name}, gives {new.ctc_classes}"
            raise WeightsError(
                f"{source}: {name} is of {classes} CTC classes, but {old.path} gives {old.ctc_classes}{config}.\n"
                f"Fix: give the dictionary that these weights were trained with as `pretrained_dict` of the model or "
                f"with --old-dict; to read all of its characters, also as Global.character_dict_path.\n"
                f"  For official weights, this is the list `PostProcess.character_dict` in the inference.yml of the "
                f"model.",
                code="charset_mismatch",
            )
        row_of = {symbol: index for index, symbol in enumerate(before)}
        chosen = np.array([row_of.get(symbol, -1) for symbol in now])
        rows = np.moveaxis(state[name].numpy().copy(), axis, 0)
        rows[chosen >= 0] = np.moveaxis(value, axis, 0)[chosen[chosen >= 0]]
        rows_by_name[name] = np.ascontiguousarray(np.moveaxis(rows, 0, axis))
    old_characters = set(old.characters)
    new_characters = set(new.characters)
    fresh = tuple(c for c in new.characters if c not in old_characters)
    dropped = sum(c not in new_characters for c in old.characters)
    return CarriedRows(rows_by_name, old, len(new.characters) - len(fresh), dropped, fresh)


def ctc_classes_of(
    values: Mapping[str, np.ndarray], state: Mapping[str, Any], charset: Charset
) -> dict[str, int]:
    """Return the CTC classes of the dictionary that each parameter with a class axis is of, by name.

    Args:
        values: the entries of a file, by the model's names.
        state: the model's parameters; one that has another width than the file's is left out.
        charset: any dictionary: the marks that each head adds are counted with it.
    """
    return {
        name: value.shape[axis] - len(_symbols(charset, kind)) + charset.ctc_classes
        for name, value, kind, axis in _class_parameters(values, state)
    }


def _class_parameters(
    values: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> list[tuple[str, np.ndarray, str, int]]:
    """Return (name, value, kind of class index, class axis) of the entries that differ only in classes."""
    return [
        (name, values[name], kind, axis)
        for name in values
        if name in state
        for kind, axis in filter(None, [class_axis(name)])
        if _without(values[name].shape, axis) == _without(state[name].shape, axis)
    ]


def class_axis(name: str) -> tuple[str, int] | None:
    """Return the kind of class index of a parameter and the axis that runs over the classes; None if it has none."""
    return next(((kind, axis) for pattern, kind, axis in _CLASS_PARAMETERS if pattern.search(name)), None)


def with_other_space(charset: Charset) -> Charset:
    """Return the same dictionary with the space if it was read without, and without it otherwise."""
    # the added space comes last
    characters = charset.characters[:-1] if charset.use_space else (*charset.characters, " ")
    return replace(charset, characters=characters, use_space=not charset.use_space)


def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [size for index, size in enumerate(shape) if index != axis]


def _symbols(charset: Charset, kind: str) -> list[str]:
    if kind == "ctc":
        return list(charset.ctc_symbols)
    if kind == "nrtr":
        # PaddleOCR's NRTR tables have one row more than its vocabulary; it belongs to no character
        return [*charset.nrtr_symbols, "<unused row>"]
    marks = ["<UKN>", "<BOS/EOS>", "<PAD>"]
    return [*charset.characters, *(marks if kind == "sar_input" else marks[:2])]
