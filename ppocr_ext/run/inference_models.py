"""Open the inference models that teach as they are: their files, their size of images, their columns."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.base.parts import HALF
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.errors import ConfigError, WeightsError, error_below
from ppocr_ext.inference.comparison import text_inputs
from ppocr_ext.inference.formats import ExportedEngine, Sizes
from ppocr_ext.inference.released import find_released
from ppocr_ext.inference.runners import usual_threads
from ppocr_ext.limits import usable_cores
from ppocr_ext.messages import LOG, shortened
from ppocr_ext.modeling import networks_of
from ppocr_ext.modeling.heads import InferenceModel

_CHECK = "FLAGS_check_nan_inf"
_LEAST = np.finfo(np.float32).tiny  # so that no log-probability is infinite


def inference_models(model: nn.Layer) -> dict[str, InferenceModel]:
    """Return the sub-models that are inference models, by name."""
    heads = {str(name): getattr(network, "head", None) for name, network in networks_of(model).items()}
    return {name: head for name, head in heads.items() if isinstance(head, InferenceModel)}


def open_inference_models(
    model: nn.Layer, config: Config, charset: Charset, names: Collection[str] | None
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
            with error_below("Models", name, "pretrained"):
                _open(head, f"Architecture.Models.{name}", config, charset)


def _open(head: InferenceModel, part: str, config: Config, charset: Charset) -> None:
    key = f"{part}.pretrained"
    value = str(config.at(key, None) or "")
    source = find_source(value)
    model = find_released(value, config.at(f"{part}.pretrained_dict", None), by_name=True)
    if model is None or not isinstance(source, ReleasedSource):
        raise WeightsError(
            f"{config.where(key)}: {key}: found {value or 'nothing'}{f' ({source.place})' if source else ''}, expected "
            f"an inference model that is on this machine. Fix: give its folder or its ONNX file.",
            code="no_inference_model",
        )
    if head.sha256 not in (None, model.digest):
        raise WeightsError(
            f"{config.where(f'{part}.Head.sha256')}: the digest of {model.graph} is {model.digest} (expected "
            f"{head.sha256}). Fix: give the file with that digest.",
            code="digest_mismatch",
        )
    if head.sha256 is None:
        model.require_known(f"-o {part}.Head.sha256={model.digest}")
    engine = ExportedEngine(
        model.form,
        model.graph,
        files=model.files,
        threads=usual_threads() if paddle.get_device() == "cpu" else usable_cores(),
    )
    sizes = engine.try_sizes(model.image_shape)
    _require_probabilities(engine, sizes)
    own = model.charset(sizes.classes)
    columns = _columns(own, charset, part, value)
    prepared = read_preprocessing(config, "Train") or read_preprocessing(config, "Eval")
    flips = False
    if prepared is not None:
        for size in prepared.sizes:
            _require_size(sizes, size, f"{config.where(prepared.path)}: {part}")
        if prepared.normalisation != (HALF,):
            LOG.warning("%s: released models read images as %s, not %s", part, HALF, prepared.normalisation)
        flips = prepared.color not in (None, model.color)
    # The dictionary decides about the columns, so it is a part of what teaches.
    digest = hashlib.sha256(f"{model.digest} {own.digest}".encode()).hexdigest()
    head.open(digest, Teacher(engine, columns, charset.ctc_classes, flips))
    LOG.info("%s: %s computes as it is, %d of %d classes", part, value, charset.ctc_classes, sizes.classes)


def _require_probabilities(engine: ExportedEngine, sizes: Sizes) -> None:
    output = engine.probabilities(text_inputs((1, 3, sizes.rows, sizes.columns)))
    if output.min() < 0 or not np.allclose(output.sum(axis=-1), 1, atol=0.01):
        raise WeightsError(
            f"{engine.place}: its output is no probabilities (from {output.min():.3g} to {output.max():.3g}; expected "
            f"0 to 1, and 1 as the sum of a frame). Fix: export it with a softmax behind the last layer.",
            code="not_probabilities",
        )


def _columns(own: Charset, charset: Charset, part: str, value: str) -> np.ndarray:
    """Return the class of the run for each class of the model, -1 for none: as a label with its character has it.

    Raises:
        WeightsError: a class that labels can have gets none.
    """
    symbols = [charset.encoded(each) if len(each) == 1 else "" for each in own.characters]
    classes = [charset.ids(each)[0] if each and not charset.unknown(each) else -1 for each in symbols]
    used = {each: charset.ids(each)[0] for each in charset.characters if len(each) == 1}
    taught = set(classes)
    if lacking := [repr(each) for each in used if used[each] not in taught]:
        raise WeightsError(
            f"{part}: {len(lacking):,} characters of {charset.name} are not in the dictionary of {value}: "
            f"{shortened(lacking, 10)}. It cannot teach them. Fix: remove these characters, or take another teacher.",
            code="teacher_lacks_characters",
        )
    return np.array([charset.blank_id, *classes])


def _require_size(sizes: Sizes, size: Sequence[int], where: str) -> None:
    rows, columns = size[1:]
    if rows != sizes.rows or (columns != sizes.columns and not sizes.widens):
        taken = f"{sizes.rows} x {'any width' if sizes.widens else sizes.columns}"
        raise ConfigError(
            f"{where}: the inference model takes images of {taken} (found {rows} x {columns}). Fix: prepare the images "
            f"in its size.",
            code="bad_image_size",
        )


@contextmanager
def _unchecked() -> Iterator[None]:
    """Switch off Paddle's check for NaN (``Global.detect_anomaly``, a replay), with which its oneDNN kernels fail."""
    before = paddle.get_flags(_CHECK)
    paddle.set_flags({_CHECK: False})
    try:
        yield
    finally:
        paddle.set_flags(before)


class Teacher:
    """Compute the log-probabilities of an inference model for the classes of another dictionary.

    Args:
        engine: runs the model on the CPU.
        columns: class of the run for each class of the model, -1 for none: int [classes].
        classes: of the run.
        flips: the order of the color channels differs.
    """

    def __init__(self, engine: ExportedEngine, columns: np.ndarray, classes: int, flips: bool) -> None:
        self._engine, self._flips = engine, flips
        order = np.argsort(columns, kind="stable")
        self._sources = order[columns[order] >= 0]  # those of one class of the run stand together
        self._targets, self._starts = np.unique(columns[self._sources], return_index=True)
        self._classes = classes

    def __call__(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to float32 [B, T, C], whose exponentials sum to 1.

        Raises:
            WeightsError: a probability is NaN, and no pixel is.
        """
        inputs = images.astype("float32").numpy()
        with _unchecked():
            probabilities = self._engine.probabilities(inputs[:, ::-1] if self._flips else inputs)
        if not np.isfinite(probabilities).all() and np.isfinite(inputs).all():
            raise WeightsError(
                f"{self._engine.place}: its outputs have NaN, so its files are damaged. Fix: copy them again.",
                code="not_finite",
            )
        chosen = np.full([*probabilities.shape[:2], self._classes], _LEAST)
        summed = np.add.reduceat(probabilities[..., self._sources], self._starts, axis=-1)
        chosen[..., self._targets] = np.maximum(summed, _LEAST)
        return paddle.to_tensor(np.log(chosen / chosen.sum(axis=-1, keepdims=True)))
