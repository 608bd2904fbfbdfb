"""Load weights into a model by name, and report exactly which entries match.

PaddleOCR skips an entry with a wrong shape, warns, and then reports success. Here every missing or wrong-shape entry is
an error, unless the user asks for a partial load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import SHOWN, Checkpoint
from ppocr_ext.checkpoint.contents import from_bfloat16, require_usable_values
from ppocr_ext.checkpoint.files import read_journal
from ppocr_ext.checkpoint.official_weights import table
from ppocr_ext.checkpoint.optimizer_state import HALF
from ppocr_ext.checkpoint.weight_match import (
    Shapes,
    WeightMatch,
    carried_rows,
    config_differences,
    ctc_classes_of,
    match_weights,
    with_other_space,
)
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.errors import WeightsError
from ppocr_ext.messages import LOG, shortened

if TYPE_CHECKING:
    from paddle.nn import Layer

STATISTICS = ("._mean", "._variance")  # BatchNorm's running statistics; Paddle counts them as parameters


def trained_state(model: Layer, frozen: Iterable[str] = ()) -> dict[str, Any]:
    """Return the state that a checkpoint stores: that of ``model`` without the sub-models ``frozen``."""
    prefixes = tuple(f"{name}." for name in frozen)
    return {name: value for name, value in model.state_dict().items() if not name.startswith(prefixes)}


@paddle.no_grad()
def full_precision(
    state: Mapping[str, Any], optimizer: Any = None, copies: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return ``state`` in float32. What is stored of a network passes through here.

    PaddleOCR saves level O2 in 16 bits, and bfloat16 is then read back as integers.

    Args:
        state: tensors of a network by name. Other values stay as they are.
        optimizer: its master weights are exact; Paddle makes them at the first step.
        copies: the values before they were cast, by name, for those without master weights.
    """
    masters = getattr(optimizer, "_master_weights", None) or {}
    full = dict(state)
    for name, value in state.items():
        if isinstance(value, paddle.Tensor) and value.dtype in HALF:
            full[name] = masters.get(value.name, value).astype("float32")
            if value.name not in masters and name in copies:
                copy = paddle.to_tensor(copies[name], place=value.place)
                # an optimizer without master weights trains the 16 bits, which then differ
                if value.stop_gradient or paddle.equal_all(
                    copy.astype(value.dtype).astype("float32"), full[name]
                ):
                    full[name] = copy
    return full


def parameter_names(model: Layer) -> dict[str, str]:
    """Return Paddle's generated name of each trained parameter, by its name in the model."""
    return {name: p.name for name, p in model.named_parameters() if not p.stop_gradient}


def count_parameters(layer: Layer, trained_only: bool = False) -> int:
    """Return the number of weights in ``layer``, without BatchNorm's running statistics."""
    return sum(
        int(np.prod(p.shape))
        for name, p in layer.named_parameters()
        if not name.endswith(STATISTICS) and not (trained_only and p.stop_gradient)
    )


def load_weights(
    model: paddle.nn.Layer,
    path: str | Path,
    *,
    partial: bool = False,
    first_prefix: str = "",
    charset: Charset | None = None,
    old_charset: Charset | None = None,
    old_is_assumed: bool = False,
    only: tuple[str, ...] = ("",),
    target_models: Sequence[str] = (),
    assign: bool = True,
) -> WeightMatch:
    """Load ``path`` into ``model`` and report which entries match.

    Args:
        model: a network, or a sub-model of a distillation.
        path: a ``.pdparams`` file, with or without its ending.
        partial: accept missing and wrong-shape entries; they keep their initial values.
        first_prefix: preferred prefix of the names (``"Student."``).
        charset: the model's dictionary, to explain different class counts.
        old_charset: the file's dictionary; classifier and embedding rows are carried over character by character.
        old_is_assumed: True if ``old_charset`` is a guess. Then the class counts of the file decide.
        only: prefixes of the entries to load (``"Teacher."``); others stay as they are.
        target_models: sub-models that may get the weights of a single model, the preferred one first.
        assign: False compares only; ``model`` does not change.

    Raises:
        WeightsError: the file cannot be read, nothing in it matches, its numbers are not usable, or (unless
            ``partial``) an entry is missing or has another shape.
    """
    checkpoint = Checkpoint(path)
    file = checkpoint.weights_file()
    try:
        read_journal(checkpoint.prefix)
    except WeightsError as error:  # `Checkpoint` ignores a journal that is not valid
        LOG.warning("%s It is ignored.", error)
    state = model.state_dict()
    shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    entries = {name: from_bfloat16(value) for name, value in checkpoint.weights().items()}
    match = match_weights(file, entries, shapes, first_prefix, target_models)
    old = None if charset is None else _old_charset(match, checkpoint, charset, old_charset)
    if charset is not None and old is not None:
        counts = ctc_classes_of(match.values, state, old)
        if _is_of(old, match.restricted(only), counts, charset, old_is_assumed, partial):
            match = match.carrying(carried_rows(file, match.values, state, old, charset), charset)
    match = match.restricted(only)
    shapes = {name: shape for name, shape in shapes.items() if name.startswith(only)}
    if match.missing or match.wrong_shape:
        theirs = {name: tuple(value.shape) for name, value in match.values.items()}
        differences = tuple(config_differences(theirs, shapes))
        match = replace(match, class_note=_class_note(match, shapes, charset), differences=differences)
    source = find_source(str(checkpoint.prefix))
    _require_match(match, shapes, "" if source is None else f"\n  {source.about}", partial)
    require_usable_values(file, match.matched)
    if assign:
        put_back(match.matched, state)
    match.log()
    return match


def _require_match(match: WeightMatch, shapes: Shapes, origin: str, partial: bool) -> None:
    """Check that the weights match the model; ``origin`` is added to the message.

    Raises:
        WeightsError: nothing matches, or (unless ``partial``) an entry is missing or has another shape.
    """
    if not match.matched:
        theirs = shortened(list(match.unexpected or match.wrong_shape), SHOWN)
        raise WeightsError(
            f"{match.source}: none of its {len(match.values)} entries is of this architecture "
            f"(file: {theirs}; model: {shortened(list(shapes), SHOWN)}). Fix: give weights "
            f"of the model that the configuration describes, or the configuration that they were trained with."
            f"{origin}",
            code="architecture_mismatch",
        )
    if match.mismatches() and not partial:
        fix = "to load what matches and train the rest from its initial values, set Global.pretrained_partial: true."
        if 2 * len(match.matched) < len(shapes):
            fix = (
                "give weights of this network, or the config of theirs. With Global.pretrained_partial: true, the "
                "matching entries alone are loaded."
            )
        raise WeightsError(
            f"{match.summary()}.\n  {match.mismatches()}{origin}\nFix: {fix}",
            code="weights_mismatch",
        )


def _old_charset(
    match: WeightMatch, checkpoint: Checkpoint, charset: Charset, old: Charset | None
) -> Charset | None:
    """Return the dictionary to carry rows over from; None if the file has the model's, or its dictionary is unknown.

    Args:
        match: the weights.
        checkpoint: its training state may have the digest of the dictionary.
        charset: the model's dictionary.
        old: the given dictionary of the file, if any.

    Raises:
        WeightsError: the file was trained with another dictionary of the same size and none was given, or the given one
            is not that of the file.
    """
    try:
        trained_with = checkpoint.train_state().charset_digest
    except WeightsError as error:  # only the weights are needed
        LOG.warning("%s", error)
        trained_with = None
    if trained_with == charset.digest:
        return None
    if old is None:
        if trained_with is not None and not match.wrong_shape:
            raise WeightsError(
                f"{match.source} was trained with a dictionary of the same size that is not {charset.name}. Fix: give "
                f"it with --old-dict, and the characters are carried over.",
                code="charset_mismatch",
            )
        return None
    if trained_with not in (None, old.digest, with_other_space(old).digest):
        raise WeightsError(
            f"{match.source} was trained with another dictionary than {charset.name} and {old.path} (given as that of "
            f"the weights). Fix: give the dictionary of their training.",
            code="charset_mismatch",
        )
    return old


def _is_of(
    old: Charset,
    match: WeightMatch,
    counts: Mapping[str, int],
    charset: Charset,
    assumed: bool,
    partial: bool,
) -> bool:
    """Return True if rows are to be carried over from the dictionary ``old``.

    If the class counts of the file are not those of ``old``, there are three cases:

    1. The weights belong to another network: False, since an error about the network helps more than one about the
       dictionary.
    2. ``old`` is a guess, and the counts are those of the model: False, since the file has the model's dictionary.
    3. All other cases: True, so that carrying over raises an error about ``old``.

    Args:
        old: the given or assumed dictionary of the file.
        match: the match of the entries to load.
        counts: CTC classes by parameter.
        charset: the model's dictionary.
        assumed: whether ``old`` is a guess.
        partial: accept entries that do not fit.
    """
    known = {old.ctc_classes, with_other_space(old).ctc_classes}
    if known & set(counts.values()):
        return True
    if (match.missing or match.wrong_shape.keys() - counts) and (assumed or not partial):
        return False
    if assumed and set(counts.values()) == {charset.ctc_classes}:
        LOG.info(
            "%s: its %d CTC classes are those of %s, so it is loaded with this dictionary (not with that of the "
            "official config, %s: %d classes)",
            match.source,
            charset.ctc_classes,
            charset.name,
            old.path,
            old.ctc_classes,
        )
        return False
    return True


def _class_note(match: WeightMatch, shapes: Shapes, charset: Charset | None) -> str:
    """Return a remark if the file's dictionary has another size, the usual reason for wrong shapes; may be empty."""
    if charset is None:
        return ""
    kinds = {charset.ctc_classes: "CTC", charset.nrtr_rows: "NRTR"}
    counts = []  # (in the file, in the model)
    for theirs, ours in match.wrong_shape.values():
        differing = [(a, b) for a, b in zip(theirs, ours, strict=False) if a != b]
        if len(theirs) == len(ours) and len(differing) == 1 and differing[0][1] in kinds:
            counts += differing
    if not counts or 2 * (len(match.matched) + len(counts)) < len(shapes):
        return ""
    count, expected = counts[0]
    classes = count - expected + charset.ctc_classes
    known = sorted({e.dictionary for e in table().values() if e.classes == classes and e.dictionary})
    return (
        f"the weights have another dictionary: {count} {kinds[expected]} classes"
        f"{f' (as {shortened(known, 1)} gives)' if known else ''} against {expected} of "
        f"{charset.path or 'the default dictionary'}. To carry the common characters over, give their dictionary as "
        f"`pretrained_dict` of the model or with --old-dict FILE"
    )


@paddle.no_grad()
def put_back(values: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Assign ``values`` (tensors or arrays) to the ``tensors`` of the same names, cast to their types.

    Raises:
        KeyError: a name has no tensor.
    """
    for name, value in values.items():
        tensor = value if isinstance(value, paddle.Tensor) else paddle.to_tensor(value)
        paddle.assign(tensor.astype(tensors[name].dtype), tensors[name])
