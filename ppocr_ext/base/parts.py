"""Facts about PaddleOCR's parts that must be known without Paddle: one row for each part.

A part has a row if several packages need a fact about it, or if a config is checked by it before anything is built. A
part without a row, and a part of a plugin, is checked by the signature of its constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class BranchRow:
    """A branch of a MultiHead, with the parts of PaddleOCR that belong to it.

    Attributes:
        head: its name in ``head_list``.
        encoder: the label encoder.
        decoder: the decoder of its output; also the key of its class count in ``out_channels_list``.
        layers: layers of the MultiHead for this branch alone; the last one makes the logits.
    """

    head: str
    encoder: str
    decoder: str
    layers: tuple[str, ...]


BRANCH_ROWS = {
    "ctc": BranchRow("CTCHead", "CTCLabelEncode", "CTCLabelDecode", ("ctc_encoder", "ctc_head")),
    "gtc": BranchRow("NRTRHead", "NRTRLabelEncode", "NRTRLabelDecode", ("before_gtc", "gtc_head")),
    "sar": BranchRow("SARHead", "SARLabelEncode", "SARLabelDecode", ("sar_head",)),
}
BRANCH_OF_HEAD = {row.head: name for name, row in BRANCH_ROWS.items()}
MULTI_HEAD = "MultiHead"
INFERENCE_MODEL = "InferenceModel"
CTC_HEAD, CTC_DECODER = BRANCH_ROWS["ctc"].head, BRANCH_ROWS["ctc"].decoder
# The decoder that gives the class count of a single head; for other heads it is the decoder of the config.
HEAD_DECODERS = {
    "CTCHead": "CTCLabelDecode",
    "AttentionHead": "AttnLabelDecode",
    "SARHead": "SARLabelDecode",
    "Transformer": "NRTRLabelDecode",
}
# How many special symbols each decoder adds to the characters.
SPECIALS = {
    "CANLabelDecode": 0,
    "VLLabelDecode": 0,
    "ABINetLabelDecode": 1,
    "CPPDLabelDecode": 1,
    "CTCLabelDecode": 1,
    "AttnLabelDecode": 2,
    "RFLLabelDecode": 2,
    "SPINLabelDecode": 2,
    "SRNLabelDecode": 2,
    "ViTSTRLabelDecode": 2,
    "ParseQLabelDecode": 3,
    "PRENLabelDecode": 3,
    "SARLabelDecode": 3,
    "SATRNLabelDecode": 3,
    "SEEDLabelDecode": 3,
    "NRTRLabelDecode": 4,
}
# With these algorithms PaddleOCR's loop gives the labels to the network. NRTR and SAR heads need them in training.
TAUGHT_ALGORITHMS = frozenset(
    [
        "SRN",
        "NRTR",
        "SAR",
        "SEED",
        "SVTR",
        "SVTR_LCNet",
        "SVTR_HGNet",
        "SPIN",
        "VisionLAN",
        "RobustScanner",
        "RFL",
        "SATRN",
        "ParseQ",
        "CPPD",
    ]
)


@dataclass(frozen=True)
class LossRow:
    """A loss.

    Attributes:
        branch: the branch of a MultiHead that the loss trains; empty without one.
        branch_option: the option that names another branch.
        of_multi_loss: whether a MultiLoss may list it.
        is_center: whether it pulls features to centers.
        lists: whether it has losses in its ``loss_config_list``.
        compares_frames: whether, for the branch ``ctc``, it reads no label and finds the frames of padding by
            ``valid_ratio``.
    """

    branch: str = ""
    branch_option: str = ""
    of_multi_loss: bool = False
    is_center: bool = False
    lists: bool = False
    compares_frames: bool = False

    def branch_with(self, options: Mapping[str, object]) -> str:
        """Return the branch that the loss is for with these options."""
        return str(options.get(self.branch_option, self.branch))

    def is_of_frames(self, options: Mapping[str, object]) -> bool:
        """Return True if, with these options, it compares frames of CTC outputs."""
        return self.compares_frames and self.branch_with(options) == "ctc"


LOSS_ROWS = {
    "CTCLoss": LossRow("ctc", of_multi_loss=True),
    "CenterLoss": LossRow("ctc", of_multi_loss=True, is_center=True),
    "NRTRLoss": LossRow("gtc", of_multi_loss=True),
    "SARLoss": LossRow("sar", of_multi_loss=True),
    "DistillationCTCLoss": LossRow("ctc"),
    "DistillationCenterLoss": LossRow("ctc", is_center=True),
    "DistillationNRTRLoss": LossRow("gtc"),
    "DistillationSARLoss": LossRow("sar"),
    "DistillationDKDLoss": LossRow("gtc", "dis_head"),
    "MaskedDKDLoss": LossRow("gtc", "dis_head", compares_frames=True),
    "CTCFrameKDLoss": LossRow("ctc", compares_frames=True),
    "CombinedLoss": LossRow(lists=True),
    "MultiLoss": LossRow(lists=True),
}

MULTI_LOSSES = {name: row.branch for name, row in LOSS_ROWS.items() if row.of_multi_loss}
LIST_LOSSES = tuple(name for name, row in LOSS_ROWS.items() if row.lists)
CENTER_LOSSES = tuple(name for name, row in LOSS_ROWS.items() if row.is_center)

HALF = "(x / 255 - 0.5) / 0.5"
_CHANNELS_FIRST = ("[channels, height, width]", "[3, 48, 320]")
_IMAGENET = "(x / 255 - mean) / std of ImageNet"


@dataclass(frozen=True)
class TransformRow:
    """A transform of a sample.

    Attributes:
        kind: ``"plain"`` does not change the pixels; ``"random"`` changes or joins images at random, which keep
            different sizes; ``"resize"`` gives images the size of its ``image_shape``.
        shape: the form of ``image_shape``, with an example; None without this option.
        normalises: formula for the pixels x.
        squashes: whether it always fills the width, whatever ``padding`` is.
        is_usual: whether it does the same as ``RecResizeImg``.
    """

    kind: Literal["plain", "random", "resize"]
    shape: tuple[str, str] | None = None
    normalises: str = ""
    squashes: bool = False
    is_usual: bool = False


def _resize(normalises: str, squashes: bool = False, is_usual: bool = False) -> TransformRow:
    return TransformRow("resize", _CHANNELS_FIRST, normalises, squashes, is_usual)


JOINING = "RecConAug"  # this transform appends other images of the dataset
_PLAIN, _RANDOM = TransformRow("plain"), TransformRow("random")
TRANSFORM_ROWS = {
    "DecodeImage": _PLAIN,
    "KeepKeys": _PLAIN,
    "MultiLabelEncode": _PLAIN,
    "CTCLabelEncode": _PLAIN,
    "NRTRLabelEncode": _PLAIN,
    "SARLabelEncode": _PLAIN,
    "RecAug": _RANDOM,
    JOINING: TransformRow("random", ("[height, width, channels]", "[48, 320, 3]")),
    "BaseDataAugmentation": _RANDOM,
    "ABINetRecAug": _RANDOM,
    "SVTRRecAug": _RANDOM,
    "ParseQRecAug": _RANDOM,
    "RandAugment": _RANDOM,
    "ColorJitter": _RANDOM,
    "IaaAugment": _RANDOM,
    "RecResizeImg": _resize(HALF, is_usual=True),
    "SVTRRecResizeImg": _resize(HALF, is_usual=True),
    "CTCRecResizeImg": _resize(HALF),
    "RFLRecResizeImg": _resize(HALF),
    "VLRecResizeImg": _resize("x / 255", squashes=True),
    "ABINetRecResizeImg": _resize(_IMAGENET, squashes=True),
}


def kind_of(transform: str) -> str:
    """Return the kind of a transform; empty if it has no row. A label encoder of any name is plain."""
    row = TRANSFORM_ROWS.get(transform, _PLAIN if transform.endswith("LabelEncode") else None)
    return "" if row is None else row.kind


@dataclass(frozen=True)
class DatasetRow:
    """A dataset.

    Attributes:
        keys: the keys that it reads from its section; it fails without those of ``needs``.
        reads: ``"files"`` (label files) or ``"lmdb"``.
        of_one_size: the name of the same dataset without image sizes, if this dataset gets them from a sampler.
    """

    keys: frozenset[str]
    reads: Literal["files", "lmdb"] = "files"
    of_one_size: str = ""

    @property
    def loading(self) -> int:
        """Return PaddleOCR's default of ``ext_op_transform_idx``: the transforms that load images to be joined."""
        return 2 if self.reads == "files" else 1

    @property
    def needs(self) -> frozenset[str]:
        """Return the keys that must be given."""
        return self.keys & {"data_dir", "label_file_list", "transforms"}


_LMDB_KEYS = frozenset({"data_dir", "transforms", "ratio_list", "ext_op_transform_idx"})
_FILE_KEYS = _LMDB_KEYS | {"label_file_list", "delimiter"}
_SCALE_KEYS = _FILE_KEYS | {"ds_width"}
DATASET_ROWS = {
    "SimpleDataSet": DatasetRow(_FILE_KEYS),
    "TextRecDataset": DatasetRow(_FILE_KEYS),
    "MultiScaleDataSet": DatasetRow(_SCALE_KEYS, of_one_size="SimpleDataSet"),
    "MSTextRecDataset": DatasetRow(_SCALE_KEYS, of_one_size="TextRecDataset"),
    "LMDBDataSet": DatasetRow(_LMDB_KEYS, "lmdb"),
}
OF_LABEL_FILES = tuple(name for name, row in DATASET_ROWS.items() if row.reads == "files")
OF_LMDB = tuple(name for name, row in DATASET_ROWS.items() if row.reads == "lmdb")
TRAIN_FRAMES = 40  # of PP-OCR's backbones in training: those of an image of width 320
POSITIONS = 80  # frames that `use_pos` of a MultiHead has an embedding for
# Parts of a network that take images of one width, or make one width of any: by the key that makes them so.
ONE_WIDTH = {"SVTRNet": "name", "SVTRv2": "use_pos_embed", "ViTParseQ": "name", "STN_ON": "name"}
SCALE_SAMPLER = "MultiScaleSampler"  # this sampler decides the sizes of images
# Defaults of the sampler: widths and heights are multiples of SCALE_FACTOR, and no image is wider than SCALE_WIDEST.
SCALE_FACTOR = (8, 16)
SCALE_WIDEST = 480.0
# Options that a part reads from its `**kwargs`, besides the parameters of its signature.
MORE_KEYS = {
    "RandAugment": frozenset({"num_layers", "magnitude", "fillcolor"}),
    "SARLabelDecode": frozenset({"rm_symbol"}),
    "SATRNLabelDecode": frozenset({"rm_symbol"}),
}
# Keys of many configs that PaddleOCR never reads, or ignores in `**kwargs`; and keys that had a use in version 1.0.
IGNORED_KEYS = frozenset(
    {
        "T_max",
        "eta_min",
        "pct_start",
        "div_factor",
        "final_div_factor",
        "load_static_weights",
        "prefetch_factor",
        "infer_model",
        "infer_img_dir",
        "cls_model_dir",
        "max_side_len",
        "aug_prob",
        "hidden_size",  # of a SequenceEncoder without LSTM
        "weight_deacy",  # PaddleOCR's rec_resnet_stn_bilstm_att.yml is written so
        "margin",  # of a CenterLoss in 1.0, with `look_alikes`: no fewer confusions (docs/results.md)
        "look_alikes",
    }
)
# Parts whose constructors in PaddleOCR have no `**kwargs`, with the keys that they accept besides ours. They
# refuse all other keys, so such a config does not train there.
CLOSED_PARTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("MTB", "RepSVTR", "STN_ON", "TPS", "Transformer", "ViTParseQ"), frozenset[str]()),
    "PPHGNet_small": frozenset({"pretrained", "use_ssld", "det", "out_indices"}),
    "ResNet31": frozenset({"out_indices", "init_type", "last_stage_pool"}),
}
# Values that a part of PaddleOCR builds in; it refuses their keys.
BUILT_IN: dict[str, dict[str, object]] = {
    "PPHGNet_small": {"stem_channels": (64, 64, 128), "layer_num": 6},
    "PPHGNetV2_B4": {"stem_channels": (3, 32, 48), "stage_config": None},
}

# Names of the recognition components in PaddleOCR's repository, by kind, for messages. The `paddleocr` wheel has no
# networks, losses and metrics: a name of this table that the host lacks is not misspelt, but needs a checkout.
NAMES = {
    "transform": "GA_SPIN STN_ON TBSRN TPS TSRN",
    "backbone": (
        "DenseNet DonutSwinModel EfficientNetb3_PREN HybridTransformer MTB MicroNet MobileNetV1Enhance MobileNetV3 "
        "PPHGNetV2_B4 PPHGNetV2_B4_Formula PPHGNetV2_B6_Formula PPHGNet_small PPLCNetV3 RepSVTR ResNet ResNet31 "
        "ResNet32 ResNet45 ResNetFPN ResNetRFL ResNetV2 ResNet_ASTER SVTRNet SVTRv2 ShallowCNN Vary_VIT_B "
        "Vary_VIT_B_Formula ViTParseQ ViTSTR"
    ),
    "neck": "PRENFPN RFAdaptor SequenceEncoder",
    "head": (
        "ABINetHead AsterHead AttentionHead CANHead CPPDHead CTCHead LaTeXOCRHead MultiHead PPFormulaNet_Head PRENHead "
        "ParseQHead RFLHead RobustScannerHead SARHead SATRNHead SPINAttentionHead SRNHead Transformer UniMERNetHead "
        "VLHead"
    ),
    "loss": (
        "AsterLoss AttentionLoss CANLoss CELoss CPPDLoss CTCLoss CenterLoss CombinedLoss DistillCTCLogits "
        "DistillationCTCLoss DistillationDKDLoss DistillationDMLLoss DistillationDistanceLoss DistillationKLDivLoss "
        "DistillationNRTRLoss DistillationSARLoss LaTeXOCRLoss LossFromOutput MultiLoss NRTRLoss PPFormulaNet_L_Loss "
        "PPFormulaNet_S_Loss PRENLoss ParseQLoss RFLLoss SARLoss SATRNLoss SPINAttentionLoss SRNLoss UniMERNetLoss "
        "VLLoss"
    ),
    "metric": "CANMetric CNTMetric DistillationMetric LaTeXOCRMetric RecMetric",
}
# Names that PaddleOCR's code does not have, but its first configs, file names or papers, or other programs; and what to
# write in place.
FORMER_NAMES = {
    "DistillationNRTRDMLLoss": "DistillationDMLLoss, dis_head: gtc",  # PaddleOCR has it, but cannot call it
    "repvit_svtr": "RepSVTR",
    "NRTRRecResizeImg": "GrayRecResizeImg",
    "SVTRLabelDecode": "CTCLabelDecode",
    "CrossEntropyLoss": "CELoss",
    "ResNet_vd": "ResNet",
    **{f"ResNet{layers}_vd": f"ResNet, layers: {layers}" for layers in (18, 34, 50, 101, 152, 200)},
}

# Names under which PaddleOCR's 3.x client loads recognisers: paddlex 3.7.2, modules/text_recognition/model_list.py
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


def refused_key(part: str, key: str, value: object) -> str | None:
    """Return why the constructor of a part of PaddleOCR refuses a key that we do not have; None if it takes any."""
    built_in = BUILT_IN.get(part, {})
    if key not in built_in and (part not in CLOSED_PARTS or key in CLOSED_PARTS[part]):
        return None
    same = key in built_in and value == built_in[key]
    return f"{part} of PaddleOCR refuses this key. Fix: remove it{', nothing changes' if same else ''}."


def names_of(kind: str) -> frozenset[str]:
    """Return the names of PaddleOCR's components of a kind; empty for a kind without a list."""
    return frozenset(NAMES.get(kind, "").split())


def row_of(part: object, rows: Mapping[str, Row]) -> Row | None:
    """Return the row of a class, or of its nearest base that has one; None if there is none."""
    bases = getattr(part, "__mro__", ())
    return next((rows[base.__name__] for base in bases if base.__name__ in rows), None)
