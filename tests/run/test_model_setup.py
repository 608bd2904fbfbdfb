"""Weights with a dictionary of their own: official ones by name, files with `pretrained_dict`, frozen teachers."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.official_weights import table
from ppocr_ext.config import resolve_charset, with_class_counts
from ppocr_ext.errors import WeightsError
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.modeling import build_model
from ppocr_ext.run.run import Run

NAME = "en_PP-OCRv4_mobile_rec"  # its dictionary, en_dict.txt, is the smallest of all


@pytest.fixture
def official(tiny, tmp_path, monkeypatch):
    """Put weights of the tiny network with a dictionary into the cache, under the official name."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    (tmp_path / "weights").mkdir()

    def save(dictionary: str) -> tuple[dict[str, Any], Charset]:
        config = tiny("student", **{"Global.character_dict_path": dictionary, "Global.use_space_char": True})
        charset = resolve_charset(config, open_host().find_file)
        state = build_model(with_class_counts(config, charset).at("Architecture").thaw()).state_dict()
        paddle.save(state, str(tmp_path / "weights" / f"{NAME}.pdparams"))
        return {name: value.numpy() for name, value in state.items()}, charset

    return save


def taught(tiny: Any, **values: object) -> Any:
    given = {"Architecture.Models.Teacher.pretrained": NAME, "Global.dry_step": False}
    return tiny("distill", **{**given, **values})


def letters(folder: Path, text: str) -> str:
    """Write a dictionary of the characters of `text`."""
    file = folder / "letters.txt"
    file.write_text("\n".join(text) + "\n", encoding="utf-8")
    return str(file)


def test_a_teacher_by_name_keeps_the_characters_of_the_student(tiny, official, caplog):
    weights, old = official("ppocr/utils/en_dict.txt")
    caplog.set_level(logging.INFO, logger="ppocr_ext")
    logging.getLogger("ppocr_ext").addHandler(caplog.handler)
    try:
        run = Run.build(taught(tiny), "train")
    finally:
        logging.getLogger("ppocr_ext").removeHandler(caplog.handler)
    teacher = run.network.Teacher.state_dict()
    place = {symbol: index for index, symbol in enumerate(old.ctc_symbols)}
    chosen = [place[symbol] for symbol in run.context.charset.ctc_symbols]
    fc = "head.ctc_head.fc.weight"
    np.testing.assert_array_equal(teacher[fc].numpy(), weights[fc][:, chosen])
    for name in teacher:
        if name.startswith("backbone."):
            np.testing.assert_array_equal(teacher[name].numpy(), weights[name], err_msg=name)
    counts = (f"{len(chosen) - 1} characters", f"{len(old.characters) - len(chosen) + 1} dropped", "0 new")
    assert all(count in caplog.text for count in counts)


def test_a_frozen_teacher_that_lacks_characters_is_refused(tiny, official, tmp_path):
    weights, _ = official("ppocr/utils/en_dict.txt")
    config = taught(tiny, **{"Global.character_dict_path": letters(tmp_path, "0123456789未末")})
    facts = ("2 characters", "未 末", "en_dict.txt")
    with raises_code(WeightsError, "teacher_lacks_characters", *facts, "Teacher.pretrained"):
        Run.build(config, "train")
    both = {f"{model}.{name}": value for model in ("Teacher", "Student") for name, value in weights.items()}
    paddle.save(
        {name: paddle.to_tensor(value) for name, value in both.items()}, str(tmp_path / "both.pdparams")
    )
    config = config.with_values({"Global.pretrained_model": str(tmp_path / "both")})
    with raises_code(WeightsError, "teacher_lacks_characters", *facts):
        Run.build(config, "train", old_dictionary="ppocr/utils/en_dict.txt")


def test_a_single_model_by_name_learns_new_characters(tiny, official, tmp_path):
    weights, old = official("ppocr/utils/en_dict.txt")
    values = {
        "Global.pretrained_model": NAME,
        "Global.dry_step": False,
        "Global.character_dict_path": letters(tmp_path, "9876543210未"),
    }
    run = Run.build(tiny("student", **values), "train")
    ours = run.network.head.ctc_head.fc.weight.numpy()
    for symbol in "0123456789":
        theirs = weights["head.ctc_head.fc.weight"][:, old.ctc_symbols.index(symbol)]
        np.testing.assert_array_equal(ours[:, run.context.charset.ctc_symbols.index(symbol)], theirs)


def test_official_weights_with_other_classes_than_their_dictionary_are_refused(tiny, official, tmp_path):
    """Also where the shapes are those of the model: rows are never matched by position."""
    own = str(tiny().at("Global.character_dict_path"))
    weights, old = official(own)
    with raises_code(
        WeightsError, "charset_mismatch", f"{old.ctc_classes} CTC classes", "97", "pretrained_dict"
    ):
        Run.build(taught(tiny, **{"Global.use_space_char": True}), "train")
    stated = {"Global.use_space_char": True, "Global.character_dict_path": str(table()[NAME].dictionary)}
    with pytest.raises(
        WeightsError
    ) as refused:  # the dictionary of the config and of the weights is named once
        Run.build(taught(tiny, **stated), "train")
    assert str(refused.value).count("en_dict.txt") == 1
    given = {"Architecture.Models.Teacher.pretrained_dict": own, "Global.use_space_char": True}
    run = Run.build(taught(tiny, **given), "train")
    for name, value in run.network.Teacher.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), weights[name], err_msg=name)
