"""The two students that the clients read with, and images for each: taken from the folder of the clients, or made."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.export.clients import CLIENT_WIDTH
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.recognition.ctc_text import Reading
from ppocr_ext.recognition.images import Kind, WidthPolicy, read_image
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.recognizer import Recognizer
from ppocr_ext.run.recogniser import load_recogniser, recogniser_config

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 500
PAD_CONFIG = Path(__file__).with_name("pad_model.yml")
RUNS = {"squash": "quickstart/student", "pad": "pad"}
# an even look, so that a short training is enough
_EVEN = "--rotation 0 --shear 0 --perspective 0 --blur 0 --shrink 1 --noise 0 --jpeg 100"
_BACKGROUND = "--background-kinds plain gradient"


@dataclass(frozen=True)
class Sample:
    """An image file and its label."""

    image: Path
    label: str


@dataclass(frozen=True)
class Student:
    """A trained student, its export, and images for it.

    Attributes:
        kind: of its width policy.
        folder: of the clients; the export is `exported/KIND` in it.
        samples: no wider than CLIENT_WIDTH at the model's height.
        wide: wider ones.
        printed: what `ppocr-ext export` printed.
    """

    kind: str
    folder: Path
    samples: list[Sample]
    wide: list[Sample]
    printed: str

    def read(self, kind: Kind, max_width: int | None = None) -> list[Reading]:
        """Return what the trained network reads in all images, each alone, under a width policy."""
        with working_folder(self.folder):
            trained = load_recogniser(recogniser_config(RUNS[self.kind]))
            policy = replace(WidthPolicy.from_config(trained.config), kind=kind, max_width=max_width)
            recognizer = Recognizer(RecognizerParts(NetworkEngine(trained.network), policy, trained.charset))
            return recognizer.read([each.image for each in (*self.samples, *self.wide)], batch_size=1)


@contextmanager
def working_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)  # paths in a run's config are relative
    try:
        yield
    finally:
        os.chdir(before)


def student(kind: str, folder: Path) -> Student:
    """Return a student; train and export it, and draw its images, where that has not been done in `folder`."""
    if not (folder / RUNS[kind] / "best_accuracy.pdparams").is_file():
        (_train_squash if kind == "squash" else _train_pad)(folder)
    printed = command(folder, "export", RUNS[kind], "--output", f"exported/{kind}", "--force")
    description = json.loads((folder / "exported" / kind / "model.json").read_text(encoding="utf-8"))
    assert description["width_policy"]["kind"] == kind, "another model lies there"
    if kind == "squash":
        return Student(kind, folder, _samples(folder / "quickstart/data/test.txt", IMAGES), [], printed)
    height = 48
    samples = [each for size in (40, 64) for each in _samples(_drawn(folder, f"lines{size}"), IMAGES // 2)]
    wide = _samples(_drawn(folder, "wide"), 20)
    assert all(_width(each, height) <= CLIENT_WIDTH for each in samples)
    assert all(_width(each, height) > CLIENT_WIDTH for each in wide)
    return Student(kind, folder, samples, wide, printed)


def command(folder: Path, *words: str) -> str:
    """Run `ppocr-ext` in a folder and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "ppocr_ext", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def _train_squash(folder: Path) -> None:
    command(folder, "quickstart", "--out", "quickstart", "--stages", "student")


def _train_pad(folder: Path) -> None:
    """Train the pad model from the weights of the other one, which knows the digits."""
    if not (folder / RUNS["squash"] / "best_accuracy.pdparams").is_file():
        _train_squash(folder)
    _drawn(folder, "lines")
    weights = ["-o", f"Global.pretrained_model={RUNS['squash']}/best_accuracy"]
    dictionary = ["--old-dict", "quickstart/data/dict.txt"]
    command(folder, "train", "-c", "configs/quickstart/student.yml", str(PAD_CONFIG), *weights, *dictionary)


def _drawn(folder: Path, name: str) -> Path:
    """Return the label file of drawn text lines with spaces; draw them if they are missing."""
    options = {
        "lines": "--train 6000 --val 500 --length 1 9 --seed 1",
        "lines40": f"--train 0 --val {IMAGES // 2} --length 1 40 --height 40 --seed 2",
        "lines64": f"--train 0 --val {IMAGES // 2} --length 1 40 --height 64 --seed 3",
        "wide": "--train 0 --val 20 --length 190 200 --sizes 36 40 --seed 4",
    }[name]
    corpus = folder / "corpus.txt"
    if not corpus.is_file():
        corpus.write_text("".join(_words(seed) + "\n" for seed in range(3000)))
    words = ["make-dataset", "lines", "--out", name, "--corpus", "corpus.txt", "--fonts", "captcha"]
    command(folder, *words, *options.split(), *_EVEN.split(), *_BACKGROUND.split())
    return folder / name / "val_list.txt"


def _words(seed: int) -> str:
    """Return 300 characters of random words."""
    generator = random.Random(seed)
    letters = string.digits + string.ascii_letters
    text = " ".join("".join(generator.choices(letters, k=generator.randint(1, 6))) for _ in range(100))
    return text[:300].strip()


def _samples(file: Path, count: int) -> list[Sample]:
    lines = [line for line in read_label_file(file) if line.issue is None]
    return [Sample(file.parent / line.images[0], line.label) for line in lines[:count]]


def _width(sample: Sample, height: int) -> float:
    rows, columns = read_image(sample.image).shape[:2]
    return height * columns / rows
