"""README's "Use it" and the guide after it, as they are printed; `tools/experiments/use_it.py` runs all of it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from experiments.use_it import use_it
from released import real_release

from ppocr_ext.cli.main import main
from ppocr_ext.first_run import decisions, writing

# Less of everything: the networks stay what they are.
FEWER = {"--train 10000 --val 200": "--train 8 --val 8", "--val 200": "--val 8", "--train 1300": "--train 12"}
SHORT = "Global: {epoch_num: 1, print_batch_step: 1, max_unusable: 1, allow_untrained_teacher: true}\n"
TINY = f"""{SHORT}
Train:
  dataset:
    transforms: [RecResizeImg: {{image_shape: [3, 32, 128]}}]
  loader: {{batch_size_per_card: 4, num_workers: 0}}
Eval:
  dataset:
    transforms: [RecResizeImg: {{image_shape: [3, 32, 128]}}]
"""


def shortened(text: str) -> str:
    for long, short in FEWER.items():
        text = text.replace(long, short)
    return text


@pytest.mark.e2e
def test_use_it_runs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = use_it()
    assert len(commands) == 24
    real_release("PP-OCRv6_small_rec", "rapidocr")
    (tmp_path / "tiny.yml").write_text(TINY, encoding="utf-8")
    (tmp_path / "short.yml").write_text(SHORT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(decisions, "DRAWN", 40)  # lines that `init` draws
    monkeypatch.setattr(writing, "GENERAL_LINES", 4)
    for command in commands:
        program, *words = shlex.split(shortened(command).replace(" --processes 2", ""))
        if program == "pip":
            continue
        assert program == "ppocr-ext"
        if "-c" in words:
            words += [
                "-c",
                "short.yml" if "my/config.yml" in words else "tiny.yml",
            ]  # the size of its images stays
        if words[0] == "make-dataset":  # as a shell finds it: Paddle takes long to import
            subprocess.run([Path(sys.executable).with_name(program), *words], check=True)
            continue
        code, said = main(words), capsys.readouterr()
        assert code == 0, f"{command}\n{said.out[-2000:]}\n{said.err[-2000:]}"
        assert "Traceback" not in said.out + said.err, command
    for file in (
        "after.tsv",
        "centers.npz",
        "centers.png",
        "my/look.png",
        "my/init.html",
        "my/run/best_accuracy.pdparams",
        "alone/run/best_accuracy.pdparams",
        "student/run/best_accuracy.pdparams",
        "big/config.yml",
        "output/center_loss/best_accuracy.pdparams",
        "model/inference.onnx",
    ):
        assert (tmp_path / file).is_file(), file
    pages = [path.name for path in tmp_path.rglob("*.html")]
    assert len(pages) >= 3, pages  # of each run, and of the comparison
