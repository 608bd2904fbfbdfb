"""The networks, losses, decoder and metric of a dry step, as the host calls them; each names itself if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ppocr_ext.base import Proxy
from ppocr_ext.base.parts import BRANCH_ROWS, LIST_LOSSES, LOSS_ROWS, LossRow
from ppocr_ext.check.findings import Findings, KeyPath
from ppocr_ext.config import Config, named_items
from ppocr_ext.data.batches import MULTI, BatchLayout
from ppocr_ext.errors import ConfigError, DataError, PPOCRExtError
from ppocr_ext.losses import LossContext, build_loss, required_outputs
from ppocr_ext.losses.base_loss import OutputRef
from ppocr_ext.messages import did_you_mean, near_match
from ppocr_ext.modeling import networks_of
from ppocr_ext.modeling.features import feature_sizes
from ppocr_ext.modeling.necks import SequenceEncoder
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.dry_samples import DryBatch

_HEIGHTS = (32, 48, 64)  # of images that recognisers usually read
_TRANSFORMS = ("Train", "dataset", "transforms")
_TAUGHT = (BRANCH_ROWS["gtc"].head, BRANCH_ROWS["sar"].head)  # heads that read labels in training
_PARTS = {"transform": "Transform", "backbone": "Backbone", "neck": "Neck", "head": "Head"}
_ORDER = (
    "Fix: a MultiHead reads [image, label_ctc, label_gtc or label_sar, length, valid_ratio], made by MultiLabelEncode "
    "(`gtc_encode: NRTRLabelEncode` for NRTR); one head reads [image, label, length]."
)


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing in place of ``backward``, a step of the optimizer, or a function of the host that writes files."""


class StageFailed(Exception):  # noqa: N818 - it leaves the host's loop
    """A stage has failed, and is reported; the later stages need its result."""


class _Unbuilt(dict[Any, Any]):
    """The facts of networks that could not be built: a part that needs one of them is skipped."""

    def __contains__(self, key: object) -> bool:
        raise StageFailed


class DryStep:
    """The parts that are tried, and what is found.

    Attributes:
        context: of the run.
        config: resolved.
        model: the networks; None if they cannot be built.
        models: names of the sub-models; None for one network.
        findings: the issues.
        takes_labels: True if the host passes the labels to the networks.
    """

    def __init__(self, context: RunContext, model: nn.Layer | None, findings: Findings) -> None:
        self.context = context
        self.config = context.components
        self.model = model
        self.models: Sequence[str] | None = getattr(model, "model_name_list", None)
        self.findings = findings
        self.takes_labels = False

    def report_unknown_model(self, path: KeyPath, name: str) -> None:
        """Add the issue that Architecture.Models has no ``name``."""
        known = self.models or ()
        meant = did_you_mean(near_match(name, known))
        text = f"no such sub-model: {name!r} (Architecture.Models has {', '.join(known)}).{meant}"
        self.findings.error(path, "unknown_sub_model", text)

    def report_wrong_label(
        self, batch: DryBatch, reader: str, head: str, place: int, length: int | None = None
    ) -> bool:
        """Report the first label that ``reader`` would decode to another text than the label file has.

        Args:
            batch: as the loop gets it.
            reader: name of a loss or decoder.
            head: whose labels it reads: ``"ctc"``, ``"gtc"`` (NRTR) or ``"sar"``.
            place: the place of the labels in the batch.
            length: place of their lengths; see :meth:`DryBatch.texts_of`.

        Returns:
            True if there is one.
        """
        charset = self.context.charset
        texts = batch.texts_of(charset, head, place, length)
        for text, label in zip(texts, batch.texts, strict=True):
            folded = label.lower() if label is not None and charset.folds_case else label
            if folded is not None and text != "".join(c for c in folded if c in charset.characters):
                entry = f"entry {place + 1}" + (f" ({batch.keys[place]})" if len(batch.keys) > place else "")
                result = f"it decodes to {text!r}" if text is not None else "it is not such a label"
                self.findings.error(
                    batch.keys_path,
                    "label_mismatch",
                    f"{reader} reads {entry} of the batch as a label of {BRANCH_ROWS[head].encoder}, but {result} "
                    f"(expected {label!r}).\n  Kept: [{', '.join(batch.keys)}]. {_ORDER}",
                )
                return True
        return False


def _heights(network: Any, images: Any) -> str:
    """Return a sentence with heights of images of which the backbone of ``network`` makes one row of features."""
    fitting = []
    for height in _HEIGHTS:
        with suppress(Exception):  # it does not take this height
            rows = network.backbone(images[:, :, :1].expand([-1, -1, height, -1])).shape[2]
            fitting += [str(height)] if rows == 1 else []
    name = type(getattr(network, "backbone", None)).__name__
    return f" {name} makes one row of images of height {' or '.join(fitting)}." if fitting else ""


class Network(Proxy):
    """The networks as the host calls them; if they fail, the issue names the layer."""

    def __init__(self, step: DryStep, model: nn.Layer) -> None:
        super().__init__(model)
        self._step = step

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the networks."""
        self._step.takes_labels = "data" in kwargs
        try:
            return self.real(images, *args, **kwargs)
        except Exception as error:
            self._report(images, error)
            raise StageFailed from error

    def _report(self, images: Any, error: Exception) -> None:
        names = {id(layer): name for name, layer in self.real.named_sublayers()}
        call: Mapping[str, Any] = {"self": None, "inputs": [images]}
        for frame, _ in walk_tb(error.__traceback__):
            # Paddle's Layer.__call__ has the locals `self` and `inputs`. The innermost call comes last.
            values = frame.f_locals
            if frame.f_code.co_name == "__call__" and id(values.get("self")) in names and "inputs" in values:
                call = values
        name = names.get(id(call["self"]), "")
        shapes = [list(each.shape) for each in call["inputs"] if isinstance(each, paddle.Tensor)]
        sizes = f"input {', '.join(map(str, shapes))}"
        weight = getattr(call["self"], "weight", None)
        sizes += "" if weight is None else f", weight {list(weight.shape)}"
        path = self._path(name.split("."))
        step = self._step
        kept = BatchLayout.of_transforms(step.config.at(_TRANSFORMS, ()))
        is_taught = step.takes_labels and path[-1] in _TAUGHT and kept.image == 0
        if is_taught and kept.second_label != MULTI.second_label:
            is_kept = kept.second_label is not None
            code = "keep_keys_order" if is_kept else "labels_not_kept"
            what = "is in another place" if is_kept else "is not kept"
            keys = (*_TRANSFORMS, "KeepKeys", "keep_keys")
            step.findings.error(keys, code, f"{path[-1]} learns from a label that {what}. {_ORDER}")
            return
        # An error of this package has its own fix.
        fix = "" if isinstance(error, PPOCRExtError) else " Fix: give it options that fit its input."
        if type(call["self"]).__module__.startswith("ppocr."):
            fix = f" It is PaddleOCR's own: its options do not fit, or it does not run on Paddle {paddle.__version__}."
        if path[-1] == "Head" and shapes and len(shapes[0]) == 4:
            fix = " Fix: frames for this head, by `Neck: {name: SequenceEncoder, encoder_type: reshape}`."
        if isinstance(call["self"], SequenceEncoder):  # the features have several rows
            networks = networks_of(self.real)
            fix = _heights(networks.get(name.split(".")[0], networks.get(None)), images)
        mode = "training" if self.real.training else "evaluation"
        what = f"the network fails in {mode} at {name or 'its input'} ({sizes}).{fix}\n  "
        step.findings.raised(path, "network", error, what)

    def _path(self, names: list[str]) -> KeyPath:
        """Return the config path of the part of the network that contains a layer.

        Args:
            names: the names on the way to the layer, such as ``["Student", "head", "ctc_head"]``.
        """
        path: KeyPath = ("Architecture",)
        if names[0] in (self._step.models or ()):
            path = (*path, "Models", names[0])
            names = [*names[1:], ""]
        path = (*path, _PARTS[names[0]]) if names[0] in _PARTS else path
        heads = [row.head for row in BRANCH_ROWS.values() if len(names) > 1 and names[1] in row.layers]
        branch = (*path, "head_list", *heads)
        return branch if heads and self._step.config.node(branch) is not None else path


class Reader:
    """The decoder or the metric as the host calls it.

    Args:
        step: takes the issues.
        section: ``"PostProcess"`` or ``"Metric"``.
        reader: the decoder or the metric.
        batch: has the labels that a decoder reads.
    """

    def __init__(self, step: DryStep, section: str, reader: Any, batch: DryBatch) -> None:
        self._step = step
        self._section = section
        self._reader = reader
        self._batch = batch

    def __call__(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Decode the outputs of the networks, or measure the decoded texts."""
        if self._reader is None:  # it cannot be built, which is reported
            raise StageFailed
        options = self._step.config.at(self._section)
        name = str(options.get("name"))
        for head, row in BRANCH_ROWS.items():
            if name.endswith(row.decoder) and self._step.report_wrong_label(self._batch, name, head, 1):
                raise StageFailed
        try:
            return self._reader(outputs, *args, **kwargs)
        except Exception as error:
            key = options.get("key")
            parts = outputs.values() if isinstance(outputs, Mapping) else ()
            has_key = key is None or any(isinstance(each, Mapping) and key in each for each in parts)
            fix = _fitting(name, self._step.models)
            self._step.findings.raised(
                (self._section, "name" if has_key or fix else "key"),
                "metric" if self._section == "Metric" else "decoder",
                error,
                f"it cannot read {_described(outputs)}.{fix or ' Fix: check its keys.'}\n  ",
            )
            raise StageFailed from error

    def get_metric(self) -> Any:
        """Return the numbers of the metric, which must have the main indicator."""
        numbers = self._reader.get_metric()
        wanted = self._reader.main_indicator
        if wanted not in numbers:
            text = f"the metric has no {wanted!r} (found {', '.join(numbers)})."
            self._step.findings.error(("Metric", "main_indicator"), "bad_value", text)
            raise StageFailed
        return numbers

    def __getattr__(self, name: str) -> Any:
        return None if self._reader is None else getattr(self._reader, name)


class Losses:
    """The losses of a config, each built and called separately.

    Attributes:
        outputs: the outputs that they require.
    """

    def __init__(self, step: DryStep) -> None:
        self._step = step
        self.outputs: set[OutputRef] = set()
        self._losses: list[tuple[str, KeyPath, Any, Mapping[str, Any]]] = []
        whole = step.config.at("Loss").thaw()
        self._of_multi_head = whole.get("name") == "MultiLoss"
        if whole.get("name") not in LIST_LOSSES:
            self._build(str(whole.get("name")), ("Loss",), whole, whole)
            return
        for name, path in named_items(step.config, "Loss", "loss_config_list"):
            part = step.config.at(path)
            options = part.thaw() if isinstance(part, Config) else {}
            self._build(name, path, {**whole, "loss_config_list": [{name: options}]}, options)

    def _build(self, name: str, path: KeyPath, config: dict[str, Any], options: Mapping[str, Any]) -> None:
        step = self._step
        known = step.models
        sizes = _Unbuilt() if step.model is None else feature_sizes(step.model)
        try:
            loss = build_loss(config, LossContext(step.context.charset, sizes))
            outputs = required_outputs(loss) or ()
        except StageFailed:
            return
        except Exception as error:
            step.findings.raised(path, "loss", error, "it cannot be built: ")
            return
        unknown = sorted({str(model) for model, _ in outputs if known and model not in (None, *known)})
        keys = [key for key in ("model_name_list", "model_name_pairs") if key in options]
        for model in unknown:
            step.report_unknown_model((*path, *keys[:1]), model)
        if not unknown:
            self.outputs |= {*outputs}
            self._losses.append((name, path, loss, options))

    def __call__(self, batch: DryBatch, predictions: Any, entries: Any) -> dict[str, Any]:
        """Call each loss, and compare the label that it reads with the label file; return a loss for the host."""
        if all(type(loss).__module__.startswith("ppocr_ext.") for _, _, loss, _ in self._losses):
            self._check_logits(predictions, ())  # a loss of a plugin may want probabilities
        for name, path, loss, options in self._losses:
            error: Exception | None = None
            try:
                loss(predictions, entries)
            except Exception as raised:
                error = raised
            # After a ConfigError an output is missing, and the loss would read the label of another head.
            if not isinstance(error, ConfigError) and self._report_label(batch, name, options):
                continue
            if error is not None:
                where = batch.keys_path if isinstance(error, DataError) else path
                what = "it fails on the outputs of the networks: "
                self._step.findings.raised(where, "loss", error, what)
        if self._of_multi_head and not isinstance(predictions, dict):
            raise StageFailed  # with a MultiLoss, PaddleOCR's loop reads the text from the output `ctc`
        return {"loss": SimpleNamespace(shape=[1], numpy=lambda: np.zeros(1), backward=nothing)}

    def _report_label(self, batch: DryBatch, name: str, options: Mapping[str, Any]) -> bool:
        """Report a label that the loss reads as another text; return True if there is one.

        A loss finds its label by the position in the batch, so it may read the label of another head.
        """
        row = LOSS_ROWS.get(name, LossRow())
        head = row.branch_with(options)
        # A CenterLoss without `multi_head` finds its label by the outputs.
        if not head or row.is_of_frames(options) or (row.is_center and "multi_head" not in options):
            return False
        both = self._of_multi_head or bool(options.get("multi_head"))
        place, length = (1 if head == "ctc" else 2, 3) if both else (1, 2)
        return self._step.report_wrong_label(batch, name, head, place, length)

    def _check_logits(self, output: Any, path: KeyPath) -> None:
        """Report an output of a head that went through a softmax, which the losses apply themselves."""
        charset = self._step.context.charset
        if isinstance(output, Mapping):
            for key, each in output.items():
                self._check_logits(each, (*path, str(key)))
        elif isinstance(output, tuple | list) and output:  # return_feats: (features, logits)
            self._check_logits(output[-1], path)
        elif getattr(output, "ndim", 0) == 3 and output.shape[-1] in (charset.ctc_classes, charset.nrtr_rows):
            rows = output.astype("float32").numpy()
            if rows.min() >= 0 and abs(rows.sum(-1) - 1).max() < 1e-3:
                model = ("Models", path[0]) if path and path[0] in (self._step.models or ()) else ()
                text = f"{'.'.join(path)} {list(output.shape)} has probabilities in training, but losses take logits."
                where = ("Architecture", *model, "Head")
                self._step.findings.error(where, "not_logits", f"{text} Fix: remove the softmax.")


def _fitting(name: str, models: Sequence[str] | None) -> str:
    """Return which decoder or metric to use if ``name`` is for sub-models and there are none, or the reverse."""
    several = models is not None
    if name.startswith("Distillation") == several:
        return ""
    names = {"RecMetric": "DistillationMetric", "DistillationMetric": "RecMetric"}
    other = names.get(name, f"Distillation{name}" if several else name.removeprefix("Distillation"))
    return f" {name} is for {'one network' if several else 'sub-models'}. Fix: use {other}."


def _described(value: Any) -> str:
    """Return shapes and types of an output, for a message."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_described(each)}" for key, each in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_described, value[:2]))}{', …' if len(value) > 2 else ''}]"
    return str(list(value.shape)) if hasattr(value, "shape") else type(value).__name__
