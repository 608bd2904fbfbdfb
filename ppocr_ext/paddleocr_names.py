"""Names of the recognition components in PaddleOCR's repository, by kind, for messages.

The ``paddleocr`` wheel has no networks, losses and metrics. A name in this table that the host lacks is
not misspelt: it needs a checkout.
"""

from __future__ import annotations

_BACKBONES = (
    "DenseNet DonutSwinModel EfficientNetb3_PREN HybridTransformer MTB MicroNet MobileNetV1Enhance MobileNetV3 "
    "PPHGNetV2_B4 PPHGNetV2_B4_Formula PPHGNetV2_B6_Formula PPHGNet_small PPLCNetV3 RepSVTR ResNet ResNet31 "
    "ResNet32 ResNet45 ResNetFPN ResNetRFL ResNetV2 ResNet_ASTER SVTRNet SVTRv2 ShallowCNN Vary_VIT_B "
    "Vary_VIT_B_Formula ViTParseQ ViTSTR"
)
_HEADS = (
    "ABINetHead AsterHead AttentionHead CANHead CPPDHead CTCHead LaTeXOCRHead MultiHead PPFormulaNet_Head PRENHead "
    "ParseQHead RFLHead RobustScannerHead SARHead SATRNHead SPINAttentionHead SRNHead Transformer UniMERNetHead "
    "VLHead"
)
_LOSSES = (
    "AsterLoss AttentionLoss CANLoss CELoss CPPDLoss CTCLoss CenterLoss CombinedLoss DistillCTCLogits "
    "DistillationCTCLoss DistillationDKDLoss DistillationDMLLoss DistillationDistanceLoss DistillationKLDivLoss "
    "DistillationNRTRLoss DistillationSARLoss LaTeXOCRLoss LossFromOutput MultiLoss NRTRLoss PPFormulaNet_L_Loss "
    "PPFormulaNet_S_Loss PRENLoss ParseQLoss RFLLoss SARLoss SATRNLoss SPINAttentionLoss SRNLoss UniMERNetLoss VLLoss"
)

PADDLEOCR_NAMES: dict[str, frozenset[str]] = {
    "transform": frozenset(("GA_SPIN", "STN_ON", "TBSRN", "TPS", "TSRN")),
    "backbone": frozenset(_BACKBONES.split()),
    "neck": frozenset(("PRENFPN", "RFAdaptor", "SequenceEncoder")),
    "head": frozenset(_HEADS.split()),
    "loss": frozenset(_LOSSES.split()),
    "metric": frozenset(("CANMetric", "CNTMetric", "DistillationMetric", "LaTeXOCRMetric", "RecMetric")),
}

# Old names in PaddleOCR's first configs of a network, which its code no longer has.
FORMER_NAMES = {"repvit_svtr": "RepSVTR"}
