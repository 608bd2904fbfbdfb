from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from error_codes import raises_code

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling import HeadRequest
from ppocr_ext.modeling.heads import Transformer

TEACHER_FORCING = HeadRequest(frozenset({"gtc"}))
END = 3


def decoder(**changes: Any) -> Transformer:
    paddle.seed(changes.pop("seed", 0))
    options = {"d_model": 32, "nhead": 2, "num_encoder_layers": -1, "num_decoder_layers": 2, "max_len": 12}
    head = Transformer(**{**options, "dim_feedforward": 64, "out_channels": 5, **changes})
    head.eval()
    return head


def naive_line(head: Transformer, memory: paddle.Tensor) -> tuple[list[int], list[float]]:
    """Greedy decoding of one line, everything computed anew at each step, up to its `</s>`."""
    ids, probabilities = [2], [1.0]
    while len(ids) < head.max_len:
        targets = [paddle.to_tensor([[*ids, 0]]), paddle.to_tensor([len(ids) - 1])]
        logits = head(memory, targets, TEACHER_FORCING)
        last = F.softmax(logits[0, -1], axis=-1).numpy()
        ids.append(int(last.argmax()))
        probabilities.append(float(last.max()))
        if ids[-1] == END:
            break
    return ids, probabilities


@pytest.mark.parametrize("seed", [8, 9])
@pytest.mark.parametrize("encoder_layers", [-1, 1])
def test_decoding_with_a_cache_equals_decoding_anew(seed, encoder_layers):
    head = decoder(seed=seed, num_encoder_layers=encoder_layers)
    for block in head.decoder:  # so that the image, not the position, decides where a line ends
        block.cross_attn.out_proj.weight.set_value(8 * block.cross_attn.out_proj.weight)
    memory = 3 * paddle.randn([10, 6, 32])
    ids, probabilities = head(memory)
    assert (ids.dtype, probabilities.dtype) == (paddle.int64, paddle.float32)
    ends = set()
    for row in range(10):
        expected, chances = naive_line(head, memory[row : row + 1])
        ends.add(len(expected))
        got = ids[row].tolist()
        length = min(len(expected), len(got))  # where all end at once, that column is not kept
        assert got[:length] == expected[:length]
        assert expected[length:] in ([], [END])
        assert set(got[length:]) <= {END}
        np.testing.assert_allclose(probabilities[row, :length].numpy(), chances[:length], atol=1e-5)
    assert len(ends) > 1, "the lines should end at different steps for this test to mean something"


def test_decoding_stops_when_all_lines_have_ended():
    head = decoder()
    head.decoder[-1].norm3.bias.set_value(paddle.ones([32]))
    weight = np.zeros(head.tgt_word_prj.weight.shape, "float32")
    weight[:, END] = 1.0  # the sum of the features, which the bias makes positive
    head.tgt_word_prj.weight.set_value(weight)
    ids, probabilities = head(paddle.randn([3, 6, 32]))
    assert ids.tolist() == [[2], [2], [2]]
    assert probabilities.tolist() == [[1.0], [1.0], [1.0]]


def test_a_line_is_never_longer_than_max_len():
    head = decoder(max_len=5)
    # All classes are equal, and the first of them, which is not </s>, is taken.
    head.tgt_word_prj.weight.set_value(paddle.zeros_like(head.tgt_word_prj.weight))
    ids, _ = head(paddle.randn([2, 6, 32]))
    assert ids.shape == [2, 5]


def test_a_character_does_not_see_later_ones():
    head = decoder()
    memory, lengths = paddle.randn([1, 6, 32]), paddle.to_tensor([4])
    first = head(memory, [paddle.to_tensor([[2, 4, 5, 4, 4, 3]]), lengths], TEACHER_FORCING)
    other = head(memory, [paddle.to_tensor([[2, 4, 5, 5, 1, 3]]), lengths], TEACHER_FORCING)
    np.testing.assert_allclose(first[:, :3].numpy(), other[:, :3].numpy(), atol=1e-6)
    assert float((first[:, 3:] - other[:, 3:]).abs().max()) > 1e-3


def test_options_that_cannot_work_are_refused():
    with raises_code(ModelError, "bad_value", "beam_size = 4"):
        decoder(beam_size=4)
    with raises_code(ModelError, "bad_value", "30 features"):
        decoder(d_model=30, nhead=4)
    head = decoder()
    with raises_code(ModelError, "shape_mismatch", 24, 32):
        head(paddle.randn([1, 6, 24]))
    head.train()
    with raises_code(ModelError, "missing_labels"):
        head(paddle.randn([1, 6, 32]))


def test_weights_start_as_in_the_paper_of_their_initialiser():
    head = decoder(d_model=64)
    weight = head.decoder[0].mlp.fc1.weight.numpy()
    assert weight.std() == pytest.approx(np.sqrt(2 / (64 + 64)), rel=0.1)
    embedding = head.embedding.embedding.weight.numpy()[1:]
    assert embedding.std() == pytest.approx(64**-0.5, rel=0.2)
