"""The general list in two parts: lines that choose weights, and the others, which report what is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import chain, repeat
from typing import Any

import numpy as np

from ppocr_ext.config.derive import of_general
from ppocr_ext.evaluation.evaluate import RecordingMetric
from ppocr_ext.evaluation.uncertainty import Changes
from ppocr_ext.messages import LOG
from ppocr_ext.run.general import SECTION, open_general
from ppocr_ext.run.loader_setup import image_names
from ppocr_ext.run.run import Run
from ppocr_ext.sources.names import page_of_crop

_MOST = 300  # lines that choose; they are read often


class GeneralList:
    """The lines of ``Eval.general``. Half of them choose, at most 300; the others report.

    The image and the label of a line decide, as the network gets them. So its path and place do not matter.

    Args:
        run: a run with such a list.
        max_drop: how much of their accuracy may be lost, from 0 to 1; a warning tells if they are too few to show it.
        evaluate: evaluates the network of the run by a loader and a metric.

    Attributes:
        digest: of all lines, in any order.
        chooses: the number of lines that choose.
        reports: the number of the others.

    Raises:
        DataError: the list cannot be used; the message names the section ``Eval.general``.
    """

    def __init__(
        self, run: Run, max_drop: float, evaluate: Callable[[Any, Any], Mapping[str, float]]
    ) -> None:
        self._run = run
        self._max_drop = max_drop
        self._evaluate = evaluate
        loader = open_general(run.context, run.network, run.data.preflight)
        samples = map(loader.dataset.__getitem__, range(len(loader.dataset)))
        contents = (b"".join(np.asarray(part).tobytes() for part in each) for each in samples)
        self._digests = [sha256(content).hexdigest() for content in contents]
        self.digest = sha256("".join(sorted(self._digests)).encode()).hexdigest()
        names = image_names(loader.dataset, of_general(run.context.config).at("Eval.dataset.delimiter", "\t"))
        named = zip(self._digests, chain(names, repeat("")), strict=False)
        self._pages = {digest: page_of_crop(name) or digest for digest, name in named}
        order = sorted(range(len(self._digests)), key=self._digests.__getitem__)
        self.chooses = min(_MOST, (len(order) + 1) // 2)
        self.reports = len(order) - self.chooses
        self._choosing = loader.part(order[: self.chooses])
        self._others = loader.part(order[self.chooses :])
        self._reporting = [self._digests[index] for index in sorted(order[self.chooses :])]
        if 0 < max_drop < 1 and self.reports < (least := Changes(0, 0, 1).items_to_exclude(max_drop)):
            LOG.warning(
                "%s: %d of its lines report; to show that at most %s are lost takes %s without a loss, and about %s if "
                "5 %% of the lines change",
                SECTION,
                self.reports,
                f"{max_drop:.2%}",
                f"{least:,}",
                f"{Changes(5, 5, 200).items_to_exclude(max_drop):,}",
            )

    def accuracy(self) -> float:
        """Return what the network reads of the lines that choose, by the main indicator of the metric."""
        return float(self._evaluate(self._choosing, self._run.metric)[self._run.metric.main_indicator])

    def right(self) -> dict[str, bool]:
        """Return whether the network reads each of the other lines right, by its digest."""
        recorder = RecordingMetric(self._run)
        if self.reports:
            self._evaluate(self._others, recorder)
        return dict(zip(self._reporting, recorder.right(), strict=True))

    def compare(self, before: Mapping[str, bool]) -> dict[str, Any]:
        """Log which of the other lines the network has lost, and return it for ``general.json``.

        Args:
            before: what :meth:`right` has returned.
        """
        after = self.right()
        if not after:
            return {}
        pages = [self._pages[digest] for digest in before]
        changes = Changes.of([*before.values()], [after[digest] for digest in before], pages)
        found = {
            "lines": changes.total,
            "before": sum(before.values()) / changes.total,
            "after": sum(after.values()) / changes.total,
            "lost": changes.only_before,
            "won": changes.only_after,
            "most_lost": changes.most_lost,
        }
        text = (
            "of {lines:,} lines that did not choose, {before:.2%} before and {after:.2%} with the best weights: "
            "{lost} lost, {won} won; at most {most_lost:.2%} are lost (95 %)"
            + ("; a rise proves nothing if lines of this kind train" if found["won"] > found["lost"] else "")
        )
        if 0 < self._max_drop < min(1.0, found["most_lost"]):
            text += f"; to show {self._max_drop:.2%} takes about {changes.items_to_exclude(self._max_drop):,} lines"
        LOG.info("%s: %s", SECTION, text.format_map(found))
        return found
