import copy
import logging

import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, with_class_counts
from ppocr_ext.errors import ConfigError

CHARACTERS = tuple("0123456789")
PLAIN = Charset(CHARACTERS)  # n = 11
SPACED = Charset((*CHARACTERS, " "), use_space=True)  # n = 12


def multi(*heads, **options):
    neck = {"Neck": {"name": "svtr", "dims": 16}, "Head": {"fc_decay": 1e-5}}
    by_name = {"CTCHead": neck, "SARHead": {"enc_dim": 32}, "NRTRHead": {"nrtr_dim": 32}}
    return {"name": "MultiHead", "head_list": [{name: by_name[name]} for name in heads], **options}


CTC_SAR, CTC_NRTR = ("CTCHead", "SARHead"), ("CTCHead", "NRTRHead")
CTC = {"name": "CTCHead", "fc_decay": 1e-5}


def single(head, decoder="CTCLabelDecode", loss=None):
    return {
        "Architecture": {"model_type": "rec", "algorithm": "SVTR_LCNet", "Head": head},
        "Loss": loss or {"name": "CTCLoss"},
        "PostProcess": {"name": decoder},
    }


def distilled(heads, decoder="DistillationCTCLabelDecode", losses=()):
    return {
        "Architecture": {
            "name": "DistillationModel",
            "algorithm": "Distillation",
            "Models": {name: {"algorithm": "SVTR_LCNet", "Head": head} for name, head in heads.items()},
        },
        "Loss": {"name": "CombinedLoss", "loss_config_list": list(losses)},
        "PostProcess": {"name": decoder, "model_name": ["Student"]},
    }


def multi_loss(*losses):
    return {"name": "MultiLoss", "loss_config_list": list(losses)}


def sar(**options):
    return {"DistillationSARLoss": {"weight": 1.0, "multi_head": True, **options}}


def models(head, *names):
    return dict.fromkeys(names, head)


STUDENT, TEACHER, HELPER = (f"Architecture.Models.{n}.Head" for n in ("Student", "Teacher", "Helper"))
LIST = "Loss.loss_config_list"
CTC_LOSS = {"DistillationCTCLoss": {"weight": 1.0}}
TWO_SAR = distilled(
    models(multi(*CTC_SAR), "Student", "Teacher"), "DistillationSARLabelDecode", [CTC_LOSS, sar()]
)

# name: (config, charset, every number that is filled in or checked)
TABLE = {
    "two MultiHeads under DistillationSARLabelDecode": (
        TWO_SAR,
        PLAIN,
        {
            f"{STUDENT}.out_channels_list": {"CTCLabelDecode": 11, "SARLabelDecode": 13},
            f"{TEACHER}.out_channels_list": {"CTCLabelDecode": 11, "SARLabelDecode": 13},
            f"{LIST}.1.DistillationSARLoss.ignore_index": 12,
        },
    ),
    "two SAR losses between others": (
        distilled(models(multi(*CTC_SAR), "Student"), losses=[CTC_LOSS, sar(), sar(weight=0.5), CTC_LOSS]),
        PLAIN,
        {
            f"{STUDENT}.out_channels_list": {"CTCLabelDecode": 11, "SARLabelDecode": 13},
            f"{LIST}.1.DistillationSARLoss.ignore_index": 12,
            f"{LIST}.2.DistillationSARLoss.ignore_index": 12,
        },
    ),
    "NRTR-guided student and teacher, no NRTR loss": (
        distilled(models(multi(*CTC_NRTR), "Student", "Teacher"), losses=[CTC_LOSS]),
        SPACED,
        {
            f"{STUDENT}.out_channels_list": {"CTCLabelDecode": 12, "NRTRLabelDecode": 15},
            f"{TEACHER}.out_channels_list": {"CTCLabelDecode": 12, "NRTRLabelDecode": 15},
        },
    ),
    "three sub-models, each with other heads": (
        distilled(
            {"Student": CTC, "Teacher": multi(*CTC_NRTR), "Helper": multi("SARHead", "CTCHead", "NRTRHead")},
            "DistillationSARLabelDecode",
            [sar()],
        ),
        PLAIN,
        {
            f"{STUDENT}.out_channels": 11,
            f"{TEACHER}.out_channels_list": {"CTCLabelDecode": 11, "NRTRLabelDecode": 14},
            f"{HELPER}.out_channels_list": {
                "CTCLabelDecode": 11,
                "SARLabelDecode": 13,
                "NRTRLabelDecode": 14,
            },
            f"{LIST}.0.DistillationSARLoss.ignore_index": 12,
        },
    ),
    "MultiHead without distillation": (
        single(multi(*CTC_NRTR), loss=multi_loss({"CTCLoss": None}, {"NRTRLoss": None})),
        PLAIN,
        {"Architecture.Head.out_channels_list": {"CTCLabelDecode": 11, "NRTRLabelDecode": 14}},
    ),
    "SARLoss: null, SAR decoder": (
        single(multi(*CTC_SAR), "SARLabelDecode", multi_loss({"CTCLoss": None}, {"SARLoss": None})),
        SPACED,
        {
            "Architecture.Head.out_channels_list": {"CTCLabelDecode": 12, "SARLabelDecode": 14},
            f"{LIST}.1.SARLoss.ignore_index": 13,
        },
    ),
    "single CTC head": (single(CTC), PLAIN, {"Architecture.Head.out_channels": 11}),
    "single SAR head": (
        single({"name": "SARHead"}, "SARLabelDecode", {"name": "SARLoss"}),
        PLAIN,
        {"Architecture.Head.out_channels": 13, "Loss.ignore_index": 12},
    ),
    "single NRTR head": (
        single({"name": "Transformer"}, "NRTRLabelDecode", {"name": "CELoss", "smoothing": True}),
        PLAIN,
        {"Architecture.Head.out_channels": 14},
    ),
    "ViTSTR": (
        single({"name": "CTCHead"}, "ViTSTRLabelDecode", {"name": "CELoss", "ignore_index": 0}),
        PLAIN,
        {"Architecture.Head.out_channels": 12},
    ),
    "numbers that are already right": (
        single(
            multi(
                *CTC_SAR,
                out_channels_list={"CTCLabelDecode": 11, "SARLabelDecode": 13, "NRTRLabelDecode": 14},
            ),
            loss=multi_loss({"CTCLoss": None}, {"SARLoss": {"ignore_index": 12}}),
        ),
        PLAIN,
        {
            "Architecture.Head.out_channels_list": {
                "CTCLabelDecode": 11,
                "SARLabelDecode": 13,
                "NRTRLabelDecode": 14,
            },
            f"{LIST}.1.SARLoss.ignore_index": 12,
        },
    ),
    "half of the numbers given": (
        distilled({"Student": multi(*CTC_NRTR, out_channels_list={"NRTRLabelDecode": 14}), "Teacher": CTC}),
        PLAIN,
        {f"{STUDENT}.out_channels_list.CTCLabelDecode": 11, f"{TEACHER}.out_channels": 11},
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_numbers_are_filled_in_and_nothing_else(name):
    plain, charset, expected = TABLE[name]
    before = copy.deepcopy(plain)
    config = Config(plain, origin="a.yml")
    counted = with_class_counts(config, charset)
    assert config == before
    for path, value in expected.items():
        assert counted.at(path) == value, path
    # Taking the expected numbers out of both must leave them equal: no other key changed.
    nothing = dict.fromkeys([*expected, "computed"])
    assert counted.with_values(nothing) == config.with_values(nothing)
    assert with_class_counts(counted, charset) == counted


@pytest.mark.parametrize(
    ("config", "path", "found", "expected"),
    [
        (single({"name": "CTCHead", "out_channels": "11"}), "Architecture.Head.out_channels", "11", 11),
        (
            single(multi(*CTC_NRTR, out_channels_list={"CTCLabelDecode": 11, "SARLabelDecode": 12})),
            "Architecture.Head.out_channels_list.SARLabelDecode",
            12,
            13,
        ),
        (
            single(multi(*CTC_SAR), loss=multi_loss({"CTCLoss": None}, {"SARLoss": {"ignore_index": 92}})),
            "Loss.loss_config_list.SARLoss.ignore_index",
            92,
            12,
        ),
    ],
)
def test_a_number_of_another_dictionary_is_replaced(config, path, found, expected):
    given = Config(config)
    assert given.at(path) == found and with_class_counts(given, PLAIN).at(path) == expected


def test_a_multi_head_without_a_list_of_heads():
    for head_list in (None, {"CTCHead": None}, ["CTCHead"], [{"CTCHead": None, "Neck": None}]):
        config = Config(single({"name": "MultiHead", "head_list": head_list}))
        with raises_code(ConfigError, "bad_head_list", "Architecture.Head.head_list"):
            with_class_counts(config, PLAIN)


def test_what_no_dictionary_explains_is_left_alone(caplog):
    for plain in (
        {"Global": {"epoch_num": 1}},
        {"Architecture": {"Head": None}, "Loss": None, "PostProcess": None},
        single({"name": "LaTeXOCRHead", "out_channels": 8000}, "LaTeXOCRDecode", {"name": "LaTeXOCRLoss"}),
    ):
        with caplog.at_level(logging.INFO, "ppocr_ext"):
            assert with_class_counts(Config(plain), PLAIN) == plain
    assert "LaTeXOCRHead" in caplog.text
