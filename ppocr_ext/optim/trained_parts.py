"""Set learning rates for parts of a network, by patterns over the names in ``state_dict``; show its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from paddle import nn

from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import near_match


@dataclass(frozen=True)
class TrainedPart:
    """One row of the table of parts.

    Attributes:
        name: the part: ``backbone``, ``head.ctc_head``, behind the sub-model's name if there are several.
        parameters: how many numbers it has.
        trained: how many of them are trained.
        rates: factors of the learning rate among the trained ones, ascending.
    """

    name: str
    parameters: int
    trained: int
    rates: tuple[float, ...]


def set_rates(network: nn.Layer, factors: Mapping[str, float]) -> dict[str, float]:
    """Multiply the learning rate of parameters by the factor of the last pattern that matches them.

    A network's own multipliers (0.1 of learnable affines) are multiplied too.

    Args:
        network: its names are those of ``state_dict``.
        factors: factor by shell pattern.

    Returns:
        The factor by name.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    matched = match_patterns(network, factors, "Optimizer.lr_mult")
    for name, parameter in named_weights(network):
        if name in matched:
            own = parameter.optimize_attr.get("learning_rate", 1.0)
            parameter.optimize_attr["learning_rate"] = own * float(factors[matched[name]])
    return {name: float(factors[pattern]) for name, pattern in matched.items()}


def named_weights(network: nn.Layer) -> Iterator[tuple[str, Any]]:
    """Yield names and parameters without BatchNorm's running statistics, which Paddle counts among them."""
    for name, parameter in network.named_parameters():
        if not name.endswith(("._mean", "._variance")):
            yield name, parameter


def match_patterns(network: nn.Layer, patterns: Iterable[str], key: str) -> dict[str, str]:
    """Return, by the name of each parameter that a pattern matches, the last pattern that does.

    Args:
        network: its names are those of ``state_dict``.
        patterns: shell patterns.
        key: of the config, for messages.

    Raises:
        ConfigError: a pattern matches nothing; the message names the sub-model that it lacks, or a near part.
    """
    names = [name for name, _ in named_weights(network)]
    found: dict[str, str] = {}
    for pattern in patterns:
        matched = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matched:
            raise ConfigError(
                f"{key}: {pattern!r} matches no parameter. {_hint(network, str(pattern), names)}",
                code="no_match",
            )
        found.update(dict.fromkeys(matched, str(pattern)))
    return found


def _hint(network: nn.Layer, pattern: str, names: Sequence[str]) -> str:
    models = getattr(network, "model_name_list", None) or ()
    with_prefix = [
        model for model in models if any(fnmatchcase(name, f"{model}.{pattern}") for name in names)
    ]
    frozen = getattr(network, "frozen", ())
    trained = [model for model in with_prefix if model not in frozen] or with_prefix
    if trained:
        return f"Fix: name the sub-model: {' or '.join(f'{model}.{pattern}' for model in trained)}."
    parts = {
        ".".join(words[:end]) for words in (name.split(".") for name in names) for end in range(1, len(words))
    }
    near = near_match(pattern.rstrip("*").rstrip("."), parts, cutoff=0.6)
    first = sorted({name.split(".")[0] for name in names})
    return f"Did you mean '{near}.*'?" if near else f"Names begin with {', '.join(first)}."


def trained_parts(network: nn.Layer) -> list[TrainedPart]:
    """Return the parts of a network with their parameters: backbone, neck, and each branch of the head."""
    depth = 3 if getattr(network, "model_name_list", None) else 2
    rows: dict[str, list[tuple[int, bool, float]]] = {}
    for name, parameter in named_weights(network):
        words = name.split(".")[:-1][:depth]
        part = ".".join(words[:-1] if len(words) == depth and words[-2] != "head" else words)
        rate = parameter.optimize_attr.get("learning_rate", 1.0)
        size = int(parameter.size)
        rows.setdefault(part, []).append((size, not parameter.stop_gradient, rate))
    return [
        TrainedPart(
            part,
            sum(size for size, _, _ in entries),
            sum(size for size, trained, _ in entries if trained),
            tuple(sorted({rate for _, trained, rate in entries if trained})),
        )
        for part, entries in rows.items()
    ]


def parts_table(parts: Sequence[TrainedPart]) -> str:
    """Return the table that a run prints at its start."""
    width = max(len(part.name) for part in parts)
    lines = [f"{'part':{width}}  {'parameters':>12}  {'trained':>12}  rate"]
    for part in parts:
        rates = ", ".join(f"x {rate:g}" for rate in part.rates) or "-"
        lines.append(f"{part.name:{width}}  {part.parameters:>12,}  {part.trained:>12,}  {rates}")
    return "\n".join(lines)
