import logging
from typing import Any

import paddle
from error_codes import raises_code
from small_networks import recogniser

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import apply_to_static, build_model

LOGGER = logging.getLogger("ppocr_ext.test")


def settings(**changes: Any) -> dict[str, Any]:
    options = {"to_static": True, "d2s_train_image_shape": [3, 32, 64], "max_text_length": 12, **changes}
    return {"Global": options, "Architecture": recogniser()}


def test_the_inputs_of_compiled_training_are_paddleocrs(monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(
        paddle.jit, "to_static", lambda model, input_spec, full_graph: asked.extend(input_spec)
    )
    apply_to_static(build_model(recogniser()), settings(), LOGGER)
    image, data = asked
    assert (list(image.shape), image.dtype) == ([-1, 3, 32, 64], paddle.float32)
    assert [list(spec.shape) for spec in data] == [[-1, 12], [-1, 12], [-1], [-1]]
    assert [spec.dtype for spec in data] == [paddle.int64, paddle.int64, paddle.int64, paddle.float64]


def test_nothing_happens_unless_asked():
    model = build_model(recogniser())
    assert apply_to_static(model, settings(to_static=False), LOGGER) is model


def test_what_is_missing_is_named():
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
