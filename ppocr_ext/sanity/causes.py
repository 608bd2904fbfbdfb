"""Say what the lessons of a sanity test mean, and why a head has not learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ppocr_ext.sanity.head_probe import Finding
from ppocr_ext.sanity.learning import APART, OF_CHANCE, TOGETHER, Lesson

_FALLING = 0.8  # of the loss of some measurements before, that a loss which still falls is below
_BEFORE = 5  # measurements
_NO_RATE = ("learning_rate", "not tested")  # the loss falls at no rate that was tried


def remarks(
    lessons: Sequence[Lesson], findings: Mapping[str, Sequence[Finding]], steps: int
) -> Iterator[str]:
    """Yield what was special, whether all heads have learned, and for each that has not the most likely cause.

    Args:
        lessons: of all heads.
        findings: of the tests of the structure, by the name of the head; of some heads or all.
        steps: most steps of a training.
    """
    for lesson in lessons:
        if lesson.note:
            yield f"{lesson.head.name}: {lesson.note}"
    failed = list(dict.fromkeys(lesson.head.name for lesson in lessons if not lesson.passed))
    if failed:
        yield f"not learned in {steps} steps: {', '.join(failed)}"
    else:
        yield "every head has learned the batch"
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
        yield f"{name}: no fault of its structure was found ({tested or 'nothing could be tested'})"
        if name in failed:
            rates = [each.message for each in found if (each.code, each.verdict) == _NO_RATE]
            yield f"{name}: {_other_cause(of_head, steps, rates)}"


def _other_cause(lessons: Mapping[str, Lesson], steps: int, rates: Sequence[str]) -> str:
    """Return the most likely cause if the structure of a head has no fault."""
    together, apart = lessons.get(TOGETHER), lessons.get(APART)
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
