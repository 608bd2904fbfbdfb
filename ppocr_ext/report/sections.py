"""Sections of the report below its head; each is empty where there is nothing to show."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.panels import best_point, panels_of
from ppocr_ext.report.run_data import RunData
from ppocr_ext.report.samples import Sample, SampleSet
from ppocr_ext.report.summary import INDICATOR_NAMES, legend, name_of, swatch
from ppocr_ext.report.svg import chart
from ppocr_ext.report.text import duration, esc, number, percent, plain, similarity

_MOST_LINES = 40  # unusable lines named
_LONGEST = 300  # characters of a value or a label that are shown
_LONGEST_LINE = 1000  # characters of what is said of an unusable line
_MOST_EVALUATIONS = 500  # in a table


def curves(runs: Sequence[RunData]) -> str:
    """A plot for each number, with all runs in it."""
    names = [run.name for run in runs]
    panels = panels_of([run.metrics for run in runs])
    last = max((step for panel in panels for series in panel.series for step in series.steps), default=0)
    figures = "".join(
        f'<figure class="card"><figcaption>{esc(panel.title)}</figcaption>{chart(panel, names, last)}</figure>'
        for panel in panels
    )
    key = legend(runs) if len(runs) > 1 else ""
    return f'<h2>Curves</h2>{key}<div class="grid2">{figures}</div>' if figures else ""


def predictions(runs: Sequence[RunData]) -> str:
    """Lines that were read, mistakes first, with their images."""
    parts = []
    for index, run in enumerate(runs):
        # of many runs, and of many evaluations of one, the first are unfolded
        sets = "".join(_sample_set(found, index < 2 and n == 0) for n, found in enumerate(run.samples))
        if sets:
            parts.append(_named(runs, index) + sets)
    cards = "".join(f'<div class="card" style="margin-bottom:14px">{part}</div>' for part in parts)
    return f"<h2>What was read</h2>{cards}" if parts else ""


def _sample_set(found: SampleSet, unfolded: bool) -> str:
    right = found.judged - found.wrong
    share = percent(right / found.judged) if found.judged else "–"
    rule = f", {found.rule}" if found.rule else ""
    cells = "".join(sample_card(sample) for sample in found.samples)
    long = any(sample.is_long for sample in found.samples)
    return (
        f"<details{' open' if unfolded else ''}><summary>{esc(found.source)}: {right:,} of {found.judged:,} right "
        f"({share}){esc(rule)}. Shown: the surest mistakes, then the least sure of what is right</summary>"
        f'<div class="samples{" long" if long else ""}">{cells}</div></details>'
    )


def sample_card(sample: Sample) -> str:
    """A line that was read: image, label and reading with what differs marked, confidence."""
    label, text = _marked(sample.label[:_LONGEST], sample.text[:_LONGEST])
    alt = esc(sample.image or "image")
    image = f'<img alt="{alt}" src="data:image/png;base64,{sample.png}">' if sample.png else ""
    name = f"<dt>image</dt><dd>{esc(sample.image)}</dd>" if sample.image and not image else ""
    before = "" if sample.before is None else _marked(sample.label[:_LONGEST], sample.before[:_LONGEST])[1]
    then = "" if sample.before is None else f"<dt>before</dt><dd>{before or '<i>nothing</i>'}</dd>"
    return (
        f'<div class="sample {"right" if sample.right else "wrong"}">{image}<div><dl>{name}'
        f"<dt>label</dt><dd>{label}</dd><dt>read</dt><dd>{text or '<i>nothing</i>'}</dd>{then}"
        f'<dt>sure</dt><dd class="sure">{percent(sample.confidence)}</dd></dl></div></div>'
    )


def _marked(label: str, text: str) -> tuple[str, str]:
    """Both as HTML, with what differs marked."""
    marked = ["", ""]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, label, text, autojunk=False).get_opcodes():
        for side, (tag, piece) in enumerate((("del", label[a:b]), ("ins", text[c:d]))):
            marked[side] += esc(piece) if kind == "equal" or not piece else f"<{tag}>{esc(piece)}</{tag}>"
    return marked[0], marked[1]


def _named(runs: Sequence[RunData], index: int) -> str:
    """Which run a part of a section is about; of one run there is nothing to say."""
    return name_of(runs[index], index) if len(runs) > 1 else ""


def evaluations(runs: Sequence[RunData]) -> str:
    """A table of the evaluations of each run, the best marked."""
    tables = "".join(
        f'<div class="card">{_named(runs, index)}{_evaluations(run)}</div>'
        for index, run in enumerate(runs)
        if run.metrics.evals
    )
    return f'<h2>Evaluations</h2><div class="grid2 wide">{tables}</div>' if tables else ""


def _evaluations(run: RunData) -> str:
    best = best_point(run.metrics.eval_series(run.indicator))
    known = ("kind", "epoch", "step", "time", "acc", "norm_edit_dis", "fps")
    others = list(dict.fromkeys(key for line in run.metrics.evals for key in line if key not in known))
    others = [key for key in others if not key.endswith("_epoch")]
    names = ["step", "epoch", "time", "accuracy", "1 − NED", *others]
    best_step = None if best is None else best[0]
    late = run.metrics.evals[-_MOST_EVALUATIONS:]
    shown = [line for line in run.metrics.evals[:-_MOST_EVALUATIONS] if line["step"] == best_step] + late
    rows = [
        [plain(line["step"]), plain(line.get("epoch")), duration(line.get("time"))]
        + [percent(line.get("acc")), similarity(line.get("norm_edit_dis"))]
        + [_metric(key, line.get(key)) for key in others]
        for line in shown
    ]
    head = "".join(f"<th>{esc(name)}</th>" for name in names)
    body = "".join(
        ('<tr class="top">' if line["step"] == best_step else "<tr>")
        + "".join(f"<td>{cell}</td>" for cell in row)
        + "</tr>"
        for line, row in zip(shown, rows, strict=True)
    )
    name = INDICATOR_NAMES.get(run.indicator, run.indicator)
    rule = f"; accuracy: {SPACES_IGNORED}" if run.ignores_spaces else ""
    count = len(run.metrics.evals)
    part = f"; the last {len(late)} of {count:,}, and the best" if count > len(late) else ""
    return (
        f'<p class="soft small">marked: best {esc(name)}{part}{esc(rule)}</p>'
        f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
    )


def _metric(name: str, value: Any) -> str:
    """A metric of another sub-model (``Teacher_acc``), with spaces, or one that only its author knows."""
    if name.endswith(("_acc", "acc_with_space")):
        return percent(value)
    return similarity(value) if name.endswith("_norm_edit_dis") else plain(value)


def data(runs: Sequence[RunData]) -> str:
    """What preflight found in the label files: lines left out by reason, and some of them."""
    rows, cards = [], []
    for index, run in enumerate(runs):
        for mode, found in run.preflight.items():
            if isinstance(found, dict) and number(found.get("total")) is not None:
                rows.append(_found(run, index, str(mode), found))
                cards.append(_left_out(run, str(mode), found))
    if not rows:
        return ""
    head = "<th>run</th><th>section</th><th>lines</th><th>usable</th><th>left out</th>"
    return (
        f'<h2>Data</h2><div class="card scroll"><table class="left"><tr>{head}</tr>{"".join(rows)}</table>'
        f"{''.join(cards)}</div>"
    )


def _found(run: RunData, index: int, mode: str, found: dict[str, Any]) -> str:
    counts = found.get("counts")
    reasons = ", ".join(f"{plain(n)} {esc(r)}" for r, n in counts.items()) if isinstance(counts, dict) else ""
    name = f'<span class="name">{swatch(index)}{esc(run.name)}</span>'
    total, usable = plain(found.get("total")), plain(found.get("usable"))
    return f"<tr><td>{name}</td><td>{esc(mode)}</td><td>{total}</td><td>{usable}</td><td>{reasons or 'none'}</td></tr>"


def _left_out(run: RunData, mode: str, found: dict[str, Any]) -> str:
    rejected = found.get("rejected")
    lines = [line for line in rejected if isinstance(line, dict)] if isinstance(rejected, list) else []
    if not lines:
        return ""
    named = (
        f"{line.get('file')}:{line.get('line')}: {line.get('reason')}: {line.get('detail')}"
        for line in lines[:_MOST_LINES]
    )
    text = "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in named)
    return f"<details><summary>{esc(run.name)}, {esc(mode)}: lines left out</summary><pre>{esc(text)}</pre></details>"


def configuration(runs: Sequence[RunData]) -> str:
    """The keys in which the runs' configs differ, and each config folded away."""
    table = _differences(runs) if len(runs) > 1 else ""
    whole = "".join(
        f"<details><summary>config.yml of {esc(run.name)}</summary><pre>{esc(run.config_text)}</pre></details>"
        for run in runs
        if run.config_text
    )
    return f'<h2>Configuration</h2><div class="card">{table}{whole}</div>' if table or whole else ""


def _differences(runs: Sequence[RunData]) -> str:
    flat = [dict(_flat(run.config)) for run in runs]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    differing = [key for key in keys if len({values.get(key) for values in flat}) > 1]
    differing = [key for key in differing if key != "Global.save_model_dir"]  # the runs' names say it
    if not differing:
        return '<p class="soft">The configurations are the same.</p>'
    head = "".join(f"<th>{esc(run.name)}</th>" for run in runs)
    body = "".join(
        f"<tr><td>{esc(key)}</td>"
        + "".join(f"<td>{esc(values.get(key, '–')[:_LONGEST])}</td>" for values in flat)
        + "</tr>"
        for key in differing
    )
    return f'<div class="scroll"><table class="left wrap"><tr><th>key</th>{head}</tr>{body}</table></div>'


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a config by dotted path; a list of plain values is a leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}[{index}]")
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        yield path, text
