"""The template of our HTML pages: frame, style, colours, tables and formatted numbers."""

from __future__ import annotations

import datetime
import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ppocr_ext import __version__

_UNPRINTABLE = dict.fromkeys([*range(9), *range(11, 32), 127], "\ufffd")


def esc(value: Any) -> str:
    """Return ``value`` as text for HTML, also inside quotes; nothing in it is markup."""
    text = str(value).translate(_UNPRINTABLE)
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))  # a lone surrogate has no UTF-8


def cut(text: str, longest: int) -> str:
    """Return ``text`` with at most ``longest`` characters, and ``…`` where it was longer."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def finite_number(value: Any) -> float | None:
    """Return ``value`` if it is a finite number, or None, since a file may contain anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # The comparison is false for NaN, infinity, and integers that are too large for a float.
    return float(value) if abs(value) < 1e300 else None


def percent(value: Any) -> str:
    """Return a share as ``98.7%``. It is 100% only if nothing is missing."""
    if (share := finite_number(value)) is None:
        return "–"
    # 0.999999 counts as 1, since the metric divides by the count + 1e-5.
    return f"{100 * share:.{2 if 0.9995 <= share < 0.99995 else 1}f}%"


def similarity(value: Any) -> str:
    """Return 1 minus an edit distance, as ``0.9794``."""
    return "–" if finite_number(value) is None else f"{value:.4f}"


def plain(value: Any, digits: int = 4) -> str:
    """Return a number with ``digits`` significant digits and separated thousands."""
    if (number := finite_number(value)) is None:
        return "–"
    if abs(number) >= 10**digits or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.{digits}g}"


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


RUN_COLORS = 6  # CSS classes r0 … r5
# The page loads nothing and runs no script, whatever a label or a file name in it contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_COLORS = {  # name: (light scheme, dark scheme)
    "bg": ("#f6f7f9", "#12161c"),
    "card": ("#fff", "#1b212a"),
    "text": ("#1c2430", "#e6eaf0"),
    "soft": ("#5c6675", "#9aa5b4"),
    "line": ("#e1e5ea", "#2c3440"),
    "grid": ("#e4e8ed", "#2d3643"),
    "good": ("#0a7a4b", "#5fd6a2"),
    "good-bg": ("#dff5ea", "#12382a"),
    "bad": ("#b3261e", "#ff9d94"),
    "bad-bg": ("#fde5e2", "#44201d"),
    "warn": ("#8a5a00", "#f2c063"),
    "warn-bg": ("#fdf0d3", "#3d2f12"),
    "calm": ("#1f5fbf", "#8dbbff"),
    "calm-bg": ("#e2edfd", "#1b304f"),
    "run0": ("#0072b2", "#4fa8e8"),
    "run1": ("#d55e00", "#ff8a3d"),
    "run2": ("#009e73", "#2fc79a"),
    "run3": ("#c15a94", "#e593c0"),
    "run4": ("#a87300", "#f0b440"),
    "run5": ("#2e86bd", "#8ad0f5"),
}
_PLOT_STYLE = (
    "".join(f".r{index}{{color:var(--run{index})}}" for index in range(RUN_COLORS))
    + """
.grid{stroke:var(--grid);fill:none}.axis{stroke:var(--soft);fill:none;opacity:.6}
.tick{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
.line{stroke:currentColor;stroke-width:2;fill:none;stroke-linejoin:round;stroke-linecap:round}
.line[stroke-dasharray]{stroke-linecap:butt}
.faint{stroke:currentColor;stroke-width:.8;fill:none;opacity:.32;stroke-linejoin:round}
.dotted{stroke:currentColor;stroke-width:1.6;stroke-dasharray:.1 4;fill:none;stroke-linecap:round}
.limit{stroke:var(--bad);stroke-dasharray:5 4;fill:none}
.dot{fill:currentColor}.best{fill:var(--card);stroke:currentColor;stroke-width:2}
"""
)
_PAGE_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
:focus-visible{outline:3px solid var(--calm);outline-offset:2px}
main{max-width:1180px;margin:0 auto;padding:28px 20px 40px;overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.25;margin:0;letter-spacing:-.01em}
h2{font-size:18px;margin:34px 0 12px}
h3,.name h2{font-size:15px;margin:0;font-weight:600}
.sub,.soft{color:var(--soft)}.sub{margin:4px 0 20px}.small{font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;min-width:0}
.grid2{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}
.wide{grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.name{display:flex;align-items:center;gap:9px;min-width:0}
td .name{width:max-content;max-width:320px;white-space:normal;overflow-wrap:anywhere}
.swatch{flex:none;width:30px;height:4px;border-radius:2px;overflow:visible}
.swatch path{stroke:currentColor;stroke-width:4;fill:none}
.badge{flex:none;font-size:12px;font-weight:600;padding:1px 9px;border-radius:99px;background:var(--line);
color:var(--soft)}
.finished{background:var(--good-bg);color:var(--good)}
.failed,.collapsed,.nonfinite,.not_kept{background:var(--bad-bg);color:var(--bad)}
.stopped{background:var(--warn-bg);color:var(--warn)}.running{background:var(--calm-bg);color:var(--calm)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(144px,1fr));gap:14px 20px;margin:16px 0 4px}
.figures div{min-width:0}
.figures b{display:block;font-size:24px;white-space:nowrap;line-height:1.2;font-weight:650;
font-variant-numeric:tabular-nums}
.figures span{color:var(--soft);font-size:13px}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:3px 14px;margin:12px 0 0;font-size:13.5px}
dt{color:var(--soft)}dd{margin:0}
.note{background:var(--warn-bg);color:var(--warn)}
.note.failed{background:var(--bad-bg);color:var(--bad)}
.note.finished{background:var(--good-bg);color:var(--good)}
.note{margin:12px 0 0;padding:7px 11px;border-radius:7px;font-size:13.5px}
.lines{list-style:none;margin:12px 0 0;padding:0;white-space:pre-wrap}
.legend{display:flex;flex-wrap:wrap;gap:6px 22px;margin:0 0 12px;font-size:14px}
svg{display:block;width:100%;height:auto}
figure{margin:0}figcaption{font-weight:600;margin:0 0 6px}
.scroll{overflow:auto;max-height:440px}td img{display:block;max-width:none;height:32px}
table{border-collapse:collapse;width:100%;font-size:14px;overflow-wrap:normal;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:13px;position:sticky;top:0;background:var(--card)}
th:first-child,td:first-child,.left th,.left td{text-align:left}
tr:last-child td{border-bottom:0}
.top td{font-weight:650;background:var(--good-bg);color:var(--good)}
.wrap td{white-space:normal;overflow-wrap:anywhere;vertical-align:top}
.wrap td:first-child{min-width:200px}.wrap td{min-width:110px}.wrap code{overflow-wrap:normal}
details{margin-top:10px}summary{cursor:pointer;color:var(--soft);font-size:14px}
pre{margin:10px 0 0;padding:12px;background:var(--bg);border-radius:8px;white-space:pre-wrap;font:12.5px/1.5
ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.samples{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(min(100%,166px),1fr));margin-top:12px}
.long{grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
.sample{border:1px solid var(--line);border-radius:8px;overflow:hidden;background:var(--card);font-size:14px}
.sample img{display:block;width:100%;height:64px;object-fit:contain;background:#8882;padding:6px}
.sample div{padding:7px 10px 9px}
.sample dl{margin:0;gap:0 9px;font-size:13.5px}
.sample dd{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono CJK SC",monospace;
white-space:pre-wrap;line-break:anywhere;unicode-bidi:isolate}
.sample .sure{font-family:inherit}
.glyphs{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono CJK SC",monospace;font-size:16px}
.wrong{border-left:3px solid var(--bad)}.right{border-left:3px solid var(--good)}
ins,del{text-decoration:none;font-weight:700;border-radius:3px}
ins{background:var(--bad-bg);color:var(--bad)}del{background:var(--warn-bg);color:var(--warn)}
footer{margin-top:36px;color:var(--soft);font-size:13px}
@media(max-width:560px){
main{padding:18px 12px 28px}h1{font-size:21px}.card{padding:13px}th,td{padding:6px 7px}table{font-size:13px}
.samples:not(.long){grid-template-columns:repeat(2,minmax(0,1fr))}.figures b{font-size:22px}
.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media print{
body{background:#fff}main{max-width:none;padding:0}.scroll{overflow:visible;max-height:none}img{max-width:100%}th{position:static}
table{font-size:12px}th,td{white-space:normal;overflow-wrap:break-word;padding:4px 6px}
tr,figure,.sample,.note{break-inside:avoid}h2,h3{break-after:avoid}}
"""


def _variables(scheme: int) -> str:
    return ";".join(f"--{name}:{colors[scheme]}" for name, colors in _COLORS.items())


def page(title: str, subtitle: str, body: str) -> str:
    """Return a complete page around ``body``, which is HTML."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="ppocr-ext">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{esc(title)}</title>
<style>:root{{color-scheme:light dark;{_variables(0)}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}{_PLOT_STYLE}{_PAGE_STYLE}</style>
</head>
<body><main>
<h1>{esc(title)}</h1>
<p class="sub">{esc(subtitle)} · written {now}</p>
{body}
<footer>ppocr-ext {__version__}</footer>
</main></body>
</html>
"""


def plot_style() -> str:
    """Return the style of plots for SVG files: fixed light colours, since most viewers do not know CSS variables."""
    return re.sub(r"var\(--(\w+)\)", lambda name: _COLORS[name[1]][0], _PLOT_STYLE)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "", best: int | None = None) -> str:
    """Return an HTML table.

    Args:
        head: column names, as HTML.
        rows: cells as HTML; row number ``best`` is marked.
        kind: CSS classes of the table.
        best: index of the row to mark; None to mark no row.
    """
    names = "".join(f'<th scope="col">{name}</th>' for name in head)
    lines = []
    for index, row in enumerate(rows):
        mark = ' class="top"' if index == best else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>")
    attribute = f' class="{kind}"' if kind else ""
    return f"<table{attribute}><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def scrolled(name: str, content: str, kind: str = "card scroll") -> str:
    """Return a box with its own scroll bars, which the keyboard reaches too.

    Args:
        name: what is in the box, for readers who do not see it; plain text.
        content: HTML.
        kind: CSS classes of the box.
    """
    return f'<div class="{kind}" role="group" aria-label="{esc(name)}" tabindex="0">{content}</div>'
