"""``ppocr-ext init``: from a folder of labelled images to a config that is ready to train."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocr_ext.cli.options import add_host_argument, add_number
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.messages import LOG, fit, for_people

if TYPE_CHECKING:
    from ppocr_ext.first_run.inspect import Inspection

EPILOG = """\
examples:
  ppocr-ext init photos                             # look at photos/, and write my/config.yml
  ppocr-ext init photos --dry                       # only look; nothing is written
  ppocr-ext init photos --base output/run           # begin with a run of yours: says how much of val it reads already
  ppocr-ext init photos --base PP-OCRv6_small_rec   # the same with an official model (ppocr-ext weights list)
  ppocr-ext init photos --out student --distill my/run small    # a small student, taught by the run my/run

DATA is a folder with images and their texts, as labelling tools and datasets write it: PPOCRLabel, CSV, JSON lines,
Hugging Face, docTR, ICDAR, MJSynth, Label Studio, CVAT, COCO, Labelme, PAGE, ALTO, an LMDB, image<TAB>text, or a text
file beside each image. Its files are only read. The folder of --out then holds
  config.yml               a few lines over a shipped base; change what you like
  train.txt, val.txt       the samples, split by page, folder or image; --split makes a split anew
  drawn.txt                drawn lines, which train a network from nothing beside yours
  dict.txt                 the characters, if they are not those of the base
  general.txt              lines that the base reads, to see what a training forgets
  general_taught.txt       other such lines that train, so that it forgets less
  more.txt                 the lines of --more that have only characters of the
                           labels
  doubtful.tsv             labels that the base does not believe, the worst first
  look.png, init.html      what the network will see, and everything that was found
  crops/, drawn/, general/, general_taught/   images cut out of pages, and drawn lines
"""


_OF_STEPS = 0.8  # share of --minutes; evaluations take the others


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="folder with images and their texts")
    add("--out", type=Path, default=Path("my"), metavar="DIR", help="folder to write to (my)")
    add(
        "--base",
        metavar="NAME",
        help="name or folder of an official model, a run or a checkpoint to begin with; or `small`, a small network "
        "from nothing",
    )
    add(
        "--distill",
        nargs=2,
        metavar=("TEACHER", "STUDENT"),
        help="teach a student; each as for --base",
    )
    add(
        "--more",
        type=Path,
        metavar="LIST",
        help="label file that trains too, as predict --format labels writes it",
    )
    add(
        "--general",
        type=Path,
        metavar="LIST",
        help="label file of what must still be read (default: drawn lines); half of it trains",
    )
    add("--characters", metavar="TEXT", help="read only these, such as 0-9A-Z")
    add("--format", metavar="NAME", help="of DATA, if it can be read in several ways")
    add(
        "--labels", nargs="+", default=(), metavar="FILE", help="label files in DATA, if there are others too"
    )
    add(
        "--text-from-name",
        metavar="REGEX",
        help="the text is in the names of the images, e.g. '^([A-Z0-9]+)_'",
    )
    add("--split", action="store_true", help="split anew, also if DATA is split; its test part stays")
    add("--test", action="store_true", help="also take a part for a test, which no training sees")
    add_number(
        parser,
        "--minutes",
        ValueRule("number", 0.1),
        metavar="N",
        help="plan at most as many steps as fit into N minutes (one core or one GPU)",
    )
    add("--seed", type=int, default=1, metavar="N", help="of the split and of what is drawn (1)")
    add("--force", action="store_true", help="replace what `init` wrote into DIR, and nothing else")
    add("--trust-model", action="store_true", help="run a teacher that is an inference model unknown to us")
    add("--dry", action="store_true", help="only look and decide; write nothing")
    add("--json", action="store_true", help="print the result as JSON; all else goes to standard error")
    add_host_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.charset import characters_in
    from ppocr_ext.first_run.inspect import inspect_source
    from ppocr_ext.first_run.own_files import require_free, require_unread
    from ppocr_ext.first_run.report import decision_lines, finding_lines, source_lines
    from ppocr_ext.sources.recognise import recognise

    if not args.dry:
        require_free(args.out, args.force)
    source = recognise(
        args.data,
        format=args.format,
        labels=args.labels,
        text_from_name=args.text_from_name,
        ask_for_split=not args.split,
    )
    _say(args, source_lines(source))
    inspection = inspect_source(
        source,
        args.out,
        base=args.base,
        distill=args.distill,
        general=args.general,
        more=args.more,
        characters=None if args.characters is None else characters_in(args.characters),
        redo_split=args.split,
        test=args.test,
        seed=args.seed,
        trust_model=args.trust_model,
    )
    _say(args, (*finding_lines(inspection), "decisions:", *map(fit, decision_lines(inspection))))
    content = inspection.to_json()
    if args.dry:
        _say(args, ["nothing was written (--dry)"])
    else:
        require_unread(inspection)
        _write(args, inspection, content)
    if args.json:
        print(json.dumps(content, indent=1, ensure_ascii=False))
    return 0


def _say(args: argparse.Namespace, lines: Iterable[str]) -> None:
    for line in lines:
        print(for_people(line), file=sys.stderr if args.json else sys.stdout, flush=True)


def _write(args: argparse.Namespace, inspection: Inspection, content: dict[str, Any]) -> None:
    """Write the files, try the config, and print what that shows; add it to ``content``."""
    from ppocr_ext.first_run.own_files import write_record
    from ppocr_ext.first_run.report import changed_lines, next_commands, page_text, result_lines
    from ppocr_ext.first_run.writing import write_first_run
    from ppocr_ext.host.complete import import_paddle
    from ppocr_ext.io.atomic import write_text

    import_paddle()
    from ppocr_ext.first_run.own_files import remove_lists
    from ppocr_ext.first_run.trial import try_config, try_steps
    from ppocr_ext.host import open_host
    from ppocr_ext.run.logs import quiet_host

    quiet_host(open_host(args.host).logger)
    is_new = not args.out.exists()
    level = LOG.level
    LOG.setLevel(logging.WARNING)  # the result says what evaluations log
    try:
        _say(args, ["training steps are tried, which may take a minute or more …"])
        plan, seconds = try_steps(inspection, args.host)
        if args.minutes and seconds:
            plan = plan.of_epochs(max(1, int(_OF_STEPS * 60 * args.minutes / seconds)))
        _say(args, changed_lines(inspection, plan))
        inspection = replace(inspection, plan=plan)
        _say(args, ["files are written, lines are drawn, and weights read some …"])
        remove_lists(args.out)
        files = write_first_run(inspection, args.again)
        trial = try_config(inspection, files, seconds, args.host)
    except BaseException:
        if is_new:  # half of it is of no use
            shutil.rmtree(args.out, ignore_errors=True)
        else:
            write_record(args.out, {})
        raise
    finally:
        LOG.setLevel(level)
    commands = next_commands(inspection, files)
    _say(args, result_lines(inspection, files, trial))
    counts = {"written": files.counts, "left_out": files.left_out}
    content["decisions"] = [row._asdict() for row in plan.decisions]
    content |= {**counts, "before_training": trial.numbers, "commands": commands}
    content["notes"] += [*files.notes, *filter(None, [trial.note])]
    write_text(args.out / "init.html", page_text(inspection, files, trial))
    write_record(args.out, content)
    page = args.out / "init.html"
    _say(args, [f"page: {page}", "next:", *(f"  {each}" for each in commands)])
