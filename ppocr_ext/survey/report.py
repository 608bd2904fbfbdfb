"""Survey the samples of a source: read texts and images once each, and report what they are like; no Paddle."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tqdm import tqdm

from ppocr_ext.data.issue_rules import Tally, counted_issue, shown, skipped_issues
from ppocr_ext.data.sample_rules import frames_needed
from ppocr_ext.issues import Issue
from ppocr_ext.sources.recognise import unlabelled
from ppocr_ext.sources.samples import Sample, Source
from ppocr_ext.survey.images import ImageReader, ImageReport, survey_images
from ppocr_ext.survey.texts import Spread, TextReport, TextSurvey, spread_of

KEPT = 40  # the first samples, whose images are read once for all that is shown of them
READ = 100  # samples, taken evenly, that a released model reads


@dataclass(frozen=True)
class DataReport:
    """What the samples of a source are like, and what is doubtful in them.

    Attributes:
        source: the source without the samples whose images cannot be used.
        skipped: the issues of texts that give no sample, and of images without a text.
        texts: what the labels are like.
        lengths: what 5, 50, 95, 99.5 and 100 % of the labels have at most, in characters.
        frames: the most CTC frames that a label needs, by its length.
        images: what the images are like that were looked at.
        read: reads the images. Those of the first samples, and of some taken evenly, stay in memory.
    """

    source: Source
    skipped: tuple[Issue, ...]
    texts: TextReport
    lengths: Spread
    frames: Counter[int]
    images: ImageReport
    read: ImageReader

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Return all issues in the order in which they are printed."""
        return (*self.skipped, *self.texts.findings, *self.images.findings)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for ``init.json``."""
        texts, images = (
            {**asdict(each), "findings": [issue.to_counts() for issue in each.findings]}
            for each in (self.texts, self.images)
        )
        return {
            "samples": self.texts.samples,
            "skipped": [issue.to_counts() for issue in self.skipped],
            "texts": texts,
            "images": {"samples": self.texts.samples, **images, "unusable": sorted(self.images.unusable)},
        }


def survey(source: Source) -> DataReport:
    """Read each text of a source once, and the images that are looked at; return what they are like.

    Args:
        source: all entries.
    """
    look = TextSurvey()
    skips = Tally()
    frames: Counter[int] = Counter()
    for entry in tqdm(source.read(), "labels", unit=" samples", disable=None, leave=False):
        if isinstance(entry, Sample):
            look.add(entry)
            size = len(entry.text)
            frames[size] = max(frames[size], frames_needed(entry.text))
        else:
            skips.count(entry.reason, entry.place, shown(entry.detail))
    texts = look.report()
    skipped = skipped_issues(skips, texts.samples + skips.counts.total())
    count, names = unlabelled(source)
    if count:
        skipped += (counted_issue("unlabelled", count, len(source.images), [(name, "") for name in names]),)
    every = math.ceil(texts.samples / READ)
    kept = [each for at, each in enumerate(source.samples()) if at < KEPT or at % every == 0]
    read = ImageReader(source.root, kept)
    images = survey_images(source.samples(), texts.samples, read)
    if images.unusable:
        source = source.without("broken_image", lambda sample: sample.image in images.unusable)
    lengths = spread_of(look.lengths.elements(), 5, 50, 95, 99.5, 100)
    return DataReport(source, skipped, texts, lengths, frames, images, read)
