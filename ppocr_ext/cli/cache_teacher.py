"""``ppocr-ext cache-teacher``: store the outputs of a frozen teacher, so that trainings need not compute them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.cli.options import add_config_arguments, add_count, read_config
from ppocr_ext.limits import usable_cores
from ppocr_ext.messages import command_line, setting
from ppocr_ext.run.logs import set_up_logs

if TYPE_CHECKING:
    from ppocr_ext.recipes.teacher_cache_job import CacheBuilder

EPILOG = """\
examples:
  ppocr-ext cache-teacher -c distill.yml --output cache --estimate       # size and time, nothing is built
  ppocr-ext cache-teacher -c distill.yml --output cache --views 4
  ppocr-ext train -c distill.yml -o Train.teacher_cache=cache

A view is a sample as the transforms of Train draw it. A training with the cache shows view e mod K in epoch e, in
batches that are mixed anew, and asks the live teacher only for batches that are not stored. Interrupted or killed,
the same command continues where it was. docs/distillation.md says which losses can be served.

exit codes: 0 the cache is complete and serves the losses; 1 it is complete, but a loss needs more than it keeps;
2 it could not be built
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_config_arguments(parser)
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the cache")
    add_count(parser, "--views", default=4, metavar="K", help="views of each sample (4)")
    add("--model", metavar="NAME", help="the teacher, if several sub-models are frozen")
    add_count(parser, "--seed", least=0, help="seed of the views (Global.seed)")
    add_count(parser, "--top-k", help="classes to keep (all where a loss needs them, else 64)")
    add_count(
        parser,
        "--processes",
        default=usable_cores(),
        help="processes that share the work (one for each core)",
    )
    add("--estimate", action="store_true", help="print size and time, and build nothing")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache

    set_up_logs(args.host)
    config = read_config(args)
    options = CacheOptions(
        args.output, args.model, args.views, args.seed, args.top_k, args.processes, args.host
    )
    builder = CacheBuilder(config, options)
    entries, size, seconds = builder.estimate()
    started = max(1, min(args.processes, len(builder.pending)))  # each process writes a shard
    print(f"the whole cache: about {size / 1e6:,.1f} MB")
    print(f"to compute: {entries:,} entries in about {seconds / started:,.0f} s")
    for name, form in builder.facts.branches.items():
        print(f"{name}: {form.kept:,} of {form.classes:,} classes")
    if args.estimate:
        return 0
    try:
        build_cache(config, builder, options)
    except KeyboardInterrupt:
        print(f"continue with: {args.again}", file=sys.stderr)
        raise
    return _report(args, builder)


def _report(args: argparse.Namespace, builder: CacheBuilder) -> int:
    from ppocr_ext.teacher_cache.lookup import reasons_against
    from ppocr_ext.teacher_cache.store import Store

    store = Store(args.output)
    print(f"{args.output}: {store.entries:,} entries")
    for name in store.facts.branches:
        print(f"{name}: {store.dropped(name):.1e} of the probability lies in classes that are not kept")
    if reasons := reasons_against(builder.loss, builder.facts.model, store):
        print("these losses cannot be served within 1e-3, so a training would use the live teacher:")
        print("\n".join(f"  {line}" for line in reasons))
        return 1
    options = [each for each in args.opt if not each.startswith("Train.teacher_cache=")]
    options.append(setting("Train.teacher_cache", args.output))
    print(f"use it: {command_line('train', '-c', *args.config, '-o', *options, host=args.host)}")
    return 0
