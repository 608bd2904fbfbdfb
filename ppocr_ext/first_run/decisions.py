"""Decide dictionary, sizes, batch, rate and steps of a first run, each with its reason; no Paddle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from ppocr_ext.base.parts import POSITIONS, TRAIN_FRAMES
from ppocr_ext.config import Config
from ppocr_ext.config.derive import has_one_width
from ppocr_ext.data.batches import batch_size, batch_size_key, batches_of_epoch
from ppocr_ext.data.preprocessing import SQUASH, WIDEN, Preprocessing, read_preprocessing, sampler_scales
from ppocr_ext.data.sample_rules import FRAME_WIDTH, FRAMES_A_CHARACTER, most_characters
from ppocr_ext.errors import DataError
from ppocr_ext.first_run.bases import DICTIONARY, Base
from ppocr_ext.io.resources import shown_path
from ppocr_ext.limits import usable_cores
from ppocr_ext.messages import shortened
from ppocr_ext.text_direction import (
    LEFT_TO_RIGHT,
    LOGICAL,
    RIGHT_TO_LEFT,
    RIGHT_TO_LEFT_VISUAL,
    VISUAL,
    default_direction,
    is_right_to_left,
    turned,
)

SPACE = "Global.use_space_char"
DIRECTION = "Global.text_direction"
LENGTH = "Global.max_text_length"
WIDENS = "RecResizeImg.eval_mode"  # of Eval alone
NECK = "Architecture.Head.head_list.0.CTCHead.Neck.name"
DRAWN = 10_000  # lines that a network without weights trains on, those of the user included
_MARKS = 2  # of NRTR and SAR, which max_text_length counts
_STRETCHED = 24  # pixels a character of a stretched line: three frames (docs/results.md, plates)
_FRAMES = 3.0  # frames a character, below which doubled characters are lost
_FEW_FRAMES = 1.5  # below which a line of any length is stretched
_ONE_LENGTH = 1.5  # longest to shortest label of lines of about one length (95 to 5 %)
_STEPS_AN_EPOCH = 20
_WARM_UP = 0.05  # share of the training
_FIRST_WARM_UP = 0.1  # from nothing; with half of it, README's 1,300 lines stay at the constant guess
# of the rate from nothing, for weights that were trained with it, and of the base's, for released ones that know all
# characters: at the whole rate they forget other lines (docs/results.md, Released models)
_SLOWER = 0.1
_LEAST = 4  # samples of a step, since BatchNorm learns little from fewer
_SHARE = 0.25  # of the user's lines in a training with drawn ones, at least
_WITH_TRAIN_FRAMES = ("PPLCNet", "PPHGNet")  # backbones that pool to TRAIN_FRAMES in training
_WIDEST = 1280  # pixels, unless the labels need more
_FEW_FOR_NORMS = 16  # samples of a batch; of fewer, a BatchNorm learns less than it loses (docs/results.md)
# the BatchNorms of a neck, as patterns of its parameters
_NORMS = {
    "svtr": ("head.ctc_encoder.*conv*.norm.*",),
    "lightsvtr": ("head.ctc_encoder.*conv*.norm.*", "head.ctc_encoder.*.local_conv.1.*"),
}
_SHOWN = 20
# lines of the user, at most -> samples that the training sees: from a released model, from other weights, from nothing;
# `python tools/experiments/first_runs.py` measures them, and docs/results.md has the table
_SEEN = {
    300: (2_000, 8_000, 60_000),
    3_000: (4_000, 25_000, 60_000),
    10_000: (10_000, 40_000, 80_000),
    math.inf: (30_000, 60_000, 120_000),
}


class Facts(NamedTuple):
    """Facts about the samples that the decisions follow from.

    Attributes:
        samples: how many samples train.
        characters: the characters of all labels, with their counts.
        lengths: what 5, 50, 95, 99.5 and 100 % of the labels have at most, in characters.
        frames: the most CTC frames that a label needs, by its length.
        ratios: what 5, 50 and 95 % of the images have at most, width to height; empty if none could be read.
        order: the order in which words of right-to-left scripts are stored; see
            :class:`ppocr_ext.survey.texts.TextReport`.
    """

    samples: int
    characters: Mapping[str, int]
    lengths: Sequence[float]
    frames: Mapping[int, int]
    ratios: Sequence[float]
    order: str = ""


class Decision(NamedTuple):
    """A value of the config and the reason for it; ``key`` is its place, as after ``-o``."""

    key: str
    value: Any
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """What a first run does.

    Attributes:
        base: the network and the config that this one is laid over.
        decisions: the values that the config gets.
        dictionary: the lines of a new dictionary; None if that of the base is kept.
        steps: the optimizer steps of the whole training.
        drawn: how many lines are drawn for the training; 0 if it begins with weights.
        share: of the drawn lines in a batch that has no lines of ``--more``.
        guessing: the first steps of a network from nothing, which read nothing right.
    """

    base: Base
    decisions: tuple[Decision, ...]
    dictionary: tuple[str, ...] | None
    steps: int
    drawn: int
    share: float
    guessing: int

    def __getitem__(self, key: str) -> Any:
        """Return the value of a decision; None if there is none."""
        return next((row.value for row in self.decisions if row.key == key), None)

    @property
    def longest(self) -> int:
        """The characters of the longest label that trains."""
        return self[LENGTH] - _MARKS

    def of_drawn(self, text: str) -> str:
        """Return the label of a drawn line, whose letters stand in the image from left to right as in ``text``."""
        return turned(text) if self[DIRECTION] == RIGHT_TO_LEFT else text

    def characters(self) -> set[str]:
        """Return all characters that the network will know."""
        base = self.base.charset.characters if self.base.charset else ()
        return {*(base if self.dictionary is None else self.dictionary), *(" " if self[SPACE] else "")}

    def with_batch_of(self, most: int, why: str) -> Plan:
        """Return the plan with at most ``most`` samples in a batch, and as many as before in an optimizer step."""
        key = batch_size_key(self.base.config)
        every = "Global.eval_batch_step"
        batch = self[key]
        times = math.ceil(batch / max(1, most))
        if times == 1:
            return self
        usual = self.base.config.settings.accumulate
        changed = {key: math.ceil(batch / times), every: [0, self[every][1] * times]}
        rows = [
            row._replace(value=changed.get(row.key, row.value)) for row in self.decisions if row.key != key
        ]
        rows += [
            Decision(key, changed[key], why),
            Decision(
                "Global.accumulate",
                times * usual,
                "batches of an optimizer step, as many samples as before",
            ),
        ]
        return replace(self, decisions=tuple(rows), steps=self.steps * times, guessing=self.guessing * times)

    def of_epochs(self, most: int) -> Plan:
        """Return the plan with at most ``most`` epochs, for ``--minutes``; evaluations and warm-up follow."""
        share = most / self["Global.epoch_num"]
        if share >= 1:
            return self
        steps = round(self.steps * share)
        warm_up = self["Optimizer.lr.warmup_epoch"] * share
        cost = "fewer lines will be read right"
        if self.base.is_from_nothing:
            cost = f"the first {self.guessing:,} read nothing right"
        changed = {
            "Global.epoch_num": (most, f"{steps:,} of the usual {self.steps:,} steps: {cost}"),
            "Global.eval_batch_step": ([0, max(1, round(steps / 20))], ""),
            "Optimizer.lr.warmup_epoch": (float(f"{warm_up:.2g}"), "the same share of the epochs"),
        }
        rows = tuple(Decision(row.key, *changed.get(row.key, row[1:])) for row in self.decisions)
        return replace(self, decisions=rows, steps=steps)


def decide(facts: Facts, base: Base, out: Path, characters: str | None = None, can_draw: bool = True) -> Plan:
    """Return the plan for these samples over a base.

    Args:
        facts: the facts about the samples.
        base: the network and the config that this one is laid over.
        out: the folder of the config.
        characters: the only characters to read; None for the base's and those of the labels.
        can_draw: True if lines can be drawn to train on.

    Raises:
        DataError: ``characters`` has none of the labels' characters, or a teacher does not know some.
    """
    dictionary, use_space, why = _dictionary(facts, base, characters)
    file = base.config.at(DICTIONARY, None) if dictionary is None else shown_path(out / "dict.txt")
    length = _max_length(facts, base)
    learned = not base.is_from_nothing
    keeps = (
        base.is_released and base.charset is not None and not base.charset.unknown("".join(facts.characters))
    )
    drawn = 0 if learned or not can_draw else max(0, DRAWN - facts.samples)
    lines = facts.samples + drawn
    share = float(f"{min(1 - _SHARE, drawn / lines):.2g}")
    # that of configs/lines is for each of two processes
    usual = (batch_size(base.config) or 32) * (2 if base.files[0].startswith("configs/lines/") else 1)
    if base.is_trained:  # its batches had drawn lines besides
        usual = round(usual / (1 - sum(each["share"] for each in base.config.at("Train.mix", None) or ())))
    batch = min(usual, max(_LEAST, lines // _STEPS_AN_EPOCH))
    own = min(facts.samples, max(1, round(batch * (1 - share))))
    seen = next(row for most, row in _SEEN.items() if facts.samples <= most)[
        0 if base.is_released else 1 if learned else 2
    ]
    batches = batches_of_epoch(base.config, facts.samples, own)
    epochs = math.ceil(seen * (1 - share) / (batches * own if drawn else facts.samples))
    steps = epochs * batches
    warm_up = _WARM_UP if learned else _FIRST_WARM_UP
    mixed = f", {1 - share:.0%} of them yours, the others of {drawn:,} drawn lines" if drawn else ""
    decisions = (
        Decision(DICTIONARY, file, why),
        Decision(SPACE, use_space),
        *_direction(facts, base, file),
        length,
        Decision("Global.epoch_num", epochs, f"{steps:,} steps, which see about {seen:,} samples{mixed}"),
        Decision("Global.eval_batch_step", [0, max(1, round(steps / 20))]),
        _rate(base, batch / usual, keeps),
        Decision(
            "Optimizer.lr.warmup_epoch", float(f"{warm_up * epochs:.2g}"), f"{warm_up:.0%} of the epochs"
        ),
        *_sizes(facts, base, length.value - _MARKS),
        Decision(
            batch_size_key(base.config),
            own,
            "of yours, beside drawn lines"
            if drawn
            else "of the base"
            if batch == usual
            else f"so that an epoch has at least {_STEPS_AN_EPOCH} steps",
        ),
        *_held_norms(base, batch, keeps),
        *_of_machine(base),
        *(
            [Decision("Metric.ignore_space", False, "as clients read")]
            if base.config.at("Metric.name", None) in ("RecMetric", "DistillationMetric")
            else []
        ),
    )
    return Plan(base, decisions, dictionary, steps, drawn, share, steps // 4)


def _rate(base: Base, share: float, keeps: bool) -> Decision:
    """Return the learning rate for batches of this share of the base's, for weights that know all characters or not."""
    # the square root suits Adam, whose steps do not grow with the gradient
    factor = math.sqrt(share) * (_SLOWER if base.is_trained or keeps else 1)
    rate = float(f"{base.config.at('Optimizer.lr.learning_rate', 0.001) * factor:.2g}")
    why = "of the base" if factor == 1 else f"{factor:.2g} times that of the base"
    return Decision("Optimizer.lr.learning_rate", rate, why)


def _held_norms(base: Base, batch: int, keeps: bool) -> Iterator[Decision]:
    """Yield which BatchNorms of a released neck stay as they are: if it knows all characters, or in small batches."""
    neck = base.config.at(NECK, "") if base.is_released and (keeps or batch < _FEW_FOR_NORMS) else ""
    if neck in _NORMS:
        why = "to keep what the weights read" if keeps else f"{batch} samples are few for BatchNorm"
        yield Decision("Global.freeze", list(_NORMS[neck]), why)


def _of_machine(base: Base) -> Iterator[Decision]:
    """Yield what follows from this machine."""
    cores = usable_cores()
    yield Decision("Train.loader.num_workers", min(4, cores - 1), f"{cores} cores")
    if base.config.settings.use_gpu and not list(distributions(name="paddlepaddle-gpu")):
        yield Decision("Global.use_gpu", False, "Paddle's build for CPUs")


def _dictionary(facts: Facts, base: Base, wanted: str | None) -> tuple[tuple[str, ...] | None, bool, str]:
    """Return the lines of a new dictionary (None: that of the base), ``use_space_char``, and the reason."""
    known = base.charset
    all_own = () if known is None else known.characters[: -1 if known.use_space else None]
    taught = set(all_own if base.teacher is None else base.teacher.characters)
    own = tuple(filter(taught.__contains__, all_own))
    of_labels = set(facts.characters) - {" "}
    use_space = known is not None and known.use_space
    if wanted is None:
        lines = (*own, *sorted(of_labels.difference(own)))
        use_space = use_space or (" " in facts.characters and " " not in own)
        why = "those of the labels" if known is None else "those of the base"
    else:
        chosen = set(wanted) - {" "}
        lines = (*(each for each in own if each in chosen), *sorted(chosen.difference(own)))
        use_space = " " in wanted
        why = "--characters"
    new = [] if known is None else sorted(set(lines).difference(own))
    untaught = [] if base.teacher is None else sorted(set(lines).difference(taught))
    if untaught:
        raise DataError(
            f"The teacher does not know {shortened(untaught, _SHOWN, ' ')}, and it does not learn. Fix: train it with "
            "these labels first: init --base TEACHER.",
            code="teacher_lacks_characters",
        )
    why += f", and {len(new):,} new: {shortened(new, _SHOWN, ' ')}" if new else ""
    is_same = (
        known is not None and known.path is not None and (lines, use_space) == (all_own, known.use_space)
    )
    return None if is_same else lines, use_space, f"{len(lines):,} characters, {why}"


def _direction(facts: Facts, base: Base, dictionary: str | None) -> list[Decision]:
    """Return the direction of labels and texts; nothing if it is from left to right, and PaddleOCR takes it so."""
    before = LEFT_TO_RIGHT if base.charset is None else base.charset.direction
    if not is_right_to_left(facts.characters):
        is_usual = before == default_direction(dictionary) == LEFT_TO_RIGHT
        return [] if is_usual else [Decision(DIRECTION, before, "no label is written from right to left")]
    by_order = {
        VISUAL: (
            RIGHT_TO_LEFT_VISUAL,
            "labels are stored from the left of the image to its right (visual order)",
        ),
        LOGICAL: (RIGHT_TO_LEFT, "labels are stored as they are read (logical order)"),
        "": (
            RIGHT_TO_LEFT if before == LEFT_TO_RIGHT else before,
            "no word shows the order of its letters: compare a label with look.png",
        ),
    }
    return [Decision(DIRECTION, *by_order[facts.order])]


def _max_length(facts: Facts, base: Base) -> Decision:
    longest = int(facts.lengths[4])
    usual = max(1, math.ceil(2 * facts.lengths[3]))  # a longer label is a mistake, or alone
    of_base = base.config.at(LENGTH, 25) if base.charset is not None else 0
    length = max(min(longest, usual) + _MARKS, of_base)
    why = f"the longest label has {longest}, and NRTR needs {_MARKS} more"
    if longest > length - _MARKS:
        why = f"longer labels (up to {longest}) are left out: 99.5 % have at most {facts.lengths[3]:.0f}"
    return Decision(LENGTH, length, why)


def _sizes(facts: Facts, base: Base, longest: int) -> list[Decision]:
    """Return the size of the images, and what follows from it in the sampler and in the networks."""
    before = read_preprocessing(base.config, "Eval")
    channels, height, width = before.sizes[0] if before and before.sizes else (3, 48, 320)
    scales = sampler_scales(base.config, "Train")
    middle, high = facts.ratios[1:] if facts.ratios else (width / height, width / height)
    short, usual, long = (max(1.0, each) for each in facts.lengths[:3])
    of_line = middle * height / FRAME_WIDTH / usual  # of a character, if lines keep their aspect ratio
    one_length = long <= _ONE_LENGTH * short
    squashed = before is not None and before.fit == SQUASH
    stretch = not scales and (of_line < _FEW_FRAMES or one_length and (squashed or of_line < _FRAMES))
    wanted = _STRETCHED * long if stretch else high * height
    if base.charset is not None and not base.is_released and wanted <= 1.2 * width and not stretch:
        wanted = width  # that the weights were trained with
    usable = [(size, most) for size, most in facts.frames.items() if size <= longest]
    frames = max(max(1 + most, FRAMES_A_CHARACTER * size) for size, most in usable)
    needed = FRAME_WIDTH * frames
    new = 16 * math.ceil(max(min(_WIDEST, max(wanted, 64)), needed) / 16)
    why = f"{new // FRAME_WIDTH} CTC frames; 95 % of the lines are at most {high:.1f} times as wide as high"
    if stretch:
        too_few = f"padded lines have {of_line:.1f} frames a character, too few"
        why = f"stretched: {too_few}; lines of more than {most_characters(new)} characters are not read"
    of_sampler = [[new, each] for _, each in scales] if new != width else []
    return [
        Decision("RecResizeImg.image_shape", [channels, height, new], why),
        *([Decision("RecResizeImg.padding", not stretch)] if stretch or squashed else []),
        *_widening(base, before, stretch),
        *([Decision("Train.sampler.scales", of_sampler, "as wide as in Eval")] if of_sampler else []),
        *_frames(base.config, new // FRAME_WIDTH),
    ]


def _widening(base: Base, before: Preprocessing | None, stretch: bool) -> Iterator[Decision]:
    """Yield whether longer lines make wider images in Eval, as in clients."""
    if before is None or before.path[-2] != "RecResizeImg":
        return
    if not stretch and not has_one_width(base.config):
        yield Decision(WIDENS, True, "Eval alone: longer lines make wider images, as in clients")
    elif before.fit == WIDEN:
        yield Decision(WIDENS, False)


def _frames(config: Config, frames: int) -> Iterator[Decision]:
    """Yield what networks need to make so many frames, in training as in an evaluation."""
    models = config.at("Architecture.Models", None)
    for path in ["Architecture"] if models is None else [f"Architecture.Models.{name}" for name in models]:
        if frames != TRAIN_FRAMES and config.at(f"{path}.Backbone.name", "").startswith(_WITH_TRAIN_FRAMES):
            why = f"a frame for 8 pixels, not {TRAIN_FRAMES} at any width"
            yield Decision(f"{path}.Backbone.train_frames", "width", why)
        if frames > POSITIONS and config.at(f"{path}.Head.use_pos", False):
            yield Decision(f"{path}.Head.use_pos", False, f"it knows {POSITIONS} frames")
