"""``ppocr-ext replay``: repeat the step where a run found a bad value."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.cli.options import add_host_argument, add_option_argument

EPILOG = """\
A run that finds a value that is not finite, or an absurd one, writes the batch, the weights and the random seed of
the step into `incidents` of its folder. This command repeats the step from them, in float32, without the data of
the run.

The modules of Global.plugins are imported only with --import-plugins, since that runs their code.

exit code: 1 the bad value is there again, 0 every value is good, 2 the step cannot be repeated.

examples:
  ppocr-ext replay output/run/incidents/step_000123
  ppocr-ext replay output/run/incidents/step_000123 -o Global.use_gpu=false
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("folder", type=Path, metavar="INCIDENT", help="a folder in `incidents` of a run")
    add_option_argument(parser, "set keys of the run's config")
    add_host_argument(parser)
    parser.add_argument(
        "--import-plugins", action="store_true", help="import Global.plugins, which runs their code"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.host import open_host
    from ppocr_ext.loop.incidents import replay
    from ppocr_ext.run.logs import quiet_host, set_up_console

    set_up_console()
    quiet_host(open_host(args.host).logger)
    result = replay(args.folder, args.host, args.opt, with_plugins=args.import_plugins)
    if result.incident is None:
        print("every value of this step is good")
        return 0
    print("\n".join(result.incident.lines()))
    if result.operator is not None:
        print(f"  {result.operator}")
    return 1
