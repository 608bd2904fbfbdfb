"""Check the options of drawn data that a command or a config gives; imports no Paddle."""

from __future__ import annotations

from typing import Any, TypeGuard

from ppocr_ext.errors import DataError


def check_options(*checks: tuple[str, bool, object, str]) -> None:
    """Raise an error for the first option that is not accepted.

    Args:
        checks: for each option its name, whether it is accepted, its value, and what is expected.

    Raises:
        DataError: an option is not accepted (``bad_value``). The message starts with its name.
    """
    for name, accepted, value, expected in checks:
        if not accepted:
            raise DataError(f"{name}: wrong value (found {value!r}, expected {expected}).", code="bad_value")


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return True if ``value`` is an integer (not a bool) from ``least`` to ``most``."""
    return type(value) is int and least <= value <= most


def is_range(value: Any, least: float, most: float, kinds: tuple[type, ...] = (int, float)) -> bool:
    """Return True if ``value`` is a tuple of two numbers, the lower first, from ``least`` to ``most``."""
    pair = isinstance(value, tuple) and len(value) == 2 and all(type(number) in kinds for number in value)
    return pair and least <= value[0] <= value[1] <= most


def are_names(values: object) -> bool:
    """Return True if ``values`` is a list or tuple of strings."""
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
