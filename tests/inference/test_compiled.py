"""A compiled network returns what the network returns: every output, batch, width; it is kept and found again."""

import logging
from typing import Any

import numpy as np
import paddle
import pytest
from networks import read_case
from tiny_runs import TINY

from ppocr_ext.config.global_keys import BFLOAT16, FLOAT32, NETWORK, PADDLE
from ppocr_ext.inference import comparison, compiled
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import has_bfloat16
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.modeling import EVAL, TRAIN, BaseModel
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.modeling.head_request import HeadRequest

HEIGHT, CLASSES = 32, 11
COUNTS = {"CTCLabelDecode": CLASSES, "NRTRLabelDecode": CLASSES + 3}
LOGITS = HeadRequest(frozenset({"ctc"}), as_dict=False)


def teacher(**options: Any) -> BaseModel:
    """SVTRv2 with both heads; its CTC head returns features, and everything of the network is returned."""
    paddle.seed(7)
    network = BaseModel(
        {"Backbone": TINY["Backbone"], "Head": {**TINY["Head"], "out_channels_list": COUNTS}, **options}
    )
    network.head.ctc_head.return_feats = True
    network.freeze()
    return network


def of_case(name: str) -> BaseModel:
    paddle.seed(3)
    config = read_case(name)["config"]
    if "head_list" in config["Head"]:
        config["Head"]["out_channels_list"] = {**COUNTS, "SARLabelDecode": CLASSES + 2}
    network = BaseModel(config)
    network.eval()
    return network


def batch(count: int, width: int, height: int = HEIGHT) -> tuple[paddle.Tensor, list[paddle.Tensor]]:
    """Images and labels: of CTC, of NRTR with the longest text anywhere, and lengths."""
    rng = np.random.default_rng(count + width)
    images = rng.standard_normal((count, 3, height, width)).astype(np.float32)
    lengths = rng.integers(1, 5, count)
    ids = np.zeros((count, 8), np.int64)
    for row, length in enumerate(lengths):
        ids[row, : length + 2] = [2, *rng.integers(4, CLASSES + 3, length), 3]
    arrays = (images, ids, ids, lengths.astype(np.int64))
    tensors = [paddle.to_tensor(array) for array in arrays]
    return tensors[0], tensors[1:]


def assert_equal_outputs(found: Any, expected: Any) -> None:
    assert str(paddle.utils.map_structure(lambda t: t.shape, found)) == str(
        paddle.utils.map_structure(lambda t: t.shape, expected)
    )
    for one, other in zip(paddle.utils.flatten(found), paddle.utils.flatten(expected), strict=True):
        assert one.stop_gradient
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "request_of_head",
    [TRAIN, LOGITS, HeadRequest(frozenset({"gtc"}), for_training=True)],
    ids=["all", "ctc and features", "gtc"],
)
def test_a_teacher_returns_all_that_losses_read(request_of_head, monkeypatch, caplog):
    monkeypatch.setattr(compiled, "CHUNK_PIXELS", 3 * HEIGHT * 64)
    network = teacher(return_all_feats=request_of_head is TRAIN)
    before, generator = state_digest(network), paddle.get_rng_state()
    drawn = paddle.rand([3])
    paddle.set_rng_state(generator)
    found = CompiledNetwork(network, request_of_head)
    found.prepare((3, HEIGHT, 64))
    assert np.array_equal(paddle.rand([3]), drawn)  # as if nothing had been compiled
    with paddle.no_grad():
        for count, width in ((1, 64), (7, 64), (2, 200), (4, 41)):
            images, labels = batch(count, width)
            assert_equal_outputs(
                found(images, labels, request_of_head), network(images, labels, request_of_head)
            )
    assert (found.engine, state_digest(network)) == (PADDLE, before)
    assert "not compiled" not in caplog.text


@pytest.mark.parametrize(
    ("name", "height", "widths"),
    [
        ("model_v2_mobile", 32, (96, 160)),
        ("model_v4_v5_mobile_reduced", 48, (96, 160)),
        ("model_v4_svtr_reduced", 48, (320, 320)),
        ("model_starnet_tps", 32, (100, 160)),
    ],
)
def test_other_networks_return_the_probabilities_of_an_evaluation(name, height, widths):
    network = of_case(name)
    found = CompiledNetwork(network, EVAL)
    with paddle.no_grad():
        for count, width in zip((1, 5), widths, strict=True):
            images, _ = batch(count, width, height)
            assert_equal_outputs(found(images), network(images))
    assert found.engine == PADDLE


@pytest.mark.parametrize(
    ("instructions", "tolerance", "engine", "dtype"),
    [(True, 0.05, PADDLE, BFLOAT16), (False, 0.05, PADDLE, FLOAT32), (True, 1e-6, NETWORK, FLOAT32)],
    ids=["near", "no instructions", "too far"],
)
def test_bfloat16_is_near_the_network_or_float32_computes_and_says_so(
    instructions, tolerance, engine, dtype, network, monkeypatch, caplog, capfd
):
    if instructions and not has_bfloat16():
        pytest.skip("this processor has no instructions for bfloat16")
    caplog.set_level(logging.WARNING, "ppocr_ext")
    monkeypatch.setattr(compiled, "has_bfloat16", lambda: instructions)
    monkeypatch.setattr(comparison, "BFLOAT16_TOLERANCE", tolerance)
    found = CompiledNetwork(network, TRAIN, name="Teacher", dtype=BFLOAT16)
    found.prepare((3, HEIGHT, 64))
    images, labels = batch(5, 96)
    with paddle.no_grad():
        outputs = [paddle.utils.flatten(each(images, labels, TRAIN)) for each in (found, network)]
    errors = [
        float((one - other).square().mean().sqrt() / other.square().mean().sqrt())
        for one, other in zip(*outputs, strict=True)
    ]
    assert (found.engine, found.dtype) == (engine, dtype)
    assert bool(caplog.messages) == (dtype == FLOAT32) and all("bfloat16" in each for each in caplog.messages)
    assert capfd.readouterr().err.count("BFLOAT16") == 0  # Paddle's own line
    assert 1e-3 < max(errors) < 0.05 if dtype == BFLOAT16 else max(errors) < 1e-4


@pytest.fixture(scope="module")
def network():
    return teacher()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """The folder of compiled networks of one test."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path / "engines"


def never(*args: Any) -> None:
    raise AssertionError("compiled")


def count_written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets an entry for each graph that is made."""
    written, original = [], compiled.write_graph

    def write(*args: Any) -> None:
        written.append(args)
        original(*args)

    monkeypatch.setattr(compiled, "write_graph", write)
    return written


def logits(compiled_network: CompiledNetwork) -> np.ndarray:
    images, labels = batch(2, 64)
    return np.asarray(compiled_network(images, labels, LOGITS)[1].numpy())


def test_a_graph_is_kept_mended_and_never_taken_for_another(network, own_cache, monkeypatch):
    first = logits(CompiledNetwork(network, LOGITS))
    (folder,) = own_cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "write_graph", never)
        again = CompiledNetwork(network, LOGITS)
        assert np.array_equal(logits(again), first) and again.engine == PADDLE
    weights = folder / "inference.pdiparams"
    damaged = np.frombuffer(weights.read_bytes(), np.uint8).copy()
    damaged[-4000:] ^= 0x11  # a file of the right length
    weights.write_bytes(damaged.tobytes())
    mended = CompiledNetwork(network, LOGITS)
    assert np.array_equal(logits(mended), first) and mended.engine == PADDLE
    assert [each.name for each in own_cache.iterdir()] == [folder.name]
    weights.write_bytes(damaged.tobytes())
    monkeypatch.setattr(compiled, "discard", lambda key: None)  # the cache folder belongs to another user
    alone = CompiledNetwork(network, LOGITS)
    assert np.allclose(logits(alone), first, atol=1e-4) and alone.engine == NETWORK


def test_a_graph_that_is_unlike_its_network_is_not_kept(network, own_cache, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "ppocr_ext")
    written = count_written(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(comparison, "TOLERANCE", -1.0)
        unlike = CompiledNetwork(network, LOGITS)
        unlike.prepare((3, HEIGHT, 64))
    assert len(written) == 1
    images, labels = batch(2, 64)
    assert_equal_outputs(unlike(images, labels, LOGITS), network(images, labels, LOGITS))
    assert unlike.engine == NETWORK and list(own_cache.iterdir()) == [] and len(caplog.messages) == 1
    near = CompiledNetwork(network, LOGITS)  # by another tolerance
    near.prepare((3, HEIGHT, 64))
    assert near.engine == PADDLE and len(written) == 2


class OneWidth(paddle.nn.Layer):
    """A backbone that takes images of one width."""

    def __init__(self, backbone: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = backbone

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.inner(images + paddle.zeros([1, 1, 1, 64]))


def test_a_network_of_one_width_gets_a_graph_for_it(own_cache, monkeypatch):
    network = teacher()
    network.backbone = OneWidth(network.backbone)
    network.eval()
    written = count_written(monkeypatch)
    images, labels = batch(2, 64)
    found = CompiledNetwork(network, LOGITS)
    with paddle.no_grad():
        assert_equal_outputs(found(images, labels, LOGITS), network(images, labels, LOGITS))
    assert found.engine == PADDLE and [each[2] for each in written] == [(3, HEIGHT, 64)]


def test_a_network_that_returns_features_is_compiled_for_probabilities(caplog):
    network = teacher(return_all_feats=True)
    images, _ = batch(2, 64)
    found = CompiledNetwork(network, EVAL)
    assert_equal_outputs(found(images)["head_out"], network(images)["head_out"][1])  # without the features
    assert found.engine == PADDLE and "not compiled" not in caplog.text


def test_a_graph_that_is_unlike_only_where_the_network_is_unsure_is_found():
    right = np.array([[0.9999, 1e-6, 9.9e-5]], np.float32)
    wrong = np.array([[0.9999, 9e-6, 9.1e-5]], np.float32)
    assert comparison.distance(right, wrong) < comparison.TOLERANCE
    near = [comparison.is_near(*map(comparison.logits_of, (right, each))) for each in (right, wrong)]
    assert near == [True, False]


def test_what_it_was_not_compiled_for_is_computed_by_the_network(network, own_cache, monkeypatch):
    found = CompiledNetwork(network, LOGITS)
    monkeypatch.setattr(compiled, "write_graph", never)
    images, labels = batch(2, 64)
    assert_equal_outputs(found(images, labels, TRAIN), network(images, labels, TRAIN))
    assert_equal_outputs(found(images), network(images))
    assert found.engine == PADDLE and not own_cache.exists()


def test_a_network_in_train_mode_is_left_alone(own_cache):
    network = BaseModel({"Backbone": TINY["Backbone"], "Head": {**TINY["Head"], "out_channels_list": COUNTS}})
    before = state_digest(network)
    CompiledNetwork(network, EVAL).prepare((3, HEIGHT, 64))
    assert state_digest(network) == before and not own_cache.exists()


class Dynamic(paddle.nn.Layer):
    """A backbone of which no graph can be made."""

    def __init__(self, backbone: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = backbone

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        if not paddle.in_dynamic_mode():
            raise TypeError("first line\nsecond line")
        return self.inner(images)


def test_what_cannot_be_compiled_runs_as_it_is_and_says_why_once(caplog):
    greedy = HeadRequest(frozenset({"gtc"}), decode=True, as_dict=False)
    plain, outside = teacher(), teacher()
    outside.backbone = Dynamic(outside.backbone)
    caplog.set_level(logging.INFO, "ppocr_ext")
    for network, asked in ((plain, greedy), (outside, LOGITS)):
        caplog.clear()
        found = CompiledNetwork(network, asked, name="Teacher")
        for width in (64, 96):
            images, labels = batch(2, width)
            with paddle.no_grad():
                assert_equal_outputs(found(images, labels, asked), network(images, labels, asked))
        assert found.engine == NETWORK
        (said,) = (each for each in caplog.messages if "not compiled" in each)
        assert "Teacher" in said and "\n" not in said


def test_a_key_follows_weights_options_and_request(network, monkeypatch):
    def key(
        of: BaseModel = network, asked: HeadRequest = LOGITS, shape: tuple[int | None, ...] = (3, 32, None)
    ) -> str:
        return compiled.graph_key(of, asked, shape)

    assert key(teacher()) == key()
    wider = teacher()
    wider.head.use_pool = True
    other = teacher()
    other.head.ctc_head.fc.bias.set_value(other.head.ctc_head.fc.bias + 1)
    keys = [key(), key(wider), key(other), key(asked=TRAIN), key(shape=(3, 48, None)), key(shape=(3, 32, 64))]
    monkeypatch.setattr(paddle, "__version__", "9.9")
    assert len({*keys, key()}) == len(keys) + 1
