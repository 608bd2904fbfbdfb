"""Format numbers and texts for the pages."""

from __future__ import annotations

import html
from typing import Any

_UNPRINTABLE = dict.fromkeys([*range(9), *range(11, 32), 127], "\ufffd")


def esc(value: Any) -> str:
    """Return ``value`` as text in HTML, also inside quotes; nothing in it can be markup."""
    text = str(value).translate(_UNPRINTABLE)
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))  # a lone surrogate has no UTF-8


def finite_number(value: Any) -> float | None:
    """Return ``value`` if it is a finite number, else None: a file may contain anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return (
        float(value) if abs(value) < 1e300 else None
    )  # not so for NaN, infinity, and integers without a float


def percent(value: Any) -> str:
    """Return a share as ``98.7%``; 100% only if it is all."""
    share = finite_number(value)
    if share is None:
        return "–"
    if 0.9995 <= share < 0.99995:  # the metric divides by the count + 1e-5: 0.999999 is all
        return f"{100 * share:.2f}%"
    return f"{100 * share:.1f}%"


def similarity(value: Any) -> str:
    """Return 1 minus an edit distance, as ``0.9794``."""
    return "–" if finite_number(value) is None else f"{value:.4f}"


def metric_text(name: str, value: float) -> str:
    """Return a metric of an evaluation in a line of the log, such as ``acc 98.70 %`` or ``1 - NED 0.9794``."""
    if name.endswith(("acc", "acc_with_space")):
        return f"{name} {100 * value:.2f} %"
    return f"{name.replace('norm_edit_dis', '1 - NED')} {value:.4f}"


def plain(value: Any, digits: int = 4) -> str:
    """Return a number with ``digits`` significant digits and separated thousands."""
    given = finite_number(value)
    if given is None:
        return "–"
    if given == int(given) and abs(given) < 1e15:
        return f"{int(given):,}"
    return f"{given:,.0f}" if abs(given) >= 10**digits else f"{given:.{digits}g}"


def millions(count: Any) -> str:
    """Return a number of parameters, as ``0.26 M``."""
    return "–" if finite_number(count) is None else f"{count / 1e6:.2f} M"


def duration(seconds: Any) -> str:
    """Return a time as ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    if finite_number(seconds) is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def period(begin: str, end: str) -> str:
    """Return two ISO times, the second maybe empty, as ``2026-01-31 14:05 to 14:09 UTC``."""
    shown = [text[:16].replace("T", " ") for text in (begin, end) if text]
    if end[:10] == begin[:10]:
        shown[1:] = [time[11:] for time in shown[1:]]
    return " to ".join(shown) + (" UTC" if begin.endswith("+00:00") else "")
