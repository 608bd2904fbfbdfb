"""Numbers and texts as the report shows them."""

from __future__ import annotations

import datetime
import html
import math
from typing import Any

_UNPRINTABLE = dict.fromkeys([*range(9), *range(11, 32), 127], "\ufffd")


def esc(value: Any) -> str:
    """``value`` as text in HTML, also inside quotes; nothing in it can be markup."""
    text = str(value).translate(_UNPRINTABLE)
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))  # a lone surrogate has no UTF-8


def number(value: Any) -> float | None:
    """``value`` if it is a finite number, else None: files say all kinds of things."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        given = float(value)
    except OverflowError:  # of an integer with hundreds of digits
        return None
    return given if math.isfinite(given) else None


def percent(value: Any) -> str:
    """A share: ``98.7%``; never 100% unless it is."""
    share = number(value)
    if share is None:
        return "–"
    if 0.9995 <= share < 0.99995:  # the metric divides by the count + 1e-5: 0.999999 is all of them
        return f"{100 * share:.2f}%"
    return f"{100 * share:.1f}%"


def similarity(value: Any) -> str:
    """1 minus an edit distance: ``0.9794``."""
    given = number(value)
    return "–" if given is None else f"{given:.4f}"


def plain(value: Any, digits: int = 4) -> str:
    """A number with ``digits`` significant digits, thousands apart."""
    given = number(value)
    if given is None:
        return "–"
    if given == int(given) and abs(given) < 1e15:
        return f"{int(given):,}"
    if abs(given) >= 10**digits:
        return f"{given:,.0f}"
    return f"{given:.{digits}g}"


def rate(value: Any) -> str:
    """Images a second: ``64.1``, ``1,250``."""
    given = number(value)
    return "–" if given is None else f"{given:,.1f}" if given < 100 else f"{given:,.0f}"


def millions(count: Any) -> str:
    """A number of parameters: ``0.26 M``."""
    given = number(count)
    return "–" if given is None else f"{given / 1e6:.2f} M"


def duration(seconds: Any) -> str:
    """``45 s``, ``3 min 20 s``, ``2 h 05 min``."""
    given = number(seconds)
    if given is None:
        return "–"
    whole = round(given)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def period(begin: str, end: str) -> str:
    """Two ISO times, of which the second may be empty, as ``2026-01-31 14:05 to 14:09 UTC``."""
    try:
        times = [datetime.datetime.fromisoformat(text) for text in (begin, end) if text]
    except ValueError:  # as they stand, then
        return " to ".join(text for text in (begin, end) if text)
    shown = [f"{time:%Y-%m-%d %H:%M}" for time in times]
    if len(times) == 2 and times[0].date() == times[1].date():
        shown[1] = f"{times[1]:%H:%M}"
    zone = f" {times[0].tzname()}" if times and times[0].tzinfo else ""
    return " to ".join(shown) + zone
