"""Write the files of a first run: lists, dictionary, config, crops, drawn lines; the user's files never change."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from ppocr_ext.data.label_file import read_label_file, write_label_file
from ppocr_ext.data.preprocessing import sampler_scales
from ppocr_ext.data.sample_rules import SampleIssue
from ppocr_ext.errors import DataError
from ppocr_ext.first_run.config_text import NETWORK, Data, General, Lists, config_text, sections_text
from ppocr_ext.first_run.decisions import Plan
from ppocr_ext.first_run.inspect import DRAWABLE, Inspection, line_source
from ppocr_ext.first_run.split import OWN_SPLIT
from ppocr_ext.io.atomic import atomic_writer, write_text
from ppocr_ext.limits import usable_cores
from ppocr_ext.sources.listing import RECORD
from ppocr_ext.sources.samples import SPLITS, Source
from ppocr_ext.survey.images import ImageReader
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

CONFIG = "config.yml"
GENERAL_LINES = 300
# What may be lost of the general list. More is lost of drawn lines than of real ones: where 9 to 10 of 100 drawn lines
# were, 1 to 4 of 100 photographed words and at most 1 of printed columns (docs/results.md, Released models).
MAX_DROP, MAX_DROP_OF_OWN = 0.1, 0.01
JUDGED = 500  # samples of a list that are read before the training, and labels whose loss is computed
_DRAWN = "drawn"  # lines to train on


@dataclass(frozen=True)
class Files:
    """What a first run has written.

    Attributes:
        train: the samples that train.
        val: the samples that evaluate.
        general: the samples that the recogniser must still read; None if there are none.
        counts: how many lines each list has.
        left_out: how many samples are in no list, by reason.
        notes: sentences that a user should read.
    """

    train: Data
    val: Data
    general: Data | None
    counts: Counter[str]
    left_out: Counter[str]
    notes: tuple[str, ...]


def require_free(out: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        DataError: it does.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(
            f"{out} is there already. Fix: give another --out, or --force, which writes the files of `init` anew.",
            code="folder_exists",
        )


def write_first_run(inspection: Inspection, command: str) -> Files:
    """Write everything but the pages; the same data and seed give the same files. Other files of the folder stay.

    Args:
        inspection: what was decided.
        command: the command that the user gave, for the first line of the config.

    Raises:
        DataError: nothing is left to train on.
        OSError: a file cannot be written.
    """
    out = inspection.out
    plan = inspection.plan
    write_text(out / RECORD, "{}\n")  # first: what an interrupted command leaves is no data
    counts: Counter[str] = Counter()
    # before anything is drawn, which takes longer
    more = None if inspection.more is None else _write_more(inspection, inspection.more, counts)
    if plan.drawn:
        characters = sorted(plan.characters().intersection(inspection.found.texts.characters))
        _draw(characters, inspection, out / _DRAWN, plan.drawn)
    left_out: Counter[str] = Counter()
    notes: list[str] = []
    general = None
    lmdbs = _own_lmdbs(inspection)
    if lmdbs:
        train, val = (Data(folder, None) for folder in lmdbs)
        counts.update(inspection.split.counts())
    else:
        read = ImageReader(inspection.source.root) if _has_parts(inspection.source) else None
        root = _root(inspection, read is not None)
        train, val = (Data(root, out / f"{name}.txt") for name in ("train", "val"))
        counts += _write_lists(inspection, read, root, left_out)
        if read is not None and read.turned:
            notes.append(
                f"{read.turned:,} crops at least 1.5 times as high as wide are turned, as PaddleOCR does."
            )
    if not counts["train"] or not counts["val"]:
        raise DataError(
            f"Nothing is left to {'train' if not counts['train'] else 'evaluate'} on (left out: "
            f"{dict(left_out)}). Fix: label more images, or give other --characters.",
            code="no_samples",
        )
    if plan.drawn:
        train = Data(train.folder, _mix(out, train.folder, plan))
    if plan.base.charset is not None or inspection.general is not None:
        try:
            general = _write_general(inspection, counts)
        except DataError as error:
            notes.append(f"There is no general list: {error}")
    lists = Lists(train, val, None if plan.base.weights is None else general, more)
    write_config(plan, lists, out, command)
    return Files(train, val, general and general.judged, counts, left_out, tuple(notes))


def write_config(plan: Plan, lists: Lists, out: Path, command: str) -> None:
    """Write the config of a plan, the dictionary and the networks beside it."""
    if plan.dictionary is not None:
        write_text(out / "dict.txt", "".join(f"{each}\n" for each in plan.dictionary))
    if plan.base.sections is not None:
        write_text(out / NETWORK, sections_text(plan.base.sections))
    write_text(out / CONFIG, config_text(plan, lists, out, command))


def _draw(characters: Sequence[str], inspection: Inspection, folder: Path, count: int) -> None:
    """Draw lines into a folder of our own; one that an earlier command drew otherwise is replaced."""
    lines = line_source(characters, inspection.found.texts.lengths, inspection.seed)
    wanted = DatasetFolder(lines, train=count, val=0)
    try:
        make_folder(folder, wanted, usable_cores())
    except DataError as error:
        if error.code != "other_parameters":
            raise
        shutil.rmtree(folder)
        make_folder(folder, wanted, usable_cores())


def _own_lmdbs(inspection: Inspection) -> tuple[Path, Path] | None:
    """Return the LMDBs of train and val if the user has one for each, and they can be read as they are.

    A MultiScaleSampler needs a data set that resizes, and that of LMDBs does not.
    """
    plan = inspection.plan
    source = inspection.source
    has_all = "unknown_char" not in {each.code for each in inspection.found.skipped}
    own = source.format == "lmdb" and inspection.split.by == OWN_SPLIT
    if not own or not has_all or plan.drawn or sampler_scales(plan.base.config, "Train"):
        return None
    splits = {sample.image.rpartition("#")[0]: sample.split for sample in source.samples()}
    train, val = ([each for each in splits if splits[each] == split] for split in ("train", "val"))
    return (source.root / train[0], source.root / val[0]) if len(train) == len(val) == 1 else None


def _has_parts(source: Source) -> bool:
    """Return True if the samples are parts of pages or records of LMDBs, so that they have no image file."""
    first = next(source.samples(), None)
    return first is not None and (first.box is not None or source.format == "lmdb")


def _root(inspection: Inspection, cuts: bool) -> Path:
    """Return the folder that the paths in the lists start from: it holds the user's images, drawn ones and crops."""
    if cuts:
        return inspection.out
    data = inspection.source.root
    return Path(os.path.commonpath([data, inspection.out.resolve()])) if inspection.plan.drawn else data


def _write_lists(
    inspection: Inspection, read: ImageReader | None, root: Path, left_out: Counter[str]
) -> Counter[str]:
    """Write the label file of each part, and images that are no files of their own; return the lines by part.

    Args:
        inspection: what was decided.
        read: reads the images of the samples, to write them as files; None if they are files already.
        root: the folder that paths start from.
        left_out: counts the samples that are in no list, by reason.
    """
    counts: Counter[str] = Counter()
    begin = _begin(inspection.source.root, root)
    codes = inspection.split.codes.tolist()
    bar = tqdm(inspection.source.samples(), "lists", len(codes), unit=" samples", disable=None, leave=False)
    with ExitStack() as stack:
        streams = {
            code: stack.enter_context(atomic_writer(inspection.out / f"{SPLITS[code]}.txt"))
            for code in sorted(set(codes))
        }
        for number, (sample, code) in enumerate(zip(bar, codes, strict=True)):
            content = b"" if read is None else read(sample)
            name = f"{begin}{sample.image}"
            if len(sample.text) > inspection.plan.longest:
                left_out["too_long"] += 1
            elif isinstance(content, SampleIssue):
                left_out["broken_image"] += 1
            else:
                if read is not None:
                    stem = PurePosixPath(sample.image.replace("#", "_")).with_suffix("")
                    name = f"crops/{stem}_{number}.png"
                    with atomic_writer(inspection.out / name, sync=False) as stream:
                        stream.write(content)
                streams[code].write(f"{name}\t{sample.text}\n".encode())
                counts[SPLITS[code]] += 1
    return counts


def _begin(folder: Path, root: Path) -> str:
    """Return what stands before paths in ``folder`` in a list whose paths start from ``root``."""
    path = os.path.relpath(folder.resolve(), root.resolve())
    return "" if path == "." else f"{path}/"


def _mix(out: Path, root: Path, plan: Plan) -> Path:
    """Write a list of the user's lines, each as often as planned, and of the drawn ones; return it."""
    begin = _begin(out / _DRAWN, root)
    drawn = read_label_file(out / _DRAWN / "train_list.txt")
    own = chain.from_iterable(read_label_file(out / "train.txt") for _ in range(plan.repeats))
    rows = chain(
        ((line.images[0], line.label) for line in own),
        ((f"{begin}{line.images[0]}", plan.of_drawn(line.label)) for line in drawn),
    )
    write_label_file(out / "mixed.txt", rows)
    return out / "mixed.txt"


def _write_more(inspection: Inspection, file: Path, counts: Counter[str]) -> Data:
    """Write the lines of a list that only trains, as far as the plan can use them; return them.

    Images that have a label already are left out: they train with it, or evaluate.

    Raises:
        DataError: none is left, or the list cannot be read.
    """
    known = inspection.plan.characters()
    labelled = {(inspection.source.root / each.image).resolve() for each in inspection.source.samples()}
    lines = list(read_label_file(file))
    labels = inspection.plan.as_labels([line.label for line in lines])
    rows = [
        (line.images[0], label)
        for line, label in zip(lines, labels, strict=True)
        if known.issuperset(label)
        and 0 < len(label) <= inspection.plan.longest
        and (file.parent / line.images[0]).resolve() not in labelled
    ]
    if not rows:
        raise DataError(
            f"--more {file}: no line has another image than DATA, and only characters of its labels. Fix: give other "
            "lines of the same kind.",
            code="no_samples",
        )
    own = inspection.out / "more.txt"
    counts["more"] = write_label_file(own, rows)
    return Data(file.parent, own)


def _write_general(inspection: Inspection, counts: Counter[str]) -> General | None:
    """Write the lines that the recogniser must still read; return them, if there are any, and add their number.

    Of a list of the user, every second line judges, and the weights before the training teach the others. Drawn lines
    only judge: where the new lines look like them, they would teach the mistakes of these weights too.

    Raises:
        DataError: lines cannot be drawn, or the user's list cannot be read.
    """
    plan = inspection.plan
    known = plan.characters()
    if plan.base.charset is not None:
        known &= set(plan.base.charset.characters)
    drawn = set(known)
    if len(drawn) > DRAWABLE:  # no network reads random texts of thousands of rare characters
        drawn = {each for each in drawn if each.isascii() or each in inspection.found.texts.characters}
    own = inspection.general
    file = own or inspection.out / "general" / "train_list.txt"
    if own is None:
        _draw(sorted(drawn), inspection, file.parent, GENERAL_LINES)
    lines = [line for line in read_label_file(file) if line.label and known.issuperset(line.label)]
    texts = [line.label for line in lines]
    labels = plan.as_labels(texts) if own else map(plan.of_drawn, texts)
    rows = [(line.images[0], label) for line, label in zip(lines, labels, strict=True)]
    every = 1 if own is None or plan.base.weights is None or len(rows) < 2 else 2
    judged, taught = (inspection.out / name for name in ("general.txt", "general_taught.txt"))
    counts["general"] = write_label_file(judged, rows[::every])
    if every > 1:
        counts["taught"] = write_label_file(taught, rows[1::every])
    teaches = Data(file.parent, taught) if every > 1 else None
    limit = MAX_DROP if own is None else MAX_DROP_OF_OWN
    return General(Data(file.parent, judged), teaches, limit) if rows else None
