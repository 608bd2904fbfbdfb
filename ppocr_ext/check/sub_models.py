"""Check which sub-models the losses of a distillation teach, and that each frozen sub-model has weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ppocr_ext.base.parts import LIST_LOSSES
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.findings import KeyPath
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.derive import is_inference_model
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.registry import LOSSES

ALLOW_UNTRAINED = "allow_untrained_teacher"
# Code of the issue that a frozen sub-model has no weights. The check warns, and `train` ends with an error.
UNTRAINED = "missing_weights"


def loss_parts(config: Config) -> Iterator[tuple[Callable[..., Any], KeyPath]]:
    """Yield each loss of ``Loss`` with the path of its options.

    Raises:
        UnknownComponentError: a loss does not exist.
    """
    name = config.at("Loss.name", None)
    if name in LIST_LOSSES:
        for part, path in named_items(config, "Loss", "loss_config_list"):
            yield LOSSES.get(part), path
    elif isinstance(name, str):
        yield LOSSES.get(name), ("Loss",)


def untrained(name: str) -> str:
    """Return the message of a frozen sub-model without weights."""
    return (
        f"{name} is frozen and has no weights: it would teach noise. Fix: "
        f"-o Architecture.Models.{name}.pretrained=PATH; to train so: -o Global.{ALLOW_UNTRAINED}=true."
    )


def is_frozen(check: ConfigCheck, name: Any) -> bool:
    """Return True for a sub-model with ``freeze_params: true``."""
    return check.at("Architecture", "Models", str(name), "freeze_params") is True


def check_sub_models(check: ConfigCheck) -> None:
    """Check that each loss teaches a trained sub-model, each trained one is taught, and each frozen one has weights.

    With a loss that is not ours, which may teach any sub-model, only pairs and lists are checked.
    """
    names = set(map(str, check.mapping("Architecture", "Models")))
    frozen = {name for name in names if is_frozen(check, name)}
    with suppress(PPOCRExtError):  # a loss that does not exist, which the check of Loss reports
        parts = list(loss_parts(check.config))
        reached = set().union(*(_check_part(check, *part) for part in parts))
        # if no loss names a sub-model, the losses do not fit the networks, and the dry step reports it
        judged = all(_is_ours(loss) for loss, _ in parts) and any(
            check.at(*path, f"model_name_{kind}") for _, path in parts for kind in ("list", "pairs")
        )
        for name in sorted(names - frozen - reached) if judged else ():
            check.error(
                ("Architecture", "Models", name),
                "untrained_sub_model",
                "no loss gives it a gradient, so it learns nothing. Fix: name it first in model_name_pairs, or in "
                "model_name_list, of a loss; or set `freeze_params: true`.",
            )
    for name in sorted(frozen):
        own = ("Architecture", "Models", name, "pretrained")
        keys = (own, *(("Global", key) for key in ("checkpoints", "pretrained_model", ALLOW_UNTRAINED)))
        if not any(check.at(*key) for key in keys):
            check.warning(own, UNTRAINED, untrained(name))


def _check_part(check: ConfigCheck, loss: Any, path: KeyPath) -> set[str]:
    """Report frozen sub-models that a loss is to teach; return the sub-models that get a gradient from the loss."""
    reached = set(map(str, listed(check.at(*path, "model_name_list"))))
    if idle := {name for name in reached if is_frozen(check, name)}:
        check.warning(  # it only costs time; a config of PaddleOCR does this
            (*path, "model_name_list"),
            "frozen_is_taught",
            f"{', '.join(sorted(idle))} is frozen and learns nothing. Fix: name only trained sub-models.",
        )
    pairs = listed(check.at(*path, "model_name_pairs"))
    for pair in pairs if all(isinstance(each, tuple) for each in pairs) else (pairs,):
        reached |= set(map(str, pair[:1] if getattr(loss, "detaches", False) else pair))
        taught_by = [each for each in map(str, pair) if is_inference_model(check.config, each)]
        if taught_by and (getattr(loss, "reads_raw_logits", False) or check.at(*path, "act") == "sigmoid"):
            check.error(
                (*path, "model_name_pairs"),
                "unsupported_teacher",
                f"{path[-1]} needs raw logits, but the inference model {taught_by[0]} has probabilities only. Fix: use "
                f"CTCFrameKDLoss, or MaskedDKDLoss with `dis_head: ctc`.",
            )
        is_swapped = len(pair) == 2 and is_frozen(check, pair[0]) and not is_frozen(check, pair[1])
        if is_swapped and not getattr(loss, "symmetric", False):
            report = check.error if _is_ours(loss) else check.warning
            report(
                (*path, "model_name_pairs"),
                "swapped_pair",
                f"{path[-1]} teaches the frozen {pair[0]} by {pair[1]}. Fix: the trained sub-model comes first, "
                f"[[{pair[1]}, {pair[0]}]].",
            )
    return set() if check.at(*path, "weight") == 0 else reached


def _is_ours(loss: Any) -> bool:
    return str(loss.__module__).startswith("ppocr_ext.")


def listed(value: Any) -> tuple[Any, ...]:
    """Return ``value`` if it is a list of the config, or an empty list, since other checks report a wrong value."""
    return value if isinstance(value, tuple) else ()
