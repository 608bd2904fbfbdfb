"""Short names of loss parts, the same for a model on its own and for a sub-model."""

from __future__ import annotations


def short_name(name: str) -> str:
    """``loss_ctc_Student_0`` and ``CTCLoss`` → ``ctc``, as a progress bar and a legend have room for."""
    if name.endswith("Loss") and "_" not in name:
        return name.removesuffix("Loss").lower() or name
    words = [w for w in name.split("_") if w not in ("loss", "Student") and not w.isdigit()]
    return "_".join(words) or name
