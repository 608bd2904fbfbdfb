"""Write the report: one HTML page about one or several runs, and their curves as an SVG file."""

from __future__ import annotations

import difflib
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.contents import BEST, checkpoint_line
from ppocr_ext.checkpoint.files import names_in
from ppocr_ext.io.atomic import write_text
from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.curves import (
    color_mark,
    curves_file,
    figures,
    named_mark,
    plots_of,
    way_plot,
)
from ppocr_ext.report.page_samples import SampleCard, SampleSet
from ppocr_ext.report.page_template import (
    cut,
    duration,
    esc,
    finite_number,
    millions,
    page,
    percent,
    period,
    plain,
    scrolled,
    similarity,
    table,
)
from ppocr_ext.report.run_folder import RunFolder, lookup, origin_of, read_runs, unevaluated

_MAX_SAMPLES = 40  # limit of the skipped samples in the list
_LONGEST = 300  # characters shown of a value or a label
_LONGEST_LINE = 1000  # characters shown about a skipped sample
_MAX_EVALUATIONS = 500  # rows of the table


def curves(runs: Sequence[RunFolder]) -> str:
    """Return one plot for each number, with the curves of all runs."""
    plots = plots_of(runs)
    return f"<h2>Curves</h2>{figures(plots, [run.name for run in runs])}" if plots else ""


def general(runs: Sequence[RunFolder]) -> str:
    """Return what weights on the way from those before a training to the last ones read (``Eval.general``)."""
    ways = [
        f'<h3 style="margin:14px 0 4px">{esc(run.name)}</h3>' * (len(runs) > 1) + way
        for run in runs
        if (way := _way(run))
    ]
    return f"<h2>What is still read</h2>{''.join(ways)}" if ways else ""


def _way(run: RunFolder) -> str:
    """Return plot and table of the points of a run, with those of its best checkpoint marked; empty without points."""
    before, drop = (finite_number(run.general.get(key)) for key in ("before", "max_drop"))
    keys = ("share", "accuracy", "general")
    rows = [[finite_number(each.get(key)) for key in keys] for each in _dicts(run.general.get("points"))]
    points = [tuple(value for value in row if value is not None) for row in rows if None not in row]
    if before is None or drop is None or not points:
        return ""
    index = next((number for number, point in enumerate(points) if point[0] == run.best.get("share")), None)
    limit = max(0.0, before - drop)
    plot = way_plot(points, -1 if index is None else round(100 * points[index][0]), limit)
    said = (
        f"The best checkpoint ({origin_of(run.best) or 'none yet'}) must read at least {percent(limit)} of the general "
        f"list (red line), of which the weights before the training read {percent(before)}."
    )
    listed = table(
        ["of the way", "Eval", "general list"], [[*map(percent, point)] for point in points], best=index
    )
    return figures(
        [plot], ["Eval", "general list"], f'<div class="card"><p>{said}{_reported(run)}</p>{listed}</div>'
    )


def _reported(run: RunFolder) -> str:
    """Return what the lines of the general list that did not choose have lost; empty if it is not known."""
    keys = ("before", "after", "most_lost", "lines")
    found = [finite_number(lookup(run.general, "report", key)) for key in keys]
    if None in found:
        return ""
    before, after, most = map(percent, found[:3])
    return (
        f" Of {plain(found[3])} lines that do not choose, {before} are read before and {after} by the best checkpoint; "
        f"at most {most} are lost (95 %)."
    )


def _heading(runs: Sequence[RunFolder], index: int) -> str:
    """Return the name of the run as heading of a card; empty for a single run."""
    if len(runs) == 1:
        return ""
    return f'<div class="name">{color_mark(index)}<h3>{esc(runs[index].name)}</h3></div>'


def predictions(runs: Sequence[RunFolder]) -> str:
    """Return samples with their predictions and images, errors first."""
    cards = []
    for index, run in enumerate(runs):
        # Only the first set of the first two runs is unfolded.
        sets = "".join(
            _sample_set(sample_set, index < 2 and n == 0) for n, sample_set in enumerate(run.samples)
        )
        if sets:
            cards.append(f'<div class="card" style="margin-bottom:14px">{_heading(runs, index)}{sets}</div>')
    return f"<h2>Predictions</h2>{''.join(cards)}" if cards else ""


def _sample_set(samples: SampleSet, unfolded: bool) -> str:
    correct = samples.count - samples.wrong
    share = percent(correct / samples.count) if samples.count else "–"
    rule = f", {samples.rule}" if samples.rule else ""
    return (
        f"<details{' open' if unfolded else ''}><summary>{esc(samples.source)}: {correct:,} of {samples.count:,} "
        f"correct ({share}){esc(rule)}. Shown: errors with the highest confidence, then correct samples with the lowest"
        f"</summary>{sample_cards(samples.cards)}</details>"
    )


def sample_cards(cards: Sequence[SampleCard]) -> str:
    """Return samples in a grid, of which the columns are wide if a text line is long."""
    long = " long" if any(card.is_long for card in cards) else ""
    return f'<div class="samples{long}">{"".join(map(_sample_card, cards))}</div>'


def _sample_card(card: SampleCard) -> str:
    """Return a sample with image, label, prediction and confidence; differences are marked."""
    true = (card.text if card.label is None else card.label)[:_LONGEST]
    label, text = _mark_differences(true, card.text[:_LONGEST])
    labelled = "" if card.label is None else f"<dt>label</dt><dd>{label}</dd>"
    alt = esc(card.image or "image")
    image = f'<img alt="{alt}" src="data:image/png;base64,{card.png}">' if card.png else ""
    name = f"<dt>image</dt><dd>{esc(card.image)}</dd>" if card.image and not image else ""
    then = ""
    for title, other in ((card.other, card.before), ("by NRTR", card.nrtr)):
        if other is not None:
            marked = _mark_differences(true, other[:_LONGEST])[1]
            then += f"<dt>{title}</dt><dd>{marked or '<i>empty</i>'}</dd>"
    return (
        f'<div class="sample {"right" if card.correct else "wrong"}">{image}<div><dl>{name}'
        f"{labelled}<dt>prediction</dt><dd>{text or '<i>empty</i>'}</dd>{then}"
        f'<dt>confidence</dt><dd class="sure">{percent(card.confidence)}</dd></dl></div></div>'
    )


def _mark_differences(label: str, text: str) -> tuple[str, str]:
    sides = ["", ""]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, label, text, autojunk=False).get_opcodes():
        for side, (tag, piece) in enumerate((("del", label[a:b]), ("ins", text[c:d]))):
            sides[side] += esc(piece) if kind == "equal" or not piece else f"<{tag}>{esc(piece)}</{tag}>"
    return sides[0], sides[1]


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
    known = ("kind", "epoch", "step", "time", "acc", "norm_edit_dis", "fps", "is_best")
    keys = dict.fromkeys(key for line in evals for key in line)
    others = [key for key in keys if key not in known and not key.endswith("_epoch")]
    best_step = run.best.get("step")
    late = evals[-_MAX_EVALUATIONS:]
    shown = [line for line in evals[:-_MAX_EVALUATIONS] if line["step"] == best_step] + late
    rows = [
        [plain(line["step"]), plain(line.get("epoch")), duration(line.get("time"))]
        + [percent(line.get("acc")), similarity(line.get("norm_edit_dis"))]
        + [_metric(key, line.get(key)) for key in others]
        for line in shown
    ]
    best = next((index for index, line in enumerate(shown) if line["step"] == best_step), None)
    head = ["step", "epoch", "time", "accuracy", "1 − NED", *map(esc, others)]
    part = f"; the last {len(late)} of {len(evals):,}, and the best" if len(evals) > len(late) else ""
    return f'<p class="soft small">marked: best {esc(run.indicator_name)}{part}</p>' + scrolled(
        f"evaluations of {run.name}", table(head, rows, best=best), "scroll"
    )


def _metric(name: str, value: Any) -> str:
    """Format a metric with spaces, of another sub-model (``Teacher_acc``), or of a plugin."""
    if name.endswith(("_acc", "acc_with_space")):
        return percent(value)
    return similarity(value) if name.endswith("_norm_edit_dis") else plain(value)


def warnings(runs: Sequence[RunFolder]) -> str:
    """Return the warnings of the checks before each run; ``preflight.json`` has the whole list."""
    cards = []
    for index, run in enumerate(runs):
        rows = []
        for issue in _dicts(run.preflight.get("warnings"))[:_MAX_SAMPLES]:
            about = ": ".join(str(issue[key]) for key in ("where", "path", "message") if issue.get(key))
            rows.append([esc(part[:_LONGEST_LINE]) for part in (str(issue.get("code", "–")), about)])
        if rows:
            listed = table(["warning", "about"], rows, "left wrap")
            cards.append(scrolled(f"warnings of {run.name}", f"{_heading(runs, index)}{listed}"))
    return f"<h2>Warnings before the run</h2>{''.join(cards)}" if cards else ""


def data(runs: Sequence[RunFolder]) -> str:
    """Return the numbers of preflight (samples, usable ones, skipped ones by reason), and some skipped samples."""
    rows = []
    details = []
    for index, run in enumerate(runs):
        for mode, section in run.preflight.items():
            if not isinstance(section, dict) or finite_number(section.get("total")) is None:
                continue
            counts = section.get("counts")
            reasons = [f"{plain(n)} {esc(r)}" for r, n in counts.items()] if isinstance(counts, dict) else []
            numbers = [plain(section.get(key)) for key in ("total", "usable")]
            rows.append([named_mark(index, run.name), esc(mode), *numbers, ", ".join(reasons) or "none"])
            details.append(_skipped(run, str(mode), section))
    if not rows:
        return ""
    listed = table(["run", "section", "samples", "usable", "skipped"], rows, "left")
    box = scrolled("samples of each section", listed, "scroll")
    return f'<h2>Data</h2><div class="card">{box}{"".join(details)}</div>'


def _skipped(run: RunFolder, mode: str, section: dict[str, Any]) -> str:
    lines = _dicts(section.get("rejected"))
    if not lines:
        return ""
    named = [
        f"{line.get('file')}:{line.get('line')}: {line.get('reason')}: {line.get('detail')}"
        for line in lines[:_MAX_SAMPLES]
    ]
    text = "\n".join(cut(line, _LONGEST_LINE) for line in named)
    return f"<details><summary>{esc(run.name)}, {esc(mode)}: skipped samples</summary><pre>{esc(text)}</pre></details>"


def parts(runs: Sequence[RunFolder]) -> str:
    """Return the parts of the networks: parameters, how many of them are trained, factors of the learning rate."""
    rows = [
        [
            named_mark(index, run.name),
            esc(part.get("name", "–")),
            plain(part.get("parameters")),
            plain(part.get("trained")),
            _rates(part.get("rates")),
        ]
        for index, run in enumerate(runs)
        for part in _dicts(run.record.get("parts"))
    ]
    if not rows:
        return ""
    head = ["run", "part", "parameters", "trained", "learning rate"]
    return f"<h2>Parts</h2>{scrolled('parts of the networks', table(head, rows, 'left'))}"


def _rates(factors: Any) -> str:
    listed = factors if isinstance(factors, list) else []
    return ", ".join(f"× {plain(factor)}" for factor in listed) or "–"


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list that is read from a file; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def configuration(runs: Sequence[RunFolder]) -> str:
    """Return a table of the keys that differ between the configs, and each config, folded."""
    differences = _differences(runs) if len(runs) > 1 and any(run.config for run in runs) else ""
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
        # The names of the runs show the folder.
        if len({values.get(key) for values in flat}) > 1 and key != "Global.save_model_dir"
    ]
    if not rows:
        return '<p class="soft">The configurations are the same.</p>'
    head = ["key", *(esc(run.name) for run in runs)]
    return scrolled("keys that differ", table(head, rows, "left wrap"), "scroll")


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


REPORT_FILE = "report.html"
# `reason` in run.json -> the words on the page.
_SIGNALS = {
    "signal 1": "stopped by SIGHUP (its terminal was closed)",
    "signal 2": "stopped by Ctrl-C (SIGINT)",
    "signal 15": "stopped by SIGTERM",
}
_STATUS = {"running": "running, or killed", "unknown": "status unknown"}


def write_report(paths: Sequence[str | Path], out: Path, title: str = "") -> list[RunFolder]:
    """Write the page of the runs in ``paths`` to ``out``, atomically.

    Args:
        paths: run folders, or folders that contain some.
        out: the page.
        title: by default the name of the run, or of the folder that contains all runs.

    Returns:
        The runs, for :func:`write_curves`.

    Raises:
        DataError: a path contains no run.
    """
    runs = read_runs(paths)
    sections = (summary, warnings, curves, general, predictions, evaluations, data, parts, configuration)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    body = "\n".join(section(runs) for section in sections)
    write_text(out, page(title or _title(runs), count, body))
    return runs


def write_curves(runs: Sequence[RunFolder], out: Path, title: str = "") -> bool:
    """Write the curves of ``runs`` to the SVG file ``out``; return False if no step has been logged yet."""
    if drawn := curves_file(runs, title):
        write_text(out, drawn)
    return bool(drawn)


def _title(runs: Sequence[RunFolder]) -> str:
    folders = [run.folder.resolve() for run in runs]
    if len(folders) == 1:
        return folders[0].name
    shared = {folder.parent.name for folder in folders}
    return shared.pop() if len(shared) == 1 else f"{len(runs)} runs"


def _numbers(run: RunFolder) -> dict[str, str]:
    """Return the most important numbers of a run as text, by their names in the table of runs."""
    train = run.metrics.train
    evals = run.metrics.evals
    speeds = [v for v in (finite_number(line.get("ips")) for line in train) if v is not None]
    seconds = [v for v in (finite_number(line.get("time")) for line in [*train, *evals]) if v is not None]
    speed = statistics.median(speeds) if speeds else None
    return {
        "best": percent(run.best.get(run.indicator)),
        "at step": plain(run.best.get("step")),
        "last": percent(evals[-1].get(run.indicator) if evals else None),
        "1 − NED": similarity(run.best.get("norm_edit_dis")),
        "steps": plain(max((line["step"] for line in [*train, *evals]), default=None)),
        "training": duration(max(seconds, default=None)),
        "images/s": "–" if speed is None else f"{speed:,.1f}" if speed < 100 else f"{speed:,.0f}",
        "parameters trained": millions(lookup(run.record, "parameters", "trained")),
    }


def summary(runs: Sequence[RunFolder]) -> str:
    """Return the numbers and facts of one run, or a table that compares several runs."""
    if len(runs) == 1:
        return _card(runs[0], 0, _figures(runs[0]))
    cards = "".join(_card(run, index, "") for index, run in enumerate(runs))
    return f'{_comparison(runs)}<div class="grid2" style="margin-top:14px">{cards}</div>'


def _status_title(run: RunFolder, index: int, level: str = "h2") -> str:
    return (
        f'<div class="name">{color_mark(index)}<{level}>{esc(run.name)}</{level}>'
        f'<span class="badge {run.status}">{_STATUS.get(run.status, run.status)}</span></div>'
    )


def _card(run: RunFolder, index: int, figures: str) -> str:
    reason = lookup(run.record, "reason")
    notes = [(f"note {run.status}", _SIGNALS.get(str(reason), reason))] if reason else []
    verdict = str(lookup(run.record, "verdict", "text") or "").splitlines()
    steps = [
        finite_number(lookup(run.record, "global_step")) or 0,
        *(line["step"] for line in run.metrics.train),
    ]
    evaluated = run.metrics.evals[-1]["step"] if run.metrics.evals else 0
    late = unevaluated(evaluated, int(max(steps))) if lookup(run.config, "Eval") else ""
    notes += [("note", note) for note in (*verdict, *run.notes, late) if note]
    listed = "".join(f'<p class="{kind}">{esc(note)}</p>' for kind, note in notes)
    facts = "".join(f"<dt>{name}</dt><dd>{esc(value)}</dd>" for name, value in _facts(run) if value)
    return f'<article class="card">{_status_title(run, index)}{figures}<dl>{facts}</dl>{listed}</article>'


def _figures(run: RunFolder) -> str:
    numbers = _numbers(run)
    name = run.indicator_name
    where = origin_of(run.best) or ("none accepted" if run.metrics.evals else "no evaluation yet")
    labels = {
        "best": f"best {name}, {where}",
        "last": f"last {name}",
        "1 − NED": "1 − edit distance at the best",
        "images/s": "images/s in training",
        "training": "of training",
        "parameters trained": "parameters trained",
    }
    cells = (
        f"<div><b>{esc(numbers[key])}</b><span>{esc(label)}</span></div>" for key, label in labels.items()
    )
    return f'<div class="figures">{"".join(cells)}</div>'


def _comparison(runs: Sequence[RunFolder]) -> str:
    tables = [_numbers(run) for run in runs]
    bests = [finite_number(run.best.get(run.indicator)) for run in runs]
    top = max((best for best in bests if best is not None), default=None)
    rows = []
    for index, (run, numbers, best) in enumerate(zip(runs, tables, bests, strict=True)):
        if top is not None and best == top:
            numbers["best"] = f"<b>{numbers['best']}</b>"
        rows.append([_status_title(run, index, "span"), *numbers.values()])
    return scrolled("the runs", table(["run", *tables[0]], rows))


def _facts(run: RunFolder) -> list[tuple[str, str]]:
    def recorded(*keys: str) -> str:
        value = lookup(run.record, *keys)
        return "" if value is None else str(value)

    epochs = lookup(run.config, "Global", "epoch_num")
    versions = lookup(run.record, "versions")
    lines = [*run.metrics.train[-1:], *run.metrics.evals[-1:]]
    epoch = max(
        (line["epoch"] for line in lines if finite_number(line.get("epoch")) is not None), default=None
    )
    of_epochs = f", epoch {epoch} of {epochs}" if epoch and finite_number(epochs) else ""
    every, trained = (lookup(run.record, "parameters", key) for key in ("all", "trained"))
    parameters = millions(every) + (f", {millions(trained)} of them trained" if trained != every else "")
    processes = finite_number(lookup(run.record, "processes")) or 1
    classes = recorded("dictionary", "classes")
    dictionary = Path(recorded("dictionary", "path"))
    if dictionary.is_relative_to(Path.cwd()):
        dictionary = dictionary.relative_to(Path.cwd())
    kept = [name for name in names_in(run.folder) if name in (BEST, "latest")]
    return [
        ("steps", _numbers(run)["steps"] + of_epochs if lines else ""),
        ("parameters", "" if finite_number(every) is None else parameters),
        ("accuracy", SPACES_IGNORED if run.ignores_spaces else ""),
        *(("checkpoint", checkpoint_line(run.folder / name, name)) for name in kept),
        ("date", period(recorded("started"), recorded("ended"))),
        (
            "resumed at",
            f"step {plain(lookup(run.record, 'resumed_from_step'))}" if recorded("resumed_from") else "",
        ),
        ("device", recorded("device") + (f", {processes:.0f} processes" if processes > 1 else "")),
        ("seed", recorded("seed")),
        ("dictionary", f"{classes} classes, {dictionary}" if classes else ""),
        ("PaddleOCR", f"{recorded('host', 'version')} {recorded('host', 'form')}".strip()),
        (
            "versions",
            ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "",
        ),
        ("folder", str(run.folder)),
    ]
