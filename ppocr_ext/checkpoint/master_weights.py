"""Optimizer state between runs with and without 16-bit weights (mixed precision at level O2).

Where weights have 16 bits the optimizer keeps masters in float32, and calls what it keeps of each weight
(moments) by its master's name. Paddle refuses, in the first step, a state with names of the other kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import paddle

MASTERS = "master_weights"
HALF = (paddle.float16, paddle.bfloat16)
_SUFFIX = "_fp32_master"
_OF_MASTER = re.compile(rf"{_SUFFIX}_\d+(?=_)")


def fit_masters(
    state: dict[str, Any], parameters: Iterable[Any], exact: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """``state`` as an optimizer over ``parameters`` takes it: with masters of those that have 16 bits, and no others.

    Args:
        state: of an optimizer, by the parameters' names now.
        parameters: what the optimizer trains.
        exact: gives float32 arrays by the same names; asked for masters that ``state`` lacks.
    """
    parameters = list(parameters)
    half = {p.name for p in parameters if p.dtype in HALF}
    masters = state.get(MASTERS, {})
    if half == masters.keys():
        return state
    # the longest first: linear_1.w_0 begins linear_1.w_01 too
    owners = sorted({p.name for p in parameters}, key=len, reverse=True)

    def renamed(key: str) -> str:
        owner = next((name for name in owners if key.startswith(f"{name}_")), None)
        if owner is None or (owner in half) == (owner in masters):
            return key
        rest = key[len(owner) :]
        return f"{owner}{_SUFFIX}_0{rest}" if owner in half else owner + _OF_MASTER.sub("", rest, count=1)

    fitted = {renamed(key): value for key, value in state.items() if key != MASTERS}
    weights = exact() if half - masters.keys() else {}
    made = {name: (f"{name}{_SUFFIX}_0", value) for name, value in weights.items()}
    if half:
        fitted[MASTERS] = {name: value for name, value in {**made, **masters}.items() if name in half}
    return fitted
