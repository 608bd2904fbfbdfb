"""Build the networks of a config, with the place of each part that cannot be built."""

from __future__ import annotations

from collections.abc import Collection

from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.check.findings import Findings
from ppocr_ext.config import Config
from ppocr_ext.errors import PPOCRExtError, SubModelsError
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.modeling import build_model
from ppocr_ext.run.inference_models import open_inference_models


def build_network(config: Config, charset: Charset) -> nn.Layer:
    """Build the networks, and open the inference models among them.

    Args:
        config: resolved.
        charset: the dictionary.

    Raises:
        InvalidConfigError: parts cannot be built, or an inference model cannot be opened; the issues have their places.
    """
    findings = Findings(config)
    model = try_network(findings, charset, None)
    if model is None:
        raise InvalidConfigError(findings.issues)
    return model


def try_network(findings: Findings, charset: Charset, opened: Collection[str] | None) -> nn.Layer | None:
    """Return the networks of ``findings.config``; ``opened`` are the only inference models to open, None for all.

    Returns:
        None, with an issue for each sub-model that cannot be built, if there is one.
    """
    try:
        model = build_model(findings.config.at("Architecture").thaw())
        open_inference_models(model, findings.config, charset, opened)
        return model
    except PPOCRExtError as error:
        for each in error.errors if isinstance(error, SubModelsError) else [error]:
            findings.raised(("Architecture",), "build", each)
        return None
