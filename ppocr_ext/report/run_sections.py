"""Sections of the report below its summary; each returns an empty text if it has nothing to show."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.curves import best_point, color_mark, draw, plots_of
from ppocr_ext.report.formats import duration, esc, finite_number, percent, plain, similarity
from ppocr_ext.report.page_samples import SampleCard, SampleSet
from ppocr_ext.report.page_template import table
from ppocr_ext.report.run_folder import RunFolder

_MOST_SAMPLES = 40  # skipped samples that are listed
_LONGEST = 300  # characters shown of a value or a label
_LONGEST_LINE = 1000  # characters shown about a skipped sample
_MOST_EVALUATIONS = 500  # rows of the table


def curves(runs: Sequence[RunFolder]) -> str:
    """Return one plot for each number, with all runs in it."""
    plots = plots_of([run.metrics for run in runs])
    if not plots:
        return ""
    names = "".join(_name(run, index) for index, run in enumerate(runs))
    figures = "".join(
        f'<figure class="card"><figcaption>{esc(plot.title)}</figcaption>{svg}</figure>'
        for plot, svg in zip(plots, draw(plots, [run.name for run in runs]), strict=True)
    )
    legend = f'<div class="legend">{names}</div>' if len(runs) > 1 else ""
    return f'<h2>Curves</h2>{legend}<div class="grid2">{figures}</div>'


def _name(run: RunFolder, index: int) -> str:
    return f'<span class="name">{color_mark(index)}{esc(run.name)}</span>'


def _heading(runs: Sequence[RunFolder], index: int) -> str:
    """Return which run a card is about; nothing for a single run."""
    if len(runs) == 1:
        return ""
    return f'<div class="name">{color_mark(index)}<h3>{esc(runs[index].name)}</h3></div>'


def predictions(runs: Sequence[RunFolder]) -> str:
    """Return samples with their predictions and images, errors first."""
    cards = []
    for index, run in enumerate(runs):
        # only the first evaluation of the first two runs is unfolded
        sets = "".join(_sample_set(found, index < 2 and n == 0) for n, found in enumerate(run.samples))
        if sets:
            cards.append(f'<div class="card" style="margin-bottom:14px">{_heading(runs, index)}{sets}</div>')
    return f"<h2>Predictions</h2>{''.join(cards)}" if cards else ""


def _sample_set(found: SampleSet, unfolded: bool) -> str:
    correct = found.count - found.wrong
    share = percent(correct / found.count) if found.count else "–"
    rule = f", {found.rule}" if found.rule else ""
    cells = "".join(sample_card(card) for card in found.cards)
    long = any(card.is_long for card in found.cards)
    return (
        f"<details{' open' if unfolded else ''}><summary>{esc(found.source)}: {correct:,} of {found.count:,} correct "
        f"({share}){esc(rule)}. Shown: errors with the highest confidence, then correct samples with the lowest"
        f'</summary><div class="samples{" long" if long else ""}">{cells}</div></details>'
    )


def sample_card(card: SampleCard) -> str:
    """Return a sample with image, label, prediction and confidence; differences are marked."""
    label, text = _mark_differences(card.label[:_LONGEST], card.text[:_LONGEST])
    alt = esc(card.image or "image")
    image = f'<img alt="{alt}" src="data:image/png;base64,{card.png}">' if card.png else ""
    name = f"<dt>image</dt><dd>{esc(card.image)}</dd>" if card.image and not image else ""
    then = ""
    if card.before is not None:
        before = _mark_differences(card.label[:_LONGEST], card.before[:_LONGEST])[1]
        then = f"<dt>before</dt><dd>{before or '<i>empty</i>'}</dd>"
    if card.nrtr is not None:
        nrtr = _mark_differences(card.label[:_LONGEST], card.nrtr[:_LONGEST])[1]
        then += f"<dt>by NRTR</dt><dd>{nrtr or '<i>empty</i>'}</dd>"
    return (
        f'<div class="sample {"right" if card.correct else "wrong"}">{image}<div><dl>{name}'
        f"<dt>label</dt><dd>{label}</dd><dt>prediction</dt><dd>{text or '<i>empty</i>'}</dd>{then}"
        f'<dt>confidence</dt><dd class="sure">{percent(card.confidence)}</dd></dl></div></div>'
    )


def _mark_differences(label: str, text: str) -> tuple[str, str]:
    marked = ["", ""]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, label, text, autojunk=False).get_opcodes():
        for side, (tag, piece) in enumerate((("del", label[a:b]), ("ins", text[c:d]))):
            marked[side] += esc(piece) if kind == "equal" or not piece else f"<{tag}>{esc(piece)}</{tag}>"
    return marked[0], marked[1]


def evaluations(runs: Sequence[RunFolder]) -> str:
    """Return a table of the evaluations of each run, with the best one marked."""
    tables = "".join(
        f'<div class="card">{_heading(runs, index)}{_evaluations(run)}</div>'
        for index, run in enumerate(runs)
        if run.metrics.evals
    )
    return f'<h2>Evaluations</h2><div class="grid2 wide">{tables}</div>' if tables else ""


def _evaluations(run: RunFolder) -> str:
    evals = run.metrics.evals
    known = ("kind", "epoch", "step", "time", "acc", "norm_edit_dis", "fps")
    others = [key for key in dict.fromkeys(key for line in evals for key in line) if key not in known]
    others = [key for key in others if not key.endswith("_epoch")]
    best_step = (best_point(run.metrics.series("eval", run.indicator)) or (None,))[0]
    late = evals[-_MOST_EVALUATIONS:]
    shown = [line for line in evals[:-_MOST_EVALUATIONS] if line["step"] == best_step] + late
    rows = [
        [plain(line["step"]), plain(line.get("epoch")), duration(line.get("time"))]
        + [percent(line.get("acc")), similarity(line.get("norm_edit_dis"))]
        + [_metric(key, line.get(key)) for key in others]
        for line in shown
    ]
    best = next((index for index, line in enumerate(shown) if line["step"] == best_step), None)
    head = ["step", "epoch", "time", "accuracy", "1 − NED", *map(esc, others)]
    rule = f"; accuracy: {SPACES_IGNORED}" if run.ignores_spaces else ""
    part = f"; the last {len(late)} of {len(evals):,}, and the best" if len(evals) > len(late) else ""
    return (
        f'<p class="soft small">marked: best {esc(run.indicator_name)}{part}{esc(rule)}</p>'
        f'<div class="scroll">{table(head, rows, best=best)}</div>'
    )


def _metric(name: str, value: Any) -> str:
    """Format a metric with spaces, of another sub-model (``Teacher_acc``), or of a plugin."""
    if name.endswith(("_acc", "acc_with_space")):
        return percent(value)
    return similarity(value) if name.endswith("_norm_edit_dis") else plain(value)


def warnings(runs: Sequence[RunFolder]) -> str:
    """Return what the checks before each run warned of; the whole list is in ``preflight.json``."""
    cards = []
    for index, run in enumerate(runs):
        found = _dicts(run.preflight.get("warnings"))
        rows = []
        for issue in found[:_MOST_SAMPLES]:
            about = ": ".join(str(issue[key]) for key in ("where", "path", "message") if issue.get(key))
            rows.append([esc(part[:_LONGEST_LINE]) for part in (str(issue.get("code", "–")), about)])
        if rows:
            listed = table(["warning", "about"], rows, "left wrap")
            cards.append(f'<div class="card scroll">{_heading(runs, index)}{listed}</div>')
    return f"<h2>Warnings before the run</h2>{''.join(cards)}" if cards else ""


def data(runs: Sequence[RunFolder]) -> str:
    """Return what preflight found in the label files: counts by reason, and some skipped samples."""
    rows, details = [], []
    for index, run in enumerate(runs):
        for mode, found in run.preflight.items():
            if not isinstance(found, dict) or finite_number(found.get("total")) is None:
                continue
            counts = found.get("counts")
            reasons = [f"{plain(n)} {esc(r)}" for r, n in counts.items()] if isinstance(counts, dict) else []
            total, usable = plain(found.get("total")), plain(found.get("usable"))
            rows.append([_name(run, index), esc(mode), total, usable, ", ".join(reasons) or "none"])
            details.append(_skipped(run, str(mode), found))
    if not rows:
        return ""
    listed = table(["run", "section", "samples", "usable", "skipped"], rows, "left")
    return f'<h2>Data</h2><div class="card scroll">{listed}{"".join(details)}</div>'


def _skipped(run: RunFolder, mode: str, found: dict[str, Any]) -> str:
    lines = _dicts(found.get("rejected"))
    if not lines:
        return ""
    named = [
        f"{line.get('file')}:{line.get('line')}: {line.get('reason')}: {line.get('detail')}"
        for line in lines[:_MOST_SAMPLES]
    ]
    text = "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in named)
    return f"<details><summary>{esc(run.name)}, {esc(mode)}: skipped samples</summary><pre>{esc(text)}</pre></details>"


def parts(runs: Sequence[RunFolder]) -> str:
    """Return the parts of the networks: parameters, how many of them are trained, factors of the learning rate."""
    rows = [
        [
            _name(run, index),
            esc(part.get("name", "–")),
            plain(part.get("parameters")),
            plain(part.get("trained")),
        ]
        + [_rates(part.get("rates"))]
        for index, run in enumerate(runs)
        for part in _dicts(run.record.get("parts"))
    ]
    if not rows:
        return ""
    head = ["run", "part", "parameters", "trained", "learning rate"]
    return f'<h2>Parts</h2><div class="card scroll">{table(head, rows, "left")}</div>'


def _rates(factors: Any) -> str:
    listed = factors if isinstance(factors, list) else []
    return ", ".join(f"× {plain(factor)}" for factor in listed) or "–"


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list that is read from a file; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def configuration(runs: Sequence[RunFolder]) -> str:
    """Return the keys in which the configs differ, and each config, folded."""
    differences = _differences(runs) if len(runs) > 1 else ""
    whole = "".join(
        f"<details><summary>config.yml of {esc(run.name)}</summary><pre>{esc(run.config_text)}</pre></details>"
        for run in runs
        if run.config_text
    )
    return (
        f'<h2>Configuration</h2><div class="card">{differences}{whole}</div>' if differences or whole else ""
    )


def _differences(runs: Sequence[RunFolder]) -> str:
    flat = [dict(_flat(run.config)) for run in runs]
    rows = [
        [esc(key), *(esc(values.get(key, "–")[:_LONGEST]) for values in flat)]
        for key in dict.fromkeys(key for values in flat for key in values)
        # the names of the runs show the folder already
        if len({values.get(key) for values in flat}) > 1 and key != "Global.save_model_dir"
    ]
    if not rows:
        return '<p class="soft">The configurations are the same.</p>'
    head = ["key", *(esc(run.name) for run in runs)]
    return f'<div class="scroll">{table(head, rows, "left wrap")}</div>'


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of a config by dotted path; a list of plain values is a leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
