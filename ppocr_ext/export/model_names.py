"""Choose the name under which PaddleOCR's 3.x client loads an exported model; imports no Paddle.

The client admits 34 names. It compares none with the network: a name decides which engines the client offers, its
TensorRT settings and the font of its pictures, and for two names (``arabic_…``) also the order of the text.
"""

from __future__ import annotations

import unicodedata

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import did_you_mean, near_match

# paddlex 3.7.2, modules/text_recognition/model_list.py
_SCRIPTS_OF_V3 = (
    "en",
    "korean",
    "japan",
    "chinese_cht",
    "te",
    "ka",
    "ta",
    "latin",
    "arabic",
    "cyrillic",
    "devanagari",
)
_SCRIPTS_OF_V5 = (
    "latin",
    "eslav",
    "korean",
    "en",
    "el",
    "th",
    "arabic",
    "cyrillic",
    "devanagari",
    "ta",
    "te",
)
CLIENT_NAMES: tuple[str, ...] = (
    *(f"PP-OCRv6_{size}_rec" for size in ("medium", "small", "tiny")),
    "PP-OCRv3_mobile_rec",
    *(f"{script}_PP-OCRv3_mobile_rec" for script in _SCRIPTS_OF_V3),
    "PP-OCRv4_mobile_rec",
    "PP-OCRv4_server_rec",
    "en_PP-OCRv4_mobile_rec",
    "PP-OCRv4_server_rec_doc",
    "ch_SVTRv2_rec",
    "ch_RepSVTR_rec",
    "PP-OCRv5_server_rec",
    "PP-OCRv5_mobile_rec",
    *(f"{script}_PP-OCRv5_mobile_rec" for script in _SCRIPTS_OF_V5),
)
# The official recognisers of each backbone; the first is the one that is meant if nothing in the config names another.
_FAMILIES = {
    "SVTRv2": ("ch_SVTRv2_rec",),
    "RepSVTR": ("ch_RepSVTR_rec",),
    "MobileNetV1Enhance": ("PP-OCRv3_mobile_rec",),
    "PPLCNetV3": ("PP-OCRv5_mobile_rec", "PP-OCRv4_mobile_rec"),
    "PPHGNet_small": ("PP-OCRv4_server_rec",),
    "PPHGNetV2_B4": ("PP-OCRv5_server_rec",),
}
_OTHER = "PP-OCRv4_mobile_rec"  # bound to no engine that would look for another form of the model
_KEYS = ("Global.pdx_model_name", "Global.model_name")  # PaddleX's key, and that of PaddleOCR 3.x


def choose_name(config: Config, sub_model: str | None, charset: Charset, given: str | None = None) -> str:
    """Return the client's name for a model.

    Args:
        config: of the training.
        sub_model: the entry of ``Architecture.Models`` that is exported; None in a config of one model.
        charset: its dictionary.
        given: ``--model-name``; it comes before ``Global.pdx_model_name``, ``Global.model_name`` and the name of the
            official recogniser with the same backbone.

    Raises:
        ConfigError: the client has no such name, or it would reorder texts that have no Arabic letters.
    """
    wanted = [("--model-name", given), *((key, config.at(key, default=None)) for key in _KEYS)]
    for source, name in wanted:
        if name:
            _check(str(name), source, charset)
            return str(name)
    return _of_family(
        config, ("Architecture",) if sub_model is None else ("Architecture", "Models", sub_model)
    )


def _of_family(config: Config, path: tuple[str, ...]) -> str:
    backbone = config.at((*path, "Backbone", "name"), default=None)
    if backbone == "PPLCNetV4":
        name = f"PP-OCRv6_{config.at((*path, 'Backbone', 'model_size'), default='small')}_rec"
        return name if name in CLIENT_NAMES else _OTHER
    family = _FAMILIES.get(str(backbone), (_OTHER,))
    weights = (
        config.at("Global.pretrained_model", default=None),
        config.at((*path, "pretrained"), default=None),
    )
    return next((name for name in weights if name in family), family[0])


def _check(name: str, source: str, charset: Charset) -> None:
    if name not in CLIENT_NAMES:
        raise ConfigError(
            f"{source}: paddleocr 3.7 loads no model called {name}.{did_you_mean(near_match(name, CLIENT_NAMES, 0.6))} "
            f"Fix: leave it out, or give one of the names in docs/deploy.md.",
            code="unknown_model_name",
        )
    letters = "".join(charset.characters)
    if name.startswith("arabic_") and not any(unicodedata.bidirectional(each) == "AL" for each in letters):
        raise ConfigError(
            f"{source}: under the name {name} the client reorders texts as Arabic, but the dictionary has no Arabic "
            f"letter. Fix: give another name, or none.",
            code="arabic_name",
        )
