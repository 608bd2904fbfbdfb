"""Name the operator and the layer that made the first value that is not finite: Paddle's check, and forward hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import nn

_FLAG = "FLAGS_check_nan_inf"
# "There are NAN or INF (num_nan=2, …) in [device=cpu, op=matmul, tensor=, dtype=fp32]"
_FOUND = re.compile(r"There are NAN or INF.*?\bop=(?P<op>\w+)", re.DOTALL)


class AnomalyWatch:
    """Raise at the first operator whose result is not finite, and know in which layer that was.

    Args:
        network: its layers are watched by their paths.
        loss: the same, below ``loss``; a function has no layers.
        active: False: nothing is watched or checked.
        compiled: the layers run in a compiled graph, where hooks see nothing.
    """

    def __init__(self, network: Any, loss: Any, *, active: bool = True, compiled: bool = False) -> None:
        self.active = active
        self._entered: list[str] = []
        self._phase = "the loss"
        layers = [] if compiled or not active else list(network.named_sublayers())
        if isinstance(loss, nn.Layer) and active:
            layers += [
                (f"loss.{path}".rstrip("."), layer) for path, layer in loss.named_sublayers(include_self=True)
            ]
        for path, layer in layers:
            layer.register_forward_pre_hook(lambda layer, inputs, path=path: self._entered.append(path))
            layer.register_forward_post_hook(self._leave)

    def _leave(self, *_: Any) -> None:
        """Forget the innermost layer; what such a hook returned would take the place of its outputs."""
        del self._entered[-1:]

    def on(self, phase: str) -> None:
        """Check every operator from now on; ``phase`` is what runs outside of all layers."""
        self._entered.clear()
        self._phase = phase
        self._set(1)

    def off(self) -> None:
        """Check no operator any more."""
        self._set(0)

    def _set(self, flag: int) -> None:
        if self.active:
            paddle.set_flags({_FLAG: flag})

    @contextmanager
    def checking(self, phase: str) -> Iterator[None]:
        """Check every operator inside this context."""
        self.on(phase)
        try:
            yield
        finally:
            self.off()

    def describe(self, error: BaseException) -> str | None:
        """Return operator and layer of an error that Paddle's check raised; None for another error."""
        found = _FOUND.search(str(error)) if self.active else None
        if found is None:
            return None
        where = f"the layer {self._entered[-1]}" if self._entered else self._phase
        return f"the operator {found['op']} in {where} gave the first value that is not finite"
