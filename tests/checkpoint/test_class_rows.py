"""Weights of PP-OCRv6 medium for the dictionary of tiny: the real dictionaries, and what the network then computes."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from numpy.typing import NDArray

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.weight_match import carried_rows
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.config import load, resolve_charset, with_class_counts
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_path
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.head_request import HeadRequest

SMALLER = (  # the heads of medium, narrower; the classes are what counts
    "Architecture.Backbone.model_size=tiny",
    "Architecture.Head.head_list.0.CTCHead.Neck.depth=1",
    "Architecture.Head.head_list.1.NRTRHead={nrtr_dim: 64, num_decoder_layers: 1}",
)


def network(config_file: str, dictionary: str) -> tuple[Any, Charset]:
    """Build a narrow network of `config_file` with all classes of an official dictionary."""
    given = f"Global.character_dict_path=ppocr/utils/dict/{dictionary}"
    config = load([config_path(f"pp-ocr/{config_file}")], [*SMALLER, given])
    charset = resolve_charset(config, open_host().find_file)
    model = build_model(with_class_counts(config, charset).at("Architecture").thaw())
    return model, charset


@pytest.fixture(scope="module")
def medium(tmp_path_factory):
    paddle.seed(5)
    model, charset = network("v6_medium.yml", "ppocrv6_dict.txt")
    file = tmp_path_factory.mktemp("weights") / "medium.pdparams"
    paddle.save(model.state_dict(), str(file))
    return model, charset, file


@pytest.fixture(scope="module")
def carried(medium):
    _, old, file = medium
    model, charset = network("v6_medium.yml", "ppocrv6_tiny_dict.txt")
    match = load_weights(model, file, charset=charset, old_charset=old)
    return model, charset, match


def positions(symbols: tuple[str, ...], among: tuple[str, ...]) -> list[int]:
    """Return where each symbol is in another list; the official dictionaries repeat none."""
    place = {symbol: index for index, symbol in enumerate(among)}
    assert len(place) == len(among)
    return [place[symbol] for symbol in symbols]


def test_the_counts_are_those_of_the_dictionaries(carried):
    rows = carried[2].carried
    assert (rows.kept, rows.dropped, rows.new) == (6905, 11804, ())
    assert rows.old.ctc_classes == 18710


def logits(model: Any, images: paddle.Tensor, labels: list[paddle.Tensor]) -> dict[str, NDArray[np.float32]]:
    model.eval()
    with paddle.no_grad():
        out = model(images, labels, HeadRequest(frozenset({"ctc", "gtc"})))
    return {name: out[name].numpy() for name in ("ctc", "gtc")}


def taught(charset: Charset, text: str) -> list[paddle.Tensor]:
    """Return label_ctc, label_gtc, length and valid_ratio of one text, as PaddleOCR's MultiLabelEncode gives them."""
    ids = [charset.nrtr_symbols.index(c) for c in text]
    row = np.zeros((1, 25), np.int64)
    row[0, : len(ids) + 2] = [2, *ids, 3]
    plain = [[charset.ids(text) + [0] * (25 - len(text))], [len(text)], [1.0]]
    return [paddle.to_tensor(plain[0]), paddle.to_tensor(row), *map(paddle.to_tensor, plain[1:])]


def test_logits_of_kept_characters_are_those_of_the_whole_teacher(medium, carried):
    teacher, old, _ = medium
    model, new, _ = carried
    images = paddle.to_tensor(np.random.default_rng(3).standard_normal((1, 3, 48, 320), np.float32))
    whole = logits(teacher, images, taught(old, "永和九年"))
    part = logits(model, images, taught(new, "永和九年"))
    chosen = {
        "ctc": positions(new.ctc_symbols, old.ctc_symbols),
        "gtc": positions(new.nrtr_symbols, old.nrtr_symbols),
    }
    for name, columns in chosen.items():
        theirs, ours = whole[name][..., columns], part[name][..., : len(columns)]
        # A matrix product ends with a block of columns that is not full; BLAS sums those in another order.
        equal = (theirs == ours).all(axis=(0, 1))
        assert equal.mean() > 0.99, f"{name}: {equal.sum()} of {equal.size} columns are bit-identical"
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max(), err_msg=name)


def test_the_rows_of_sar_are_those_of_their_characters():
    """SAR puts its three marks after the characters, and predicts no padding."""
    old, new = Charset(tuple("abc")), Charset(tuple("cxa"))
    rows = np.arange(6, dtype=np.float32)  # a b c <UKN> <BOS/EOS> <PAD>
    decoder = "head.sar_head.decoder"
    values = {
        f"{decoder}.embedding.weight": np.stack([rows, rows], axis=1),
        f"{decoder}.prediction.weight": np.stack([rows[:5], rows[:5]]),
        f"{decoder}.prediction.bias": rows[:5],
    }
    state = {name: paddle.full(list(value.shape), -1.0) for name, value in values.items()}
    carried = carried_rows(Path("sar.pdparams"), values, state, old, new)
    expected = [2, -1, 0, 3, 4, 5]
    assert carried.new == ("x",)
    assert carried.values[f"{decoder}.embedding.weight"][:, 1].tolist() == expected
    assert carried.values[f"{decoder}.prediction.weight"][1].tolist() == expected[:5]
    assert carried.values[f"{decoder}.prediction.bias"].tolist() == expected[:5]


def test_a_layer_of_another_width_is_left_to_the_check_of_shapes():
    values = {"head.fc.weight": np.zeros((4, 3), np.float32)}
    state = {"head.fc.weight": paddle.zeros([6, 3])}
    charset = Charset(tuple("ab"))
    assert carried_rows(Path("w.pdparams"), values, state, charset, charset).values == {}
