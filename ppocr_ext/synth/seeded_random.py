"""Random numbers that depend only on a seed, a stream and an index; no Paddle."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class SeededRandom:
    """Generate the random numbers of one image.

    It can replace the module ``secrets``: it has the three functions that the library captcha calls.
    Only ``random()`` of Python's ``random.Random`` is used, since its other methods may change between versions.

    Args:
        seed: seed of all images.
        stream: the stream of the image, such as ``"train"``.
        index: number of the image in its stream.
    """

    def __init__(self, seed: int, stream: str, index: int) -> None:
        key = hashlib.blake2b(f"{seed}/{stream}/{index}".encode(), digest_size=16).digest()
        self.random = random.Random(int.from_bytes(key, "big")).random

    def randbelow(self, bound: int) -> int:
        """Return an integer from 0 to ``bound - 1``."""
        return int(self.random() * bound)

    def randbits(self, bits: int) -> int:
        """Return an integer of at most ``bits`` bits."""
        return self.randbelow(1 << bits)

    def choice(self, options: Sequence[T]) -> T:
        """Return one of ``options``."""
        return options[self.randbelow(len(options))]

    def uniform(self, limits: tuple[float, float]) -> float:
        """Return a number between the two ``limits``, uniformly distributed."""
        low, high = limits
        return low + self.random() * (high - low)

    def whole(self, limits: tuple[int, int]) -> int:
        """Return an integer from the lower to the upper of ``limits``, both included."""
        low, high = limits
        return low + self.randbelow(high - low + 1)
