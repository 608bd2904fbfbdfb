"""Answer for a frozen teacher from its cache during training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle
from paddle import Tensor, nn
from paddle.nn.functional import softmax

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import BFLOAT16, FLOAT32
from ppocr_ext.errors import DataError
from ppocr_ext.losses import CombinedLoss, Loss, required_outputs
from ppocr_ext.losses.base_loss import to_tensor
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.digests import code_digest
from ppocr_ext.modeling.head_request import HeadRequest, is_for_losses
from ppocr_ext.teacher_cache.store import (
    STORED_BRANCHES,
    Store,
    data_digest,
    dense_logits,
    input_key,
    teacher_digest,
)

_FEW = 8  # samples that are compared with the live teacher
# Share of the probability of a row that may be in other classes than the live teacher's. float16 changes below 0.001.
_MOST_APART = {FLOAT32: 0.01, BFLOAT16: 0.05}
LENGTH = 2  # place of the lengths in the labels that a MultiHead gets: CTC's, NRTR's, length, …


class CachedTeacher:
    """Return the stored outputs of a sub-model. The live sub-model answers if a sample of the batch is not stored.

    Args:
        store: the cache.
        model: the sub-model.
        live: calls the sub-model.

    Attributes:
        name: the name of the sub-model.
        is_live: True if the live teacher answered for the last batch.
        batches: number of training batches so far.
        live_batches: number of batches that the live teacher answered.
        lacking: number of samples in these batches that were not stored.
    """

    def __init__(self, store: Store, model: BaseModel, live: Callable[..., Any]) -> None:
        self._store = store
        self._model = model
        self._live = live
        self._others: frozenset[str] = getattr(model.head, "branches", frozenset()) - set(
            store.facts.branches
        )
        self.name = store.facts.model
        self.batches = self.live_batches = self.lacking = 0
        self.is_live = False

    def __call__(
        self, images: Tensor, data: Sequence[Tensor] | None = None, request: HeadRequest | None = None
    ) -> Any:
        """Return outputs in the form of the sub-model's own, with dense logits for each branch."""
        if request is None:
            return self._live(images, data)
        if not is_for_losses(request) or not request.for_training or request.branches & self._others:
            return self._live(images, data, request)
        self.batches += 1
        entries = [self._store.find(key) for key in input_keys(images, data, self._store.facts.branches)]
        lacking = entries.count(None)
        self.is_live = lacking > 0
        if self.is_live:
            if not self.live_batches:
                LOG.warning(
                    "teacher cache: %d of %d samples of this batch are not in it; the live teacher answers for such "
                    "batches, which are counted. Other images, transforms, versions or processors are the causes.",
                    lacking, len(entries),
                )  # fmt: skip
            self.live_batches += 1
            self.lacking += lacking
            return self._live(images, data, request)
        logits = {
            name: self._logits(name, entries, data)
            for name in request.branches & set(self._store.facts.branches)
        }
        if self.batches - self.live_batches == 1:
            self._compare(
                logits, images[:_FEW], None if data is None else [each[:_FEW] for each in data], request
            )
        head = logits if hasattr(self._model.head, "branches") else logits["ctc"]
        return {"head_out": head} if self._model.return_all_feats else head

    @paddle.no_grad()
    def _compare(
        self,
        logits: Mapping[str, Tensor],
        images: Tensor,
        data: Sequence[Tensor] | None,
        request: HeadRequest,
    ) -> None:
        """Compare the first entries with the outputs of the live sub-model.

        Raises:
            DataError: they differ.
        """
        facts, live = self._store.facts, branch_logits(self._model(images, data, request), logits)
        apart = max(_apart(logits[name], each) for name, each in live.items())
        if apart > (most := _MOST_APART[facts.dtype]):
            raise DataError(
                f"Train.teacher_cache: {self._store.folder} has {apart:.1%} of the probability in other classes than "
                f"the live {facts.model} (limit {most:.0%}; it was built with "
                f"{'this' if facts.code == code_digest(self._model) else 'other'} code). Fix: build it anew: ppocr-ext "
                f"cache-teacher -c CONFIG --output NEW_DIR --views {facts.views.count}",
                code="other_teacher",
            )

    def _logits(self, branch: str, entries: Sequence[Any], data: Any) -> Any:
        # NRTR has as many rows as the longest label of the batch.
        rows = None if branch == "ctc" else int(data[LENGTH].max()) + 1
        kept = [entry[branch] for entry in entries]
        return dense_logits(kept, self._store.facts.branches[branch].classes, rows)


def branch_logits(output: Any, branches: Iterable[str]) -> dict[str, Any]:
    """Return the logits [B, N, C] of the branches from the output of a sub-model."""
    head = output["head_out"] if isinstance(output, dict) and "head_out" in output else output
    return {
        name: to_tensor(head[name] if isinstance(head, dict) else head, name) for name in sorted(branches)
    }


def _apart(logits: Tensor, live: Tensor) -> float:
    """Return the mean share of the probability that other classes have; 1 if the numbers of rows differ."""
    logits = logits[: live.shape[0], : live.shape[1]]  # NRTR has as many rows as the longest of these labels
    if logits.shape != live.shape:
        return 1.0
    return float((softmax(logits) - softmax(live.astype("float32"))).abs().sum(axis=-1).mean()) / 2


def input_keys(images: Tensor, data: Sequence[Tensor] | None, branches: Mapping[str, Any]) -> list[bytes]:
    """Return the key of each sample of a batch.

    Args:
        images: float32 [B, C, H, W].
        data: the labels of the batch; NRTR reads its label.
        branches: the branches of the cache.
    """
    labels = [each.numpy() for each in data[:LENGTH]] if data and "gtc" in branches else []
    pixels = images.astype("float32").numpy()
    return [input_key(pixels[row], [label[row] for label in labels]) for row in range(len(pixels))]


def cached_teacher(
    folder: Path, model: nn.Layer, loss: nn.Layer, config: Config, charset: str, weights: Mapping[str, str]
) -> CachedTeacher | None:
    """Open the cache of a run.

    Args:
        folder: the folder of the cache.
        model: the networks with their weights.
        loss: the loss of the run.
        config: resolved.
        charset: digest of the dictionary.
        weights: digest of each frozen sub-model.

    Returns:
        The stored teacher. None, with a warning, if a loss needs outputs that the cache lacks, so that the live teacher
        must answer.

    Raises:
        DataError: there is no cache, or it was built with another teacher or dictionary.
    """
    store = Store(folder)
    facts, name = store.facts, store.facts.model
    has_it = isinstance(model, DistillationModel) and name in model.frozen and facts.charset == charset
    if not has_it or facts.teacher != teacher_digest(config, name, weights[name]):
        raise DataError(
            f"Train.teacher_cache: {folder} was built with another teacher than this config has: a frozen {name} with "
            f"the same weights, architecture and dictionary is expected. Fix: build a cache in a new folder (ppocr-ext "
            f"cache-teacher), or remove Train.teacher_cache.",
            code="other_teacher",
        )
    against = reasons_against(loss, name, store)
    if against:
        lines = "\n".join(f"  {line}" for line in against)
        LOG.warning(
            "Train.teacher_cache: the cache cannot serve these losses, so the live %s answers for all batches, and the "
            "%d views of each sample repeat for nothing. Fix: remove Train.teacher_cache, or build a cache with this "
            "config.\n%s", name, facts.views.count, lines,
        )  # fmt: skip
        return None
    if facts.data != data_digest(config):
        LOG.warning(
            "Train.teacher_cache: Train.dataset, Train.sampler or a list of Train.mix differs from that of the cache: "
            "samples that this changes are not in it. To store them, build a cache in a new folder."
        )
    LOG.info(
        "teacher cache %s: %d entries, views of each sample: %d, computed in %s",
        folder, store.entries, facts.views.count, facts.dtype,
    )  # fmt: skip
    return CachedTeacher(store, model.models[name], model.caller(name))


# Limit of the mean probability of the classes that are not kept. Above it, a loss of top classes differs by 1e-3.
MOST_DROPPED = 5e-4


def readings(loss: nn.Layer, model: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (name of the loss, output, whether it needs all classes) for each output of a sub-model that a loss reads.

    The output is ``"?"`` if a loss does not declare what it reads.
    """
    parts = [part for _, _, part in loss.losses] if isinstance(loss, CombinedLoss) else [loss]
    for part in parts:
        name, refs = type(part).__name__, required_outputs(part)
        everything = not isinstance(part, Loss) or part.needs_all_classes()
        for of, output in [(model, "?")] if refs is None else sorted(refs, key=str):
            if of == model:
                yield name, output, everything


def branches_to_keep(loss: nn.Layer, model: str) -> dict[str, bool]:
    """Return the branches that a cache can store for the losses, and whether all their classes are needed."""
    kept: dict[str, bool] = {}
    for _, output, everything in readings(loss, model):
        if output in STORED_BRANCHES:
            kept[output] = kept.get(output, False) or everything
    return kept


def reasons_against(loss: nn.Layer, model: str, store: Store | None = None) -> list[str]:
    """Return a line for each loss that a cache cannot serve; empty if it serves all.

    Args:
        loss: the loss of the run.
        model: the sub-model.
        store: the cache; None for a future cache with the branches of :func:`branches_to_keep`.
    """
    found = []
    for name, output, everything in readings(loss, model):
        if output not in STORED_BRANCHES:
            what = "does not say what it reads" if output == "?" else f"reads {model}'s {output}"
            found.append(f"{name} {what}; a cache has the logits of {' and '.join(STORED_BRANCHES)} only")
            continue
        form = None if store is None else store.facts.branches.get(output)
        if store is None or (form is not None and form.kept >= form.classes):
            continue
        if form is None:
            found.append(f"{name} reads {output}, which this cache lacks")
        elif everything:
            found.append(f"{name} needs all {form.classes:,} classes of {output} (found {form.kept} of them)")
        elif store.dropped(output) > MOST_DROPPED:
            found.append(
                f"{name} would differ by more than 1e-3: {store.dropped(output):.1e} of the probability of {output} "
                f"lies outside the {form.kept} classes kept (limit {MOST_DROPPED:.0e})"
            )
    return list(dict.fromkeys(found))
