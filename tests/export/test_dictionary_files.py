"""The dictionary as each client reads it: charset.txt, inference.yml, the metadata of ONNX; names of models."""

import json

import pytest
import yaml
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.errors import CharsetError, ConfigError, ModelError
from ppocr_ext.export.clients import CLIENT_NAMES, choose_name
from ppocr_ext.export.exporter import onnx_metadata, write_charset, write_inference_yml
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.text_direction import RIGHT_TO_LEFT

POLICY = WidthPolicy("widen", (3, 48, 320), "RGB", max_width=3200)

# what YAML could take for something else, or change
AWKWARD = (
    *"0123456789\"'\\#:-?[]{},&*!|>%@`~=",
    *"yn\t未é\u00a0\u0301\ufeff\u2028\u2029\u0085\x7f\x1f😀",
    *("null", "1e5", "on"),
)


@pytest.mark.parametrize("use_space", [False, True])
def test_paddleocr_2_reads_charset_txt_as_the_dictionary(use_space, tmp_path):
    charset = Charset((*AWKWARD, " ") if use_space else AWKWARD, use_space)
    write_charset(tmp_path / "charset.txt", charset, len(charset.characters) + 1)
    # independent of ours: as PaddleOCR 2.10 reads a dictionary
    lines = [line.decode("utf-8").strip("\n").strip("\r\n") for line in (tmp_path / "charset.txt").open("rb")]
    assert tuple(lines) == charset.characters


def test_a_line_break_or_another_number_of_classes_is_refused(tmp_path):
    with raises_code(ModelError, "class_mismatch", 12, 3):
        write_charset(tmp_path / "charset.txt", Charset(("a", "b")), 12)
    for broken in (("a", "b\n"), ("a\r", "b")):
        with raises_code(CharsetError, "bad_dictionary"):
            write_charset(tmp_path / "charset.txt", Charset(broken), 3)


def test_the_client_reads_every_character_from_inference_yml(tmp_path):
    file = tmp_path / "inference.yml"
    write_inference_yml(file, "ch_SVTRv2_rec", (3, 48, 320), "RGB", AWKWARD)
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert content["PostProcess"] == {"name": "CTCLabelDecode", "character_dict": list(AWKWARD)}
    assert content["Global"]["model_name"] == "ch_SVTRv2_rec"
    operators = content["PreProcess"]["transform_ops"]
    # other operators, or other options of DecodeImage, end in an AssertionError of the client
    assert [next(iter(each)) for each in operators] == ["DecodeImage", "RecResizeImg", "KeepKeys"]
    assert operators[0]["DecodeImage"] == {"img_mode": "RGB", "channel_first": False}
    assert operators[1]["RecResizeImg"]["image_shape"] == [3, 48, 320]


def test_rapidocr_splits_the_metadata_into_the_dictionary():
    characters = (*'0a"未 é😀', "two letters", " ")
    metadata = onnx_metadata(Charset(characters), POLICY)
    assert tuple(metadata["character"].splitlines()) == characters
    assert WidthPolicy.from_json(json.loads(metadata["width_policy"]), "") == POLICY


@pytest.mark.parametrize("breaks", ["\u2028", "\u0085", "\x0b", ""])
def test_a_dictionary_that_rapidocr_would_shift_is_refused(breaks):
    assert "\n".join(("a", "b", breaks)).splitlines() != ["a", "b", breaks]
    with raises_code(CharsetError, "bad_dictionary", f"U+{ord(breaks):04X}" if breaks else "empty"):
        onnx_metadata(Charset(("a", "b", breaks)), POLICY)


LATIN, ARABIC = Charset(tuple("abc")), Charset(tuple("abcس"), direction=RIGHT_TO_LEFT)


def config_of(backbone: str = "SVTRv2", **settings: object) -> Config:
    options = {"model_size": "tiny"} if backbone == "PPLCNetV4" else {}
    return Config({"Global": settings, "Architecture": {"Backbone": {"name": backbone, **options}}})


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (config_of(), "ch_SVTRv2_rec"),
        (config_of("RepSVTR"), "ch_RepSVTR_rec"),
        (config_of("PPLCNetV4"), "PP-OCRv6_tiny_rec"),
        (config_of("PPHGNetV2_B4"), "PP-OCRv5_server_rec"),
        (config_of("PPLCNetV3"), "PP-OCRv5_mobile_rec"),
        (config_of("PPLCNetV3", pretrained_model="PP-OCRv4_mobile_rec"), "PP-OCRv4_mobile_rec"),
        (config_of("PPLCNetV3", pretrained_model="arabic_PP-OCRv5_mobile_rec"), "PP-OCRv5_mobile_rec"),
        (config_of(model_name="PP-OCRv3_mobile_rec"), "PP-OCRv3_mobile_rec"),
        (config_of(model_name="PP-OCRv3_mobile_rec", pdx_model_name="ch_RepSVTR_rec"), "ch_RepSVTR_rec"),
    ],
)
def test_the_name_is_of_the_config_or_of_its_family(config, name):
    assert choose_name(config, None, LATIN) == name


def test_a_sub_model_has_the_name_of_its_own_backbone():
    models = {"Teacher": {"Backbone": {"name": "SVTRv2"}}, "Student": {"Backbone": {"name": "RepSVTR"}}}
    assert choose_name(Config({"Architecture": {"Models": models}}), "Student", LATIN) == "ch_RepSVTR_rec"


def test_every_shipped_family_has_a_name_that_the_client_knows():
    assert len(set(CLIENT_NAMES)) == 34
    backbones = "SVTRv2 RepSVTR MobileNetV1Enhance PPLCNetV3 PPHGNet_small PPHGNetV2_B4 SVTRNet PPLCNetV4"
    assert {choose_name(config_of(each), None, LATIN) for each in backbones.split()} <= set(CLIENT_NAMES)


def test_a_name_of_the_config_that_the_client_does_not_know_is_a_warning(caplog):
    with caplog.at_level("WARNING", "ppocr_ext"):
        assert choose_name(config_of(pdx_model_name="my_plates"), None, LATIN) == "ch_SVTRv2_rec"
        assert choose_name(config_of(model_name="ch_SVTRv2_rec"), None, ARABIC).startswith("arabic_")
    assert ["my_plates" in text for text in caplog.messages] == [True, False]


def test_a_name_that_the_client_would_refuse_or_misuse_is_refused():
    with raises_code(ConfigError, "unknown_model_name", "--model-name", "ch_SVTRv2_rec"):
        choose_name(config_of(), None, LATIN, "ch_SVTR_rec")
    with raises_code(ConfigError, "arabic_name"):
        choose_name(config_of(), None, LATIN, "arabic_PP-OCRv5_mobile_rec")
    with raises_code(ConfigError, "arabic_name", "--model-name arabic_PP-OCRv5_mobile_rec"):
        choose_name(config_of(), None, ARABIC, "ch_SVTRv2_rec")
    assert (
        choose_name(config_of(), None, ARABIC, "arabic_PP-OCRv3_mobile_rec") == "arabic_PP-OCRv3_mobile_rec"
    )
    assert choose_name(config_of(), None, ARABIC) == "arabic_PP-OCRv5_mobile_rec"
    assert choose_name(config_of("MobileNetV1Enhance"), None, ARABIC) == "arabic_PP-OCRv3_mobile_rec"
