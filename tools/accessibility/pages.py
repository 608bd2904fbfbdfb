"""Make each HTML page of the product in three states: with rows, with little to show, and with hostile text.

    python tools/accessibility/pages.py --out pages     # some minutes

Two short trainings on drawn images of one or two digits give the real data. `check.mjs` looks at the pages.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ppocr_ext.config import load
from ppocr_ext.data.label_file import read_label_file, write_label_file
from ppocr_ext.evaluation.predictions import Prediction, read_predictions, write_predictions

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "<script>document.title='run'</script>",
    "\"'><img src=x onerror=document.title='run'>",
    "x" * 300,
    "未来测试" * 40,
    "שלום עולם \u202eمرحبا",  # from right to left, with a mark that turns what follows
    "e" + "\u0301\u0323\u0330" * 12,  # accents above one another
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308",
    "\x07\x1b[31m\x85\u2028 &amp; </dd></table>",
]
HOSTILE_NAME = "x\"'><b onclick=x>&未שלום" + "n" * 160  # of a file: no slash, at most 255 bytes


def command(*words: str | Path, codes: tuple[int, ...] = (0,)) -> None:
    """Run ``ppocr-ext``; the exit code must be one of ``codes``."""
    done = subprocess.run(
        [sys.executable, "-m", "ppocr_ext", *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in codes:
        raise SystemExit(f"ppocr-ext {' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def student(file: Path, data: Path, values: dict[str, Any], learns: bool = False) -> Path:
    """Write a config of the quickstart's student that reads the images of ``data``, and ``learns`` them too."""
    config = load([ROOT / "configs" / "quickstart" / "student.yml"])
    dataset = config.thaw()["Eval"]["dataset"]
    dataset |= {"data_dir": str(data), "label_file_list": [str(data / "val_list.txt")]}
    own = {"Train.dataset": dataset} if learns else {}
    changes = {"Global.character_dict_path": str(data / "dict.txt"), "Eval.dataset": dataset, **own, **values}
    file.write_text(config.with_values(changes).to_yaml(), encoding="utf-8")
    return file


def report_pages(work: Path, pages: Path) -> None:
    """Write the page of one run and that of several: two trainings, empty folders, a training with hostile text."""
    data = work / "data"
    size = ("--train", "120", "--val", "60", "--length", "1", "2", "--width", "80")
    command("make-dataset", "captcha", "--out", data, *size)
    drawn = {"Train.dataset.size": 1600, "Train.dataset.length": [1, 2], "Train.dataset.width": 80}
    steps = {"Global.epoch_num": 4, "Global.eval_batch_step": [0, 20], "Global.print_batch_step": 4}
    runs = {work / "runs" / "student": 0.005, work / "runs" / "slow": 0.001}
    for run, rate in runs.items():
        values = {"Global.save_model_dir": str(run), "Optimizer.lr.learning_rate": rate}
        command("train", "-c", student(work / "student.yml", data, {**drawn, **steps, **values}))
        command("eval", run, "--save-predictions", run / "val.tsv")
    states = {"rows": [*runs]}
    states["empty"] = [work / "nothing" / name for name in ("a", "b")]
    for run in states["empty"]:
        run.mkdir(parents=True)
        (run / "metrics.jsonl").touch()
    states["hostile"] = [work / "hostile" / f"{number}{HOSTILE_NAME}" for number in range(2)]
    for run in states["hostile"]:
        shutil.copytree(states["rows"][0], run)
        spoil_run(run)
    for state, folders in states.items():
        title = HOSTILE[1] if state == "hostile" else ""
        for name, shown in (("report", folders[:1]), ("runs", folders)):
            command("report", *shown, "-o", pages / f"{name}-{state}.html", "--no-curves", "--title", title)


def spoil_run(run: Path) -> None:
    """Put hostile text into each file of a run folder."""
    record, samples = (json.loads((run / f"{name}.json").read_text("utf-8")) for name in ("run", "samples"))
    record |= {"status": "failed", "reason": " ".join(HOSTILE), "device": HOSTILE[2], "seed": HOSTILE[4]}
    record["verdict"] = {"text": "\n".join(HOSTILE)}
    record["parts"] = [{"name": text, "parameters": 3, "trained": 3, "rates": [0.1]} for text in HOSTILE]
    warnings = [{"code": text[:40], "path": HOSTILE[2], "message": text} for text in HOSTILE]
    skipped = [{"file": text, "line": 1, "reason": "too_long", "detail": text} for text in HOSTILE]
    section = {"total": 9, "usable": 1, "counts": dict.fromkeys(HOSTILE, 1), "rejected": skipped}
    for text, sample in zip(HOSTILE, samples["samples"], strict=False):
        sample |= {"label": text, "text": text[::-1], "right": False}
    found = {HOSTILE[0]: section, "warnings": warnings}
    for name, content in (("run", record), ("samples", samples), ("preflight", found)):
        (run / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        losses = zip(HOSTILE, line.get("losses", {}).items(), strict=False)
        line |= {"losses": {f"{text}{name}": value for text, (name, value) in losses}, HOSTILE[1]: 0.5}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_predictions(run / "val.tsv", spoiled(read_predictions(run / "val.tsv")))
    with (run / "config.yml").open("a", encoding="utf-8") as stream:
        stream.write(f"Notes: {json.dumps([{'note': text, 'folder': run.name} for text in HOSTILE])}\n")


def spoiled(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return the first predictions with hostile labels, texts and names of images."""
    pairs = zip(predictions, HOSTILE, strict=False)
    return [Prediction(f"{HOSTILE_NAME}/{each.image}", text, text[1:] + "末", 0.5) for each, text in pairs]


def confusion_pages(work: Path, pages: Path) -> None:
    """Write the page of confusions: two trainings compared, no confusion at all, hostile texts."""
    before, after = (read_predictions(work / "runs" / name / "val.tsv") for name in ("student", "slow"))
    right = [Prediction(each.image, each.label, each.label, 1.0) for each in after]
    states = {"rows": (before, after), "empty": (right, right), "hostile": (spoiled(before), spoiled(before))}
    for state, both in states.items():
        files = [work / f"{state}_{when}.tsv" for when in ("before", "after")]
        for file, predictions in zip(files, both, strict=True):
            write_predictions(file, predictions)
        title = HOSTILE[1] if state == "hostile" else "Confusions"
        out = ("--data-dir", work / "data", "--title", title, "--out", work / f"confusions-{state}")
        command("confusions", files[1], "--before", files[0], *out)
        shutil.copy(work / f"confusions-{state}" / "confusions.html", pages / f"confusions-{state}.html")


def init_pages(work: Path, pages: Path) -> None:
    """Write the page of a first run: from weights that doubt labels, from nothing, with hostile labels and names."""
    rows = [(line.images[0], line.label) for line in read_label_file(work / "data" / "train_list.txt")]
    plain = [" ".join(text[:12].replace("\x1b", "").split()) for text in HOSTILE]
    names = [f"{number}{HOSTILE_NAME}.png" for number in range(len(rows))]
    states = {
        "rows": [(name, "99" if number < 4 else label) for number, (name, label) in enumerate(rows)],
        "empty": rows,
        "hostile": list(zip(names, [*plain * 3, *(label for _, label in rows[24:])], strict=True)),
    }
    for state, labelled in states.items():
        folder = work / f"photos {state}"
        for (name, _), (original, _) in zip(labelled, rows, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(work / "data" / original, folder / name)
        write_label_file(folder / "labels.txt", labelled)
        base = [] if state == "empty" else ["--base", work / "runs" / "slow"]
        command("init", folder, *base, "--out", work / f"init {state}")
        shutil.copy(work / f"init {state}" / "init.html", pages / f"init-{state}.html")


def sanity_pages(work: Path, pages: Path) -> None:
    """Write the page of one batch: learned, not learned in ten steps, and with hostile labels and names."""
    labels = ["<b>&", "\"'>x", "שלום", "未来", "e\u0301", "\U0001f469\u200d\U0001f467"]
    images = [line.images[0] for line in read_label_file(work / "data" / "train_list.txt")]
    hostile = work / "spoiled"
    shutil.copytree(work / "data", hostile)
    write_label_file(hostile / "val_list.txt", list(zip(images, labels, strict=False)))
    (hostile / "dict.txt").write_text("\n".join(dict.fromkeys("".join(labels))) + "\n", encoding="utf-8")
    states = {"rows": ("150", work / "data"), "empty": ("10", work / "data"), "hostile": ("40", hostile)}
    for state, (steps, data) in states.items():
        name = HOSTILE_NAME if state == "hostile" else state
        config = student(work / f"{name}.yml", data, {}, learns=True)
        out = work / f"sanity {state}"
        command("sanity", "-c", config, "--samples", "6", "--steps", steps, "--out", out, codes=(0, 1))
        shutil.copy(out / "sanity.html", pages / f"sanity-{state}.html")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a folder that does not exist yet"
    )
    pages = parser.parse_args().out.resolve()
    work = pages / "work"
    work.mkdir(parents=True)
    for make in (report_pages, confusion_pages, init_pages, sanity_pages):
        print(make.__name__, flush=True)
        make(work, pages)


if __name__ == "__main__":
    main()
