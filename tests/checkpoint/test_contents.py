"""What a checkpoint holds, and one of its sub-models as a file of its own."""

from pathlib import Path

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from saved_runs import NoState
from tiny_runs import TINY

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState, write_checkpoint
from ppocr_ext.checkpoint.contents import branch_classes, extract, parts_of
from ppocr_ext.cli.main import main
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.modeling import build_model

HEAD = {**TINY["Head"], "out_channels_list": {"CTCLabelDecode": 11, "NRTRLabelDecode": 14}}
ONE = {"Backbone": TINY["Backbone"], "Head": HEAD}


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A checkpoint of a teacher and a student, and the model."""
    paddle.seed(2)
    model = build_model({"name": "DistillationModel", "Models": {"Teacher": ONE, "Student": ONE}})
    prefix = tmp_path_factory.mktemp("run") / "best_accuracy"
    state = TrainState(best={"acc": 0.5}, charset_digest="d" * 64)
    write_checkpoint(prefix, model.state_dict(), NoState(), state)
    return prefix, model


def test_every_entry_is_of_one_part(several):
    prefix, model = several
    parts = parts_of(Checkpoint(prefix).weights())
    named = {name for part in parts for name in part.shapes}
    assert named == set(model.state_dict())
    branches = ("ctc_encoder", "ctc_head", "before_gtc", "gtc_head")
    expected = ["backbone", *(f"head.{branch}" for branch in branches)]
    assert [part.name for part in parts] == [
        f"{who}.{what}" for who in ("Teacher", "Student") for what in expected
    ]
    backbone = sum(int(np.prod(value.shape)) for value in model.Teacher.backbone.state_dict().values())
    assert parts[0].numbers == backbone


def test_classes_are_those_of_the_config(several):
    found = branch_classes(Checkpoint(several[0]).weights())
    assert found == {
        f"{who} {kind}": n for who in ("Teacher", "Student") for kind, n in (("CTC", 11), ("NRTR", 14))
    }
    assert branch_classes({"head.fc.bias": np.zeros(5), "head.fc.weight": np.zeros((3, 5))}) == {"CTC": 5}
    rows = {"_layers.Student.head.sar_head.decoder.embedding.weight": np.zeros((13, 8))}
    assert branch_classes(rows) == {"Student SAR": 13}
    assert branch_classes({"head.fc.bias": np.zeros(()), "head.other.bias": np.zeros(5)}) == {}


def test_the_student_alone_reads_the_same(several, tmp_path):
    prefix, model = several
    assert extract(Checkpoint(prefix), "Student", tmp_path / "student") == len(model.Student.state_dict())
    single = build_model(ONE)
    single.set_state_dict(paddle.load(str(tmp_path / "student.pdparams")))  # as PaddleOCR loads it
    image = paddle.randn([1, 3, 32, 64])
    single.eval()
    model.eval()
    assert np.array_equal(single(image).numpy(), model(image)["Student"].numpy())
    state = Checkpoint(tmp_path / "student").train_state()
    assert (state.charset_digest, state.best) == ("d" * 64, {"acc": 0.5})
    with raises_code(DataError, "file_exists", "student.pdparams"):
        extract(Checkpoint(prefix), "Student", tmp_path / "student")
    with raises_code(WeightsError, "unknown_sub_model", "Pupil", "Student, Teacher"):
        extract(Checkpoint(prefix), "Pupil", tmp_path / "pupil")


def test_inspect_says_it_also_for_weights_alone(several, tmp_path, capsys):
    assert main(["checkpoint", "inspect", str(several[0]), "--names"]) == 0
    printed = capsys.readouterr().out
    for fact in ("Student.head.ctc_head.fc.bias [11]", "Student CTC 11", "acc 0.5", "d" * 64):
        assert fact in printed
    (tmp_path / "alone.pdparams").write_bytes(Path(f"{several[0]}.pdparams").read_bytes())
    assert main(["checkpoint", "inspect", str(tmp_path / "alone.pdparams")]) == 0
    assert "Student CTC 11" in capsys.readouterr().out
