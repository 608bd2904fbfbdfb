"""Open the inference models that teach as they are: their files, their size of images, their columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.inference.formats import ExportedEngine, Sizes
from ppocr_ext.inference.released import find_released
from ppocr_ext.inference.runners import usual_threads
from ppocr_ext.messages import LOG, shortened
from ppocr_ext.modeling import networks_of
from ppocr_ext.modeling.heads import InferenceModel

_LEAST = np.finfo(np.float32).tiny  # so that no log-probability is infinite


def inference_models(model: nn.Layer) -> dict[str, InferenceModel]:
    """Return the sub-models that are inference models, by name."""
    heads = {str(name): getattr(network, "head", None) for name, network in networks_of(model).items()}
    return {name: head for name, head in heads.items() if isinstance(head, InferenceModel)}


def open_inference_models(
    model: nn.Layer, config: Config, charset: Charset, names: Collection[str] | None = None
) -> None:
    """Open the inference models among the sub-models.

    Args:
        model: as it is built.
        config: resolved.
        charset: the dictionary of the run.
        names: only these sub-models; None for all.

    Raises:
        WeightsError: the files cannot be used, are not known and not trusted, or lack characters of the dictionary.
        ConfigError: the images of ``Train`` have a size that the model does not take.
        CharsetError: its dictionary is not known, or does not fit.
    """
    for name, head in inference_models(model).items():
        if names is None or name in names:
            _open(head, f"Architecture.Models.{name}", config, charset)


def _open(head: InferenceModel, part: str, config: Config, charset: Charset) -> None:
    key = f"{part}.pretrained"
    value = str(config.at(key, None) or "")
    if not isinstance(find_source(value), ReleasedSource):
        raise WeightsError(
            f"{config.where(key)}: {key}: found {value or 'nothing'}, expected an inference model: a folder, an ONNX "
            f"file, or a name of `ppocr-ext weights list` that is on this machine as one.",
            code="no_inference_model",
        )
    model = find_released(value, config.at(f"{part}.pretrained_dict", None), by_name=True)
    assert model is not None  # of find_source
    if head.sha256 != model.digest:
        model.require_known(f"-o {part}.Head.sha256={model.digest}")
        if head.sha256 is not None:
            raise WeightsError(
                f"{config.where(f'{part}.Head.sha256')}: the digest of {model.graph} is {model.digest} (expected "
                f"{head.sha256}). Fix: give the file with that digest.",
                code="digest_mismatch",
            )
    engine = ExportedEngine(model.form, model.graph, files=model.files, threads=usual_threads())
    sizes = engine.try_sizes(model.image_shape)
    own = model.charset(sizes.classes)
    _require_characters(own, charset, part, value)
    if (prepared := read_preprocessing(config, "Train")) is not None:
        for size in prepared.sizes:
            _require_size(sizes, size, f"{config.where(prepared.path)}: {part}")
    steps = config.at("Train.dataset.transforms", None) or ()
    colors = [step["DecodeImage"].get("img_mode", "RGB") for step in steps if step.get("DecodeImage")]
    class_of = {symbol: number for number, symbol in enumerate(own.ctc_symbols)}
    columns = np.array([own.blank_id, *(class_of[each] for each in charset.characters)])
    head.open(model.digest, Teacher(engine, columns, colors[:1] not in ([], [model.color])))
    LOG.info("%s: %s computes as it is, %d of %d classes", part, value, charset.ctc_classes, sizes.classes)


def _require_characters(own: Charset, charset: Charset, part: str, value: str) -> None:
    lacking = sorted(set(charset.characters) - set(own.characters))
    if lacking:
        raise WeightsError(
            f"{part}: {len(lacking):,} characters of {charset.name} are not in the dictionary of {value}: "
            f"{shortened(lacking, 10)}. It cannot teach them. Fix: remove these characters, or take another teacher.",
            code="teacher_lacks_characters",
        )


def _require_size(sizes: Sizes, size: Sequence[int], where: str) -> None:
    rows, columns = size[1:]
    if rows != sizes.rows or (columns != sizes.columns and not sizes.widens):
        taken = f"{sizes.rows} x {'any width' if sizes.widens else sizes.columns}"
        raise ConfigError(
            f"{where}: the inference model takes images of {taken}, but `Train` has {rows} x {columns}. Fix: prepare "
            f"the images of `Train` in its size.",
            code="bad_image_size",
        )


@dataclass(frozen=True)
class Teacher:
    """Compute the log-probabilities of an inference model for the classes of another dictionary.

    Attributes:
        engine: runs the model on the CPU.
        columns: class of the model for each class of the run, int64 [C].
        flips: the order of the color channels differs.
    """

    engine: ExportedEngine
    columns: np.ndarray
    flips: bool

    def __call__(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to float32 [B, T, C], whose exponentials sum to 1.

        Raises:
            WeightsError: a probability is NaN.
        """
        inputs = images.astype("float32").numpy()
        probabilities = self.engine.probabilities(inputs[:, ::-1] if self.flips else inputs)
        chosen = np.maximum(probabilities[..., self.columns], _LEAST)
        if not np.isfinite(chosen).all():
            raise WeightsError(
                f"{self.engine.place}: its outputs have NaN, so its files are damaged. Fix: copy them again.",
                code="not_finite",
            )
        return paddle.to_tensor(np.log(chosen / chosen.sum(axis=-1, keepdims=True)))
