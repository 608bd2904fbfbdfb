"""Test the structure of any head by what it does: the usual mistakes, each found without its class or its code."""

from __future__ import annotations

from typing import Any

from ppocr_ext.sanity.head_probe import Finding, HeadProbe, probed
from ppocr_ext.sanity.output_probes import class_count, classifier, image, samples
from ppocr_ext.sanity.rate_probe import learning_rate
from ppocr_ext.sanity.sequence_probes import causal_mask, end, positions, shift, start

# The most certain cause first: what stops learning altogether, then what spoils the reading.
ORDER = (
    "class_count",
    "image",
    "samples",
    "softmax",
    "activation",
    "shift",
    "causal_mask",
    "end",
    "start",
    "positions",
    "learning_rate",
)
_VERDICTS = ("fault", "ok", "not tested")


def test_structure(head: Any) -> list[Finding]:
    """Test a head with its own batch and loss, from its first weights.

    Its weights, buffers, gradients, modes and the generators stay. Other sub-models get their first weights back.

    Args:
        head: a ``TrainedHead`` with at least two samples.

    Returns:
        One finding for each test: faults first, the most likely cause at the front.
    """
    with probed(head) as probe:
        found, why = _findings(probe)
    if not why:
        found.append(learning_rate(head))
    tested = {each.code for each in found}
    found += [Finding(code, "not tested", f"{why}.") for code in ORDER if code not in tested]
    return sorted(found, key=lambda each: (_VERDICTS.index(each.verdict), ORDER.index(each.code)))


def _findings(probe: HeadProbe) -> tuple[list[Finding], str]:
    """Run the tests that are possible; return also why others are not, empty if they are."""
    if len(probe.shape) != 3:
        return [], probe.trouble
    count = class_count(probe)
    if count.verdict == "fault":  # the head or its loss may fail on a class too many
        return [count], "See the class count first"
    if probe.trouble:
        return [count], probe.trouble
    tests = (image, samples, shift, causal_mask, end, start, positions)
    found = [count, *(test(probe) for test in tests), *classifier(probe)]
    return found, "See the faults first" if any(each.verdict == "fault" for each in found) else ""
