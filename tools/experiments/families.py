#!/usr/bin/env python3
"""Train configs of users, each for a few steps from nothing on the same list: evaluate it, export it, read with it.

Any config that `train -c` takes will do. Its data, dictionary, device and first weights are replaced; networks, losses,
optimizer and transforms stay as they are. The last lines of the list are those that it evaluates and reads. The next
config follows after a failure, which the table names. A command that has succeeded is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from benchmarks.table import markdown  # noqa: E402

from experiments.runs import RunFailedError, from_command_line  # noqa: E402
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.config import Config, load  # noqa: E402
from ppocr_ext.errors import PPOCRExtError  # noqa: E402
from ppocr_ext.evaluation.predictions import Prediction, read_predictions  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402

HEAD = ["config", "parameters", "steps", "seconds", "loss", "export equals run", "read by"]
READ = 32  # lines that are evaluated and read
ENGINES = {"onnx": "ONNX Runtime", "paddle": "Paddle"}


def write_lists(args: argparse.Namespace) -> None:
    """Write the lines to train on and to read, and a dictionary of their characters, to the folder of all files."""
    lines = [each for each in args.data.read_text(encoding="utf-8").splitlines() if each]
    texts = [each.partition("\t")[2] for each in lines]
    write_text(args.out / "train.txt", "".join(f"{each}\n" for each in lines[: args.steps * args.batch]))
    write_text(args.out / "read.txt", "".join(f"{each}\n" for each in lines[-READ:]))
    write_text(args.out / "dict.txt", "".join(f"{each}\n" for each in sorted(set("".join(texts)) - {" "})))


def values_for(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    """Return what is laid over a config, by the path of the key."""
    out = args.out.resolve()
    values: dict[str, Any] = {
        **{
            f"Global.{key}": False
            for key in ("use_gpu", "distributed", "use_visualdl", "use_wandb", "report")
        },
        **{f"Global.{key}": "" for key in ("pretrained_model", "checkpoints", "save_inference_dir")},
        "Global.character_dict_path": str(out / "dict.txt"),
        "Global.epoch_num": 1,
        "Global.print_batch_step": 1,
        "Global.eval_batch_step": [0, 10 * args.steps],
        "Global.save_model_dir": "run",
        **{f"Architecture.Models.{name}.pretrained": "" for name in config.at("Architecture.Models", {})},
    }
    if config.at("Optimizer.lr.warmup_epoch", None):
        values["Optimizer.lr.warmup_epoch"] = 0
    if config.at("Train.sampler.first_bs", None):
        values["Train.sampler.first_bs"] = args.batch
    for mode, lines in (("Train", "train.txt"), ("Eval", "read.txt")):
        if str(config.at(f"{mode}.dataset.name", "")).startswith("LMDB"):
            values[f"{mode}.dataset.name"] = "SimpleDataSet"
        if config.at(f"{mode}.dataset.ratio_list", None):
            values[f"{mode}.dataset.ratio_list"] = [1.0]
        values |= {
            f"{mode}.dataset.data_dir": str(args.data.resolve().parent),
            f"{mode}.dataset.label_file_list": [str(out / lines)],
            f"{mode}.loader.batch_size_per_card": args.batch,
            f"{mode}.loader.num_workers": 0,
        }
    return values


def fill(row: dict[str, str], path: Path, here: Path, args: argparse.Namespace) -> None:
    """Train, evaluate, export and read with one config; fill in its row of the table on the way.

    Raises:
        PPOCRExtError: a command has failed.
    """
    config = load([path])
    options = [f"{key}={json.dumps(each)}" for key, each in values_for(config, args).items()]
    seconds = run_command(here, "train", ["train", "-c", str(path.resolve()), "-o", *options, *args.opt])
    steps = [json.loads(line) for line in (here / "run/metrics.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps if step["kind"] == "train"]
    record = json.loads((here / "run/run.json").read_text(encoding="utf-8"))
    row["parameters"] = f"{record['parameters']['trained'] / 1e6:.2f} M"
    row["steps"] = str(record["global_step"])
    row["seconds"], row["loss"] = f"{seconds:.0f}", f"{losses[0]:.3g} → {losses[-1]:.3g}"
    latest = ["-o", "Global.checkpoints=run/latest"]
    run_command(here, "eval", ["eval", "run", *latest])
    lines = str((args.out / "read.txt").resolve())
    reading = [lines, "--data-dir", str(args.data.resolve().parent), "--output"]
    run_command(here, "read", ["predict", "run", *reading, "run.tsv", *latest])
    row["read by"] = "the run"
    run_command(here, "export", ["export", "run", "--output", "model", *latest])
    for engine in ENGINES:
        run_command(here, engine, ["predict", "model", *reading, f"{engine}.tsv", "--engine", engine])
    run, *exported = (read_predictions(here / f"{name}.tsv") for name in ("run", *ENGINES))
    equal = [same(run, each) for each in exported]
    row["export equals run"] = "yes" if all(equal) else "no"
    row["read by"] = ", ".join(
        ["the run", *(name for name, right in zip(ENGINES.values(), equal, strict=True) if right)]
    )


def same(run: list[Prediction], exported: list[Prediction]) -> bool:
    """Return whether both have the same texts, with confidences that differ by less than 0.001."""
    return all(
        one.text == other.text and abs(one.confidence - other.confidence) < 1e-3
        for one, other in zip(run, exported, strict=True)
    )


def run_experiment(args: argparse.Namespace) -> str:
    """Go through all configs, one after another, and return the table as Markdown."""
    args.out.mkdir(parents=True, exist_ok=True)
    write_lists(args)
    rows: list[dict[str, str]] = []
    for number, path in enumerate(args.configs):
        rows.append({**dict.fromkeys(HEAD, ""), "config": f"`{path.stem}`"})
        try:
            fill(rows[-1], path, args.out.resolve() / f"{number:02d}_{path.stem}", args)
        except PPOCRExtError as error:
            print(f"{path}: {error}", file=sys.stderr)
            command = str(error).partition(" of: ")[2].split()[:1]  # as `run_command` names it
            rows[-1]["export equals run"] = f"failed: {' '.join(command) or error.code}"
        table = markdown(HEAD, [list(row.values()) for row in rows])
        write_text(args.out / "results.md", table + "\n")
    if failed := sum("failed" in row["export equals run"] for row in rows):
        raise RunFailedError(f"{failed} of {len(rows)} configs failed:\n{table}", code="run_failed")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("configs", nargs="+", type=Path, metavar="CONFIG", help="configs, one after another")
    add("--data", type=Path, required=True, metavar="LIST", help="label file; its folder holds the images")
    add("--out", type=Path, default=Path("families"), metavar="DIR", help="folder of all files (families)")
    add("--steps", type=int, default=50, metavar="N", help="steps of each training (50)")
    add("--batch", type=int, default=4, metavar="N", help="images in a step (4)")
    add("-o", "--opt", nargs="+", default=[], metavar="KEY=VALUE", help="further keys, for all configs")
    parser.set_defaults(at_once=1)
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
