from __future__ import annotations

import logging
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from small_networks import images, labels, recogniser

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import apply_to_static, build_model

LOGGER = logging.getLogger("ppocr_ext.test")


def settings(**changes: Any) -> dict[str, Any]:
    options = {"to_static": True, "d2s_train_image_shape": [3, 32, 64], "max_text_length": 12, **changes}
    return {"Global": options, "Architecture": recogniser()}


def test_the_inputs_of_compiled_training_are_paddleocrs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        paddle.jit, "to_static", lambda model, input_spec, full_graph: asked.extend(input_spec)
    )
    apply_to_static(build_model(recogniser()), settings(), LOGGER)
    image, data = asked
    assert (list(image.shape), image.dtype) == ([-1, 3, 32, 64], paddle.float32)
    assert [list(spec.shape) for spec in data] == [[-1, 12], [-1, 12], [-1], [-1]]
    assert [spec.dtype for spec in data] == [paddle.int64, paddle.int64, paddle.int64, paddle.float64]


@pytest.mark.e2e
def test_training_can_be_compiled() -> None:
    config = recogniser()
    config["Backbone"]["drop_path_rate"] = 0.0
    config["Head"]["head_list"][0]["CTCHead"]["Neck"].update(drop_rate=0.0, attn_drop_rate=0.0)
    model = build_model(config)
    expected = model(images(), labels())["head_out"]
    compiled = apply_to_static(model, settings(), LOGGER)
    out = compiled(images(), labels())["head_out"]
    np.testing.assert_allclose(out["ctc"].numpy(), expected["ctc"].numpy(), atol=1e-4)
    assert out["gtc"].shape == expected["gtc"].shape
    (out["ctc"].mean() + out["gtc"].mean()).backward()
    assert model.backbone.pope.patch_embed[0].conv.weight.grad is not None


def test_nothing_happens_unless_asked() -> None:
    model = build_model(recogniser())
    assert apply_to_static(model, settings(to_static=False), LOGGER) is model


def test_what_is_missing_is_named() -> None:
    model = build_model(recogniser())
    config = settings()
    del config["Global"]["d2s_train_image_shape"]
    with raises_code(ConfigError, "missing_key", "d2s_train_image_shape"):
        apply_to_static(model, config, LOGGER)
    config = settings()
    config["Architecture"] = {
        "algorithm": "Distillation",
        "Models": {"Student": {**recogniser(), "algorithm": "CRNN"}},
    }
    with raises_code(ConfigError, "bad_value", "'CRNN'"):
        apply_to_static(model, config, LOGGER)
