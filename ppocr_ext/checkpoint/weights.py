"""Load weights into a model by name, and report exactly which entries match.

PaddleOCR skips an entry of another shape with a warning and then reports success. Here every
missing or wrong-shape entry is an error, unless the user asks for a partial load.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import SHOWN, Checkpoint
from ppocr_ext.checkpoint.class_rows import carried_rows, ctc_classes_of, with_other_space
from ppocr_ext.checkpoint.contents import require_usable_values
from ppocr_ext.checkpoint.files import read_journal
from ppocr_ext.checkpoint.official_weights import about, table
from ppocr_ext.checkpoint.weight_match import WeightMatch, config_differences, match_weights
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.resources import file_digest
from ppocr_ext.messages import LOG, shortened

if TYPE_CHECKING:
    from paddle.nn import Layer

STATISTICS = ("._mean", "._variance")  # of BatchNorm, which Paddle counts as parameters


def trained_state(model: Layer, frozen: Iterable[str] = ()) -> dict[str, Any]:
    """Return the state that a checkpoint stores: that of ``model`` without the sub-models named in ``frozen``."""
    prefixes = tuple(f"{name}." for name in frozen)
    return {name: value for name, value in model.state_dict().items() if not name.startswith(prefixes)}


def parameter_names(model: Layer) -> dict[str, str]:
    """Return the name that Paddle generated, by the name in the model, for each trained parameter."""
    return {name: p.name for name, p in model.named_parameters() if not p.stop_gradient}


def count_parameters(layer: Layer, trained_only: bool = False) -> int:
    """Return how many numbers ``layer`` learns, without BatchNorm's running statistics, which Paddle counts too."""
    return sum(
        int(np.prod(p.shape))
        for name, p in layer.named_parameters()
        if not name.endswith(STATISTICS) and not (trained_only and p.stop_gradient)
    )


def state_digest(layer: Layer) -> str:
    """Return the SHA-256 over names and bytes of all parameters and buffers of ``layer``."""
    digest = hashlib.sha256()
    for name, tensor in sorted(layer.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def code_digest(layer: Layer) -> str:
    """Return the SHA-256 over the source files of what computes ``layer``; Paddle itself is not part of it.

    They are those of the classes of all layers, of their bases, of functions that layers were given, and the file that
    states the version of this package. What they import from another module is not followed.
    """
    layers = layer.sublayers(include_self=True)
    functions = (value for each in layers for value in vars(each).values() if inspect.isroutine(value))
    parts = {
        str(part.__module__)
        for part in (*functions, *(base for each in layers for base in type(each).__mro__))
    }
    files = {name: str(getattr(sys.modules.get(name), "__file__", "")) for name in (*parts, "ppocr_ext")}
    digests = {
        name: file_digest(file) if Path(file).is_file() else ""  # of an interactive session
        for name, file in sorted(files.items())
        if not name.startswith("paddle.")
    }
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def load_weights(
    model: paddle.nn.Layer,
    path: str | Path,
    *,
    partial: bool = False,
    first_prefix: str = "",
    charset: Charset | None = None,
    old_charset: Charset | None = None,
    old_is_assumed: bool = False,
    only: tuple[str, ...] = (),
    target_models: Sequence[str] = (),
) -> WeightMatch:
    """Load ``path`` into ``model`` and report which entries match.

    Args:
        model: the network, or one sub-model of it.
        path: a ``.pdparams`` file, with or without its ending.
        partial: accept missing and wrong-shape entries, which then keep their initial values.
        first_prefix: prefix of names tried first (``"Student."``).
        charset: the model's dictionary, to explain counts that differ.
        old_charset: the file's dictionary; classifier and embedding rows are then carried over
            character by character.
        old_is_assumed: nobody said that the file has ``old_charset``, so that its counts decide.
        only: prefixes of the entries to load (``"Teacher."``); others stay as they are. Empty: all.
        target_models: sub-models for a file of one model, the first choice first.

    Raises:
        WeightsError: the file cannot be read, nothing in it matches, (unless ``partial``) an entry
            is missing or has another shape, or it has no usable numbers.
    """
    checkpoint = Checkpoint(path)
    file = checkpoint.weights_file()
    try:
        read_journal(checkpoint.prefix)
    except WeightsError as error:  # left by `Checkpoint`, since it is not one of ours
        LOG.warning("%s It is ignored.", error)
    state = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    entries = {name: _float32(value) for name, value in checkpoint.weights().items()}
    match = match_weights(file, entries, shapes, first_prefix, target_models)
    if charset is not None:
        old = _old_charset(match, checkpoint, charset, old_charset)
        counts = {} if old is None else ctc_classes_of(match.values, state, old)
        considered = match.restricted(only) if only else match
        if old is not None and _is_of(old, considered, counts, charset, old_is_assumed, partial):
            match = _carry_over(match, state, charset, old)
    if only:
        match = match.restricted(only)
        shapes = {name: shape for name, shape in shapes.items() if name.startswith(only)}
    match = replace(
        match, class_note=_class_note(match, shapes, charset), differences=_differences(match, shapes)
    )
    _require_match(match, shapes, about(checkpoint.prefix), partial)
    require_usable_values(file, match.matched)
    put_back(match.matched, state)
    LOG.info("weights %s", match.summary())
    if match.mismatches():
        LOG.warning("weights loaded in part (Global.pretrained_partial):\n  %s", match.mismatches())
    if match.unexpected:
        LOG.info("not used from the file: %s", shortened(match.unexpected, SHOWN))
    return match


def _require_match(
    match: WeightMatch, shapes: Mapping[str, tuple[int, ...]], origin: str, partial: bool
) -> None:
    """Refuse weights that do not fit.

    Args:
        match: how they fit.
        shapes: the model's shapes by name.
        origin: what is known of official weights, for the message.
        partial: accept missing and wrong-shape entries.

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
    """Return the dictionary to carry rows over from; None if the file has that of the model, or nobody says it.

    Raises:
        WeightsError: the file says that its dictionary is another of the same size, and none was given; or the one
            that was given is not that of the file.
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
            f"{match.source} was trained with a dictionary that is neither {charset.name} nor {old.path}, which was "
            f"given as that of the weights. Fix: give the dictionary that they were trained with.",
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
    """Return True if the rows of the file are to be read by the dictionary ``old``.

    If the counts of the file are not those of ``old``, there are three cases. The weights are of another network: the
    message about that is more useful than one about the dictionary, so False. ``old`` is only assumed, and the counts
    are those of the model: the file has the model's dictionary, so False. Else True, and reading refuses ``old``.

    Args:
        old: the dictionary of the file, as given or assumed.
        match: of the entries that are to be loaded.
        counts: CTC classes by parameter.
        charset: of the model.
        assumed: see :func:`load_weights`.
        partial: entries that do not fit are accepted.
    """
    known = {old.ctc_classes, with_other_space(old).ctc_classes}
    if known & set(counts.values()):
        return True
    if (match.missing or match.wrong_shape.keys() - counts) and (assumed or not partial):
        return False
    if assumed and set(counts.values()) == {charset.ctc_classes}:
        LOG.info(
            "%s: its %d CTC classes are those of %s, so it is loaded with this dictionary (not that of the official "
            "config, %s: %d classes)",
            match.source,
            charset.ctc_classes,
            charset.name,
            old.path,
            old.ctc_classes,
        )
        return False
    return True


def _carry_over(match: WeightMatch, state: Mapping[str, Any], charset: Charset, old: Charset) -> WeightMatch:
    """Return ``match`` with class rows carried over from the old dictionary, if it is another.

    Raises:
        WeightsError: ``old`` is not the dictionary of the file.
    """
    rows = carried_rows(match.source, match.values, state, old, charset)
    if not rows.values or rows.old.characters == charset.characters:
        return match
    return replace(
        match,
        matched={**match.matched, **rows.values},
        wrong_shape={name: shapes for name, shapes in match.wrong_shape.items() if name not in rows.values},
        carried=rows,
    )


def _class_note(match: WeightMatch, shapes: Mapping[str, tuple[int, ...]], charset: Charset | None) -> str:
    """Return the remark that the dictionary is of another size, the usual reason for wrong shapes in one network."""
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
        f"the weights are of another dictionary: {count} {kinds[expected]} classes"
        f"{f' (as {shortened(known, 1)} gives)' if known else ''} against {expected} of "
        f"{charset.path or 'the default dictionary'}. To carry the characters over that both have, give "
        f"their dictionary as `pretrained_dict` of the model or with --old-dict FILE"
    )


def _float32(value: np.ndarray) -> np.ndarray:
    """Return ``value``; if it is bfloat16 as Paddle writes it, the upper half of a float32, as float32."""
    return (value.astype(np.uint32) << 16).view(np.float32) if value.dtype == np.uint16 else value


def _differences(match: WeightMatch, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return the config keys in which the networks differ, if an entry does not match."""
    if not match.missing and not match.wrong_shape:
        return ()
    theirs = {name: tuple(value.shape) for name, value in match.values.items()}
    return tuple(config_differences(theirs, shapes))


@paddle.no_grad()
def put_back(values: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Assign ``values`` (tensors or arrays) to the ``tensors`` of the same names, cast to their types.

    Raises:
        KeyError: there is no such tensor.
    """
    for name, value in values.items():
        paddle.assign(paddle.to_tensor(value).astype(tensors[name].dtype), tensors[name])
