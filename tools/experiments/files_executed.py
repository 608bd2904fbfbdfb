#!/usr/bin/env python3
"""Count the files of the package whose functions one command calls: what a reader of that command may have to read.

`python tools/experiments/files_executed.py` draws a few text lines, runs each command below and prints a row for it.
PYTHONPATH chooses the package, so two versions of it can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRACED = """
import json, os, sys, threading
import ppocr_ext
from ppocr_ext.cli.main import main
package = os.path.dirname(ppocr_ext.__file__) + os.sep
files = set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(package):
        files.add(code.co_filename[len(package):])
threading.setprofile(note)
sys.setprofile(note)
code = main(sys.argv[2:])
sys.setprofile(None)
with open(sys.argv[1], "w") as stream:
    json.dump({"code": code, "files": sorted(files)}, stream)
"""
SMALL = [
    "Global.epoch_num=1",
    "Global.save_model_dir=run",
    "Global.character_dict_path=data/dict.txt",
    "Global.report=false",
    "Train.loader.batch_size_per_card=4",
    *(f"{mode}.loader.num_workers=0" for mode in ("Train", "Eval")),
    *(f"{mode}.dataset.data_dir=data" for mode in ("Train", "Eval")),
    "Train.dataset.label_file_list=[data/train_list.txt]",
    "Eval.dataset.label_file_list=[data/val_list.txt]",
]
TRAIN = ["-c", "configs/lines/teacher.yml", "-o", *SMALL]
COMMANDS = {
    "one step": ["train", *TRAIN],
    "save and resume": ["train", *TRAIN, "Global.checkpoints=run/latest", "Global.epoch_num=2"],
    "one predict": ["predict", "run", "data/val"],
    "one compiled batch": ["eval", *TRAIN, "Global.checkpoints=run/latest", "Global.eval_engine=paddle"],
    "one unknown key": ["config", "--check", *TRAIN, "Global.epochnum=1"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="also name the files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = [sys.executable, "-m", "ppocr_ext"]
        counts = ["--train", "4", "--val", "2", "--length", "2", "8"]
        draw = ["make-dataset", "lines", "--out", "data", "--processes", "1", *counts]
        subprocess.run([*program, *draw], cwd=folder, check=True, capture_output=True)
        for title, words in COMMANDS.items():
            out = folder / "files.json"
            command = [sys.executable, "-c", TRACED, str(out), *words]
            process = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ)
            if not out.exists():
                sys.exit(process.stderr[-2000:])
            result = json.loads(out.read_text())
            print(f"{title:20} {len(result['files']):4} files, exit code {result['code']}", flush=True)
            if args.list:
                print("\n".join(f"    {file}" for file in result["files"]))
            out.unlink()


if __name__ == "__main__":
    main()
