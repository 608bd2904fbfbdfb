"""Where among a model's outputs a distillation loss finds its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import HEADS, OUTPUTS, Read

# What a key of BaseModel's output holds; the head's own entries are in HEADS.
_READ_BY_KEY = {"backbone_out": "backbone", "neck_out": "neck", "ctc_neck": "neck"}


@dataclass(frozen=True)
class OutputPath:
    """The way from a DistillationModel's output to a tensor: sub-model, then ``key``, then ``head``.

    Args:
        owner: the loss, as messages call it.
        key: ``head_out``, ``neck_out`` or ``backbone_out``; None where a sub-model gives its head's output
            alone.
        head: entry of a MultiHead's output; None where there is one output only.
        kinds: what that one output may be, so that nothing is left out that the loss needs.
    """

    owner: str
    key: str | None
    head: str | None
    kinds: Sequence[str] = HEADS

    def find(self, predicts: Any, model: str) -> Any:
        """The output of the sub-model ``model``.

        Raises:
            ConfigError: there is none; the message names the loss, what it looked for, and what there is.
        """
        output = self._entry(predicts, model, "sub-model", "the model's output")
        where = f"the output of {model!r}"
        if self.key is not None:
            output = self._entry(output, self.key, "key", where)
            where += f" under {self.key!r}"
        if self.head is not None:
            output = self._entry(output, self.head, "head", where)
        return output

    def _entry(self, outputs: Any, name: str, kind: str, where: str) -> Any:
        if not isinstance(outputs, Mapping):
            raise ConfigError(
                f"{self.owner} looks for the {kind} {name!r}, but {where} is no mapping "
                f"({type(outputs).__name__}). {_REMEDY[kind]}"
            )
        if name not in outputs:
            there = ", ".join(map(str, outputs)) or "nothing"
            raise ConfigError(
                f"{self.owner} looks for the {kind} {name!r}, but {where} has {there}. {_REMEDY[kind]}"
            )
        return outputs[name]

    def describe(self, model: str) -> str:
        """What :meth:`find` finds, for messages: ``DistillationDKDLoss: Student.head_out.gtc``."""
        return f"{self.owner}: {'.'.join(part for part in (model, self.key, self.head) if part)}"

    def reads(self, model: str) -> set[Read]:
        """What :meth:`find` needs the sub-model to compute."""
        if self.head is not None:
            return {(model, _READ_BY_KEY.get(self.head, self.head))}
        if self.key in (None, "head_out"):
            return {(model, kind) for kind in self.kinds}
        if self.key in _READ_BY_KEY:
            return {(model, _READ_BY_KEY[self.key])}
        return {(model, kind) for kind in OUTPUTS}


_REMEDY = {
    "sub-model": "Name a model of Architecture.Models in the loss, and use a DistillationModel.",
    "key": "Set the loss's `key` to one of these, or the sub-model's `return_all_feats: true`.",
    "head": "Set `multi_head: false` if the model has one head, or name a head that it has.",
}


def model_names(names: Any, owner: str) -> tuple[str, ...]:
    """``model_name_list`` of a config: at least one name of a sub-model.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or not names or not _all_names(names):
        raise ConfigError(
            f"{owner}: model_name_list must be a list of sub-models, such as [Student], but is {names!r}."
        )
    return tuple(names)


def model_pairs(pairs: Any, owner: str) -> tuple[tuple[str, str], ...]:
    """``model_name_pairs`` of a config: ``[[Student, Teacher], …]``, or one pair alone.

    Raises:
        ConfigError: it is something else, or a pair names one model twice.
    """
    listed = pairs if isinstance(pairs, Sequence) and not isinstance(pairs, str) else ()
    if listed and _all_names(listed):
        listed = (listed,)
    good = [pair for pair in listed if _is_pair(pair)]
    if not good or len(good) < len(listed):
        raise ConfigError(
            f"{owner}: model_name_pairs must be a list of two different sub-models each, "
            f"such as [[Student, Teacher]], but is {pairs!r}."
        )
    return tuple((student, teacher) for student, teacher in good)


def _all_names(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_pair(pair: Any) -> bool:
    is_list = isinstance(pair, Sequence) and not isinstance(pair, str)
    return is_list and len(pair) == 2 and _all_names(pair) and pair[0] != pair[1]
