"""Centers and center loss of a PaddleOCR checkout, changed as people change it by hand, against ours.

``PADDLEOCR_PEER=/path/to/PaddleOCR pytest tests/centers/test_peer_centers.py``; skipped without. The checkout's files
stay as they are.
"""

import importlib.util
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from tiny_runs import tiny_config
from waiting import HANG

from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.cli.main import main
from ppocr_ext.loop.session import train
from ppocr_ext.losses import CenterLoss
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.run.run import Run

HERE = Path(__file__).parent
CLASSES, DIM = 11, 16  # of the tiny student on digits
LONGEST = 25
MISSING = 5  # a class without a center


def run_python(script: str, *arguments: Any, folder: Path) -> str:
    """Run a script of this folder in a process of its own: what it imports is another PaddleOCR than the host's."""
    environment = {k: v for k, v in os.environ.items() if k != "PADDLEOCR_HOME"}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        start_new_session=True,  # PaddleOCR ends its whole process group on a signal
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def read_lines(captchas, tmp_path_factory):
    """A config and weights that read most of its training lines correctly, and the rest wrongly.

    A network of a few steps, with a classifier drawn so that frames differ; the lines say what it reads.
    """
    folder = tmp_path_factory.mktemp("peer")
    values = {
        "Global.report": False,
        "Global.use_gpu": False,
        "Global.max_text_length": LONGEST,
        "Architecture.Head.head_list.NRTRHead.max_text_length": LONGEST,
    }
    config = tiny_config(captchas, folder, "student", **values)
    train(config)
    on_all = {
        "Global.checkpoints": str(folder / "run" / "latest"),
        "Eval.dataset.label_file_list": [str(captchas / "train_list.txt")],
    }
    run = Run.build(config.with_values(on_all), "eval")
    run.model.eval()
    images = paddle.concat([batch[0] for batch in run.data.eval_loader])
    vary_classifier(run, images)
    paddle.save(run.model.state_dict(), str(folder / "varied.pdparams"))
    with FeatureTap(run.model) as tap, paddle.no_grad():
        run.model(images)
    texts = ["".join(map(str, reading(best))) for best in tap.logits.argmax(-1).tolist()]
    assert len(set(texts)) > 10
    highest = np.sort(tap.logits.numpy(), axis=-1)
    doubtful = (highest[:, :, -1] - highest[:, :, -2]).min(axis=1) < 0.02  # rounding may decide
    names = [line.split("\t")[0] for line in (captchas / "train_list.txt").read_text().splitlines()]
    lines = [
        f"{name}\t{text[::-1]}0\n" if n % 5 == 0 or doubtful[n] else f"{name}\t{text}\n"
        for n, (name, text) in enumerate(zip(names, texts, strict=True))
    ]
    (folder / "lines.txt").write_text("".join(lines))
    changes = {f"{mode}.dataset.label_file_list": [str(folder / "lines.txt")] for mode in ("Train", "Eval")}
    return config.with_values({**changes, "Global.pretrained_model": str(folder / "varied")}), folder


def vary_classifier(run: Run, images: paddle.Tensor) -> None:
    """Weights with which the best class differs from frame to frame."""
    with FeatureTap(run.model) as tap, paddle.no_grad():
        run.model(images)
    frames = tap.features.numpy().reshape([-1, DIM])
    _, scales, axes = np.linalg.svd(frames - frames.mean(axis=0), full_matrices=False)
    whitened = axes.T / scales * np.sqrt(len(frames))
    weight = 3.0 * whitened[:, :4] @ np.random.default_rng(0).normal(size=[4, CLASSES])
    bias = -frames.mean(axis=0) @ weight
    bias[0] += 3.0  # blanks between the characters
    classifier = run.model.head.ctc_head.fc
    classifier.weight.set_value(weight.astype("float32"))
    classifier.bias.set_value(bias.astype("float32"))


def reading(best: list[int]) -> list[int]:
    """The digits of a line: class c is the digit c - 1."""
    return [c - 1 for c, _ in itertools.groupby(best) if c]


def test_centers_are_those_of_the_changed_export(read_lines, peer):
    config, folder = read_lines
    (folder / "config.yml").write_text(config.to_yaml())
    ours = folder / "centers.npz"
    assert main(["export-center", "-c", str(folder / "config.yml"), "--output", str(ours)]) == 0
    table = read_centers(ours)
    assert 0.4 < table.meta["accuracy"] < 0.95

    theirs = config.with_values(
        {
            "Architecture.Head.out_channels_list": {"CTCLabelDecode": 11, "NRTRLabelDecode": 14},
            "Architecture.Head.head_list.CTCHead.Head.return_feats": True,
            "Architecture.return_all_feats": False,
        }
    )
    (folder / "theirs.yml").write_text(theirs.to_yaml())
    run_python("hand_patched.py", peer, folder / "theirs.yml", folder / "theirs.pkl", folder=folder)
    with (folder / "theirs.pkl").open("rb") as stream:
        expected = pickle.load(stream)
    assert table.class_ids.tolist() == sorted(expected)
    assert len(expected) > 8
    assert table.counts.tolist() == [expected[c][1] for c in sorted(expected)]
    distance = max(
        np.abs(center - expected[c][0]).max()
        for c, center in zip(table.class_ids.tolist(), table.centers, strict=True)
    )
    assert distance <= 1e-5

    back = read_centers(folder / "train_center.pkl")  # what PaddleOCR wrote
    np.testing.assert_array_equal(back.class_ids, table.class_ids)
    np.testing.assert_allclose(back.centers, table.centers, atol=1e-5)


def module_of(file: Path) -> Any:
    """A module of the checkout from its file alone, which imports nothing else of PaddleOCR."""
    spec = importlib.util.spec_from_file_location(f"{file.stem}_of_the_peer", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn_table(folder: Path) -> tuple[Path, Path]:
    """Centers of all classes but one, as ``.npz`` and as ``.pkl``."""
    ids = np.delete(np.arange(CLASSES), MISSING)
    rng = np.random.default_rng(1)
    table = CenterTable(
        ids,
        tuple(map(str, ids)),
        rng.normal(size=[len(ids), DIM]).astype(np.float32),
        np.ones(len(ids), np.int64),
        np.ones(len(ids)),
    )
    table.save(folder / "centers.npz")
    table.save_pickle(folder / "centers.pkl")
    return folder / "centers.npz", folder / "centers.pkl"


def test_paddleocr_s_loss_trains_from_our_pickle_as_ours_does(peer, tmp_path):
    theirs = module_of(peer / "ppocr" / "losses" / "center_loss.py")
    npz, pkl = drawn_table(tmp_path)
    options = {"num_classes": CLASSES, "feat_dim": DIM}
    rng = np.random.default_rng(2)
    frames = paddle.to_tensor(rng.normal(size=[4, 20, 8]).astype("float32"))
    logits = rng.normal(size=[4, 20, CLASSES]).astype("float32")
    logits[:, :, MISSING] = -9.0  # PaddleOCR's center of a class without one is drawn at random
    weight = rng.normal(size=[8, DIM]).astype("float32")

    def trained(loss: Any) -> tuple[list[float], np.ndarray]:
        layer = paddle.nn.Linear(8, DIM, bias_attr=False)
        layer.weight.set_value(weight)
        optimizer = paddle.optimizer.SGD(0.05, parameters=layer.parameters())
        values = []
        for _ in range(10):
            value = loss((layer(frames), paddle.to_tensor(logits)), [])["loss_center"]
            value.backward()
            values.append(float(value))
            optimizer.step()
            optimizer.clear_grad()
        return values, layer.weight.numpy()

    expected, weights = trained(theirs.CenterLoss(**options, center_file_path=str(pkl)))
    assert expected[-1] < 0.8 * expected[0]
    for file in (npz, pkl):
        values, ours = trained(CenterLoss(**options, center_file_path=str(file)))
        assert values == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(ours, weights, rtol=1e-4, atol=1e-6)
