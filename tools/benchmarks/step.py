"""What a distillation step costs, as ratios measured in one run.

Steps on the same batch, taken in turns: ours as in a run, with its teacher compiled, not compiled, and from a teacher
cache; the *bare student* (its forward and backward pass and optimizer, without losses); the *bare sum* (the same and
the teacher's forward pass); and the step of a PaddleOCR checkout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from benchmarks.peer import imported, take_weights
from benchmarks.sizes import SIZES, charset_of
from benchmarks.table import Turns, processor, threads
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.inference import runners
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.io.resources import config_path
from ppocr_ext.loop.events import Position, StepDone
from ppocr_ext.loop.hooks.metrics_log import Window
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import TRAIN, build_model
from ppocr_ext.modeling.recompute import recompute_blocks
from ppocr_ext.optim import build_optimizer
from ppocr_ext.run.context import tune_cpu
from ppocr_ext.run.freezing import restrict_outputs
from ppocr_ext.run.model_wrappers import data_parallel
from ppocr_ext.teacher_cache.lookup import CachedTeacher
from ppocr_ext.teacher_cache.store import Store

Step = Callable[[], None]
WARM_UP = 2  # rounds: the first ones take memory from the system, for activations and then for the optimizer's moments
BARE_STUDENT, BARE_SUM = "bare student", "bare sum"
NETWORK, COMPILED = "ppocr_ext, teacher not compiled", "ppocr_ext"
BFLOAT16 = "ppocr_ext, teacher in bfloat16"
# with the extra package
OPENVINO, OPENVINO_BFLOAT16 = "ppocr_ext, teacher by OpenVINO", "ppocr_ext, teacher by OpenVINO in bfloat16"
_TEACHERS = {
    COMPILED: (runners.PADDLE, runners.FLOAT32),
    OPENVINO: (runners.OPENVINO, runners.FLOAT32),
    BFLOAT16: (runners.PADDLE, runners.BFLOAT16),
    OPENVINO_BFLOAT16: (runners.OPENVINO, runners.BFLOAT16),
}
CACHED, PEER = "ppocr_ext, teacher cache", "PaddleOCR"
RECOMPUTED = ", recomputed activations"  # added to the name of a kind of step
LENGTH = {"epochs": 10, "step_each_epoch": 1000}  # of the learning rate's schedule


def measure_step(
    size: str, batch: int, image: tuple[int, int] | None = None, rounds: int = 5, peer: str | None = None
) -> Turns:
    """Measure a distillation step.

    Args:
        size: key of ``SIZES``.
        batch: images of it.
        image: height and width in pixels.
        rounds: measured ones.
        peer: folder of a PaddleOCR checkout to measure too.
    """
    if paddle.get_device() == "cpu":
        tune_cpu()
    name, default_image = SIZES[size]
    height, width = image or default_image
    charset = charset_of(size)
    config = load([config_path(name)]).with_values({"Loss": losses_of_paddleocr()})
    config = with_class_counts(config, charset)
    samples = batch_of(config, charset, batch, height, width)
    steps = our_steps(config, samples)
    if peer is not None:
        steps[PEER] = peer_step(config, samples, Path(peer))
    setting = f"{size}: batch {batch}, {height}x{width}, {charset.ctc_classes} classes, {threads()}, "
    setting += f"Paddle {paddle.__version__} on {paddle.get_device()}, {processor()}, {rounds} rounds"
    return Turns(setting, take_turns(steps, rounds), "step", BARE_SUM)


def take_turns(kinds: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of :func:`timed_turns` by kind, without those of the processor."""
    return {kind: [wall for wall, _ in times] for kind, times in timed_turns(kinds, rounds).items()}


def timed_turns(
    kinds: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Do each kind of work in each round, after :data:`WARM_UP` rounds.

    Returns:
        By kind, for each round its seconds, and the processor's seconds of all threads of this process.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for turn in range(rounds + WARM_UP):
        for name, work in kinds.items():
            began, processor_began = time.perf_counter(), time.process_time()
            work()
            if paddle.get_device() != "cpu":
                paddle.device.synchronize()
            if turn >= WARM_UP:
                times[name].append((time.perf_counter() - began, time.process_time() - processor_began))
    return times


def losses_of_paddleocr() -> dict[str, Any]:
    """Return a section ``Loss`` whose losses PaddleOCR has too."""
    losses: dict[str, Any] = load([config_path("svtrv2/distill.yml")]).at("Loss").thaw()
    return losses


def batch_of(config: Config, charset: Charset, size: int, height: int, width: int) -> list[paddle.Tensor]:
    rng = np.random.default_rng(0)
    longest = int(config.at("Global.max_text_length"))
    lengths = rng.integers(min(4, longest - 2), longest - 1, size)
    ctc = np.zeros((size, longest), "int64")
    gtc = np.zeros((size, longest), "int64")
    for row, length in enumerate(lengths):
        ids = rng.integers(1, charset.ctc_classes, length)
        ctc[row, :length] = ids
        gtc[row, : length + 2] = [2, *(ids + 3), 3]  # <s>, characters after four specials, </s>
    image = rng.standard_normal((size, 3, height, width)).astype("float32")
    arrays = [image, ctc, gtc, lengths.astype("int64"), np.ones(size, "float32")]
    return [paddle.to_tensor(array) for array in arrays]


def installed(kinds: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return the kinds whose engine and type this machine can compute."""
    engines = (runners.PADDLE, *runners.other_engines(runners.FLOAT32))
    types = [runners.FLOAT32] + [runners.BFLOAT16] * runners.has_bfloat16()
    return {kind: pair for kind, pair in kinds.items() if pair[0] in engines and pair[1] in types}


def our_steps(config: Config, batch: list[paddle.Tensor], cache: Path | None = None) -> dict[str, Step]:
    """Return our kinds of steps, on one model; several processes average their gradients.

    Args:
        config: of a distillation.
        batch: images and labels.
        cache: folder of a teacher cache that has the samples of ``batch``. Without it, the steps with a cache and those
            with recomputed activations are left out.
    """
    paddle.seed(0)
    model = build_model(config.at("Architecture").thaw())
    loss = build_loss(config.at("Loss").thaw())
    model = restrict_outputs(model, loss.required_outputs(), config)
    optimizer = build_optimizer(config.at("Optimizer").thaw(), **LENGTH, model=model)[0]
    if dist.get_world_size() > 1:
        model = data_parallel(model, config.settings.find_unused_parameters)
    window = Window()
    position = Position(0, 0, 0, 1, 1)
    model.train()

    def step_with(teacher: Any, engine: str | None = None) -> Step:
        taught = model.using(callers={"Teacher": teacher})

        def step() -> None:
            taught.train()
            losses = loss(taught(batch[0], data=batch[1:]), batch)
            losses["loss"].backward()
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)  # this and the next lines: as in a run
            values = {name: value.detach() for name, value in losses.items()}
            window.add(StepDone(position, values, float(optimizer.get_lr()), len(batch[0])))
            if engine is not None and teacher.label != engine:  # the log says why
                text = f"The teacher is computed by {teacher.label}, not by {engine}."
                raise PPOCRExtError(text, code="not_compiled")

        return step

    def bare_student() -> None:
        outputs = model.Student(batch[0], data=batch[1:], request=TRAIN)["head_out"]
        (outputs["ctc"].mean() + outputs["gtc"].mean()).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    def bare_sum() -> None:
        with paddle.no_grad():
            model.Teacher(batch[0], data=batch[1:], request=TRAIN)
        bare_student()

    compile_teacher = partial(CompiledNetwork, model.Teacher, model.train_requests["Teacher"], name="Teacher")
    steps = {BARE_STUDENT: bare_student, BARE_SUM: bare_sum}
    steps[NETWORK] = step_with(model.Teacher)
    for kind, (engine, dtype) in installed(_TEACHERS).items():
        label = engine if dtype == runners.FLOAT32 else f"{engine} {dtype}"
        steps[kind] = step_with(compile_teacher(engine=engine, dtype=dtype), label)
    if cache is not None:
        model.Teacher.set_state_dict(paddle.load(str(cache.with_name("teacher.pdparams"))))
        steps[CACHED] = step_with(CachedTeacher(Store(cache), model.Teacher, _refuse))
        for kind in (CACHED, COMPILED):
            steps[kind + RECOMPUTED] = _recomputed(model.Student, steps[kind])
    return steps


def _recomputed(network: Any, step: Step) -> Step:
    """Return ``step`` with ``Global.recompute``; other steps of the network do not change."""

    def recomputed() -> None:
        blocks = recompute_blocks(network)
        step()
        for block in blocks:
            block.recomputes = False

    return recomputed


def _refuse(*_: Any) -> Any:
    raise PPOCRExtError("A sample of the batch is not in the teacher cache.", code="not_cached")


def peer_step(
    config: Config, batch: list[paddle.Tensor], root: Path, state: Mapping[str, Any] | None = None
) -> Step:
    """Return the step of a checkout.

    Args:
        config: of a distillation or of one recogniser.
        batch: images and labels.
        root: the checkout.
        state: weights for all its parameters; None for random ones.

    Raises:
        HostError: it is not a checkout, cannot be imported, or has other parameters.
    """
    architectures, losses, optimizers = imported(root, "modeling.architectures", "losses", "optimizer")
    paddle.seed(0)
    architecture = config.at("Architecture").thaw()
    for sub_model in architecture.get("Models", {}).values():
        sub_model["pretrained"] = None
    model = architectures.build_model(architecture)
    if state is not None:
        take_weights(model, state)
    loss = losses.build_loss(config.at("Loss").thaw())
    optimizer = optimizers.build_optimizer(config.at("Optimizer").thaw(), **LENGTH, model=model)[0]

    def step() -> None:
        model.train()
        loss(model(batch[0], data=batch[1:]), batch)["loss"].backward()
        optimizer.step()
        optimizer.clear_grad()

    return step
