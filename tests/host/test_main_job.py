"""The main job on whichever host, Paddle and numpy are there: distil, stop, go on, judge, load.

``PADDLEOCR_HOME=/path/to/PaddleOCR pytest tests/host/test_main_job.py`` runs it on a checkout. The job on the
networks and the losses of a checkout's own configs is skipped where the host is the installed package.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import StopAfter, tiny_config
from waiting import HANG

from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.config import Config, load
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.host import Host
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run

# Configs of PaddleOCR's repository with parts that we lack; 3.x calls some of the files by another name.
OFFICIAL = {
    "rec_mv3_none_bilstm_ctc.yml": "MobileNetV3, LSTM, CTC",
    "rec_mv3_tps_bilstm_att.yml": "TPS, MobileNetV3, LSTM, attention",
    "rec_r31_sar.yml": "ResNet31, SAR",
    "PP-OCRv3/en_PP-OCRv3*_rec.yml": "MobileNetV1Enhance, CTC and SAR",
    "PP-OCRv4/en_PP-OCRv4*_rec.yml": "PPLCNetV3, CTC and NRTR",
}


@pytest.fixture(scope="module")
def teacher(any_host: Host, tmp_path_factory: pytest.TempPathFactory, captchas: Path) -> Path:
    """A trained teacher's checkpoint, without the suffix."""
    folder = tmp_path_factory.mktemp("teacher")
    train(tiny_config(captchas, folder, "student"))
    return folder / "run" / "latest"


@pytest.fixture
def job(tiny: Any, teacher: Path, tmp_path: Path) -> Any:
    """Config of the distillation, ``job(folder)``."""

    def build(folder: str, **values: Any) -> Config:
        return tiny(
            "distill",
            **{
                "Architecture.Models.Teacher.pretrained": str(teacher),
                "Global.save_model_dir": str(tmp_path / folder),
                **values,
            },
        )

    return build


def losses_of(folder: Path) -> list[float]:
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


def test_a_distillation_stops_goes_on_and_is_judged(job: Any, teacher: Path, tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert train(job("straight")).status == "finished"
    assert train(job("stopped"), hooks=[StopAfter(4)]).status == "stopped"
    went_on = train(job("stopped", **{"Global.checkpoints": str(stopped / "latest")}))
    assert (went_on.status, went_on.position.global_step) == ("finished", 6)
    assert losses_of(stopped) == pytest.approx(losses_of(straight), rel=1e-5)
    assert all(math.isfinite(loss) for loss in losses_of(straight))
    expected, found = read_state(straight / "latest.pdparams"), read_state(stopped / "latest.pdparams")
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)

    run = Run.build(job("straight", **{"Global.checkpoints": str(straight / "latest")}), "eval")
    for name, tensor in run.network.Student.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), expected[f"Student.{name}"], err_msg=name)
    assert len(evaluate(run).predictions) == 10
    assert len(evaluate(run, head="gtc").predictions) == 10


def test_paddle_reads_our_checkpoints_and_we_read_paddles(teacher: Path, tiny: Any, tmp_path: Path) -> None:
    import paddle

    ours = read_state(teacher.with_suffix(".pdparams"))
    theirs = paddle.load(str(teacher.with_suffix(".pdparams")))
    assert {name: tuple(tensor.shape) for name, tensor in theirs.items()} == {
        name: array.shape for name, array in ours.items()
    }
    paddle.save(theirs, str(tmp_path / "again.pdparams"))
    run = Run.build(tiny("student", **{"Global.pretrained_model": str(tmp_path / "again")}), "eval")
    for name, tensor in run.network.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), ours[name], err_msg=name)


@pytest.mark.e2e
@pytest.mark.parametrize("name", OFFICIAL, ids=OFFICIAL.get)
def test_a_checkouts_own_config_trains(any_host: Host, name: str, captchas: Path, tmp_path: Path) -> None:
    files = sorted((any_host.root / "configs" / "rec").glob(name))
    if not files:
        pytest.skip(f"the {any_host.form} has no configs/rec/{name}")
    outcome = train(on_captchas(load([files[0]]), captchas, tmp_path))
    losses = losses_of(tmp_path / "run")
    assert outcome.status == "finished"
    assert len(losses) == outcome.position.global_step >= 3  # a sampler of several heights draws more
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)
    # In a process of its own: some networks of PaddleOCR can be built once only, their parameters have fixed names.
    weights, texts = tmp_path / "run" / "latest", tmp_path / "texts.tsv"
    tool(
        *["ppocr_ext.cli.main", "eval", "-c", str(tmp_path / "run" / "config.yml")],
        *["-o", f"Global.checkpoints={weights}", "--save-predictions", str(texts)],
    )
    assert len(texts.read_text().splitlines()) == 1 + 2


def frames_needed(line: str) -> int:
    """CTC frames that the label of a line takes: one a character, and a blank between two that are equal."""
    label = line.split("\t")[1]
    return len(label) + sum(one == two for one, two in zip(label, label[1:], strict=False))


def on_captchas(config: Config, captchas: Path, folder: Path) -> Config:
    """An official config on 6 of our images, for one epoch on a CPU; nothing else of it is changed."""
    changes: dict[str, Any] = {
        "Global.use_gpu": False,
        "Global.distributed": False,
        "Global.pretrained_model": None,
        "Global.save_model_dir": str(folder / "run"),
        "Global.character_dict_path": str(captchas / "dict.txt"),
        "Global.use_space_char": False,
        "Global.epoch_num": 1,
        "Global.print_batch_step": 1,
        "Global.eval_batch_step": [0, 3],
    }
    for mode, listed, count in (("Train", "train_list.txt", 6), ("Eval", "val_list.txt", 2)):
        # Some checkouts have changed a backbone so that few frames are left.
        lines = sorted((captchas / listed).read_text().splitlines(), key=frames_needed)[:count]
        (folder / listed).write_text("\n".join(lines) + "\n")
        if config.at(f"{mode}.dataset.name").startswith("LMDB"):
            changes[f"{mode}.dataset.name"] = "SimpleDataSet"
        changes[f"{mode}.dataset.data_dir"] = str(captchas)
        changes[f"{mode}.dataset.label_file_list"] = [str(folder / listed)]
        changes[f"{mode}.loader.batch_size_per_card"] = 2
        changes[f"{mode}.loader.drop_last"] = False
        changes[f"{mode}.loader.num_workers"] = 0
    if config.at("Train.sampler", default=None):
        changes["Train.sampler.first_bs"] = 2
    return config.with_values(changes)


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["student", "distill"])
def test_the_hosts_own_script_judges_what_we_trained(
    any_host: Host, kind: str, tiny: Any, captchas: Path, tmp_path: Path
) -> None:
    if kind == "distill" and any_host.form == "checkout":
        pytest.skip("a checkout's scripts build its own networks, and not all know distillation")
    train(tiny(kind))
    config, weights = str(tmp_path / "run" / "config.yml"), str(tmp_path / "run" / "latest")
    shown = tool("ppocr_ext.host", "eval", "-c", config, "-o", f"Global.checkpoints={weights}")
    judged = evaluate(Run.build(load([config], [f"Global.checkpoints={weights}"]), "eval")).metrics
    assert f"norm_edit_dis:{judged['norm_edit_dis']}"[:20] in shown.rpartition("metric eval")[2]


def tool(module: str, *arguments: str) -> str:
    """Run ``python -m module …`` on the host of this session; what it printed."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
