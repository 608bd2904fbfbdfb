"""README's "Use it", run as it is printed, on drawn lines."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG

from ppocr_ext.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(yaml|bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Less of everything: the networks stay what they are.
FEWER = ("--train 2000 --val 200", "--train 8 --val 8")
TINY = """
Global: {epoch_num: 1, print_batch_step: 1, max_unusable: 1}
Train:
  dataset:
    transforms: [RecResizeImg: {image_shape: [3, 32, 96]}]
  loader: {batch_size_per_card: 4, num_workers: 0}
Eval:
  dataset:
    transforms: [RecResizeImg: {image_shape: [3, 32, 96]}]
  loader: {num_workers: 0}
"""


def parts(page: str) -> tuple[dict[str, str], list[str]]:
    """Files (by the name in their first comment) and commands of the section, in order; its Python is a command."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition("<!-- use it -->")[2], flags=re.MULTILINE)[1]
    files, commands = {}, []
    for kind, body in BLOCK.findall(section):
        if kind == "yaml":
            files[re.match(r"# ([\w.]+\.yml)", body)[1]] = body
        elif kind == "python":
            commands.append(f"{body}assert reading.error is None, reading.error")
        else:
            commands += [re.sub(r"\s+#.*", "", line) for line in body.splitlines()]
    return files, commands


@pytest.mark.e2e
def test_use_it_runs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, commands = parts("README.md")
    assert set(files) == {"data.yml", "losses.yml"} and len(commands) == 14
    for name, text in {**files, "tiny.yml": TINY}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        if command.startswith("from "):
            exec(command, {})
            continue
        program, *words = shlex.split(command.replace(*FEWER))
        assert program == "ppocr-ext"
        if "-c" in words:
            words += ["-c", "tiny.yml"]
        if words[0] == "make-dataset":  # one of them as a shell finds it: Paddle takes long to import
            script = Path(sys.executable).with_name(program)
            subprocess.run([script, *words], check=True, timeout=HANG)
            continue
        code, said = main(words), capsys.readouterr()
        assert code == 0, f"{command}\n{said.out[-2000:]}\n{said.err[-2000:]}"
        assert "Traceback" not in said.out + said.err, command
    for file in (
        "after.tsv",
        "centers.npz",
        "centers.png",
        "read.tsv",
        "worst.png",
        "output/center_loss/best_accuracy.pdparams",
        "model/inference.onnx",
    ):
        assert (tmp_path / file).is_file(), file
    pages = [path.name for path in tmp_path.rglob("*.html")]
    assert len(pages) >= 3, pages  # of each run, and of the comparison


def test_both_languages_give_the_same_commands() -> None:
    english, chinese = parts("README.md"), parts("README.zh.md")
    assert english[1] == chinese[1]
    for name, text in english[0].items():
        bare = [re.sub(r"\s*#.*", "", each) for each in (text, chinese[0][name])]
        assert bare[0] == bare[1]
