"""Find the config keys in which a model differs from the one that a file of weights was trained with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

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


def _line(key: str, file: Any, model: Any) -> str:
    shown = [value if isinstance(value, str) else json.dumps(value) for value in (file, model)]
    return f"{key}: {shown[0]} in the file, {shown[1]} in the model"


def _below(shapes: Shapes, prefix: str) -> Shapes:
    """Return the entries under ``prefix``, by the rest of their names."""
    return {name[len(prefix) :]: shape for name, shape in shapes.items() if name.startswith(prefix)}
