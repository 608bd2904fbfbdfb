"""``ppocr-ext train``: train or distil a recogniser inside PaddleOCR's own loop."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ppocr_ext.checkpoint.contents import BEST, checkpoint_line
from ppocr_ext.cli.options import (
    add_config_arguments,
    add_old_dictionary_argument,
    add_strict_argument,
    read_config,
)
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.uncertainty import Rate
from ppocr_ext.messages import LOG, run_command, setting
from ppocr_ext.run.host_config import folder_of

EPILOG = """\
examples:
  ppocr-ext train -c configs/quickstart/distill.yml
  ppocr-ext train -c rec_svtrv2_ch_distillation.yml -o Global.use_gpu=false Global.epoch_num=10
  ppocr-ext train -c my.yml -c overlay.yml                      # the overlay goes over my.yml
  ppocr-ext train --resume output/run                           # after a stop; -o changes keys
  ppocr-ext train -c my.yml --processes 2                       # on two cores, or on two GPUs
  ppocr-ext train -c my.yml -o Global.pretrained_model=old/best_accuracy --old-dict old_dict.txt

The run folder (Global.save_model_dir) holds config.yml, host_config.json, run.json, train.log, metrics.jsonl,
preflight.json, samples.json, report.html and the checkpoints latest.*, best_accuracy.*,
iter_epoch_N.*. Ctrl-C stops after the step in progress and leaves `latest` to resume from.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_config_arguments(parser, required=False)
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="continue the run of this folder: its own config and its checkpoint `latest`",
    )
    add_strict_argument(parser)
    add_old_dictionary_argument(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the run that the run folder holds: its checkpoints are removed when this run begins",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=None,
        metavar="N",
        help="train with N processes on this machine, through Paddle's launcher: each has its share of the CPU cores, "
        "or a GPU of its own, and its own batch, so that a step has N times as many samples",
    )
    parser.add_argument("-p", "--profiler_options", default=None, help="passed to PaddleOCR's profiler")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    if (args.resume is None) == (not args.config):
        raise ConfigError(
            "give either a config with -c, or with --resume the folder of a run.", code="bad_arguments"
        )
    if args.resume is not None:
        args.config = [Path(args.resume) / "config.yml"]
        args.opt = [setting("Global.checkpoints", Path(args.resume) / "latest"), *args.opt]
    if args.processes is not None:
        from ppocr_ext.loop.launch import is_started, start_processes

        if not is_started(args.processes):
            return start_processes(read_config(args), args.processes, shlex.split(args.again)[1:])
    from ppocr_ext.host.complete import import_paddle

    import_paddle()
    from ppocr_ext.run.logs import set_up_console
    from ppocr_ext.run.team import failing_together

    set_up_console()
    with failing_together():  # also for a config that cannot be read
        return _train(args)


def _train(args: argparse.Namespace) -> int:
    import paddle.distributed as dist

    from ppocr_ext.loop.session import train
    from ppocr_ext.report.run_folder import EXIT_CODES
    from ppocr_ext.run.machine import spans_machines
    from ppocr_ext.run.team import is_beside_first

    config = read_config(args, args.strict)
    if args.profiler_options is not None:
        config = config.with_values({"profiler_options": args.profiler_options})
    outcome = train(
        config,
        host_path=args.host,
        old_dictionary=args.old_dict,
        overwrite=args.overwrite,
        processes=args.processes or 1,
    )
    code = EXIT_CODES[outcome.status]
    if code == 0 and outcome.signal is not None:
        code = 128 + outcome.signal
    if dist.get_rank() != 0:  # process 0 has the folder of the run, and says what to do next
        # Its launcher would end it after another exit code, while it may still be writing the report.
        return 0 if is_beside_first() else code
    folder = folder_of(config)
    if outcome.status != "finished":
        if outcome.signal is None:
            LOG.warning("%s: %s", outcome.status, outcome.reason)
        if outcome.status != "not_kept" and (folder / "latest.pdparams").is_file():
            again = "" if args.processes is None else f" --processes {args.processes}"
            if spans_machines():
                again = ", by Paddle's launcher as before, with these files on every machine"
            LOG.info("resume with: %s%s", run_command("train", folder / "latest", args.host), again)
        return code
    if outcome.reason:
        LOG.info("finished: %s", outcome.reason)
    if config.get("Eval"):
        name = BEST if (folder / f"{BEST}.pdparams").is_file() else "latest"
        LOG.info("%s", checkpoint_line(folder / name))
        if name == BEST and (accuracy := outcome.best.get("acc")) is not None:
            LOG.info("acc: %s", Rate(round(accuracy * outcome.eval_lines), outcome.eval_lines))
        LOG.info("evaluate it: %s", run_command("eval", folder / name, args.host))
    return 0
