"""Put weights into a model by name, and say exactly what fitted and what did not.

PaddleOCR skips an entry of another shape with a warning and then reports success. Here every
missing or wrong-shape entry is an error, unless the user asks for a partial load.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.carry_over import carry_over
from ppocr_ext.checkpoint.checkpoints import charset_digest, finish_journal, prefix_of
from ppocr_ext.checkpoint.journal import read_journal
from ppocr_ext.checkpoint.names import SHOWN, parameter_file, why_missing
from ppocr_ext.checkpoint.serialize import read_state
from ppocr_ext.errors import WeightsError
from ppocr_ext.messages import shortened

_LOG = logging.getLogger("ppocr_ext")
_WRAPPERS = ("module.", "_layers.")  # what data-parallel wrappers put before every name


@dataclass(frozen=True)
class Fit:
    """How a file's entries fit a model's.

    Attributes:
        source: the file.
        matched: entries that fit, by the model's names.
        missing: names that the model has and the file lacks.
        unexpected: names that the file has and the model lacks.
        wrong_shape: name → (shape in the file, shape in the model).
        renamed: how the file's names were read (``"Student." left out``), empty if as they are.
        values: all entries of the file, under the names as they were read.
        carried: what came over from an old dictionary, in words.
        class_note: the remark that the file's dictionary is of another size, if it is.
    """

    source: Path
    matched: dict[str, np.ndarray]
    missing: list[str]
    unexpected: list[str]
    wrong_shape: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    values: dict[str, np.ndarray]
    renamed: str = ""
    carried: str = ""
    class_note: str = ""

    def summary(self) -> str:
        """One line for the log."""
        parts = [f"{len(self.matched)} {'entry' if len(self.matched) == 1 else 'entries'} matched"]
        parts += [f"{len(self.missing)} missing"] if self.missing else []
        parts += [f"{len(self.wrong_shape)} of another shape"] if self.wrong_shape else []
        parts += [f"{len(self.unexpected)} unexpected"] if self.unexpected else []
        parts += [f"names: {self.renamed}"] if self.renamed else []
        parts += [self.carried] if self.carried else []
        return f"{self.source}: " + ", ".join(parts)

    def faults(self) -> str:
        """What does not fit, by name; empty when everything fits."""
        lines: list[str] = []
        if self.class_note:
            lines.append(self.class_note)
        if self.missing:
            lines.append(f"missing in the file: {shortened(list(self.missing), SHOWN)}")
        if self.wrong_shape:
            shapes = [
                f"{name} {list(theirs)} in the file, {list(ours)} in the model"
                for name, (theirs, ours) in self.wrong_shape.items()
            ]
            lines.append(f"of another shape: {shortened(shapes, SHOWN, '; ')}")
        return "\n  ".join(lines)


def find_parameters(path: str | Path) -> Path:
    """The file of weights that ``path`` names; a save that was killed there is finished first.

    Raises:
        WeightsError: there is none; the message names the checkpoints that lie there instead.
    """
    file = parameter_file(path)
    finish_journal(prefix_of(file))
    if not file.is_file():
        raise WeightsError(why_missing(path))
    return file


def _warn_of_journal(prefix: Path) -> None:
    """Warn of a journal that :func:`finish_journal` has left, since it is not one of ours."""
    try:
        read_journal(prefix)
    except WeightsError as fault:
        _LOG.warning("%s It is ignored.", fault)


def _renamings(loaded: Iterable[str], model: Iterable[str]) -> list[tuple[str, str, str]]:
    """Candidate readings (prefix to take off, prefix to put on, description), the plain one first."""
    heads = sorted({name.split(".", 1)[0] + "." for name in loaded if "." in name})
    ours = sorted({name.split(".", 1)[0] + "." for name in model if "." in name})
    readings = [("", "", "")]
    readings += [(p, "", f"{p!r} taken off") for p in (*_WRAPPERS, *heads)]
    readings += [(w + p, "", f"{w + p!r} taken off") for w in _WRAPPERS for p in ("Student.", "Teacher.")]
    readings += [("", p, f"{p!r} put before") for p in ours]
    return readings


def _rename(state: Mapping[str, np.ndarray], off: str, on: str) -> dict[str, np.ndarray]:
    return {on + name[len(off) :]: value for name, value in state.items() if name.startswith(off)}


def fit_state(
    source: Path,
    loaded: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    prefer: str = "",
    homes: Sequence[str] = (),
) -> Fit:
    """Compare a file's entries with a model's shapes, under the reading of names that fits most.

    ``prefer`` is a prefix (``"Student."``) to try before others of equal merit; ``homes`` are
    sub-models to put a file of one model into, the first choice first.
    """
    readings = _renamings(loaded, shapes)
    readings[1:1] = [("", f"{name}.", f"{f'{name}.'!r} put before") for name in homes]
    if prefer:
        readings.insert(1, (prefer, "", f"{prefer!r} taken off"))
    best = max(
        readings,
        key=lambda r: sum(name in shapes for name in _rename(loaded, r[0], r[1])),  # the first of equals wins
    )
    named = _rename(loaded, best[0], best[1])
    matched = {n: v for n, v in named.items() if n in shapes and tuple(v.shape) == tuple(shapes[n])}
    wrong = {
        n: (tuple(v.shape), tuple(shapes[n])) for n, v in named.items() if n in shapes and n not in matched
    }
    return Fit(
        source=source,
        matched=matched,
        missing=[n for n in shapes if n not in named],
        unexpected=[n for n in named if n not in shapes],
        wrong_shape=wrong,
        values=named,
        renamed=best[2],
    )


def _class_note(fit: Fit, charset: Charset | None) -> str:
    """Name a dictionary of another size, the usual reason for wrong shapes."""
    if charset is None:
        return ""
    for theirs, ours in fit.wrong_shape.values():
        differing = [(a, b) for a, b in zip(theirs, ours, strict=False) if a != b]
        extra = {charset.ctc_classes: "CTC", charset.nrtr_rows: "NRTR"}
        if len(theirs) == len(ours) and len(differing) == 1 and differing[0][1] in extra:
            count, expected = differing[0]
            kind = extra[expected]
            return (
                f"the weights are of another dictionary: {count} {kind} classes against {expected} of "
                f"{charset.path or 'the default dictionary'}. To carry the characters over that both have, give "
                f"their dictionary with --old-dict FILE"
            )
    return ""


def load_weights(
    model: paddle.nn.Layer,
    path: str | Path,
    *,
    partial: bool = False,
    prefer: str = "",
    charset: Charset | None = None,
    old_charset: Charset | None = None,
    only: tuple[str, ...] = (),
    homes: Sequence[str] = (),
) -> Fit:
    """Load ``path`` into ``model`` and report what fitted.

    Args:
        model: the network, or one sub-model of it.
        path: a ``.pdparams`` file, with or without its ending.
        partial: accept missing and wrong-shape entries, which then keep their initial values.
        prefer: prefix of names tried first (``"Student."``).
        charset: the model's dictionary, to explain counts that differ.
        old_charset: the file's dictionary; classifier and embedding rows are then carried over
            character by character.
        only: prefixes of the entries to load (``"Teacher."``); others stay as they are. Empty: all.
        homes: sub-models, the first choice first, for a file of one model.

    Raises:
        WeightsError: the file cannot be read, nothing in it fits, or (unless ``partial``) an entry
            is missing or has another shape.
    """
    file = find_parameters(path)
    _warn_of_journal(prefix_of(file))
    state = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    fit = fit_state(file, read_state(file), shapes, prefer, homes)
    old_charset = _dictionary_to_carry_over(fit, charset, old_charset)
    if old_charset is not None and charset is not None:
        fit = carry_over(fit, state, old_charset, charset)
    if only:
        fit = _restrict(fit, only)
    fit = replace(fit, class_note=_class_note(fit, charset))
    if not fit.matched:
        theirs = shortened(list(fit.unexpected or fit.wrong_shape), SHOWN)
        raise WeightsError(
            f"{file}: none of its {len(fit.unexpected)} entries is of this architecture "
            f"(file: {theirs}; model: {shortened(list(shapes), SHOWN)}). Give weights "
            f"of the model that the configuration describes, or the configuration that they were trained with."
        )
    if fit.faults() and not partial:
        raise WeightsError(
            f"{fit.summary()}.\n  {fit.faults()}\nTo load what fits and train the rest from its initial values, "
            f"set Global.pretrained_partial: true."
        )
    _assign(state, fit.matched)
    _LOG.info("weights %s", fit.summary())
    if fit.faults():
        _LOG.warning("weights loaded in part, as Global.pretrained_partial asks:\n  %s", fit.faults())
    if fit.unexpected:
        _LOG.info("not used from the file: %s", shortened(list(fit.unexpected), SHOWN))
    return fit


def _restrict(fit: Fit, prefixes: tuple[str, ...]) -> Fit:
    """``fit`` of the entries under ``prefixes`` alone."""
    return replace(
        fit,
        matched={n: v for n, v in fit.matched.items() if n.startswith(prefixes)},
        missing=[n for n in fit.missing if n.startswith(prefixes)],
        wrong_shape={n: shapes for n, shapes in fit.wrong_shape.items() if n.startswith(prefixes)},
    )


def _dictionary_to_carry_over(fit: Fit, charset: Charset | None, old: Charset | None) -> Charset | None:
    """The old dictionary, if the file's rows have to be carried over from it.

    Raises:
        WeightsError: the file says that its dictionary is another of the same size, and none was given.
    """
    try:
        trained_with = charset_digest(prefix_of(fit.source))
    except WeightsError as fault:  # only the weights were asked for
        _LOG.warning("%s", fault)
        trained_with = None
    if charset is None or trained_with == charset.digest:
        return None
    if trained_with is not None and old is None and not fit.wrong_shape:
        raise WeightsError(
            f"{fit.source} was trained with a dictionary of the same size that is not {charset.name}. Give it with "
            f"--old-dict, and the characters are carried over."
        )
    return old


def _assign(state: Mapping[str, Any], values: Mapping[str, np.ndarray]) -> None:
    for name, value in values.items():
        tensor = state[name]
        if value.dtype == np.uint16:  # bfloat16 as Paddle writes it: the upper half of a float32
            value = (value.astype(np.uint32) << 16).view(np.float32)
        tensor.set_value(paddle.to_tensor(value).astype(tensor.dtype))
