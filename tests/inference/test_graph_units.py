"""Every network of the docs survives a round trip: exported, read back, filled into a new network, trained."""

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from released import randomise, shipped_network, write_network

from ppocr_ext.errors import WeightsError
from ppocr_ext.inference.comparison import text_inputs
from ppocr_ext.inference.formats import convert_graph
from ppocr_ext.inference.graph_units import read_units
from ppocr_ext.modeling.restore import fill, match_units

WIDTH = 96
LARGE = ("pp-ocr/v4_server", "pp-ocr/v5_server", "pp-ocr/v6_medium", "svtrv2/teacher", "svtrv2/student")
SMALL = (
    *(f"pp-ocr/{name}" for name in ("v2_mobile", "v3_mobile", "v4_mobile", "v6_tiny", "v6_small")),
    "lines/student",
)
NETWORKS = [*SMALL, *(pytest.param(name, marks=pytest.mark.e2e) for name in LARGE)]


def logs(layer, images):
    layer.eval()
    with paddle.no_grad():
        return np.log(layer(paddle.to_tensor(images)).numpy() + 1e-9)


def restored(name, files, shape):
    """Return a new network with the weights of the files, and the names of the entries that were filled."""
    other, _ = shipped_network(name)
    randomise(other, 2)
    match = match_units(other, read_units(*files), shape)
    assert match.problem == ""
    return other, set(fill(match.pairs))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_read_back_from_paddle_and_onnx(name, tmp_path):
    exported, shape = write_network(name, tmp_path, WIDTH)  # with branches and BatchNorms
    convert_graph(tmp_path)
    images = text_inputs((2, *shape))
    expected = logs(exported, images)
    for files in (
        (tmp_path / "inference.json", tmp_path / "inference.pdiparams"),
        (tmp_path / "inference.onnx", None),
    ):
        other, filled = restored(name, files, shape)
        np.testing.assert_allclose(logs(other, images), expected, atol=1e-4)
        left = {entry.rpartition(".")[0] for entry in other.state_dict() if entry not in filled}
        assert left <= {"backbone.last_conv", "backbone.fc"}  # no output depends on them
    other.train()
    logits = other(paddle.to_tensor(images))
    logits = logits["ctc"] if isinstance(logits, dict) else logits
    paddle.nn.functional.log_softmax(logits)[:, :, 1].sum().backward()
    gradients = {n: p.grad for n, p in other.named_parameters() if not p.stop_gradient}
    assert [n for n, gradient in gradients.items() if gradient is None] == []
    still = [n for n, gradient in gradients.items() if not gradient.any()]
    assert len(still) < len(gradients) / 10, still  # a gate may be closed by chance


def test_a_graph_of_another_network_names_the_first_layer(tmp_path):
    write_network("lines/student", tmp_path, WIDTH)
    units = read_units(tmp_path / "inference.json", tmp_path / "inference.pdiparams")
    other, _ = shipped_network("svtrv2/student")
    assert match_units(other, units, (3, 48, WIDTH)).problem.startswith(
        "backbone.features.0.0: expected conv [48"
    )
    same, _ = shipped_network("lines/student")
    assert "nothing more" in match_units(same, units[:-1], (3, 48, WIDTH)).problem
    assert "no layer for linear" in match_units(same, [*units, units[-1]], (3, 48, WIDTH)).problem


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    write_network("lines/student", tmp_path, WIDTH)
    other, truncated = tmp_path / "other", tmp_path / "truncated.pdiparams"
    write_network("lines/teacher", other, WIDTH)
    truncated.write_bytes((tmp_path / "inference.pdiparams").read_bytes()[:-8])
    for file in (other / "inference.pdiparams", truncated):
        with raises_code(WeightsError, "damaged_file"):
            read_units(tmp_path / "inference.json", file)
