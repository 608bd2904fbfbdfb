"""Look at a folder of labelled images and decide how to train on it; nothing is written, and no Paddle is imported."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.checkpoint.official_weights import OfficialWeights
from ppocr_ext.checkpoint.weight_sources import ReleasedSource
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.errors import DataError, MissingPackageError
from ppocr_ext.evaluation.predictions import Rate
from ppocr_ext.first_run.bases import (
    Base,
    Cover,
    covering_weights,
    open_base,
    open_distillation,
    small_base,
)
from ppocr_ext.first_run.decisions import Facts, Plan, decide
from ppocr_ext.first_run.split import Split, split_samples
from ppocr_ext.messages import shortened
from ppocr_ext.recognition.recognizer import Recognizer
from ppocr_ext.sources.recognise import recognise
from ppocr_ext.sources.samples import Source
from ppocr_ext.survey.report import READ, DataReport, survey
from ppocr_ext.synth.lines import FontFile, LineSource, LineSplit, LineStyle, RandomTexts, find_fonts
from ppocr_ext.text_direction import VISUAL, turned

DRAWABLE = 1_000  # characters that are drawn; of more, the first


@dataclass(frozen=True)
class Inspection:
    """What a folder holds, and what follows from it.

    Attributes:
        source: the samples that can be used.
        out: the folder that a first run is written to.
        seed: the seed of all random choices.
        general: a label file that the recogniser must still read; None if lines are drawn for that.
        more: a label file that only trains.
        found: what the samples are like, and what is doubtful in them.
        split: which part each sample belongs to.
        covers: the official models, with the share of the characters that each knows, the best first.
        reads: how many samples the first of them reads right, if it is a released model on this machine.
        plan: the decisions for the config.
        notes: further sentences that a user should read.
    """

    source: Source
    out: Path
    seed: int
    general: Path | None
    more: Path | None
    found: DataReport
    split: Split
    covers: Sequence[Cover]
    reads: Rate | None
    plan: Plan
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "data": str(self.source.root),
            "format": self.source.format,
            "label_files": list(self.source.files),
            "notes": [*self.source.notes, *self.notes],
            **self.found.to_json(),
            "split": {"by": self.split.by, **self.split.counts()},
            "official_weights": {each.name: round(each.share, 4) for each in self.covers},
            "decisions": [row._asdict() for row in self.plan.decisions],
        }


def inspect_data(data: str | Path, out: str | Path = "my", **options: Any) -> Inspection:
    """Look at a folder of labelled images, and decide how to train on it.

    Args:
        data: the folder; nothing outside it is read.
        out: the folder that a first run would be written to.
        options: the options of :func:`recognise` and of :func:`inspect_source`.

    Raises:
        PPOCRExtError: the folder has no labelled images, several readings of it are possible, or too few samples.
    """
    chosen = {name: options.pop(name) for name in ("format", "labels", "text_from_name") if name in options}
    source = recognise(Path(data), ask_for_split=not options.get("redo_split"), **chosen)
    return inspect_source(source, Path(out), **options)


def inspect_source(
    source: Source,
    out: Path,
    *,
    base: str | None = None,
    distill: tuple[str, str] | None = None,
    general: Path | None = None,
    more: Path | None = None,
    characters: str | None = None,
    redo_split: bool = False,
    test: bool = False,
    seed: int = 1,
    trust_model: bool = False,
) -> Inspection:
    """Look at the samples of label files, and decide how to train on them.

    Args:
        source: the label files.
        out: the folder that a first run would be written to.
        base: the official weights, the run or the checkpoint to begin with.
        distill: a teacher and a student, in place of a base.
        general: a label file that the recogniser must still read.
        more: a label file that trains besides, and judges nothing.
        characters: the only characters to read.
        redo_split: True splits the samples anew, also if the data are split.
        test: True also takes a part for a test.
        seed: the seed of all random choices.
        trust_model: True runs a teacher that is an inference model which we do not know.

    Raises:
        PPOCRExtError: there are too few samples, or what the user chose cannot be used.
    """
    # opened first: a wrong name is told before images are read
    network = _named_base(base, distill, out, trust_model)
    if characters is not None:
        source = source.without("unknown_char", lambda sample: not set(sample.text) <= set(characters))
        if next(source.samples(), None) is None:
            raise DataError(
                "--characters: no label has only these. Fix: name the characters that the labels have.",
                code="no_characters",
            )
    found = survey(source)
    source, texts, images = found.source, found.texts, found.images
    split = split_samples(source.samples(), seed, redo=redo_split, test=test, copies=images.copies)
    wanted = Counter(texts.characters)
    if general is not None:
        for line in read_label_file(general):
            wanted.update(line.label)
    covers = covering_weights(wanted) if network is None else []
    network = network or _best_base(covers, out)
    notes = []
    try:
        line_source(characters or wanted, texts.lengths, seed)
    except DataError as error:
        notes.append(f"No lines can be drawn to train on: {error}")
    ratios = images.ratios if images.usable else ()
    facts = Facts(split.counts()["train"], wanted, found.lengths, found.frames, ratios, texts.order)
    plan = decide(facts, network, out, characters, can_draw=not notes)
    notes += _split_notes(source, split, plan)
    reads = _rate_of(covers[0].source, found) if covers else None
    return Inspection(source, out, seed, general, more, found, split, covers, reads, plan, notes)


def _named_base(
    base: str | None, distill: tuple[str, str] | None, out: Path, trust_model: bool
) -> Base | None:
    """Return the base that the user names; None if none is named."""
    if base is not None and distill is not None:
        raise DataError("--base and --distill exclude each other: give one of them.", code="bad_arguments")
    if distill is not None:
        return open_distillation(*distill, out, trust_model)
    return None if base is None else open_base(base, out)


def _best_base(covers: Sequence[Cover], out: Path) -> Base:
    """Return the best official weights of this machine that know all characters, else a small network from nothing."""
    here = next((each for each in covers if each.share == 1 and each.source.is_here), None)
    # a released model is only offered
    return open_base(here.name, out) if here and isinstance(here.source, OfficialWeights) else small_base()


def _split_notes(source: Source, split: Split, plan: Plan) -> Iterator[str]:
    """Yield what the split does to copies, and how much of val can be read at most."""
    if split.apart:
        yield f"{split.apart:,} copies are in another part than their original: they would join whole pages or classes."
    lacking = split.lacking.difference(plan.base.charset.characters if plan.base.charset else ())
    if not lacking or plan.drawn:  # drawn lines have all characters
        return
    of_val = [sample for sample, code in zip(source.samples(), split.codes, strict=True) if code == 1]
    unread = sum(not lacking.isdisjoint(sample.text) for sample in of_val)
    yield (
        f"{unread:,} of {len(of_val):,} samples of val have characters that train lacks "
        f"({shortened(sorted(lacking), 10, ' ')}), so at most {1 - unread / len(of_val):.0%} of val can be read. "
        "Fix: label more images that have them, or split anew (--split)."
    )


def _rate_of(released: OfficialWeights | ReleasedSource, found: DataReport) -> Rate | None:
    """Return what a released model reads of some samples, evenly taken; None for other or unknown models."""
    if not isinstance(released, ReleasedSource) or not released.model.is_known:
        return None
    try:
        recognizer = Recognizer(released.model)
    except MissingPackageError:  # of the library that runs it, which a training does not need
        return None
    chosen = islice(found.source.samples(), 0, None, math.ceil(found.texts.samples / READ))
    pairs = [(each.text, image) for each in chosen if isinstance(image := found.read(each), bytes)]
    texts = recognizer.read(tqdm([image for _, image in pairs], released.value, disable=None, leave=False))
    as_read = turned if found.texts.order == VISUAL else str
    right = sum(
        as_read(label).replace(" ", "") == each.text.replace(" ", "")
        for (label, _), each in zip(pairs, texts, strict=True)
    )
    return Rate(right, len(pairs))


def line_source(
    characters: Iterable[str],
    lengths: Sequence[float],
    seed: int,
    fonts: tuple[FontFile, ...] | None = None,
    style: LineStyle | None = None,
) -> LineSource:
    """Return what draws lines of random characters; characters that no font has are left out.

    Args:
        characters: single characters; if there are many, the first are drawn.
        lengths: what 5, 50 and 95 % of the labels have at most, in characters.
        seed: the seed of the lines.
        fonts: None for those of the installed packages.
        style: None for the default.

    Raises:
        DataError: no font is installed, or none has any of these characters.
    """
    drawable = [each for each in characters if len(each) == 1 and each.isprintable() and not each.isspace()]
    shortest, longest = (max(1, round(lengths[at])) for at in (0, 2))
    texts = RandomTexts("".join(drawable[:DRAWABLE]), (shortest, longest), None, skip_undrawable=True)
    return LineSource({"train": LineSplit(texts, fonts or find_fonts(()))}, style or LineStyle(), seed)
