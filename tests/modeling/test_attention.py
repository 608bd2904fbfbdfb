import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from ppocr_ext.modeling import layers
from ppocr_ext.modeling.heads.nrtr_head import causal_mask
from ppocr_ext.modeling.layers import Conv2D, DropPath, Linear, SelfAttention, attend


def naive_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """Heads channel-major, one query at a time, in float64."""
    out = np.zeros(q.shape)
    for b, h, n in np.ndindex(q.shape[0], q.shape[1], q.shape[3]):
        seen = n + 1 if causal else k.shape[3]
        scores = np.array([q[b, h, :, n] @ k[b, h, :, m] for m in range(seen)], "float64")
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        out[b, h, :, n] = sum(w * v[b, h, :, m] for m, w in enumerate(weights))
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_attend_equals_a_loop_over_queries(causal):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, 4, 5)).astype("float32") for _ in range(3))
    mask = causal_mask(5) if causal else None
    out = attend(*map(paddle.to_tensor, (q, k, v)), mask=mask)
    np.testing.assert_allclose(out.numpy(), naive_attention(q, k, v, causal), atol=1e-6)


def test_without_gradients_a_batch_in_pieces_gives_the_same(monkeypatch):
    q, k, v = (paddle.randn([5, 2, 4, 6]) for _ in range(3))
    whole = attend(q, k, v)
    monkeypatch.setattr(layers, "CPU_SCORES", 2 * 2 * 6 * 6)  # two lines at once, one is left over
    with paddle.no_grad():
        pieces = attend(q, k, v)
    np.testing.assert_allclose(pieces.numpy(), whole.numpy(), atol=1e-6)


def textbook(layer: SelfAttention, tokens: paddle.Tensor) -> paddle.Tensor:
    """The same attention as it is usually written, heads of rows."""
    lines, count, dim = tokens.shape
    qkv = F.linear(tokens, layer.qkv.weight, layer.qkv.bias)
    q, k, v = qkv.reshape([lines, count, 3, layer.num_heads, -1]).transpose([2, 0, 3, 1, 4])
    weights = F.softmax(q @ k.transpose([0, 1, 3, 2]) * layer.scale, axis=-1)
    mixed = (weights @ v).transpose([0, 2, 1, 3]).reshape([lines, count, dim])
    return F.linear(mixed, layer.proj.weight, layer.proj.bias)


def test_self_attention_and_its_gradients_equal_the_textbook_form():
    paddle.seed(1)
    layer = SelfAttention(12, 3)
    for parameter in layer.parameters():
        parameter.set_value(paddle.randn(parameter.shape))
    upstream = paddle.randn([2, 30, 12])
    results = []
    for forward in (layer, lambda x: textbook(layer, x)):
        tokens = paddle.ones([2, 30, 12]) * paddle.arange(30).reshape([1, 30, 1]).astype("float32") / 30
        tokens.stop_gradient = False
        out = forward(tokens)
        out.backward(upstream)
        results.append([out, tokens.grad, *[p.grad.clone() for p in layer.parameters()]])
        layer.clear_gradients()
    for ours, reference in zip(*results, strict=True):
        np.testing.assert_allclose(ours.numpy(), reference.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (64, 128)], ids=["wider", "narrower", "few tokens"])
def test_linear_and_its_gradients_equal_paddles(shape):
    ours, reference = Linear(*shape), nn.Linear(*shape)
    reference.weight.set_value(ours.weight)
    for layer in (ours, reference):
        layer.bias.set_value(paddle.arange(shape[1], dtype="float32"))
    tokens, upstream = paddle.randn([3, 7, shape[0]]), paddle.randn([3, 7, shape[1]])
    for layer in (ours, reference):
        layer(tokens).backward(upstream)
    np.testing.assert_allclose(ours(tokens).numpy(), reference(tokens).numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.weight.grad.numpy(), reference.weight.grad.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.bias.grad.numpy(), reference.bias.grad.numpy(), atol=1e-5)


def test_convolution_and_its_gradients_equal_paddles():
    ours, reference = Conv2D(4, 6, 3, stride=2, padding=1, groups=2), nn.Conv2D(4, 6, 3, 2, 1, groups=2)
    reference.weight.set_value(ours.weight)
    for layer in (ours, reference):
        layer.bias.set_value(paddle.arange(6, dtype="float32"))
    pictures = paddle.randn([2, 4, 8, 10])
    upstream = paddle.randn([2, 6, 4, 5])
    for layer in (ours, reference):
        layer(pictures).backward(upstream)
    np.testing.assert_allclose(ours(pictures).numpy(), reference(pictures).numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.bias.grad.numpy(), reference.bias.grad.numpy(), atol=1e-4)


def test_drop_path_drops_whole_lines_and_keeps_the_mean():
    paddle.seed(0)
    layer = DropPath(0.25)
    kept = layer(paddle.ones([4000, 2, 3])).numpy()
    assert set(np.unique(kept.round(4))) == {0.0, np.float32(1.3333)}
    assert (kept == kept[:, :1, :1]).all()
    assert kept.mean() == pytest.approx(1.0, abs=0.03)
    layer.eval()
    assert (layer(paddle.ones([4, 2, 3])).numpy() == 1.0).all()
