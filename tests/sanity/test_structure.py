"""Each usual mistake in a head is found by what the head does, and a head without it raises nothing."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import faulty_heads
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from faulty_heads import CHARSET, PLACES, Case, batch, cross_entropy, small
from tiny_runs import tiny_vit

from ppocr_ext.losses import build_loss
from ppocr_ext.modeling.models import BaseModel
from ppocr_ext.sanity import structure
from ppocr_ext.sanity.head_probe import Finding
from ppocr_ext.sanity.structure import ORDER, learning_rate
from ppocr_ext.sanity.structure import examine_structure as structure_of
from ppocr_ext.sanity.subject import open_subject

SVTR = {
    "name": "SVTRv2",
    "dims": [16, 32],
    "depths": [1, 2],
    "num_heads": [2, 2],
    "mixer": [["Conv"], ["Conv", "Global"]],
    "sub_k": [[2, 1], [-1, -1]],
    "use_pool": True,
}


def ctc_loss(labels: list[Any], probabilities: bool = False) -> Any:
    def loss(logits: Any) -> Any:
        frames = paddle.full([logits.shape[0]], logits.shape[1], "int64")
        logits = paddle.log(logits) if probabilities else logits
        return F.ctc_loss(logits.transpose([1, 0, 2]), labels[0].astype("int32"), frames, labels[1])

    return loss


def of_probabilities(labels: list[Any]) -> Any:
    """A loss that takes probabilities, so that a softmax in the head is right."""

    def loss(rows: Any) -> Any:
        wanted = labels[0][:, 1 : 1 + rows.shape[1]]
        goal = F.one_hot(wanted, rows.shape[-1]) * (wanted != 0).astype("float32").unsqueeze(-1)
        return -(paddle.log(rows) * goal).sum() / goal.sum()

    return loss


frames = partial(small, "SmallFrames", "ctc", ctc_loss)
decoder = partial(small, "SmallDecoder")
FAULTS = {
    "positions": lambda: decoder(fault="no_positions"),
    "mask": lambda: decoder(fault="no_mask"),
    "both ways": lambda: small("SmallRecurrent", fault="both_ways"),
    "not shifted": lambda: decoder(loss=partial(cross_entropy, first=0)),
    "shifted by two": lambda: decoder(loss=partial(cross_entropy, first=2)),
    "recurrent, not shifted": lambda: small("SmallRecurrent", loss=partial(cross_entropy, first=0)),
    "no end mark": lambda: decoder("endless"),
    "no marks, shifts itself": lambda: decoder(
        "bare", partial(cross_entropy, first=0), fault="shifts_itself"
    ),
    **{name: partial(decoder, fault=name) for name in ("relu", "gelu", "sigmoid", "tanh", "norm")},
    "tied gelu": lambda: decoder(fault="tied_gelu"),
    "softmax twice": lambda: decoder(fault="softmax"),
    "too few classes": lambda: decoder(out_channels=13),
    "too many classes": lambda: decoder(out_channels=40),
    "CTC rate too high": lambda: frames(peak=5.0),
    "CTC relu": lambda: frames(fault="relu"),
    "CTC gelu": lambda: frames(fault="gelu"),
    "CTC softmax twice": lambda: frames(fault="softmax"),
    "CTC too few classes": lambda: frames(out_channels=9),
    "CTC classes of NRTR": lambda: frames(out_channels=14),
}
CODES = (
    {
        "positions": "positions",
        "mask": "causal_mask",
        "both ways": "causal_mask",
        "not shifted": "shift",
        "shifted by two": "shift",
        "recurrent, not shifted": "shift",
        "no end mark": "end",
        "no marks, shifts itself": "end",
        "softmax twice": "softmax",
        "CTC softmax twice": "softmax",
    }
    | {name: "class_count" for name in FAULTS if "classes" in name}
    | {name: "learning_rate" for name in FAULTS if "rate" in name}
)


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_named_and_nothing_else(name: str) -> None:
    found = structure.examine_structure(FAULTS[name]())
    faults = [each for each in found if each.verdict == "fault"]
    assert [each.code for each in faults] == [CODES.get(name, "activation")], found
    assert found[0] is faults[0] and "Fix: " in faults[0].message


def ours(branch: str) -> Case:
    """A branch of our MultiHead with its own loss."""
    paddle.seed(1)
    of = {"ctc": ("CTCLoss", 1), "gtc": ("NRTRLoss", 2)}
    heads = [
        {
            "CTCHead": {
                "Neck": {"name": "svtr", "dims": 16, "depth": 1, "hidden_dims": 16, "kernel_size": [1, 3]}
            }
        },
        {"NRTRHead": {"nrtr_dim": 32, "num_decoder_layers": 2, "max_text_length": PLACES}},
    ]
    counts = {"CTCLabelDecode": CHARSET.ctc_classes, "NRTRLabelDecode": CHARSET.nrtr_classes}
    model = BaseModel(
        {"Backbone": SVTR, "Head": {"name": "MultiHead", "head_list": heads, "out_channels_list": counts}}
    )
    labels = [paddle.to_tensor(each) for each in batch("nrtr" if branch == "gtc" else "ctc")]
    built = build_loss({"name": of[branch][0]})
    return Case(
        branch,
        model,
        getattr(model.head, f"{branch}_head"),
        faulty_heads.images(),
        labels,
        lambda out: built(out, [None, *labels])["loss"],
        branch == "gtc",
        pick=lambda out: out[branch],
        data=lambda given: [given[0], *given],
    )


def sar(**options: Any) -> Case:
    """A SARHead alone, with its own loss."""
    paddle.seed(1)
    head = {
        "name": "SARHead",
        "out_channels": CHARSET.sar_classes,
        "enc_dim": 16,
        "d_k": 16,
        "max_text_length": PLACES,
        **options,
    }
    model = BaseModel({"Backbone": {"name": "SmallColumns"}, "Head": head})
    labels = [paddle.to_tensor(each) for each in batch("sar")]
    built = build_loss({"name": "SARLoss", "ignore_index": CHARSET.sar_padding_id})
    return Case(
        "SARHead",
        model,
        model.head,
        faulty_heads.images(),
        labels,
        lambda out: built(out, [None, *labels])["loss"],
    )


TWINS = {
    "decoder": decoder,
    "recurrent": lambda: small("SmallRecurrent"),
    "label smoothing": lambda: decoder(loss=partial(cross_entropy, smoothing=0.1)),
    "positions begin at 0": lambda: decoder(fault="zero_positions"),
    "gate begins at 0": lambda: decoder(fault="zero_gate"),
    "head shifts itself": lambda: decoder("plain", partial(cross_entropy, first=0), fault="shifts_itself"),
    "log softmax": lambda: decoder(fault="log_softmax"),
    "temperature": lambda: decoder(fault="temperature"),
    "softmax for a loss of probabilities": lambda: decoder(loss=of_probabilities, fault="softmax"),
    "tied": lambda: decoder(fault="tied"),
    "two samples": lambda: decoder(count=2),
    "CTC": frames,
    "our CTC": lambda: ours("ctc"),
    "our NRTR": lambda: ours("gtc"),
    "our SAR": sar,
}


TRAINED = (
    "decoder",
    "recurrent",
    "CTC",
    "our SAR",
)  # of the others the learning rate is not tried: it takes longest


@pytest.mark.parametrize("name", TWINS)
def test_a_right_head_raises_nothing(name: str, request: pytest.FixtureRequest) -> None:
    if name not in TRAINED:
        request.getfixturevalue("no_training")
    case = TWINS[name]()
    found = structure.examine_structure(case)
    assert sorted(each.code for each in found) == sorted(ORDER)
    assert [each for each in found if each.verdict == "fault"] == []
    passed = {each.code for each in found if each.verdict == "ok"}
    everywhere = {"class_count", "activation", "softmax", "learning_rate"}
    in_decoders = {"positions", "shift", "causal_mask", "end"}
    if name == "tied":  # without a linear layer there is less to be seen
        everywhere -= {"activation"}
    if name == "softmax for a loss of probabilities":
        everywhere -= {"activation"}
    assert passed == everywhere | (in_decoders if case.takes_labels else set()), found


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "learning_rate", lambda head: Finding("learning_rate", "ok", ""))


def state(model: Any) -> list[Any]:
    """All that a test could change, as plain values."""
    tensors = [*model.parameters(), *model.buffers()]
    gradients = [None if p.grad is None else p.grad.numpy().tolist() for p in model.parameters()]
    modes = [layer.training for layer in model.sublayers(include_self=True)]
    draws = [paddle.get_rng_state()[0].current_seed(), np.random.get_state()[1].tolist(), random.getstate()]
    return [[t.numpy().tolist() for t in tensors], gradients, modes, draws]


@pytest.mark.parametrize("head", ["SmallDecoder", "SmallRecurrent", "SmallFrames"])
def test_all_is_left_as_it_was(head: str) -> None:
    case = frames() if head == "SmallFrames" else small(head)
    case.restart(1.0)
    for parameter in case.model.parameters():  # moved on from its first weights
        parameter.set_value(parameter + 0.01)
    case.loss(case.output()).backward()
    case.model.parameters()[0].clear_gradient(set_to_zero=False)
    case.model.backbone.norm.training = False
    before, following = state(case.model), paddle.get_rng_state()
    drawn = paddle.rand([3]).numpy().tolist()
    paddle.set_rng_state(following)
    found = structure.examine_structure(case)
    assert "learning_rate" in {each.code for each in found if each.verdict == "ok"}
    assert state(case.model) == before
    assert paddle.rand([3]).numpy().tolist() == drawn


def test_a_head_with_broken_weights_is_tested_from_its_first_ones(no_training: None) -> None:
    case = decoder(fault="no_positions")
    case.restart(1.0)
    case.model.head.classifier.weight.set_value(
        paddle.full_like(case.model.head.classifier.weight, float("nan"))
    )
    assert [each.code for each in structure.examine_structure(case) if each.verdict == "fault"] == [
        "positions"
    ]


def test_of_two_mistakes_the_more_certain_one_comes_first() -> None:
    found = structure.examine_structure(decoder(fault="gelu", loss=partial(cross_entropy, first=0)))
    assert [each.code for each in found if each.verdict == "fault"] == ["activation", "shift"]


@pytest.mark.parametrize(
    "output",
    [
        lambda out: {"logits": out},
        lambda out: out[:, 0],
        lambda out: out + paddle.rand(out.shape),
        lambda out: out / 0.0,
    ],
    ids=["a dict", "two axes", "random", "not finite"],
)
def test_a_head_that_cannot_be_compared_is_not_blamed(output: Any) -> None:
    found = structure.examine_structure(replace(decoder(), pick=output))
    assert sorted(each.code for each in found) == sorted(ORDER)
    assert {each.verdict for each in found if each.code != "class_count"} == {"not tested"}
    assert all(each.message for each in found)


def test_without_lengths_the_ends_of_the_labels_are_not_judged(no_training: None) -> None:
    case = decoder()
    found = {
        each.code: each.verdict for each in structure.examine_structure(replace(case, labels=case.labels[:1]))
    }
    assert found["positions"] == found["shift"] == "ok" and "fault" not in found.values()
    assert found["end"] == "not tested"


def test_labels_of_one_character_are_changed_and_equal_ones_cannot_be(no_training: None) -> None:
    def verdict(*digits: int) -> str:
        ids = np.zeros((len(digits), PLACES), "int64")
        ids[:, 0], ids[:, 1], ids[:, 2] = 2, digits, 3
        labels = [paddle.to_tensor(ids), paddle.ones([len(digits)], "int64")]
        case = replace(decoder(fault="no_mask", count=len(digits)), labels=labels, loss=cross_entropy(labels))
        return next(each.verdict for each in structure.examine_structure(case) if each.code == "causal_mask")

    assert verdict(4, 5) == "fault"
    assert verdict(4, 4) == "not tested"


@pytest.mark.parametrize("peak", [0.5, 5e-7])
def test_a_wrong_rate_is_named_with_one_to_try(peak: float) -> None:
    finding = learning_rate(decoder(peak=peak))
    assert finding.verdict == "fault"
    assert f"{peak:.1e} is too {'high' if peak > 0.1 else 'low'}" in finding.message
    for _ in range(2):  # following the advice leads to a rate that is right
        if finding.verdict == "fault":
            [tried] = re.findall(r"try a peak of (\S+) ", finding.message)
            finding = learning_rate(decoder(peak=float(tried)))
    assert finding.verdict == "ok"
    assert 1e-5 < float(tried) < 0.1


def test_the_heads_of_a_config_are_right(tiny: Any, no_training: None) -> None:
    for head in open_subject(tiny("student"), 6).heads():
        found = structure.examine_structure(head)
        assert [each for each in found if each.verdict == "fault"] == []
        assert len([each for each in found if each.verdict == "ok"]) == (8 if head.takes_labels else 4)


# Four mistakes after which a decoder "only predicts <EOS>": each is named, and a right config is not blamed

# The overlay of each mistake, and the finding that names it.
MISTAKES: dict[str, dict[str, Any]] = {
    "activation": {"Global.plugins": ["vit_mistakes"], "Architecture.Head.name": "GeluTransformer"},
    "positions": {"Global.plugins": ["vit_mistakes"], "Architecture.Head.name": "PlacelessTransformer"},
    "shift": {"Global.plugins": ["vit_mistakes"], "Loss": {"name": "UnshiftedLoss"}},
    "learning_rate": {"Optimizer.lr.learning_rate": 0.2},
}


def faults(captchas: Path, folder: Path, **overlay: Any) -> dict[str, str]:
    """The faults of the config's head, the most likely cause first."""
    [head] = open_subject(tiny_vit(captchas, folder, **overlay), 8).heads()
    return {each.code: each.message for each in structure_of(head) if each.verdict == "fault"}


@pytest.mark.parametrize("code", MISTAKES)
def test_the_mistake_is_named(captchas: Path, tmp_path: Path, code: str) -> None:
    found = faults(captchas, tmp_path, **MISTAKES[code])
    assert list(found) == [code]
    assert "Fix: " in found[code]


def test_a_right_config_has_no_fault(captchas: Path, tmp_path: Path) -> None:
    assert faults(captchas, tmp_path) == {}
