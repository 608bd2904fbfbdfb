"""Compare the entries of a file of weights with those of a model; imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

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
    loaded: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    first_prefix: str = "",
    target_models: Sequence[str] = (),
) -> WeightMatch:
    """Compare a file's entries with a model's shapes, after the change of names that matches most.

    Args:
        source: the file.
        loaded: its entries.
        shapes: the model's shapes by name.
        first_prefix: prefix (``"Student."``) to remove that is tried before others that match as many.
        target_models: sub-models that a file of one model may be put into, the first choice first.
    """

    def renamed(change: tuple[str, str, str]) -> dict[str, np.ndarray]:
        old, new, _ = change
        return {new + name[len(old) :]: value for name, value in loaded.items() if name.startswith(old)}

    ours = sorted({f"{name.split('.', 1)[0]}." for name in shapes if "." in name})
    theirs = sorted({f"{name.split('.', 1)[0]}." for name in loaded if "." in name})
    removed = [first_prefix] if first_prefix else []
    added = [f"{name}." for name in target_models]
    changes = [("", "", "")]  # (prefix to remove, prefix to add, description); the first of equals wins
    changes += [(prefix, "", f"{prefix!r} removed") for prefix in removed]
    changes += [("", prefix, f"{prefix!r} added") for prefix in added]
    wrapped = [w + prefix for w in WRAPPERS for prefix in ("Student.", "Teacher.")]
    changes += [(prefix, "", f"{prefix!r} removed") for prefix in (*WRAPPERS, *theirs, *wrapped)]
    changes += [("", prefix, f"{prefix!r} added") for prefix in ours]
    best = max(changes, key=lambda change: sum(name in shapes for name in renamed(change)))
    named = renamed(best)
    matched = {n: v for n, v in named.items() if n in shapes and tuple(v.shape) == tuple(shapes[n])}
    return WeightMatch(
        source=source,
        matched=matched,
        missing=[n for n in shapes if n not in named],
        unexpected=[n for n in named if n not in shapes],
        wrong_shape={
            n: (tuple(v.shape), tuple(shapes[n]))
            for n, v in named.items()
            if n in shapes and n not in matched
        },
        values=named,
        renamed=best[2],
    )
