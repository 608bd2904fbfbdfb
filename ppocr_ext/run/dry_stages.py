"""The networks, losses, decoder and metric as the dry step calls them, which name the part that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from traceback import walk_tb
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ppocr_ext.base.parts import BRANCHES, LIST_LOSSES, LOSSES, Loss
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.node import COMPUTED, dotted
from ppocr_ext.data.batches import BatchLayout
from ppocr_ext.errors import ConfigError, DataError, PPOCRExtError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.losses import build_loss, required_outputs
from ppocr_ext.losses.base_loss import OutputRef
from ppocr_ext.messages import did_you_mean, near_match
from ppocr_ext.run.dry_samples import ConfigPath, DryBatch, described_error
from ppocr_ext.run.train_setup import loss_context

_TRANSFORMS = ("Train", "dataset", "transforms")
_TAUGHT = (BRANCHES["gtc"].head, BRANCHES["sar"].head)  # heads that read labels in training
_PARTS = {"transform": "Transform", "backbone": "Backbone", "neck": "Neck", "head": "Head"}
_ORDER = (
    "Fix: a MultiHead reads [image, label_ctc, label_gtc or label_sar, length, valid_ratio], made by MultiLabelEncode "
    "(`gtc_encode: NRTRLabelEncode` for NRTR); one head reads [image, label, length]."
)


class DryIssues:
    """The issues of a dry step so far, and what its stages read.

    Attributes:
        config: resolved.
        charset: its dictionary.
        model: the networks.
        host: opened.
        models: names of the sub-models; None for one network.
        takes_labels: the host hands the labels to the networks.
    """

    def __init__(self, config: Config, charset: Charset, model: nn.Layer, host: Host) -> None:
        self.config = config
        self.charset = charset
        self.model = model
        self.host = host
        self.models: Sequence[str] | None = getattr(model, "model_name_list", None)
        self.issues: list[Issue] = []
        self.takes_labels = False

    def report(self, code: str, path: ConfigPath, message: str) -> None:
        """Add an issue with the place of the nearest value at or above ``path``."""
        above = (path[:end] for end in range(len(path), 0, -1))
        place = next(
            (self.config.place(each) for each in above if self.config.node(each) is not None), COMPUTED
        )
        where = "" if place == COMPUTED else place.text
        message = message.removeprefix(f"{dotted(path)}: ")
        self.issues.append(Issue(code, "error", dotted(path), where, message))

    def report_error(self, stage: str, path: ConfigPath, error: Exception, what: str = "") -> None:
        """Add the issue that a stage raised ``error``; one of ours has a code and says what is wrong."""
        ours = isinstance(error, PPOCRExtError)
        code = getattr(error, "code", "error")
        text = described_error(error) if ours and stage != "network" else f"{what}{described_error(error)}"
        self.report(code if ours and code != "error" else f"{stage}_failed", path, text)

    def report_unknown_model(self, path: ConfigPath, name: str) -> None:
        """Add the issue that Architecture.Models has no ``name``."""
        known = self.models or ()
        meant = did_you_mean(near_match(name, known))
        said = f"no such sub-model: {name!r} (Architecture.Models has {', '.join(known)}).{meant}"
        self.report("unknown_sub_model", path, said)


class StageFailed(Exception):  # noqa: N818 - caught where the host's loop is called
    """A stage failed and is reported, and what comes after it needs its result."""


class DryNetwork:
    """The networks as the host calls them; of a failing one the layer is named."""

    def __init__(self, step: DryIssues, model: nn.Layer) -> None:
        self._step = step
        self._model = model

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the networks."""
        self._step.takes_labels = "data" in kwargs
        try:
            return self._model(images, *args, **kwargs)
        except Exception as error:
            names = {id(layer): name for name, layer in self._model.named_sublayers()}
            # the variables `self` and `inputs` of Paddle's Layer.__call__, the innermost call last
            calls = [
                frame.f_locals
                for frame, _ in walk_tb(error.__traceback__)
                if frame.f_code.co_name == "__call__"
            ]
            calls = [each for each in calls if id(each.get("self")) in names and "inputs" in each]
            call: dict[str, Any] = calls[-1] if calls else {"self": None, "inputs": [images]}
            name = names.get(id(call["self"]), "")
            weight = getattr(call["self"], "weight", None)
            shapes = ", ".join(
                str(list(each.shape)) for each in call["inputs"] if isinstance(each, paddle.Tensor)
            )
            sizes = f"input {shapes}" + ("" if weight is None else f", weight {list(weight.shape)}")
            path = self._path(name.split("."))
            kept = BatchLayout.of_transforms(self._step.config.at(_TRANSFORMS, ()))
            if (
                self._step.takes_labels
                and path[-1] in _TAUGHT
                and kept.image == 0
                and kept.second_label is None
            ):
                message = f"{path[-1]} learns from a label that is not kept. {_ORDER}"
                self._step.report("labels_not_kept", (*_TRANSFORMS, "KeepKeys", "keep_keys"), message)
                raise StageFailed from error
            # an error of ours has a fix of its own
            fix = "" if isinstance(error, PPOCRExtError) else " Fix: give it options that fit its input."
            self._step.report_error(
                "network",
                path,
                error,
                f"the network fails in {'training' if self._model.training else 'evaluation'} at "
                f"{name or 'its input'} ({sizes}).{fix}\n  ",
            )
            raise StageFailed from error

    def _path(self, names: list[str]) -> ConfigPath:
        """Return the config path of the part that a layer, of these ``names``, belongs to."""
        path: ConfigPath = ("Architecture",)
        if names[0] in (self._step.models or ()):
            path = (*path, "Models", names[0])
            names = [*names[1:], ""]
        path = (*path, _PARTS[names[0]]) if names[0] in _PARTS else path
        heads = [row.head for row in BRANCHES.values() if len(names) > 1 and names[1] in row.layers]
        branch = (*path, "head_list", *heads)
        return branch if heads and self._step.config.node(branch) is not None else path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class DryReader:
    """The decoder or the metric as the host calls it.

    Args:
        step: takes the issues.
        section: ``"PostProcess"`` or ``"Metric"``.
        reader: the decoder or the metric.
        batch: whose labels a decoder reads.
    """

    def __init__(self, step: DryIssues, section: str, reader: Any, batch: DryBatch) -> None:
        self._step = step
        self._section = section
        self._reader = reader
        self._batch = batch
        self._options = step.config.at(section)

    def __call__(self, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Decode the outputs of the networks, or count what was decoded."""
        name = str(self._options.get("name"))
        key = self._options.get("key")
        for head in (head for head, row in BRANCHES.items() if name.endswith(row.decoder)):
            texts = decoded_labels(self._step.charset, head, self._batch, 1)
            if report_wrong_label(self._step, self._batch, name, head, 1, texts):
                raise StageFailed
        try:
            return self._reader(outputs, *args, **kwargs)
        except Exception as error:
            parts = outputs.values() if isinstance(outputs, Mapping) else ()
            fix = _fitting(name, self._step.models)
            lacks_key = key is not None and not any(
                isinstance(each, Mapping) and key in each for each in parts
            )
            path = (self._section, "key" if lacks_key and not fix else "name")
            self._step.report_error(
                "metric" if path[0] == "Metric" else "decoder",
                path,
                error,
                f"it cannot read {described(outputs)}.{fix or ' Fix: check its keys.'}\n  ",
            )
            raise StageFailed from error

    def get_metric(self) -> Any:
        """Return the numbers of the metric, which must have the main indicator."""
        numbers = self._reader.get_metric()
        wanted = self._reader.main_indicator
        if wanted not in numbers:
            self._step.report(
                "bad_value",
                ("Metric", "main_indicator"),
                f"the metric has no {wanted!r} (found {', '.join(numbers)}).",
            )
            raise StageFailed
        return numbers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class DryLosses:
    """The losses of a config, each built and called by itself.

    Attributes:
        outputs: that they require.
    """

    def __init__(self, step: DryIssues, batch: DryBatch) -> None:
        self._step = step
        self._batch = batch
        self.outputs: set[OutputRef] = set()
        self._losses: list[tuple[str, ConfigPath, Any, Mapping[str, Any]]] = []
        whole = step.config.at("Loss").thaw()
        self._of_multi_head = whole.get("name") == "MultiLoss"
        if whole.get("name") not in LIST_LOSSES:
            self._build(str(whole.get("name")), ("Loss",), whole, whole)
            return
        for name, path in named_items(step.config, "Loss", "loss_config_list"):
            given = step.config.at(path)
            options = given.thaw() if isinstance(given, Config) else {}
            self._build(name, path, {**whole, "loss_config_list": [{name: options}]}, options)

    def _build(self, name: str, path: ConfigPath, config: dict[str, Any], options: Mapping[str, Any]) -> None:
        step = self._step
        known = self._step.models
        try:
            loss = build_loss(config, loss_context(step.model, step.charset))
            outputs = required_outputs(loss) or ()
            unknown = sorted({str(model) for model, _ in outputs if known and model not in (None, *known)})
            for model in unknown:
                key = next((key for key in ("model_name_list", "model_name_pairs") if key in options), "")
                step.report_unknown_model((*path, key) if key else path, model)
            if not unknown:
                self.outputs |= {*outputs}
                self._losses.append((name, path, loss, options))
        except Exception as error:
            step.report_error("loss", path, error, "it cannot be built: ")

    def call(self, predictions: Any, entries: Any) -> None:
        """Call each loss, and compare the label that it reads with the label file."""
        if all(type(loss).__module__.startswith("ppocr_ext.") for _, _, loss, _ in self._losses):
            self._check_logits(predictions, ())  # a loss of a plugin may want probabilities
        for name, path, loss, options in self._losses:
            error: Exception | None = None
            try:
                loss(predictions, entries)
            except Exception as raised:
                error = raised
            # a ConfigError says that an output is not there, so that the label is read as another head's
            if not isinstance(error, ConfigError) and self._report_label(name, options):
                continue
            if error is not None:
                where = self._batch.keys_path if isinstance(error, DataError) else path
                self._step.report_error("loss", where, error, "it fails on the outputs of the networks: ")

    def _report_label(self, name: str, options: Mapping[str, Any]) -> bool:
        """Report a label that is not what the loss reads, by position; return whether it is not."""
        row = LOSSES.get(name, Loss())
        head = row.branch_with(options)
        # a CenterLoss without `multi_head` finds its label by the outputs
        if not head or row.is_of_frames(options) or (row.is_center and "multi_head" not in options):
            return False
        both = self._of_multi_head or bool(options.get("multi_head"))
        place, length = (1 if head == "ctc" else 2, 3) if both else (1, 2)
        texts = decoded_labels(self._step.charset, head, self._batch, place, length)
        return report_wrong_label(self._step, self._batch, name, head, place, texts)

    def _check_logits(self, output: Any, path: ConfigPath) -> None:
        """Report an output of a head that went through a softmax, which the losses apply themselves."""
        charset = self._step.charset
        if isinstance(output, Mapping):
            for key, each in output.items():
                self._check_logits(each, (*path, str(key)))
        elif isinstance(output, tuple | list) and output:  # return_feats: (features, logits)
            self._check_logits(output[-1], path)
        elif getattr(output, "ndim", 0) == 3 and output.shape[-1] in (charset.ctc_classes, charset.nrtr_rows):
            rows = output.astype("float32").numpy()
            if rows.min() >= 0 and abs(rows.sum(-1) - 1).max() < 1e-3:
                model = ("Models", path[0]) if path and path[0] in (self._step.models or ()) else ()
                said = f"{'.'.join(path)} {list(output.shape)} has probabilities in training, but losses take logits."
                self._step.report(
                    "not_logits", ("Architecture", *model, "Head"), f"{said} Fix: remove the softmax."
                )


def decoded_labels(
    charset: Charset, head: str, batch: DryBatch, place: int, length: int | None = None
) -> list[str | None]:
    """Return the texts of the labels of a batch, by the rule of PaddleOCR's encoder of ``head``.

    Args:
        charset: the dictionary.
        head: ``"ctc"``, ``"gtc"`` (NRTR) or ``"sar"``.
        batch: as the loop gets it.
        place: of the labels [B, L].
        length: place of their lengths, which a CTC loss reads; None: a label ends at its first blank.

    Returns:
        None for each label that the encoder cannot have made.
    """
    arrays = [each.numpy() if isinstance(each, paddle.Tensor) else None for each in batch.entries] + [
        None
    ] * 4
    labels = arrays[place]
    lengths = arrays[length or 0]
    if (
        labels is None
        or labels.ndim != 2
        or (head == "ctc" and length and np.size(np.asarray(lengths)) != len(labels))
    ):
        return [None] * len(batch.texts)
    begin, end = {"ctc": (0, 0), "gtc": (2, 3), "sar": (charset.ctc_classes,) * 2}[head]
    symbols = dict(enumerate(charset.characters, start={"ctc": 1, "gtc": 4, "sar": 0}[head]))
    texts: list[str | None] = []
    for number, row in enumerate(labels.tolist()):
        if head != "ctc":
            ids: list[Any] = row[1 : row.index(end, 1)] if row[0] == begin and end in row[1:] else [None]
        elif length is None or lengths is None:
            ids = row[: row.index(end)] if end in row else row
        else:
            ids = row[: int(lengths.reshape(-1)[number])]
        texts.append("".join(symbols[i] for i in ids) if symbols.keys() >= set(ids) else None)
    return texts


def report_wrong_label(
    step: DryIssues, batch: DryBatch, reader: str, head: str, place: int, texts: Sequence[str | None]
) -> bool:
    """Report the first label that decodes to another text than the label file has; return whether one does."""
    for text, label in zip(texts, batch.texts, strict=True):
        folded = label.lower() if label is not None and step.charset.folds_case else label
        if folded is not None and text != "".join(c for c in folded if c in step.charset.characters):
            entry = f"entry {place + 1}" + (f" ({batch.keys[place]})" if len(batch.keys) > place else "")
            said = f"it decodes to {text!r}" if text is not None else "it is not such a label"
            step.report(
                "label_mismatch",
                batch.keys_path,
                f"{reader} reads {entry} of the batch as a label of {BRANCHES[head].encoder}, but {said} "
                f"(expected {label!r}).\n  Kept: [{', '.join(batch.keys)}]. {_ORDER}",
            )
            return True
    return False


def _fitting(name: str, models: Sequence[str] | None) -> str:
    """Return which decoder or metric to use if ``name`` is for sub-models and there are none, or the reverse."""
    several = models is not None
    if name.startswith("Distillation") == several:
        return ""
    names = {"RecMetric": "DistillationMetric", "DistillationMetric": "RecMetric"}
    other = names.get(name, f"Distillation{name}" if several else name.removeprefix("Distillation"))
    return f" {name} is for {'one network' if several else 'sub-models'}. Fix: use {other}."


def described(value: Any) -> str:
    """Return shapes and types of an output, for a message."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(each)}" for key, each in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(described, value[:2]))}{', …' if len(value) > 2 else ''}]"
    return str(list(value.shape)) if hasattr(value, "shape") else type(value).__name__
