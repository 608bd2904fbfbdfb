"""Train on one batch until it is known by heart, all heads together and then each apart, and report the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import paddle
from paddle import Tensor
from paddle.optimizer import Optimizer
from tqdm import tqdm

from ppocr_ext.report.curves import Plot, figures, plots_file
from ppocr_ext.report.page_samples import normalised_png
from ppocr_ext.report.page_template import cut, esc, page, plain, scrolled, table
from ppocr_ext.sanity.head_probe import Finding
from ppocr_ext.sanity.subject import Subject, TrainedHead

BETWEEN = 10  # steps between two measurements
READ = 0.9  # share of the batch that a head reads if it has learned it
READ_AT_LEAST = 0.5  # or this share, if its loss is below OF_CHANCE times the loss at chance
OF_CHANCE = 0.1
TOGETHER = "together"
APART = "apart"
_SAME = 1e-4  # relative difference of two losses that are the same


@dataclass(frozen=True)
class Point:
    """A measurement: the step, the loss of the head, and the number of samples that it reads."""

    step: int
    loss: float
    read: int


@dataclass(frozen=True, eq=False)
class Lesson:
    """How one head learned the batch.

    Attributes:
        head: the head.
        way: ``"together"`` if it learned with all heads, by the config's loss; ``"apart"`` if alone, by its own loss.
        chance: the loss if every class has the same probability.
        note: a remark about the training; may be empty.
        points: the measurements, in the order of their steps; at least one.
        readings: text and label of each sample, at the end.
    """

    head: TrainedHead
    way: str
    chance: float
    note: str = ""
    points: list[Point] = field(default_factory=list)
    readings: list[tuple[str, str]] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        """Return True if 90 % of the samples are read."""
        return self.points[-1].read >= READ * len(self.readings)

    @property
    def passed(self) -> bool:
        """Return True if 90 % are read, or if half are read and the loss is below 10 % of the loss at chance.

        A low loss alone is not enough: the loss is also low if a decoder gets the answer as input, or if a CTC head
        with many classes finds only blanks.
        """
        last = self.points[-1]
        low = last.loss < OF_CHANCE * self.chance and last.read >= READ_AT_LEAST * len(self.readings)
        return self.reads or low

    @property
    def broke(self) -> bool:
        """Return True if the loss is no longer finite."""
        return not math.isfinite(self.points[-1].loss)

    def measure(self, step: int) -> None:
        """Add a measurement after ``step`` steps."""
        with paddle.no_grad():
            loss = float(self.head.loss(self.head.output()))
        self.readings[:] = self.head.readings()
        self.points.append(Point(step, loss, sum(text == label for text, label in self.readings)))


def learn(subject: Subject, steps: int) -> Iterator[Lesson]:
    """Train on the batch and yield a lesson for each head: together first, then apart.

    If the only head has the only loss, it is trained once.

    Args:
        subject: networks, loss and batch; the weights change.
        steps: the most steps of each training.
    """
    heads = subject.heads()
    optimizer = subject.restart()
    chances = {head.name: head.chance() for head in heads}
    with paddle.no_grad():
        whole = float(subject.total())
        first_own = float(heads[0].loss(heads[0].output()))
    together = [Lesson(head, TOGETHER, chances[head.name]) for head in heads]
    _train(together, subject.total, optimizer, steps, "all heads")
    trained = {name: value.clone() for name, value in subject.network.state_dict().items()}
    yield from together
    if len(heads) == 1 and abs(whole - first_own) <= _SAME * abs(whole):
        return
    for head in heads:
        optimizer = subject.restart()
        lesson = Lesson(head, APART, chances[head.name], _fix_backbone(subject, head, trained))
        _train([lesson], lambda head=head: head.loss(head.output()), optimizer, steps, head.name)  # type: ignore[misc]
        yield lesson


def _train(
    lessons: Sequence[Lesson], loss_of: Callable[[], Tensor], optimizer: Optimizer, steps: int, name: str
) -> None:
    """Take steps until every head reads 90 %, a loss is not finite, or ``steps`` are done."""
    with tqdm(total=steps, desc=name, unit="step", disable=None, leave=False) as bar:
        for step in range(steps + 1):
            if step % BETWEEN == 0 or step == steps:
                for lesson in lessons:
                    lesson.measure(step)
                if any(lesson.broke for lesson in lessons) or all(lesson.reads for lesson in lessons):
                    return
            if step < steps:
                loss_of().backward()
                optimizer.step()
                optimizer.clear_grad(set_to_zero=False)  # a gradient of 0 would still decay the weights
                bar.update()


def _fix_backbone(subject: Subject, head: TrainedHead, trained: dict[str, Tensor]) -> str:
    """Give ``head`` the trained backbone if its own loss does not train the backbone; return a note about it.

    ``use_guide`` keeps the gradient of the CTC head from the backbone, so that only the other head trains it.
    """
    backbone = head.model.backbone
    parameters = [each for each in backbone.parameters() if not each.stop_gradient] if backbone else []
    head.loss(head.output()).backward()
    is_reached = any(parameter.grad is not None for parameter in parameters)
    subject.drop_gradients()
    subject.network.set_state_dict(subject.first)  # the statistics of BatchNorm have changed
    if is_reached or not parameters:
        return ""
    names = {id(value): name for name, value in subject.network.state_dict().items()}
    of_backbone = [names[id(value)] for value in backbone.state_dict().values()]
    subject.network.set_state_dict({**subject.first, **{name: trained[name] for name in of_backbone}})
    return (
        "its loss does not train the backbone (use_guide), so it got the backbone that all heads had trained"
    )


_FALLING = 0.8  # a loss still falls if it is below this share of the loss _BEFORE measurements ago
_BEFORE = 5
_NO_RATE = ("learning_rate", "not tested")  # the loss falls at none of the rates


LEARNED = "every head has learned the batch"
SOUND = "no fault of its structure was found"


def remarks(
    lessons: Sequence[Lesson], findings: Mapping[str, Sequence[Finding]], steps: int
) -> Iterator[str]:
    """Yield the notes of the lessons, whether all heads have learned, and the most likely cause for each other head.

    Args:
        lessons: the lessons of all heads.
        findings: results of the structure tests, by the name of the head, for some heads or all.
        steps: the most steps of a training.
    """
    yield from (f"{lesson.head.name}: {lesson.note}" for lesson in lessons if lesson.note)
    failed = list(dict.fromkeys(lesson.head.name for lesson in lessons if not lesson.passed))
    yield f"not learned in {steps} steps: {', '.join(failed)}" if failed else LEARNED
    for name, results in findings.items():
        of_head = {lesson.way: lesson for lesson in lessons if lesson.head.name == name}
        # That a head has learned the batch with a rate shows more than the few steps of the test.
        faults = [
            each.message
            for each in results
            if each.verdict == "fault" and (name in failed or each.code != "learning_rate")
        ]
        if faults:
            cause = "most likely cause" if name in failed else "it has learned, but its structure has a fault"
            yield f"{name}: {cause}: {faults[0]}"
            yield from (f"{name}: also: {message}" for message in faults[1:])
            continue
        tested = ", ".join(each.code for each in results if each.verdict == "ok")
        yield f"{name}: {SOUND} ({tested or 'nothing could be tested'})"
        if name in failed:
            rates = [each.message for each in results if (each.code, each.verdict) == _NO_RATE]
            yield f"{name}: {_other_cause(of_head, steps, rates)}"


def _other_cause(lessons: Mapping[str, Lesson], steps: int, rates: Sequence[str]) -> str:
    """Return the most likely cause for a head whose structure has no fault."""
    together = lessons.get(TOGETHER)
    apart = lessons.get(APART)
    if together is not None and apart is not None and apart.passed and not together.passed:
        return (
            "it learns apart, but not together with the others. Fix: change the weights of the losses, or try a lower "
            "learning rate."
        )
    failing = next(each for each in lessons.values() if not each.passed)
    if failing.broke:
        return "the loss is no longer finite. Fix: a lower learning rate, or `clip_norm_global` in Optimizer."
    last = failing.points[-1]
    if last.loss < OF_CHANCE * failing.chance and failing.head.takes_labels:
        return (
            "the loss is low, but the texts are wrong: the head reads in another way than it was trained. Fix: if the "
            "picture shows cut texts, set max_len of the head to the longest label and its two marks; else compare "
            "its forward in evaluation mode with that in training."
        )
    if rates:
        return f"{rates[0]} Fix: take a rate like that of a shipped config (Optimizer.lr.learning_rate)."
    losses = [point.loss for point in failing.points]
    if len(losses) > _BEFORE and losses[-1] < _FALLING * losses[-1 - _BEFORE]:
        return f"the loss still falls. Fix: more steps, such as --steps {3 * steps}."
    return (
        "most likely cause: the network is too small for these samples, or too little of it is trained. Fix: try "
        "--samples 4; look at Global.freeze and at the picture, whether the images can be read."
    )


HEAD = ("head", "trained", "steps", "loss", "at chance", "read", "verdict")
_COLUMNS = 4  # samples in a row of the picture
_CELL = 195  # pixels: width of a sample
_IMAGE = 56  # pixels: height of its image
_LINE = 19  # pixels: height of a line of text
_LONGEST = 24  # limit of characters of a text
_WRONG = "#b3261e"


def row(lesson: Lesson) -> tuple[str, ...]:
    """Return the row of the table for a lesson, as text under :data:`HEAD`."""
    first = lesson.points[0]
    last = lesson.points[-1]
    verdict = "learned" if lesson.passed else "loss is not finite" if lesson.broke else "NOT LEARNED"
    loss = f"{plain(first.loss, 3)} -> {plain(last.loss, 3)}"
    reading = f"{last.read} of {len(lesson.readings)}"
    return lesson.head.name, lesson.way, str(last.step), loss, plain(lesson.chance, 3), reading, verdict


def picture(lessons: Sequence[Lesson], title: str) -> str:
    """Return an SVG file: loss and readings of each head over the steps, and the samples with their last readings."""
    names, plots = _plots(lessons)
    return plots_file(plots, [(name, name) for name in names], 2, title, _samples(lessons))


_TITLES = {TOGETHER: "all heads together", APART: "each head apart"}


def _plots(lessons: Sequence[Lesson]) -> tuple[list[str], list[Plot]]:
    """Return the names of the heads, and plots with a curve for each."""
    names = list(dict.fromkeys(lesson.head.name for lesson in lessons))
    plots = []
    for way in (TOGETHER, APART):
        if points := {lesson.head.name: lesson.points for lesson in lessons if lesson.way == way}:
            count = len(lessons[0].readings)
            series = [points.get(name, []) for name in names]
            losses = [[(p.step, p.loss) for p in each] for each in series]
            shares = [[(p.step, p.read / count) for p in each] for each in series]
            plots.append(Plot(f"loss, {_TITLES[way]}", losses, "loss"))
            plots.append(Plot(f"samples read, {_TITLES[way]}", shares, "accuracy"))
    return names, plots


def _readings(lessons: Sequence[Lesson]) -> list[tuple[str, str, dict[str, str]]]:
    """Return image (the address of a PNG), label, and last reading of each head, of each sample."""
    last = {
        lesson.head.name: lesson.readings for lesson in lessons
    }  # the lesson apart of a head, if there is one
    images = lessons[0].head.images.astype("float32").numpy()
    return [
        (
            f"data:image/png;base64,{normalised_png(image)}",
            lessons[0].readings[index][1],
            {name: readings[index][0] for name, readings in last.items()},
        )
        for index, image in enumerate(images)
    ]


def _samples(lessons: Sequence[Lesson]) -> tuple[str, int]:
    """Return SVG of the images of the batch with the text that each head read, and its height."""
    samples = _readings(lessons)
    height = _IMAGE + _LINE * (len(samples[0][2]) + 1) + 24
    cells = []
    for index, (png, label, readings) in enumerate(samples):
        texts = [f'<tspan x="0" dy="{_LINE}">label: {esc(cut(label, _LONGEST))}</tspan>']
        for name, text in readings.items():
            color = "" if text == label else f' fill="{_WRONG}"'
            shown = esc(cut(text, _LONGEST)) or "(nothing)"
            texts.append(f'<tspan x="0" dy="{_LINE}"{color}>{esc(name)}: {shown}</tspan>')
        place = f"translate({20 + index % _COLUMNS * _CELL} {10 + index // _COLUMNS * height})"
        cells.append(
            f'<g transform="{place}"><image width="{_CELL - 20}" height="{_IMAGE}" preserveAspectRatio="xMinYMid" '
            f'href="{png}"/><text y="{_IMAGE}" font-size="14">{"".join(texts)}</text></g>'
        )
    return "".join(cells), 10 + math.ceil(len(samples) / _COLUMNS) * height


def sanity_page(lessons: Sequence[Lesson], title: str, subtitle: str, remarks: Iterable[str]) -> str:
    """Return the HTML page.

    Args:
        lessons: the lessons of all heads.
        title: heading of the page.
        subtitle: the batch and the steps.
        remarks: a paragraph each: notes, findings, causes.
    """
    names, plots = _plots(lessons)
    rows = [[esc(cell) for cell in row(lesson)] for lesson in lessons]
    good = (LEARNED, SOUND) if all(lesson.passed for lesson in lessons) else ()
    notes = "".join(
        f'<div class="note{" finished" if any(part in text for part in good) else ""}">{esc(text)}</div>'
        for text in remarks
    )
    samples = [
        [
            f'<img alt="sample {number}" src="{png}">',
            esc(label),
            *(
                esc(text) if text == label else f"<ins>{esc(text) or '(nothing)'}</ins>"
                for text in texts.values()
            ),
        ]
        for number, (png, label, texts) in enumerate(_readings(lessons), start=1)
    ]
    head = ["image", "label", *(f"read by {esc(name)}" for name in names)]
    body = (
        f"{scrolled('how each head learned', table(HEAD, rows, 'left'))}{notes}"
        f"<h2>Curves</h2>{figures(plots, names)}"
        f"<h2>Samples</h2>{scrolled('samples and what each head read', table(head, samples, 'left'))}"
    )
    return page(title, subtitle, body)
