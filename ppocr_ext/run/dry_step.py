"""Run one step on two samples before a run, so that parts of its config that do not fit are found at once.

The host's own loops run over these samples. Transforms, collate function, networks, losses, decoder and metric are
stages of their own, so several problems may be found at once; each names the part of the config that fails.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.utils import unique_name

from ppocr_ext.base.parts import BRANCH_ROWS, LIST_LOSSES, LOSS_ROWS, LossRow
from ppocr_ext.charset import Charset
from ppocr_ext.check.files import no_log
from ppocr_ext.config import Config, load, named_items, with_class_counts
from ppocr_ext.config.node import COMPUTED, dotted
from ppocr_ext.data.batches import BatchLayout
from ppocr_ext.errors import ConfigError, DataError, PPOCRExtError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.losses import build_loss, required_outputs
from ppocr_ext.losses.base_loss import OutputRef
from ppocr_ext.messages import did_you_mean, near_match
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import EVAL
from ppocr_ext.modeling.necks import narrow_necks
from ppocr_ext.optim.optimizers import match_patterns
from ppocr_ext.run.dry_samples import SILENT, ConfigPath, DryBatch, DrySection, described_error
from ppocr_ext.run.frame_counts import left_as_it_was
from ppocr_ext.run.freezing import with_features
from ppocr_ext.run.host_config import complete, decoder_models, host_config
from ppocr_ext.run.train_setup import loss_context

_SECTIONS = ("Architecture", "Loss", "Train", "Eval", "PostProcess", "Metric")
_NEVER = 10**9
_TRANSFORMS = ("Train", "dataset", "transforms")
_TAUGHT = (BRANCH_ROWS["gtc"].head, BRANCH_ROWS["sar"].head)  # heads that read labels in training
_PARTS = {"transform": "Transform", "backbone": "Backbone", "neck": "Neck", "head": "Head"}
_ORDER = (
    "Fix: a MultiHead reads [image, label_ctc, label_gtc or label_sar, length, valid_ratio], made by MultiLabelEncode "
    "(`gtc_encode: NRTRLabelEncode` for NRTR); one head reads [image, label, length]."
)


def dry_step(
    config: Config,
    charset: Charset,
    host: Host,
    model: nn.Layer,
    modes: Sequence[str],
    seed: int,
    say: Callable[[str], None],
) -> list[Issue]:
    """Return the issues that one step on two samples of each of ``modes`` shows.

    Weights, buffers, modes and generators are restored, and nothing is written into the run folder. Features and
    evaluated sub-models are requested as in the run. Losses, decoder and metric are built anew, so those of the run
    keep their state. No collective is called.

    Args:
        config: resolved, with class counts.
        charset: its dictionary.
        host: opened.
        model: the networks, not wrapped, with any weights.
        modes: ``"Train"``, ``"Eval"`` or both.
        seed: the seed of the datasets.
        say: called with a sentence if samples are drawn because none can be read.
    """
    step = DryStep(config, charset, model, host)
    with ExitStack() as stack:
        stack.enter_context(left_as_it_was(model))
        stack.enter_context(_silent(host))
        # Without it, the names that Paddle generates for the run's parameters would count those of this step.
        stack.enter_context(unique_name.guard())
        stack.enter_context(paddle.no_grad())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ppocr_ext_")))
        batches = {
            mode: DrySection(config, mode, charset, host, folder, step.report).batch(seed) for mode in modes
        }
        if "Train" in modes:
            step.match_parts()
            for text in narrow_necks(model, charset.ctc_classes):
                step.issues.append(Issue("narrow_neck", "warning", "Architecture", "", text))
        for mode, batch in batches.items():
            if batch is not None and batch.is_uniform:
                text = "the network sees no contrast in the first images. Fix: normalise once (RecResizeImg does it)."
                step.issues.append(Issue("uniform_images", "warning", f"{mode}.dataset.transforms", "", text))
        step.run(batches.get("Train"), batches.get("Eval"))
    drawn = [mode for mode, batch in batches.items() if batch is not None and batch.drawn]
    if drawn:
        say(f"{' and '.join(drawn)}: no sample can be read, so the dry step drew two.")
    return list(dict.fromkeys(step.issues))


def same_as_before(config: Config, charset: Charset, checkpoint: Path) -> bool:
    """Return True if the run of ``checkpoint`` had the same data, networks, losses, decoder and metric."""
    try:
        before = load([checkpoint.parent / "config.yml"])
        before = with_class_counts(complete(before, charset), charset)
    except (PPOCRExtError, OSError):
        return False
    return all(before.at(name, None) == config.at(name, None) for name in _SECTIONS)


@contextmanager
def _silent(host: Host) -> Iterator[None]:
    """Log and print nothing, since the run logs the same again, and some of the host's transforms print."""
    before = host.logger.disabled
    host.logger.disabled = True
    try:
        with no_log(), warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        host.logger.disabled = before


class _StageFailed(Exception):  # noqa: N818 - it leaves the host's loop
    """A stage has failed, and is reported; the later stages need its result."""


class _Batches(list[Any]):
    """A list of batches in place of a loader, for the host."""

    need_reset = False
    dataset = property(lambda self: self)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Replace ``backward``, a step of the optimizer, and functions of the host that write files."""


class DryStep:
    """Run the host's loops over one batch, and collect issues.

    Attributes:
        config: resolved.
        charset: its dictionary.
        model: the networks.
        host: opened.
        models: names of the sub-models; None for one network.
        issues: found so far.
        takes_labels: True if the host passes the labels to the networks.
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
        """Add an issue at ``path``, with the place of the value there or of the nearest one above it."""
        above = (path[:end] for end in range(len(path), 0, -1))
        place = next(
            (self.config.place(each) for each in above if self.config.node(each) is not None), COMPUTED
        )
        where = "" if place == COMPUTED else place.text
        message = message.removeprefix(f"{dotted(path)}: ")
        self.issues.append(Issue(code, "error", dotted(path), where, message))

    def report_error(self, stage: str, path: ConfigPath, error: Exception, what: str = "") -> None:
        """Add the issue that a stage raised ``error``; an error of this package has its own code and text."""
        ours = isinstance(error, PPOCRExtError) and stage != "network"
        code = getattr(error, "code", "error") if isinstance(error, PPOCRExtError) else "error"
        text = f"{'' if ours else what}{described_error(error)}"
        self.report(f"{stage}_failed" if code == "error" else code, path, text)

    def report_unknown_model(self, path: ConfigPath, name: str) -> None:
        """Add the issue that Architecture.Models has no ``name``."""
        known = self.models or ()
        meant = did_you_mean(near_match(name, known))
        text = f"no such sub-model: {name!r} (Architecture.Models has {', '.join(known)}).{meant}"
        self.report("unknown_sub_model", path, text)

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
        texts = batch.texts_of(self.charset, head, place, length)
        for text, label in zip(texts, batch.texts, strict=True):
            folded = label.lower() if label is not None and self.charset.folds_case else label
            if folded is not None and text != "".join(c for c in folded if c in self.charset.characters):
                entry = f"entry {place + 1}" + (f" ({batch.keys[place]})" if len(batch.keys) > place else "")
                result = f"it decodes to {text!r}" if text is not None else "it is not such a label"
                self.report(
                    "label_mismatch",
                    batch.keys_path,
                    f"{reader} reads {entry} of the batch as a label of {BRANCH_ROWS[head].encoder}, but {result} "
                    f"(expected {label!r}).\n  Kept: [{', '.join(batch.keys)}]. {_ORDER}",
                )
                return True
        return False

    def match_parts(self) -> None:
        """Add an issue for each pattern of ``Global.freeze`` and ``Optimizer.lr_mult`` that matches no parameter."""
        patterns: dict[ConfigPath, str] = {
            ("Global", "freeze", str(index)): pattern
            for index, pattern in enumerate(self.config.settings.freeze or ())
        }
        rates = self.config.at("Optimizer.lr_mult", None) or ()
        patterns |= {("Optimizer", "lr_mult", str(pattern)): str(pattern) for pattern in rates}
        for path, pattern in patterns.items():
            try:
                match_patterns(self.model, [pattern], dotted(path))
            except ConfigError as error:
                self.report(error.code, path, str(error))

    def run(self, train: DryBatch | None, evaluate: DryBatch | None) -> None:
        """Run ``program.train`` and ``program.eval`` over the batches, if there are any."""
        stage = "PostProcess"
        try:
            options = self.config.at(stage).thaw()
            decoder = self.host.build_post_process(options, self.config.at("Global").thaw(), self.charset)
            stage = "Metric"
            metric = build_metric(self.config.at(stage).thaw(), self.charset.has_space)
        except Exception as error:
            self.report_error("build", (stage,), error)
            return
        for loop, batch in ((self._train, train), (self._evaluate, evaluate)):
            if batch is not None:
                # The host leaves out the last batch on Windows.
                batches = _Batches([batch.entries] * (2 if os.name == "nt" else 1))
                with suppress(_StageFailed):
                    reader = _Reader(self, "PostProcess", decoder, batch)
                    loop(batch, batches, reader, _Reader(self, "Metric", metric, batch))

    def _train(self, batch: DryBatch, batches: _Batches, decoder: Any, metric: Any) -> None:
        """Call ``program.train`` with a loss whose ``backward`` does nothing."""
        plain = host_config(self.config, eval_steps=(_NEVER, _NEVER))
        plain["Global"] |= {"epoch_num": 1, "calc_epoch_interval": 1, "uniform_output_enabled": False}
        plain["Global"] |= {"print_batch_step": _NEVER, "save_epoch_step": _NEVER, "save_model_dir": "."}
        plain["profiler_options"] = None
        losses = _Losses(self, batch)
        network = _Network(self, with_features(self.model, losses.outputs))
        optimizer = SimpleNamespace(get_lr=lambda: 0.0, step=_nothing, clear_grad=_nothing)
        parts: tuple[Any, ...] = (network, losses, optimizer, 0.0, decoder, metric, {}, SILENT, 1)
        replacements = {"save_model": _nothing, "export": _nothing}
        self.host.train(plain, batches, _Batches(), "cpu", *parts, replacements=replacements)

    def _evaluate(self, batch: DryBatch, batches: _Batches, decoder: Any, metric: Any) -> None:
        """Call ``program.eval`` with the sub-models that the decoder reads."""
        names = decoder_models(self.config)
        model = self.model
        if names is not None and self.models is not None:
            for name in set(names) - set(self.models):
                self.report_unknown_model(("PostProcess", "model_name"), name)
                raise _StageFailed
            model = model.using(evaluate=dict.fromkeys(names, EVAL))
        model_type = self.config.at("Architecture.model_type", None)
        network = _Network(self, model)
        self.host.evaluate(network, batches, decoder, metric, model_type, extra_input=self.takes_labels)


class _Network:
    """The networks as the host calls them; if they fail, the issue names the layer."""

    def __init__(self, step: DryStep, model: nn.Layer) -> None:
        self._step = step
        self._model = model

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the networks."""
        self._step.takes_labels = "data" in kwargs
        try:
            return self._model(images, *args, **kwargs)
        except Exception as error:
            self._report(images, error)
            raise _StageFailed from error

    def _report(self, images: Any, error: Exception) -> None:
        names = {id(layer): name for name, layer in self._model.named_sublayers()}
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
        if step.takes_labels and path[-1] in _TAUGHT and kept.image == 0 and kept.second_label is None:
            message = f"{path[-1]} learns from a label that is not kept. {_ORDER}"
            step.report("labels_not_kept", (*_TRANSFORMS, "KeepKeys", "keep_keys"), message)
            return
        # An error of this package has its own fix.
        fix = "" if isinstance(error, PPOCRExtError) else " Fix: give it options that fit its input."
        mode = "training" if self._model.training else "evaluation"
        what = f"the network fails in {mode} at {name or 'its input'} ({sizes}).{fix}\n  "
        step.report_error("network", path, error, what)

    def _path(self, names: list[str]) -> ConfigPath:
        """Return the config path of the part of the network that contains a layer.

        Args:
            names: the names on the way to the layer, such as ``["Student", "head", "ctc_head"]``.
        """
        path: ConfigPath = ("Architecture",)
        if names[0] in (self._step.models or ()):
            path = (*path, "Models", names[0])
            names = [*names[1:], ""]
        path = (*path, _PARTS[names[0]]) if names[0] in _PARTS else path
        heads = [row.head for row in BRANCH_ROWS.values() if len(names) > 1 and names[1] in row.layers]
        branch = (*path, "head_list", *heads)
        return branch if heads and self._step.config.node(branch) is not None else path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Reader:
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
        options = self._step.config.at(self._section)
        name = str(options.get("name"))
        for head, row in BRANCH_ROWS.items():
            if name.endswith(row.decoder) and self._step.report_wrong_label(self._batch, name, head, 1):
                raise _StageFailed
        try:
            return self._reader(outputs, *args, **kwargs)
        except Exception as error:
            key = options.get("key")
            parts = outputs.values() if isinstance(outputs, Mapping) else ()
            has_key = key is None or any(isinstance(each, Mapping) and key in each for each in parts)
            fix = _fitting(name, self._step.models)
            self._step.report_error(
                "metric" if self._section == "Metric" else "decoder",
                (self._section, "name" if has_key or fix else "key"),
                error,
                f"it cannot read {_described(outputs)}.{fix or ' Fix: check its keys.'}\n  ",
            )
            raise _StageFailed from error

    def get_metric(self) -> Any:
        """Return the numbers of the metric, which must have the main indicator."""
        numbers = self._reader.get_metric()
        wanted = self._reader.main_indicator
        if wanted not in numbers:
            text = f"the metric has no {wanted!r} (found {', '.join(numbers)})."
            self._step.report("bad_value", ("Metric", "main_indicator"), text)
            raise _StageFailed
        return numbers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class _Losses:
    """The losses of a config, each built and called separately.

    Attributes:
        outputs: the outputs that they require.
    """

    def __init__(self, step: DryStep, batch: DryBatch) -> None:
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
            part = step.config.at(path)
            options = part.thaw() if isinstance(part, Config) else {}
            self._build(name, path, {**whole, "loss_config_list": [{name: options}]}, options)

    def _build(self, name: str, path: ConfigPath, config: dict[str, Any], options: Mapping[str, Any]) -> None:
        step = self._step
        known = step.models
        try:
            loss = build_loss(config, loss_context(step.model, step.charset))
            outputs = required_outputs(loss) or ()
        except Exception as error:
            step.report_error("loss", path, error, "it cannot be built: ")
            return
        unknown = sorted({str(model) for model, _ in outputs if known and model not in (None, *known)})
        keys = [key for key in ("model_name_list", "model_name_pairs") if key in options]
        for model in unknown:
            step.report_unknown_model((*path, *keys[:1]), model)
        if not unknown:
            self.outputs |= {*outputs}
            self._losses.append((name, path, loss, options))

    def __call__(self, predictions: Any, entries: Any) -> dict[str, Any]:
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
            if not isinstance(error, ConfigError) and self._report_label(name, options):
                continue
            if error is not None:
                where = self._batch.keys_path if isinstance(error, DataError) else path
                self._step.report_error("loss", where, error, "it fails on the outputs of the networks: ")
        return {"loss": SimpleNamespace(shape=[1], numpy=lambda: np.zeros(1), backward=_nothing)}

    def _report_label(self, name: str, options: Mapping[str, Any]) -> bool:
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
        return self._step.report_wrong_label(self._batch, name, head, place, length)

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
                text = f"{'.'.join(path)} {list(output.shape)} has probabilities in training, but losses take logits."
                where = ("Architecture", *model, "Head")
                self._step.report("not_logits", where, f"{text} Fix: remove the softmax.")


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
