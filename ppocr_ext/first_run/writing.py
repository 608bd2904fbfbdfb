"""Write the files of a first run: lists, dictionary, config, crops, drawn lines; the user's files never change."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext import __version__
from ppocr_ext.base.parts import OF_LABEL_FILES
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.config import Config
from ppocr_ext.config.config_view import from_plain
from ppocr_ext.config.derive import MAX_DROP
from ppocr_ext.config.yaml_io import dump
from ppocr_ext.data.label_file import LabelLine, read_label_file, write_label_file
from ppocr_ext.data.preprocessing import sampler_scales
from ppocr_ext.data.sample_rules import FRAME_WIDTH, FRAMES_A_CHARACTER, SampleIssue
from ppocr_ext.errors import DataError
from ppocr_ext.first_run.decisions import DIRECTION, WIDENS, Decision, Plan
from ppocr_ext.first_run.general_lines import general_lines, usable
from ppocr_ext.first_run.inspect import Inspection, line_source
from ppocr_ext.first_run.split import OWN_SPLIT
from ppocr_ext.io.atomic import atomic_writer, write_bytes, write_text
from ppocr_ext.io.resources import shown_path
from ppocr_ext.limits import usable_cores
from ppocr_ext.messages import printable, yaml_text
from ppocr_ext.report.page_samples import SampleImages
from ppocr_ext.sources.listing import RECORD
from ppocr_ext.sources.samples import SPLITS
from ppocr_ext.survey.images import ImageReader
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder
from ppocr_ext.synth.lines import LineSource
from ppocr_ext.text_direction import in_order

CONFIG = "config.yml"
NETWORK = "network.yml"
RUN = "run"
_SKIPPED = 0.01  # of LMDBs; more could be above Global.max_unusable in one of them
_TAUGHT = 0.3  # share of a batch of the lines that must still be read (docs/results.md, Released models)
_MORE = 0.2  # share of a batch of the lines that only train (docs/results.md, Few labels)
_OF_BASE = ("name", "label_file_list", "ratio_list", "data_dir", "delimiter", "ds_width", "transforms")

GENERAL_LINES = 1_800  # that are drawn to judge; half as many are drawn to train
_SHORT, _LONG = 2, 10  # characters of them, unless labels are shorter or longer, and as far as they fit
MAX_DROP_DRAWN = 0.05  # drawn lines fall by more than photographed words (docs/results.md, What it forgets)
JUDGED = 500  # samples of a list that are read before the training, and labels whose loss is computed


class Data(NamedTuple):
    """Where the samples of ``Train`` or of ``Eval`` are.

    Attributes:
        folder: the folder that ``data_dir`` names.
        labels: the label file; None if the folder is an LMDB.
    """

    folder: Path
    labels: Path | None


class Lists(NamedTuple):
    """The samples that a config names.

    Attributes:
        train: the samples of ``Train``.
        val: the samples of ``Eval``.
        general: the lines that the recogniser must still read; a training from nothing has nothing to keep.
        taught: lines of their kind that train, so that less is forgotten; None if there are none.
        drawn: drawn lines that a network from nothing trains on beside those of ``Train``; None if there are none.
        max_drop: how much the accuracy on ``general`` may fall.
        more: samples that train beside those of ``Train``, in a part of each batch; None if there are none.
    """

    train: Data
    val: Data
    general: Data | None = None
    taught: Data | None = None
    drawn: Data | None = None
    max_drop: float = 0.0
    more: Data | None = None


@dataclass(frozen=True)
class Files:
    """What a first run has written.

    Attributes:
        val: the samples that evaluate.
        general: the samples that the recogniser must still read; None if there are none.
        counts: how many lines each list has.
        left_out: how many samples are in no list, by reason.
        notes: sentences that a user should read.
    """

    val: Data
    general: Data | None
    counts: Counter[str]
    left_out: Counter[str]
    notes: tuple[str, ...]


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
    if not (out / RECORD).exists():  # first: what an interrupted command leaves is no data
        write_text(out / RECORD, "{}\n")
    counts: Counter[str] = Counter()
    notes: list[str] = []
    # before anything is drawn, which takes longer
    more = None if inspection.more is None else _write_more(inspection, inspection.more, counts, notes)
    drawn = _write_drawn(inspection) if plan.drawn else None
    left_out: Counter[str] = Counter()
    general = taught = None
    lmdbs = _own_lmdbs(inspection)
    if lmdbs:
        train, val = (Data(folder, None) for folder in lmdbs)
        counts.update(inspection.split.counts())
    else:
        # parts of pages and records of LMDBs have no image file
        source = inspection.source
        has_parts = source.format == "lmdb" or any(sample.box is not None for sample in source.samples())
        read = ImageReader(source.root) if has_parts else None
        folder = source.root if read is None else out
        train, val = (Data(folder, out / f"{name}.txt") for name in ("train", "val"))
        counts += _write_lists(inspection, read, left_out)
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
    if plan.base.charset is not None or inspection.general is not None:
        try:
            general, taught = _write_general(inspection, counts, notes)
        except DataError as error:
            notes.append(f"There is no general list: {error}")
    lists = Lists(train, val, general, taught, drawn, max_drop(inspection), more)
    write_config(plan, lists, out, command)
    return Files(val, general, counts, left_out, tuple(notes))


def write_config(plan: Plan, lists: Lists, out: Path, command: str) -> None:
    """Write the config of a plan, the dictionary and the networks beside it."""
    if plan.dictionary is not None:
        write_text(out / "dict.txt", "".join(f"{each}\n" for each in plan.dictionary))
    if plan.base.sections is not None:
        # networks that no other file has, and their losses
        sections = (
            dump({name: section}).replace(f"{name}:", f"{name}: !replace", 1)
            for name, section in plan.base.sections.items()
        )
        write_text(out / NETWORK, "".join(sections))
    write_text(out / CONFIG, config_text(plan, lists, out, command))


def config_text(plan: Plan, lists: Lists, out: Path, command: str) -> str:
    """Return the config as YAML.

    Args:
        plan: the base and the values.
        lists: the samples.
        out: the folder of the config.
        command: the command that made it, for the first line.
    """
    base = plan.base
    rows = [
        Decision("Global.save_model_dir", shown_path(out / RUN)),
        Decision("Global.pretrained_model", base.weights),
        *(row for row in plan.decisions if not row.key.startswith("RecResizeImg")),
        Decision("Train.loader.shuffle", True),
        *([Decision("Train.sampler", None, "images of one size")] if base.is_released else []),
        *_mixed(lists, plan),
        *([Decision("Global.checkpoints", None)] if base.config.settings.checkpoints is not None else []),
        *(
            [Decision("Architecture.pretrained_dict", str(base.charset.path), "of the weights")]
            if base.charset is not None and base.weights is not None and find_source(base.weights) is None
            else []
        ),
    ]
    files = [*base.files, *([NETWORK] if base.sections is not None else [])]
    lines = [
        _comment(
            f"Written by `{command}`, ppocr-ext {__version__}. Change what you like: docs/configuration.md"
        ),
        f"_BASE_: {_inline(files)}   {_comment(base.name)}",
    ]
    sections = Config.of(from_plain({})).with_values({row.key: row.value for row in rows})
    for section, values in sections.items():
        lines.append(f"{section}:")
        if section == "Train":
            lines += _dataset_lines(_dataset(plan, "Train", lists.train))
        for name, value in values.items():
            start = f"{section}.{name}."
            reasons = "; ".join(row.why for row in rows if row.why and f"{row.key}.".startswith(start))
            lines.append(f"  {name}: {_inline(value)}{f'   {_comment(reasons)}' if reasons else ''}")
    lines += ["Eval:", f"  dataset: !replace {_inline(_dataset(plan, 'Eval', lists.val))}"]
    if lists.general is not None and base.weights is not None:
        kept = {"dataset": _files_beside(lists.general, lists.val), "max_drop": lists.max_drop}
        lines.append(
            f"  general: {_inline(kept)}   "
            + _comment(
                "what may be lost of other lines; a rise of drawn ones proves nothing: docs/training.md"
            )
        )
    elif base.config.at("Eval.general", None) is not None:
        lines.append("  general: null")
    return "\n".join([*lines, ""])


def shares(plan: Plan, has_more: bool) -> dict[str, float]:
    """Return the share of each batch that a list of :class:`Lists` gets, by its name."""
    more = _MORE if has_more else 0.0
    taught = _TAUGHT if plan.base.weights is not None else 0.0
    return {"drawn": float(f"{plan.share * (1 - more):.2g}"), "more": more, "taught": taught}


def _mixed(lists: Lists, plan: Plan) -> Iterator[Decision]:
    """Yield what puts other lines into each batch."""
    mix = [
        {"dataset": _files_beside(data, lists.train), "share": share}
        for name, share in shares(plan, lists.more is not None).items()
        if (data := getattr(lists, name)) is not None
    ]
    if mix:
        yield Decision("Train.mix", mix, "other lines in each batch: docs/training.md")
    elif plan.base.config.at("Train.mix", None) is not None:
        yield Decision("Train.mix", None, "the lists of the base are not used")


def _files(data: Data) -> dict[str, Any]:
    """Return the keys of a ``dataset`` that name its samples."""
    folder = {"data_dir": shown_path(data.folder)}
    return folder if data.labels is None else {**folder, "label_file_list": [shown_path(data.labels)]}


def _files_beside(data: Data, first: Data) -> dict[str, Any]:
    """Return the keys of a ``dataset`` of other samples than ``first``, whose keys it has besides."""
    is_other = first.labels is None and data.labels is not None
    return {**({"name": "SimpleDataSet"} if is_other else {}), **_files(data)}


def _comment(text: str) -> str:
    """Return a comment on one line, whatever a path or a label has in it."""
    return "# " + printable(text).replace("\n", "\\n")


def _dataset(plan: Plan, mode: str, data: Data) -> dict[str, Any]:
    """Return the section ``dataset``: that of the base with these samples, and with images of the plan's size."""
    section = plan.base.config.at(f"{mode}.dataset").thaw()
    name = "LMDBDataSet"
    if data.labels is not None:
        name = section["name"] if section["name"] in OF_LABEL_FILES else "SimpleDataSet"
    dataset: dict[str, Any] = {"name": name, **_files(data)}
    if section["name"] == name:
        dataset |= {key: value for key, value in section.items() if key not in _OF_BASE}
    dataset["transforms"] = [_resized(plan, mode, each) for each in section["transforms"]]
    return dataset


def _resized(plan: Plan, mode: str, transform: dict[str, Any]) -> dict[str, Any]:
    """Return a transform; one that resizes gets the size of the plan."""
    name, options = next(iter(transform.items()))
    if not name.endswith("ResizeImg"):
        return transform
    start = "RecResizeImg."
    rows = [
        row for row in plan.decisions if row.key.startswith(start) and (mode == "Eval" or row.key != WIDENS)
    ]
    size = {row.key.removeprefix(start): row.value for row in rows}
    return {name: {**(options or {}), **size}}


def _dataset_lines(dataset: Mapping[str, Any]) -> list[str]:
    lines = ["  dataset: !replace"]
    lines += [f"    {key}: {_inline(value)}" for key, value in dataset.items() if key != "transforms"]
    return [*lines, "    transforms:", *(f"      - {_inline(each)[1:-1]}" for each in dataset["transforms"])]


def _inline(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return yaml_text(value) if isinstance(value, str) else json.dumps(value)


def _draw(lines: LineSource, folder: Path, count: int) -> list[LabelLine]:
    """Draw lines into a folder of our own, and return them; one that an earlier command drew otherwise is replaced."""
    wanted = DatasetFolder(lines, train=count, val=0)
    try:
        make_folder(folder, wanted, usable_cores())
    except DataError as error:
        if error.code != "other_parameters":
            raise
        shutil.rmtree(folder)
        make_folder(folder, wanted, usable_cores())
    return list(read_label_file(folder / "train_list.txt"))


def _own_lmdbs(inspection: Inspection) -> tuple[Path, Path] | None:
    """Return the LMDBs of train and val if the user has one for each, and they can be read as they are.

    A MultiScaleSampler needs a data set that resizes, and that of LMDBs does not.
    """
    plan = inspection.plan
    source = inspection.source
    if (
        source.format != "lmdb"
        or inspection.split.by != OWN_SPLIT
        or any(each.code in ("illegible", "unknown_char") for each in inspection.found.skipped)  # would train
        or sum(each.share for each in inspection.found.skipped) > _SKIPPED
        or len(inspection.found.images.unusable) > _SKIPPED * inspection.found.images.looked_at
        or sampler_scales(plan.base.config, "Train")
    ):
        return None
    splits = {sample.image.rpartition("#")[0]: sample.split for sample in source.samples()}
    train, val = ([each for each in splits if splits[each] == split] for split in ("train", "val"))
    return (source.root / train[0], source.root / val[0]) if len(train) == len(val) == 1 else None


def _write_lists(inspection: Inspection, read: ImageReader | None, left_out: Counter[str]) -> Counter[str]:
    """Write the label file of each part, and images that are no files of their own; return the lines by part.

    Args:
        inspection: what was decided.
        read: reads the images of the samples, to write them as files; None if they are files already.
        left_out: counts the samples that are in no list, by reason.
    """
    counts: Counter[str] = Counter()
    codes = inspection.split.codes.tolist()
    bar = tqdm(inspection.source.samples(), "lists", len(codes), unit=" samples", disable=None, leave=False)
    with ExitStack() as stack:
        streams = {
            code: stack.enter_context(atomic_writer(inspection.out / f"{SPLITS[code]}.txt"))
            for code in sorted(set(codes))
        }
        for number, (sample, code) in enumerate(zip(bar, codes, strict=True)):
            content = b"" if read is None else read(sample)
            name = sample.image
            if len(sample.text) > inspection.plan.longest:
                left_out["too_long"] += 1
            elif isinstance(content, SampleIssue):
                left_out["broken_image"] += 1
            else:
                if read is not None:
                    stem = PurePosixPath(sample.image.replace("#", "_")).with_suffix("")
                    name = f"crops/{stem}_{number}.png"
                    write_bytes(inspection.out / name, content, sync=False)
                streams[code].write(f"{name}\t{sample.text}\n".encode())
                counts[SPLITS[code]] += 1
    return counts


def _write_drawn(inspection: Inspection) -> Data:
    """Draw lines of the labels' characters, and write their list."""
    plan = inspection.plan
    folder, file = inspection.out / "drawn", inspection.out / "drawn.txt"
    characters = sorted(plan.characters().intersection(inspection.found.texts.characters))
    source = line_source(characters, inspection.found.texts.lengths, inspection.seed)
    lines = _draw(source, folder, plan.drawn)
    write_label_file(file, ((line.images[0], plan.of_drawn(line.label)) for line in lines))
    return Data(folder, file)


def _unseen(
    inspection: Inspection, file: Path, rows: Sequence[tuple[str, str]], notes: list[str]
) -> list[tuple[str, str]]:
    """Return the rows of a list whose images, by their content, are not those of val and test; note the others."""
    images = SampleImages(file.parent)
    contents = {
        hash(inspection.found.read(sample))
        for sample, code in zip(inspection.source.samples(), inspection.split.codes, strict=True)
        if SPLITS[code] != "train"
    }
    unseen = [row for row in rows if hash(images.content(row[0])) not in contents]
    if len(unseen) < len(rows):
        notes.append(
            f"{len(rows) - len(unseen):,} lines of {file} have images of val or test, and do not train."
        )
    return unseen


def _write_more(inspection: Inspection, file: Path, counts: Counter[str], notes: list[str]) -> Data:
    """Write the lines of a list that only trains, as far as the plan can use them; return them.

    Images that have a label already are left out: they train with it, or evaluate.

    Raises:
        DataError: none is left, or the list cannot be read.
    """
    known = inspection.plan.characters()
    labelled = {(inspection.source.root / each.image).resolve() for each in inspection.source.samples()}
    lines = list(read_label_file(file))
    labels = in_order([line.label for line in lines], inspection.plan[DIRECTION])
    rows = [
        (line.images[0], label)
        for line, label in zip(lines, labels, strict=True)
        if known.issuperset(label)
        and 0 < len(label) <= inspection.plan.longest
        and (file.parent / line.images[0]).resolve() not in labelled
    ]
    rows = _unseen(inspection, file, rows, notes)
    if not rows:
        raise DataError(
            f"--more {file}: no line has another image than DATA, and only characters of its labels. Fix: give other "
            "lines of the same kind.",
            code="no_samples",
        )
    own = inspection.out / "more.txt"
    counts["more"] = write_label_file(own, rows)
    return Data(file.parent, own)


def max_drop(inspection: Inspection) -> float:
    """Return how much of the general list may be lost.

    Weights that know few characters of the labels have to learn a script, and lose what they read before: measured, not
    forbidden, unless the user gave the list.
    """
    known = inspection.plan.base.charset
    counts = {each: count for each, count in inspection.found.texts.characters.items() if each != " "}
    new = sum(count for each, count in counts.items() if known is not None and known.unknown(each))
    if inspection.general is not None:
        return MAX_DROP
    return 1.0 if new > sum(counts.values()) / 2 else MAX_DROP_DRAWN


def _write_general(
    inspection: Inspection, counts: Counter[str], notes: list[str]
) -> tuple[Data | None, Data | None]:
    """Write the general lines that evaluate, and those that train; return both.

    Every second line of the user's list evaluates; lines with images of val and test do not train. Drawn lines that
    evaluate are of another kind than those that train, and share no text with them.

    Raises:
        DataError: lines cannot be drawn, or the user's list cannot be read.
    """
    plan = inspection.plan
    own = inspection.general
    known = plan.characters()
    if plan.base.charset is not None:
        known &= set(plan.base.charset.characters)
    frames = plan["RecResizeImg.image_shape"][2] // FRAME_WIDTH
    most = plan.longest if plan[WIDENS] else min(plan.longest, frames)
    is_kept = plan.base.weights is not None
    if own is None:
        folders = [inspection.out / name for name in ("general", "general_taught")]
        texts = inspection.found.texts
        longest = max(texts.lengths[2], min(_LONG, frames // FRAMES_A_CHARACTER, plan.longest))
        lengths = (min(texts.lengths[0], _SHORT), texts.lengths[1], longest)
        of_judging, of_training, said = general_lines(known, texts.characters, lengths, most, inspection.seed)
        notes.extend(said)
        judging = usable(plan, _draw(of_judging, folders[0], GENERAL_LINES), known, most)
        drawn = _draw(of_training, folders[1], GENERAL_LINES // 2) if is_kept else []
        judged = {text for _, text in judging}
        training = [row for row in usable(plan, drawn, known, most) if row[1] not in judged]
    else:
        folders = [own.parent] * 2
        rows = usable(plan, list(read_label_file(own)), known, most, is_drawn=False)
        judging = rows[:: 2 if is_kept else 1]
        training = _unseen(inspection, own, rows[1::2] if is_kept else [], notes)
    counts.update(general=len(judging), taught=len(training))
    lists = zip(("general.txt", "general_taught.txt"), folders, (judging, training), strict=True)
    general, taught = (
        Data(folder, inspection.out / name)
        if rows and write_label_file(inspection.out / name, rows)
        else None
        for name, folder, rows in lists
    )
    return general, taught
