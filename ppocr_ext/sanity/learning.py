"""Train on one batch until it is known by heart: all heads together, then each head apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import paddle
from paddle import Tensor
from paddle.optimizer import Optimizer
from tqdm import tqdm

from ppocr_ext.sanity.head_probe import Finding
from ppocr_ext.sanity.heads import TrainedHead
from ppocr_ext.sanity.subject import Subject

BETWEEN = 10  # steps between two measurements
READ = 0.9
READ_AT_LEAST = 0.5
OF_CHANCE = 0.1
TOGETHER = "together"
APART = "apart"
_SAME = 1e-4  # relative difference of two losses that are the same


@dataclass(frozen=True)
class Point:
    """A measurement: step, loss of the head, samples that it read."""

    step: int
    loss: float
    read: int


@dataclass(frozen=True, eq=False)
class Lesson:
    """How one head learned the batch.

    Attributes:
        head: the head.
        way: ``"together"`` with all heads by the config's own loss, or ``"apart"`` by its own loss.
        chance: loss if every class has the same probability.
        points: the measurements, in the order of their steps; at least one.
        readings: what was read at the end, and the label.
        note: what was special about it; empty if nothing was.
    """

    head: TrainedHead
    way: str
    chance: float
    note: str = ""
    points: list[Point] = field(default_factory=list)
    readings: list[tuple[str, str]] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        """Whether 90 % of the samples are read."""
        return self.points[-1].read >= READ * len(self.readings)

    @property
    def passed(self) -> bool:
        """Whether 90 % are read; or the loss is below 10 % of its value at chance and half are read.

        The loss alone is not enough: it is low too if the answer is among the inputs of a decoder, or if a CTC head of
        many classes finds only blanks.
        """
        last = self.points[-1]
        low = last.loss < OF_CHANCE * self.chance and last.read >= READ_AT_LEAST * len(self.readings)
        return self.reads or low

    @property
    def broke(self) -> bool:
        """True if the loss is not finite any more."""
        return not math.isfinite(self.points[-1].loss)

    def measure(self, step: int) -> None:
        """Add a measurement after ``step`` steps."""
        with paddle.no_grad():
            loss = float(self.head.loss(self.head.output()))
        self.readings[:] = self.head.readings()
        self.points.append(Point(step, loss, sum(text == label for text, label in self.readings)))


def learn(subject: Subject, steps: int) -> Iterator[Lesson]:
    """Train on the batch and yield a lesson for each head: together first, then apart.

    One head without any other loss is not trained twice.

    Args:
        subject: what is trained; its weights change.
        steps: of each training at most.
    """
    heads = subject.heads()
    optimizer = subject.restart()
    chances = {head.name: head.chance() for head in heads}
    with paddle.no_grad():
        whole = float(subject.total())
        own = [float(head.loss(head.output())) for head in heads]
    together = [Lesson(head, TOGETHER, chances[head.name]) for head in heads]
    _train(together, subject.total, optimizer, steps, "all heads")
    trained = {name: value.clone() for name, value in subject.network.state_dict().items()}
    yield from together
    if len(heads) == 1 and abs(whole - own[0]) <= _SAME * abs(whole):
        return
    for head in heads:
        optimizer = subject.restart()
        note = _fix_backbone(subject, head, trained)
        lesson = Lesson(head, APART, chances[head.name], note)
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
    """Give ``head`` the trained backbone if its own loss does not train it; return a note about it.

    ``use_guide`` keeps the gradient of the CTC head from the backbone, which the other head trains.
    """
    backbone = head.model.backbone
    mine = (
        [parameter for parameter in backbone.parameters() if not parameter.stop_gradient] if backbone else []
    )
    head.loss(head.output()).backward()
    reached = any(parameter.grad is not None for parameter in mine)
    subject.network.clear_gradients(set_to_zero=False)
    subject.network.set_state_dict(subject.first)  # BatchNorm has moved
    if reached or not mine:
        return ""
    names = {id(value): name for name, value in subject.network.state_dict().items()}
    taken = {names[id(value)]: trained[names[id(value)]] for value in backbone.state_dict().values()}
    subject.network.set_state_dict({**subject.first, **taken})
    return "its loss does not train the backbone (use_guide), so it got the one that all heads had trained, fixed"


_FALLING = 0.8  # of the loss of some measurements before, that a loss which still falls is below
_BEFORE = 5  # measurements
_NO_RATE = ("learning_rate", "not tested")  # the loss falls at no rate that was tried


LEARNED = "every head has learned the batch"
SOUND = "no fault of its structure was found"


def remarks(
    lessons: Sequence[Lesson], findings: Mapping[str, Sequence[Finding]], steps: int
) -> Iterator[str]:
    """Yield what was special, whether all heads have learned, and for each that has not the most likely cause.

    Args:
        lessons: of all heads.
        findings: of the tests of the structure, by the name of the head; of some heads or all.
        steps: of a training at most.
    """
    for lesson in lessons:
        if lesson.note:
            yield f"{lesson.head.name}: {lesson.note}"
    failed = list(dict.fromkeys(lesson.head.name for lesson in lessons if not lesson.passed))
    if failed:
        yield f"not learned in {steps} steps: {', '.join(failed)}"
    else:
        yield LEARNED
    for name, found in findings.items():
        of_head = {lesson.way: lesson for lesson in lessons if lesson.head.name == name}
        faults = [
            each.message
            for each in found
            if each.verdict == "fault" and (name in failed or each.code != "learning_rate")
        ]  # 8 steps say less of a rate than a batch that was learned with it
        first = "most likely cause" if name in failed else "it has learned, but its structure has a fault"
        if faults:
            yield f"{name}: {first}: {faults[0]}"
            yield from (f"{name}: also: {message}" for message in faults[1:])
            continue
        tested = ", ".join(each.code for each in found if each.verdict == "ok")
        yield f"{name}: {SOUND} ({tested or 'nothing could be tested'})"
        if name in failed:
            rates = [each.message for each in found if (each.code, each.verdict) == _NO_RATE]
            yield f"{name}: {_other_cause(of_head, steps, rates)}"


def _other_cause(lessons: Mapping[str, Lesson], steps: int, rates: Sequence[str]) -> str:
    """Return the most likely cause if the structure of a head has no fault."""
    together = lessons.get(TOGETHER)
    apart = lessons.get(APART)
    if together is not None and apart is not None and apart.passed and not together.passed:
        return (
            "it learns apart, but not together with the others. Fix: change the weights of the losses, or try a lower "
            "learning rate."
        )
    failing = next(each for each in lessons.values() if not each.passed)
    if failing.broke:
        return (
            "the loss is not finite any more. Fix: a lower learning rate, or `clip_norm_global` in Optimizer."
        )
    last = failing.points[-1]
    if last.loss < OF_CHANCE * failing.chance and failing.head.takes_labels:
        return (
            "the loss is low, but what is read is wrong: the head reads in another way than it was taught. Fix: if "
            "the picture shows cut texts, set max_len of the head to the longest label and its two marks; else "
            "compare its forward in evaluation mode with that in training."
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
