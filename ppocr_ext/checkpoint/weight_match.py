"""Compare the entries of a file of weights with those of a model, and name the config keys that differ; no Paddle."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

from ppocr_ext.checkpoint.checkpoints import SHOWN, WRAPPERS
from ppocr_ext.checkpoint.class_rows import CarriedRows
from ppocr_ext.messages import shortened


@dataclass(frozen=True)
class WeightMatch:
    """How a file's entries match a model's.

    Attributes:
        source: the file.
        matched: entries with the model's name and shape.
        missing: names that the model has and the file lacks.
        unexpected: names that the file has and the model lacks.
        wrong_shape: name → (shape in the file, shape in the model).
        values: all entries of the file, by the model's names.
        renamed: change of the file's names (``"'Student.' removed"``), empty if there is none.
        carried: rows carried over from the file's dictionary, if it is another one.
        class_note: the remark that the file's dictionary is of another size, if it is.
        differences: config keys in which the model differs from the one of the file, with both values.
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
            f"config keys that differ: {'; '.join(self.differences)}" if self.differences else "",
            f"missing in the file: {shortened(self.missing, SHOWN)}" if self.missing else "",
            f"of another shape: {shortened(shapes, SHOWN, '; ')}" if shapes else "",
        ]
        return "\n  ".join(filter(None, lines))

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
    """Compare a file's entries with a model's shapes, after the change of names that matches most.

    Args:
        source: the file.
        entries: of the file.
        shapes: the model's shapes by name.
        first_prefix: prefix (``"Student."``) to remove that is tried before others that match as many.
        target_models: sub-models that a file of one model may be put into, the first choice first.
    """

    def renamed(change: tuple[str, str, str]) -> dict[str, np.ndarray]:
        old, new, _ = change
        return {new + name[len(old) :]: value for name, value in entries.items() if name.startswith(old)}

    ours = sorted({f"{name.split('.', 1)[0]}." for name in shapes if "." in name})
    theirs = sorted({f"{name.split('.', 1)[0]}." for name in entries if "." in name})
    removed = [first_prefix] if first_prefix else []
    added = [f"{name}." for name in target_models]
    changes = [("", "", "")]  # (prefix to remove, prefix to add, description); the first of equals wins
    changes += [(prefix, "", f"{prefix!r} removed") for prefix in removed]
    changes += [("", prefix, f"{prefix!r} added") for prefix in added]
    wrapped = [w + prefix for w in WRAPPERS for prefix in ("Student.", "Teacher.")]
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
_Read = Callable[[Shapes, str], Any]  # takes the entries of a part, by the rest of their names


def _size(axis: int) -> _Read:
    return lambda part, entry: next(iter(part.get(entry, ())[axis:]), None)


def _kernel(part: Shapes, entry: str) -> Any:
    return list(part[entry][2:]) if entry in part else None


def _ratio(part: Shapes, entry: str) -> Any:
    inputs, outputs = (*part.get(entry, ()), 0, 0)[:2]
    return outputs / inputs if inputs else None


def _is_there(part: Shapes, entry: str) -> bool:
    return any(name.startswith(entry) for name in part)


def _count(part: Shapes, entry: str) -> int:
    numbers = (re.match(rf"{re.escape(entry)}(\d+)\.", name) for name in part)
    return len({number.group(1) for number in numbers if number})


_MULTI = "Head.head_list."
_NECK = f"{_MULTI}CTCHead.Neck."
# names of a part begin with, the rest of the name, how the value is read, config key below the model
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
_PARTS = re.compile(r"(?<![^.])(backbone|neck|head)\.")  # behind the prefix of a sub-model
# what a neck has that the others lack
_NECKS = {"svtr": "head.ctc_encoder.encoder.conv1x1.", "lightsvtr": "head.ctc_encoder.encoder.conv_reduce."}


def config_differences(file: Shapes, model: Shapes) -> list[str]:
    """Return the config keys whose values differ, with both values, as far as the shapes show them.

    A key is told only where both have the part that it belongs to: a file without an NRTR branch has no ``nrtr_dim``.

    Args:
        file: shapes of the entries of the file, by the names of the model.
        model: shapes of the entries of the model.

    Returns:
        As ``Head.head_list.NRTRHead.nrtr_dim: 512 in the file, 384 in the model``; the keys of a sub-model begin with
        ``Models.NAME.``.
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
    if backbones[0] and any(backbones[0].get(name) != shape for name, shape in backbones[1].items()):
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
    """Return the name of the neck of a MultiHead; None without a CTC branch of one."""
    without = "reshape" if _below(shapes, "head.ctc_head.") else None
    return next((name for name, part in _NECKS.items() if _below(shapes, part)), without)


def _line(key: str, file: Any, model: nn.Layer) -> str:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (file, model)]
    return f"{key}: {texts[0]} in the file, {texts[1]} in the model"


def _below(shapes: Shapes, prefix: str) -> Shapes:
    """Return the entries under ``prefix``, by the rest of their names."""
    return {name[len(prefix) :]: shape for name, shape in shapes.items() if name.startswith(prefix)}
