"""What a first run says: one screen of text, and a page with pictures; no Paddle."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.evaluation.predictions import Rate
from ppocr_ext.first_run.decisions import Decision, Plan
from ppocr_ext.first_run.inspect import Inspection
from ppocr_ext.first_run.split import FEW_VAL, OWN_SPLIT
from ppocr_ext.first_run.writing import CONFIG, JUDGED, RUN, Data, Files, max_drop
from ppocr_ext.messages import command_line, shortened
from ppocr_ext.report.page_template import duration, esc, page, percent, plain, scrolled, table
from ppocr_ext.report.run_page import sample_cards
from ppocr_ext.sources.samples import SPLITS, Source

if TYPE_CHECKING:  # it imports Paddle
    from ppocr_ext.first_run.trial import Trial

_SHOWN = 3  # examples
_CHARACTERS = 200  # on the page


def source_lines(source: Source) -> Iterator[str]:
    """Yield which format was recognised, and the first samples."""
    yield f"recognised: {source.format} ({shortened(source.files, _SHOWN) or 'no label file'})"
    for sample, _ in zip(source.samples(), range(_SHOWN), strict=False):
        yield f"  {sample.image}  ->  {sample.text!r}  ({sample.place})"
    yield from (f"note: {note}" for note in source.notes)


def finding_lines(inspection: Inspection) -> Iterator[str]:
    """Yield what labels and images are like, and what is doubtful in them."""
    texts, images = inspection.found.texts, inspection.found.images
    low, middle, high = texts.lengths
    yield f"samples: {texts.samples:,} usable"
    yield (
        f"labels: {low:.0f} to {high:.0f} characters (5 to 95 % of them; median {middle:.0f}, longest "
        f"{texts.longest[0]}), "
        f"{len(texts.characters):,} different"
    )
    yield (
        f"images: {_range(images.heights)} pixels high, {_range(images.ratios)} times as wide as high (5 to 95 % of "
        f"{images.looked_at:,} looked at)"
    )
    counts = inspection.split.counts()
    parts = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    how = "your own" if inspection.split.by == OWN_SPLIT else f"by {inspection.split.by}"
    low, high = Rate(round(0.9 * counts["val"]), counts["val"]).interval
    yield f"split: {parts} ({how}); a measured 90 % will mean {low:.0%} to {high:.0%}"
    if (count := counts["val"]) <= FEW_VAL:
        yield (
            f"warning: val has {count} samples, so each is {100 / count:.0f} points of the accuracy: they show whether "
            "a training works, not which one is better. Fix: label at least 100 samples for val."
        )
    yield from (f"note: {note}" for note in inspection.notes)
    if once := sum(count == 1 for count in texts.characters.values()):
        first = ", ".join(f"{each} ({place})" for each, _, place in texts.rarest[: min(once, _SHOWN)])
        yield f"note: {once:,} characters occur only once: {first}. Fix: add samples, or correct the labels."
    yield from (f"{issue.level}: {issue.text}" for issue in inspection.found.issues)


def _range(values: Sequence[float]) -> str:
    return f"{values[0]:.3g} to {values[2]:.3g}"


def decision_lines(inspection: Inspection) -> Iterator[str]:
    """Yield each decision with the key that changes it."""
    rows = [Decision("_BASE_", inspection.plan.base.name), *inspection.plan.decisions]
    width = max(len(row.key) for row in rows)
    for row in rows:
        yield f"  {row.key:<{width}}  {row.value}{f'  ({row.why})' if row.why else ''}"
    for name, share, source in inspection.covers[:1]:
        yield f"  official {name}: has {percent(share)} of your characters"
        if (reads := inspection.reads) is not None:
            yield f"  it is here ({source.place}), and reads {reads.value:.1%} of {reads.total} of your lines now"
        if inspection.plan.base.weights is None:
            get = "" if source.is_here else f"ppocr-ext weights get {name}, then "
            yield f"  Begin with it: {get}init … --base {name} --force"


def changed_lines(inspection: Inspection, plan: Plan) -> Iterator[str]:
    """Yield the decisions that are others in a plan that fits into the memory and the time."""
    yield from (
        f"to fit into memory and time: {row.key}: {row.value}{row.why and f' ({row.why})'}"
        for row in plan.decisions
        if row not in inspection.plan.decisions
    )


def result_lines(inspection: Inspection, files: Files, trial: Trial) -> Iterator[str]:
    """Yield what was written and measured."""
    out = inspection.out
    plan = inspection.plan
    numbers = trial.numbers
    yield f"written: {out}: " + ", ".join(
        f"{name} {files.counts[name]:,}"
        for name in (*SPLITS, "general", "taught", "more")
        if files.counts.get(name)
    )
    yield from (f"  left out: {count:,} {reason}" for reason, count in files.left_out.most_common())
    yield from (f"note: {note}" for note in (*files.notes, trial.note) if note)
    if "accuracy" in numbers:
        unknown = (
            f"; {numbers['unknown']:,} with characters that it does not know" if numbers["unknown"] else ""
        )
        part = _part(numbers["samples"], files.counts["val"])
        who = "Before you train" if plan.base.teacher is None else "The teacher reads"
        yield f"{who}: {numbers['accuracy']:.2%} of val ({numbers['samples']:,} samples{part}{unknown})"
    if plan.base.is_from_nothing:
        drawn = f" with {plan.drawn:,} drawn lines besides yours" if plan.drawn else ""
        yield f"From nothing{drawn}: expect nothing right for about {plan.guessing:,} of {plan.steps:,} steps"
    if "own_size" in numbers:
        yield f"  {numbers['own_size']:.2%} with images in the size that these weights were trained with"
    if "general" in numbers:
        part = _part(numbers["general_samples"], files.counts["general"])
        samples = f"{numbers['general_samples']:,} samples{part}"
        of_list = f"{numbers['general']:.2%} of {out / 'general.txt'} ({samples})"
        drawn = (
            "; these lines are drawn: no real text is measured (--general LIST does that), and beside drawn lines that "
            "train, a rise proves nothing"
        )
        limit = f"{max_drop(inspection):.0%} may be lost (Eval.general)"
        yield f"  and {of_list}; {limit}{'' if inspection.general else drawn}"
    if trial.doubtful:
        judged = numbers["judged"]
        part = _part(judged, files.counts["train"] + files.counts["val"])
        yield f"  doubtful labels: {out / 'doubtful.tsv'}, the worst first ({judged:,} samples{part})"
    elif files.val.labels is not None:
        yield f"  wrong labels cannot be found before weights read them: later, init … --base {out / RUN} --out NAME"
    if "seconds" in numbers:
        of_evaluation = numbers.get("reading", 0.0) * (files.counts["val"] + files.counts["general"])
        evaluations = plan.steps // plan["Global.eval_batch_step"][1]
        whole = duration(numbers["seconds"] * plan["Global.epoch_num"] + evaluations * of_evaluation)
        yield f"the training takes about {whole} on one core or one GPU of this machine"


def _part(read: float, every: int) -> str:
    return f" of {every:,}, taken evenly" if read < every and every > JUDGED else ""


def next_commands(inspection: Inspection, files: Files) -> list[str]:
    """Return the commands that follow."""
    out = inspection.out
    run = out / RUN

    def images(data: Data) -> list[Path | str]:
        return [data.folder] if data.labels is None else [data.labels, "--data-dir", data.folder]

    commands = [
        command_line("train", "-c", out / CONFIG),
        command_line("predict", run, *images(files.val), "--bad-cases", "--sheet", "worst.png"),
    ]
    if files.general is not None and inspection.plan.base.weights is None:  # else the run reads it
        commands.append(command_line("predict", run, *images(files.general), "--output", "general.tsv"))
    return [*commands, command_line("export", run, "--output", "model")]


def page_text(inspection: Inspection, files: Files, trial: Trial) -> str:
    """Return the HTML page; labels and names are escaped."""
    texts = inspection.found.texts
    figures = {
        "usable samples": plain(texts.samples),
        "characters": plain(len(texts.characters)),
        "of val by the weights so far": percent(trial.numbers.get("accuracy")),
    }
    cards = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in figures.items())
    lines = [
        *source_lines(inspection.source),
        *finding_lines(inspection),
        *result_lines(inspection, files, trial),
    ]
    warnings = "".join(f'<div class="note">{esc(line)}</div>' for line in lines if line.startswith("warning"))
    others = "".join(f"<li>{esc(line)}</li>" for line in lines if not line.startswith("warning"))
    decisions = [
        (f"<code>{esc(row.key)}</code>", esc(row.value), esc(row.why)) for row in inspection.plan.decisions
    ]
    rarest = [(esc(c), f"U+{ord(c):04X}", plain(n), esc(place)) for c, n, place in texts.rarest]
    counts = [f"{esc(c)} <small>{plain(n)}</small>" for c, n in texts.characters.items()]
    every = shortened(counts, _CHARACTERS, " ")
    png = base64.b64encode(trial.look).decode("ascii")
    look = f'<img alt="Images and labels of the first samples" src="data:image/png;base64,{png}">'
    covers = [
        (esc(each.name), percent(each.share), esc(each.source.place if each.source.is_here else "no"))
        for each in inspection.covers
    ]
    of_covers = ["weights", "characters that they know", "on this machine"]
    parts = [
        f'<div class="card"><div class="figures">{cards}</div>{warnings}<ul class="lines">{others}</ul></div>',
        _section("Decisions", ["key", "value", "why"], decisions),
        "<h2>As the network sees the images</h2>" + scrolled("the first samples with their labels", look),
        f"<h2>Doubtful labels, the worst first</h2>{sample_cards(trial.doubtful)}" if trial.doubtful else "",
        _section("Rarest characters", ["character", "code", "samples", "first"], rarest),
        f'<details><summary>All characters</summary><p class="glyphs">{every}</p></details>',
        _section("Official networks", of_covers, covers) if covers else "",
        "<h2>Next</h2><pre>" + esc("\n".join(next_commands(inspection, files))) + "</pre>",
    ]
    return page(
        f"First look at {inspection.source.root}",
        f"{inspection.source.format}, {texts.samples:,} samples",
        "".join(parts),
    )


def _section(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"<h2>{title}</h2>{scrolled(title, table(head, rows, 'left wrap'))}"
