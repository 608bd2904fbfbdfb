"""``ppocr-ext sanity``: test whether a config learns one batch by heart, and if not, why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.cli.options import add_config_arguments, add_count, add_old_dictionary_argument, read_config

if TYPE_CHECKING:
    from ppocr_ext.sanity.learning import Lesson
    from ppocr_ext.sanity.subject import Subject

EPILOG = """\
The network learns the first samples of Train, with different texts and without augmentation and dropout. It uses the
config's own loss, optimizer, gradient clip and highest learning rate (no warm-up, no decay): all heads together, then
each head apart from the same first weights. A head has learned the batch if it reads 90 % of it, or if its loss is
below 10 % of the loss at chance and it reads half. No run folder is written, only a page and a picture.

A head that does not learn is tested for the usual faults: positions, shifted targets, causal mask, softmax, number of
classes, learning rate, … With `--structure` every head is tested.

exit code: 0 every head has learned the batch, 1 one has not, 2 the test could not run.

examples:
  ppocr-ext sanity -c my.yml                        # before a long training
  ppocr-ext sanity -c my.yml --samples 4            # faster, for a large network
  ppocr-ext sanity -c my.yml --structure            # look for faults of heads that learn, too
  ppocr-ext sanity -c my.yml -o Global.pretrained_model=null      # from random weights
"""
_STEPS = 300
_SAMPLES = 16
_WIDTHS = (15, 10, 7, 16, 10, 11, 0)  # widths of the table's columns, characters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_config_arguments(parser)
    add = parser.add_argument
    add_count(parser, "--samples", least=2, default=_SAMPLES, help=f"samples of the batch ({_SAMPLES})")
    add_count(
        parser, "--steps", default=_STEPS, help=f"the largest number of steps of each training ({_STEPS})"
    )
    add("--structure", action="store_true", help="test the structure of every head, not only of failing ones")
    add("--out", type=Path, default=Path("sanity"), metavar="DIR", help="folder of page and picture (sanity)")
    add_old_dictionary_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    import paddle.distributed as dist

    from ppocr_ext.io.atomic import check_writable
    from ppocr_ext.modeling.necks import narrow_necks
    from ppocr_ext.run.logs import set_up_logs
    from ppocr_ext.sanity.head_probe import Finding
    from ppocr_ext.sanity.learning import HEAD, learn, remarks, row
    from ppocr_ext.sanity.structure import examine_structure
    from ppocr_ext.sanity.subject import open_subject

    set_up_logs(args.host)
    subject = open_subject(read_config(args), args.samples, args.host, args.old_dict)
    page = args.out / "sanity.html"
    check_writable(page)
    about = list(_about(subject, args.steps))
    print("\n".join(about))
    _print_row(HEAD)
    lessons: list[Lesson] = []
    findings: dict[str, list[Finding]] = {}
    for lesson in learn(subject, args.steps):
        lessons.append(lesson)
        _print_row(row(lesson))
        name = lesson.head.name
        if name not in findings and (args.structure or not lesson.passed):
            findings[name] = examine_structure(lesson.head)
    notes = list(remarks(lessons, findings, args.steps))
    necks = narrow_necks(subject.network, subject.context.charset.ctc_classes)
    notes += [f"one batch is not many images: {text}" for text in necks]
    print("\n".join(notes))
    if dist.get_rank() == 0:  # all processes of a launcher do the same
        _write(page, lessons, ", ".join(args.config), about, notes)
    return 0 if all(lesson.passed for lesson in lessons) else 1


def _about(subject: Subject, steps: int) -> Iterator[str]:
    """Yield lines about the batch, the steps, and what is switched off."""
    batch = subject.batch
    height, width = batch.images.shape[2:]
    rate = f"a learning rate of {subject.peak:g}"
    yield f"{batch.samples} samples of {width}x{height} pixels, at most {steps} steps at {rate}"
    names = f" ({', '.join(batch.left_out)})" if batch.left_out else ""
    yield f"switched off: augmentation{names}, dropout, warm-up and decay of the learning rate, mixed precision"
    if batch.size is not None:
        yield f"of the sizes of the sampler: only {batch.size[0]}x{batch.size[1]}"


def _print_row(cells: Sequence[str]) -> None:
    print("".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip(), flush=True)


def _write(
    page: Path, lessons: Sequence[Lesson], config: str, about: Sequence[str], notes: Sequence[str]
) -> None:
    """Write page and picture, and print where they are."""
    from ppocr_ext.io.atomic import write_text
    from ppocr_ext.sanity.learning import picture, sanity_page

    title = f"Sanity of {config}"
    write_text(page.with_suffix(".svg"), picture(lessons, title))
    write_text(page, sanity_page(lessons, title, "; ".join(about), notes))
    print(f"page: {page}\npicture: {page.with_suffix('.svg')}")
