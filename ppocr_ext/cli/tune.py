"""``ppocr-ext tune``: search for better settings by many short trainings."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ppocr_ext.cli.options import add_config_arguments, add_count, read_config
from ppocr_ext.errors import ConfigError
from ppocr_ext.limits import read_text

EPILOG = """\
It trains the config as it is (trial 0), then again and again with other learning rates, weight decays, …: the keys in
the space file. Each trial is an ordinary training in its own run folder, such as DIR/trials/0003. A trial that is
worse than three quarters of the finished ones is stopped (pruned). If a trial fails, the search goes on.
The best trial is the one whose best_accuracy has the highest Metric.main_indicator; norm_edit_dis decides between
equals. With Eval.general, a trial that may keep none of its weights (not_kept) is never the best.

Trials should be short: set Global.epoch_num, Global.eval_batch_step (four or more evaluations per trial) and the
warm-up with -o. The best settings of short runs are usually good, but not always the best, in long runs.

examples:
  pip install 'ppocr-ext[tune]'
  ppocr-ext tune -c my.yml --print-space > space.yml       # a space to begin with; edit it
  ppocr-ext tune -c my.yml --space space.yml --trials 20 -o Global.epoch_num=5 'Global.eval_batch_step=[0,100]'
  ppocr-ext tune … --resume                                # after Ctrl-C or a power cut
  ppocr-ext train -c my.yml -c tune/best.yml               # a whole training with the best settings

a space file:
  Optimizer.lr.learning_rate: {low: 0.0005, high: 0.005, log: true}
  Optimizer.lr.warmup_epoch: {low: 0, high: 3, step: 1}
  Optimizer.weight_decay: {choices: [0.01, 0.03, 0.1]}

DIR then holds results.md (table), parallel.png (a line for each trial), best.yml, space.yml, config.yml, study.db
(Optuna's record) and trials/. The same seed gives the same proposals. Ctrl-C stops the running trial; nothing is lost.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_config_arguments(parser)
    add = parser.add_argument
    add("--space", metavar="FILE", help="keys to try and their values (default: made from the config)")
    add("--print-space", action="store_true", help="print the space, and end")
    add("--out", metavar="DIR", default="tune", help="folder of the study (default: tune)")
    add_count(parser, "--trials", default=20, help="trials in all (default: 20)")
    add("--resume", action="store_true", help="go on with the study in DIR")
    add(
        "--ray",
        action="store_true",
        help="run the trials through Ray Tune, on this machine unless --ray-address",
    )
    add(
        "--ray-address",
        metavar="ADDR",
        help="a Ray cluster, such as auto or ray://head:10001; its machines need DIR",
    )
    add_count(parser, "--at-once", default=1, help="trials at the same time, with Ray (default: 1)")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    with_ray = args.ray or args.ray_address
    if args.at_once > 1 and not with_ray:
        raise ConfigError(f"--at-once {args.at_once} needs Ray. Fix: add --ray.", code="bad_value")
    if os.environ.get("PADDLE_TRAINERS_NUM", "1") != "1":
        raise ConfigError(
            "tune trains each trial in one process. Fix: start it without a launcher.", code="bad_value"
        )
    from ppocr_ext.host.complete import import_paddle

    import_paddle()
    from ppocr_ext.run.logs import set_up_console
    from ppocr_ext.tuning.space import default_space, read_space, space_text

    set_up_console()
    config = read_config(args)
    space = default_space(config) if args.space is None else read_space(Path(args.space), config)
    if args.print_space:
        print(space_text(space), end="")
        return 0
    from ppocr_ext.tuning.search import RunTrials, Search, run_here
    from ppocr_ext.tuning.study import check_study_file

    run_trials: RunTrials = run_here
    if with_ray:
        from ppocr_ext.tuning.ray_trials import ray_trials

        run_trials = ray_trials(args.ray_address, args.at_once)
    again = args.again if args.resume else f"{args.again} --resume"
    folder = Path(args.out)
    check_study_file(folder, args.resume, again)
    try:
        results = Search(config, tuple(args.config), folder, args.trials, args.host).run(space, run_trials)
    except KeyboardInterrupt:
        print(f"\nstopped; the study is kept. Go on with: {again}")
        raise
    print(f"\n{read_text(results)}\nresults: {results}")
    return 0
