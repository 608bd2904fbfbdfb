"""A recogniser that an NRTR decoder reads: its texts are those of PaddleOCR's decoder and of an evaluation."""

import json

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from saved_runs import save_checkpoint, save_run
from tiny_runs import tiny_vit

from ppocr_ext import Recognizer
from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.host import open_host
from ppocr_ext.inference.runners import NrtrEngine
from ppocr_ext.recognition.ctc_text import read_sequence
from ppocr_ext.run.recogniser import load_recogniser, recogniser_config
from ppocr_ext.run.run import Run


@pytest.mark.parametrize("begins", [True, False])
def test_texts_and_confidences_are_the_host_s(tmp_path, begins):
    (tmp_path / "dict.txt").write_text("\n".join("abc天地0 ") + "\n", encoding="utf-8")
    options = {"character_dict_path": str(tmp_path / "dict.txt"), "use_space_char": False}
    decoder = open_host().build_post_process({"name": "NRTRLabelDecode"}, options)
    charset = Charset.from_file(tmp_path / "dict.txt")
    rng = np.random.default_rng(2)
    ids = rng.integers(0, charset.nrtr_rows, (100, 9))  # with blank, <unk>, <s> and the row of no class
    ids[:, 0] = 2 if begins else 4
    best = rng.random((100, 9)).astype(np.float32)
    ids[:, 1] = 5  # the mean of an empty text is NaN there, and 0 here
    theirs = decoder([paddle.to_tensor(ids), paddle.to_tensor(best)])
    ours = [read_sequence(*each, charset) for each in zip(ids, best, strict=True)]
    assert [(each.text, each.confidence) for each in ours] == theirs
    assert len({each.text for each in ours}) > 80
    assert read_sequence(np.array([2, 3, 5]), np.ones(3, np.float32), charset).confidence == 0.0


@pytest.fixture(scope="module")
def vit(captchas, tmp_path_factory):
    """The folder of a run of the ViT with random weights, which reads many texts."""
    folder = tmp_path_factory.mktemp("runs") / "vit"
    network, charset = save_run(tiny_vit(captchas, folder.parent), folder)
    for name, value in network.state_dict().items():
        if "patch_embed" in name or "cross_attn" in name:  # so that the image decides what is read
            value.set_value(value * 8)
    save_checkpoint(network, charset, folder / "best_accuracy")
    return folder


def test_it_reads_what_an_evaluation_reads(vit, images, captchas, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = load([vit / "config.yml"], [f"Global.checkpoints={vit / 'best_accuracy'}"])
    judged = evaluate(Run.build(config, "eval")).predictions
    readings = Recognizer(vit).read([captchas / each.image for each in judged])
    assert [each.text for each in readings] == [each.text for each in judged]
    assert [each.confidence for each in readings] == pytest.approx([each.confidence for each in judged])
    assert len({each.text for each in readings}) > 5  # of 10
    assert main(["predict", str(vit), str(captchas / "val_list.txt"), "--output", "a.tsv"]) == 0
    assert [each.text for each in read_predictions("a.tsv")] == [each.text for each in judged]


def test_characters_have_a_confidence_and_no_columns(vit, images, capsysbinary):
    def predict(*words):
        assert main(["predict", str(vit), str(images[0]), "--characters", *words]) == 0
        return capsysbinary.readouterr().out.decode()

    found = json.loads(predict("--format", "jsonl"))
    assert "".join(each["text"] for each in found["characters"]) == found["text"] != ""
    assert {frozenset(each) for each in found["characters"]} == {frozenset({"text", "confidence"})}
    mean = np.mean([each["confidence"] for each in found["characters"]])
    assert found["confidence"] == pytest.approx(mean)
    row = predict("--format", "tsv").rstrip("\n").split("\n")[1].split("\t")
    assert len(row[3].split()) == len(found["characters"]) and row[4] == ""


def test_it_cannot_be_exported_and_its_head_must_decode(vit, tmp_path, capsys):
    with raises_code(ConfigError, "unsupported_component", "NRTRLabelDecode", "MultiHead"):
        load_recogniser(recogniser_config(vit))
    assert main(["export", str(vit), "--output", str(tmp_path / "exported")]) == 2
    assert "unsupported_component" in capsys.readouterr().err
    assert not (tmp_path / "exported").exists()
    for engine in ("onnx", "paddle"):  # only CTC is compiled
        with raises_code(ConfigError, "unsupported_engine", "NRTR"):
            Recognizer(vit, engine=engine)
    with pytest.raises(ConfigError) as caught:
        Recognizer(vit, threads=2)
    assert caught.value.code == "unsupported_option" and "ppocr-ext export" not in str(caught.value)
    engine = NrtrEngine(paddle.nn.Conv2D(3, 4, 1))
    with raises_code(ModelError, "unsupported_output"):
        engine.decode(np.zeros((1, 3, 8, 8), np.float32))
