"""Match the entries of a file of weights with those of a model; imports no Paddle.

If the file has another dictionary, classifier and embedding rows are carried over character by character. If the
networks differ, the config keys that differ are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import SHOWN, WRAPPERS
from ppocr_ext.errors import WeightsError
from ppocr_ext.messages import LOG, shortened

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
    """Parameters with a class axis, brought into the order of the model's dictionary.

    Attributes:
        values: the parameters by name; empty if the file has none.
        old: the dictionary of the weights.
        kept: number of characters that both dictionaries have.
        dropped: number of characters that only the old dictionary has.
        new: characters that only the new dictionary has; their rows keep the initial values of the model.
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
            f"{self.kept:,} characters carried over from {self.old.name}, {self.dropped:,} dropped, "
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

    New characters keep the initial values of the model. A parameter whose other axes differ is left out.

    Args:
        source: the file of weights, for messages.
        values: its entries, by the model's names.
        state: the model's parameters.
        old: dictionary of the file. The class count decides whether it has the space.
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
                f"{source}: {name} has {classes} CTC classes, but {old.path} gives {old.ctc_classes}{config}.\n"
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
    """Return, for each parameter with a class axis, the CTC classes of the dictionary that it was trained with.

    Args:
        values: the entries of a file, by the model's names.
        state: the model's parameters; a parameter whose other axes differ is left out.
        charset: any dictionary; it only tells how many marks each head adds.
    """
    return {
        name: value.shape[axis] - len(_symbols(charset, kind)) + charset.ctc_classes
        for name, value, kind, axis in _class_parameters(values, state)
    }


def _class_parameters(
    values: Mapping[str, np.ndarray], state: Mapping[str, Any]
) -> list[tuple[str, np.ndarray, str, int]]:
    """Return (name, value, kind of class index, class axis) of the entries that differ at most in their classes."""
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
    """Return the dictionary without its added space, or with it if it has none."""
    # the added space comes last
    characters = charset.characters[:-1] if charset.use_space else (*charset.characters, " ")
    return replace(charset, characters=characters, use_space=not charset.use_space)


def _without(shape: Sequence[int], axis: int) -> list[int]:
    return [size for index, size in enumerate(shape) if index != axis]


def _symbols(charset: Charset, kind: str) -> list[str]:
    if kind == "ctc":
        return list(charset.ctc_symbols)
    if kind == "nrtr":
        # PaddleOCR's NRTR tables have one row more than its vocabulary, which belongs to no character.
        return [*charset.nrtr_symbols, "<unused row>"]
    marks = ["<UKN>", "<BOS/EOS>", "<PAD>"]
    return [*charset.characters, *(marks if kind == "sar_input" else marks[:2])]


@dataclass(frozen=True)
class WeightMatch:
    """How a file's entries match a model's.

    Attributes:
        source: the file.
        matched: entries with the model's name and shape.
        missing: names that only the model has.
        unexpected: names that only the file has.
        wrong_shape: name → (shape in the file, shape in the model).
        values: all entries of the file, by the model's names.
        renamed: how the file's names were changed (``"'Student.' removed"``); empty if they were not.
        carried: rows carried over from another dictionary, if the file has one.
        class_note: a remark if the file's dictionary has another size.
        differences: config keys that differ from those of the file's model, with both values.
    """

    source: Path
    matched: dict[str, np.ndarray]
    missing: list[str]
    unexpected: list[str]
    wrong_shape: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    values: dict[str, np.ndarray]
    renamed: str = ""
    carried: CarriedRows | None = None
    class_note: str = ""
    differences: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return one line for the log."""
        parts = [f"{len(self.matched)} {'entry' if len(self.matched) == 1 else 'entries'} matched"]
        counts = {
            "missing": self.missing,
            "of another shape": self.wrong_shape,
            "unexpected": self.unexpected,
        }
        parts += [f"{len(names)} {word}" for word, names in counts.items() if names]
        parts += [f"names: {self.renamed}"] if self.renamed else []
        parts += [self.carried.summary()] if self.carried else []
        return f"{self.source}: " + ", ".join(parts)

    def mismatches(self) -> str:
        """Return the missing and wrong-shape entries, one line each kind; empty if everything matches."""
        shapes = [
            f"{name} {list(theirs)} in the file, {list(ours)} in the model"
            for name, (theirs, ours) in self.wrong_shape.items()
        ]
        lines = [
            self.class_note,
            f"keys of Architecture that differ: {'; '.join(self.differences)}" if self.differences else "",
            f"missing in the file: {shortened(self.missing, SHOWN)}" if self.missing else "",
            f"of another shape: {shortened(shapes, SHOWN, '; ')}" if shapes else "",
        ]
        return "\n  ".join(filter(None, lines))

    def log(self) -> None:
        """Log what was loaded."""
        LOG.info("weights %s", self.summary())
        if self.mismatches():
            LOG.warning("weights loaded in part (Global.pretrained_partial):\n  %s", self.mismatches())
        if self.unexpected:
            LOG.info("not used from the file: %s", shortened(self.unexpected, SHOWN))

    def carrying(self, rows: CarriedRows, charset: Charset) -> WeightMatch:
        """Return the match with ``rows`` carried over to ``charset``, unless all characters stay where they are."""
        if not rows.values or rows.old.characters == charset.characters:
            return self
        wrong = {name: each for name, each in self.wrong_shape.items() if name not in rows.values}
        return replace(self, matched={**self.matched, **rows.values}, wrong_shape=wrong, carried=rows)

    def restricted(self, prefixes: tuple[str, ...]) -> WeightMatch:
        """Return the match of only the entries under ``prefixes``."""
        carried = self.carried and self.carried.restricted(prefixes)
        return replace(
            self,
            matched={n: v for n, v in self.matched.items() if n.startswith(prefixes)},
            missing=[n for n in self.missing if n.startswith(prefixes)],
            wrong_shape={n: shapes for n, shapes in self.wrong_shape.items() if n.startswith(prefixes)},
            carried=carried if carried and carried.values else None,
        )


def match_weights(
    source: Path,
    entries: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    first_prefix: str = "",
    target_models: Sequence[str] = (),
) -> WeightMatch:
    """Match a file's entries with a model, after the change of names that matches most entries.

    Args:
        source: the file.
        entries: the entries of the file.
        shapes: the model's shapes by name.
        first_prefix: prefix (``"Student."``) to remove; preferred to other changes that match as many entries.
        target_models: sub-models that may get the weights of a single model, the preferred one first.
    """

    def renamed(change: tuple[str, str, str]) -> dict[str, np.ndarray]:
        old, new, _ = change
        return {new + name[len(old) :]: value for name, value in entries.items() if name.startswith(old)}

    ours = sorted({f"{name.split('.', 1)[0]}." for name in shapes if "." in name})
    theirs = sorted({f"{name.split('.', 1)[0]}." for name in entries if "." in name})
    wrapped = [w + prefix for w in WRAPPERS for prefix in ("Student.", "Teacher.")]
    # (prefix to remove, prefix to add, description); `max` takes the first of equals
    changes = [("", "", "")]
    changes += [(first_prefix, "", f"{first_prefix!r} removed")] if first_prefix else []
    changes += [("", f"{name}.", f"'{name}.' added") for name in target_models]
    changes += [(prefix, "", f"{prefix!r} removed") for prefix in (*WRAPPERS, *theirs, *wrapped)]
    changes += [("", prefix, f"{prefix!r} added") for prefix in ours]
    best = max(changes, key=lambda change: sum(name in shapes for name in renamed(change)))
    by_name = renamed(best)
    matched = {n: v for n, v in by_name.items() if n in shapes and tuple(v.shape) == tuple(shapes[n])}
    return WeightMatch(
        source=source,
        matched=matched,
        missing=[n for n in shapes if n not in by_name],
        unexpected=[n for n in by_name if n not in shapes],
        wrong_shape={
            n: (tuple(v.shape), tuple(shapes[n]))
            for n, v in by_name.items()
            if n in shapes and n not in matched
        },
        values=by_name,
        renamed=best[2],
    )


Shapes = Mapping[str, tuple[int, ...]]
# Takes the shapes of a part's entries, by the rest of their names, and one of these names.
_Read = Callable[[Shapes, str], Any]


def _size(axis: int) -> _Read:
    return lambda part, entry: next(iter(part.get(entry, ())[axis:]), None)


def _kernel(part: Shapes, entry: str) -> Any:
    return list(part[entry][2:]) if entry in part else None


def _ratio(part: Shapes, entry: str) -> Any:
    inputs, outputs = (*part.get(entry, ()), 0, 0)[:2]  # a file may have any shape
    return outputs / inputs if inputs else None


def _is_there(part: Shapes, entry: str) -> bool:
    return any(name.startswith(entry) for name in part)


def _count(part: Shapes, entry: str) -> int:
    numbers = (re.match(rf"{re.escape(entry)}(\d+)\.", name) for name in part)
    return len({number.group(1) for number in numbers if number})


_MULTI = "Head.head_list."
_NECK = f"{_MULTI}CTCHead.Neck."
# (first part of an entry's name, rest of the name, function that reads the value, config key below the model)
_KEYS: tuple[tuple[str, str, _Read, str], ...] = (
    ("head.ctc_head.", "fc1.weight", _size(1), f"{_MULTI}CTCHead.Head.mid_channels"),
    ("head.ctc_head.", "guide_layer.", _is_there, f"{_MULTI}CTCHead.Head.use_guide"),
    ("head.before_gtc.", "1.fc.weight", _size(1), f"{_MULTI}NRTRHead.nrtr_dim"),
    ("head.before_gtc.", "2.dec_pos_embed", _is_there, "Head.use_pos"),
    ("head.gtc_head.", "decoder.", _count, f"{_MULTI}NRTRHead.num_decoder_layers"),
    ("head.sar_head.", "encoder.rnn_encoder.weight_hh_l0", _size(1), f"{_MULTI}SARHead.enc_dim"),
    ("head.ctc_encoder.encoder.", "svtr_block.", _count, f"{_NECK}depth"),
    ("head.ctc_encoder.encoder.svtr_block.", "0.mlp.fc1.weight", _ratio, f"{_NECK}mlp_ratio"),
    ("head.ctc_encoder.encoder.conv1x1.", "conv.weight", _size(0), f"{_NECK}dims"),  # svtr
    ("head.ctc_encoder.encoder.conv1.", "conv.weight", _kernel, f"{_NECK}kernel_size"),
    ("head.ctc_encoder.encoder.conv2.", "conv.weight", _size(0), f"{_NECK}hidden_dims"),
    ("head.ctc_encoder.encoder.conv_reduce.", "conv.weight", _size(0), f"{_NECK}dims"),  # lightsvtr
    ("head.ctc_encoder.encoder.local_conv.", "0.weight", _size(3), f"{_NECK}local_kernel"),
    ("head.fc", "1.weight", _size(1), "Head.mid_channels"),  # a CTCHead alone
    ("neck.encoder.", "lstm.weight_hh_l0", _size(1), "Neck.hidden_size"),
)
_PARTS = re.compile(r"(?<![^.])(backbone|neck|head)\.")  # these names may follow the prefix of a sub-model
# entries that only this neck has
_NECKS = {"svtr": "head.ctc_encoder.encoder.conv1x1.", "lightsvtr": "head.ctc_encoder.encoder.conv_reduce."}


def config_differences(file: Shapes, model: Shapes) -> list[str]:
    """Return the config keys whose values differ, with both values, as far as the shapes show them.

    Only parts that both have are compared: a file without an NRTR branch has no ``nrtr_dim``.

    Args:
        file: shapes of the entries of the file, by the names of the model.
        model: shapes of the entries of the model.

    Returns:
        Lines like ``Head.head_list.NRTRHead.nrtr_dim: 512 in the file, 384 in the model``; the keys of a sub-model
        begin with ``Models.NAME.``.
    """
    prefixes = sorted({name[: part.start()] for name in model if (part := _PARTS.search(name))})
    return [
        f"{f'Models.{prefix}' if prefix else ''}{line}"
        for prefix in prefixes
        for line in _differences(_below(file, prefix), _below(model, prefix))
    ]


def _differences(file: Shapes, model: Shapes) -> list[str]:
    lines = []
    backbones = [_below(shapes, "backbone.") for shapes in (file, model)]
    fused = [not any(name.endswith("._mean") for name in shapes) for shapes in backbones]
    if backbones[0].keys() & backbones[1].keys() and fused[0] != fused[1]:
        lines.append(_line("fused", *fused))
    elif backbones[0] and any(backbones[0].get(name) != shape for name, shape in backbones[1].items()):
        lines.append("Backbone: another network, or another size of it, in the file")
    necks = [_neck(shapes) for shapes in (file, model)]
    if None not in necks and necks[0] != necks[1]:
        lines.append(_line(f"{_NECK}name", *necks))
    for part, entry, read, key in _KEYS:
        parts = [_below(shapes, part) for shapes in (file, model)]
        values = [read(each, entry) for each in parts]
        of_one_neck = key.startswith(_NECK) and necks[0] != necks[1]
        if all(parts) and values[0] != values[1] and not of_one_neck:
            lines.append(_line(key, *values))
    return lines


def _neck(shapes: Shapes) -> str | None:
    """Return the name of the neck of a MultiHead; None if there is no CTC branch of a MultiHead."""
    without = "reshape" if _below(shapes, "head.ctc_head.") else None
    return next((name for name, part in _NECKS.items() if _below(shapes, part)), without)


def _line(key: str, file: Any, model: Any) -> str:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (file, model)]
    return f"{key}: {texts[0]} in the file, {texts[1]} in the model"


def _below(shapes: Shapes, prefix: str) -> Shapes:
    """Return the entries whose names begin with ``prefix``, by the rest of their names."""
    return {name[len(prefix) :]: shape for name, shape in shapes.items() if name.startswith(prefix)}
