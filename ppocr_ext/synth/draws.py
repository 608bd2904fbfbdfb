"""Random draws that depend on a seed, a stream and an index alone; no Paddle."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Random draws of one image; among them the three calls that the library captcha makes on ``secrets``.

    Args:
        seed: of all images.
        stream: what the image belongs to, such as ``"train"``.
        index: of the image in its stream.
    """

    def __init__(self, seed: int, stream: str, index: int) -> None:
        key = hashlib.blake2b(f"{seed}/{stream}/{index}".encode(), digest_size=16).digest()
        self.random = random.Random(int.from_bytes(key, "big")).random

    def randbelow(self, bound: int) -> int:
        """An integer from 0 to ``bound - 1``."""
        return int(self.random() * bound)

    def randbits(self, bits: int) -> int:
        """An integer of at most ``bits`` bits."""
        return int(self.random() * (1 << bits))

    def choice(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[int(self.random() * len(options))]

    def uniform(self, limits: tuple[float, float]) -> float:
        """A number between the two ``limits``, each part of the range as likely as the others."""
        low, high = limits
        return low + self.random() * (high - low)

    def whole(self, limits: tuple[int, int]) -> int:
        """An integer from the lower to the upper of ``limits``, both included."""
        low, high = limits
        return low + self.randbelow(high - low + 1)
