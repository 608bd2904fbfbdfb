"""Verify an exported folder: read the same images with the trained network, each form of the model, and clients."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from ppocr_ext.base import Proxy
from ppocr_ext.config import Config
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.export import clients
from ppocr_ext.export.exporter import load_on_cpu, policy_of_width
from ppocr_ext.export.verify import (
    Comparison,
    Output,
    Picture,
    Reader,
    compare,
    dictionary_faults,
    eval_images,
    open_forms,
)
from ppocr_ext.host.facade import open_text_recognizer
from ppocr_ext.inference.comparison import drawn_images
from ppocr_ext.inference.formats import INFERENCE_YML, MODEL_FILES
from ppocr_ext.inference.runners import ONNX, NetworkEngine
from ppocr_ext.io.resources import file_digest
from ppocr_ext.recognition.exported import Exported, read_exported
from ppocr_ext.recognition.images import WidthPolicy, list_images, read_image
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.run.recogniser import BEST, CONFIG_FILE, recogniser_config

Read = Callable[[np.ndarray], Output]

NETWORK = "trained network"
_EVAL_IMAGES = 4  # number of images of Eval that are read, besides the drawn ones


@dataclass
class Verification:
    """The comparison of an export with its network.

    Attributes:
        reference: name of the reader that the others must equal.
        rows: a comparison for each reader; the first is the reference itself.
        faults: the faults of the folder, such as a file that was replaced.
        notes: the reasons why a reader is not compared.
        unreadable: a message for each image that cannot be read.
    """

    reference: str
    rows: list[Comparison] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def agrees(self) -> bool:
        """Return True if every reader equals the reference, and the files are those that were exported."""
        return not self.faults and not any(row.faults for row in self.rows)


def verify_export(
    folder: Path,
    *,
    run: Path | None = None,
    options: Sequence[str] = (),
    host_path: str | None = None,
    images: Sequence[str] = (),
    data_dir: str | None = None,
    tolerance: float | None = None,
    with_clients: bool = True,
    trust_model: bool = False,
) -> Verification:
    """Read images with all forms and clients of an export, and compare them with the trained network.

    Args:
        folder: written by ``ppocr-ext export``.
        run: folder of the run or its config; None for the parent folder of the export, if its weights were exported.
        options: the options of the run's config, as after ``-o``.
        host_path: a PaddleOCR checkout; None searches for a host.
        images: files, folders, patterns, a label file. Without any, some images of Eval and drawn ones are read.
        data_dir: start of image paths in a label file; None for its own folder.
        tolerance: see :func:`ppocr_ext.export.verify.compare`.
        with_clients: also read with the clients that are installed.
        trust_model: also run files whose digest differs from ``model.json``.

    Raises:
        PPOCRExtError: the folder, the run or all images cannot be read, or nothing can be compared.
    """
    exported = read_exported(folder)
    if not trust_model:  # a model is a program
        exported.check(*(name for name in MODEL_FILES if (folder / name).is_file()))
    forms, failed = open_forms(folder, exported.policy, exported.charset.direction)
    config = _config(exported, run, options)
    result = Verification(NETWORK, faults=_changed(exported))
    if config is not None:
        reference = _network(config, exported, host_path)
    elif forms:
        reference = _first_form(forms, exported, result)
    else:
        missing = f"{folder} has none of {', '.join(MODEL_FILES)}. Fix: export the model again."
        raise next(iter(failed.values()), WeightsError(missing, code="missing_file"))
    with ExitStack() as stack:
        readers, notes = open_clients(folder, exported, stack) if with_clients else ([], [])
        if not (forms or readers or failed):
            raise DataError(
                f"{folder} has only one form of the model, so nothing can be compared. Fix: give the run that was "
                f"exported with --run.",
                code="nothing_to_compare",
            )
        result.notes += notes
        pictures = _pictures(config, exported, images, data_dir, result.unreadable)
        shown = tqdm(pictures, desc="verify", unit=" images", disable=None, leave=False)
        result.rows = compare(
            result.reference, reference, forms, readers, shown, exported.width is None, tolerance
        )
    _require_images(result)
    result.rows += [Comparison(name, largest=math.inf, faults=[str(error)]) for name, error in failed.items()]
    return result


def _config(exported: Exported, run: Path | None, options: Sequence[str]) -> Config | None:
    """Return the config of the run; None if no run is given and the export does not lie in its run's folder."""
    if run is not None:
        return recogniser_config(run, options)
    # The export is RUN/inference or RUN/best_accuracy/inference.
    for run in exported.folder.resolve().parents[:2]:
        weights = run / f"{BEST}.pdparams"
        if not (run / CONFIG_FILE).is_file() or not weights.is_file():
            continue
        if file_digest(weights) == exported.weights_digest:
            return recogniser_config(run, options)
    return None


def _require_images(result: Verification) -> None:
    if not result.rows[0].images:
        raise DataError(
            f"no image can be read. The first error: {''.join(result.unreadable[:1])}. Fix: correct the paths.",
            code="no_images",
        )


def _first_form(
    forms: dict[str, RecognizerParts], exported: Exported, result: Verification
) -> RecognizerParts:
    """Take the first form in place of the trained network, and tell so in ``result``."""
    result.reference = next(iter(forms))
    form = forms.pop(result.reference)
    result.faults += dictionary_faults(exported.charset, form.charset)
    result.notes.append(
        f"the trained network is not compared (give its run with --run); {result.reference} takes its place"
    )
    return form


def _network(config: Config, exported: Exported, host_path: str | None) -> RecognizerParts:
    """Return the trained network with the width policy of its config."""
    trained = load_on_cpu(config, host_path=host_path, model=exported.sub_model)
    policy = policy_of_width(WidthPolicy.from_config(trained.config), exported.width)
    return RecognizerParts(NetworkEngine(trained.network), policy, trained.charset)


def _changed(exported: Exported) -> list[str]:
    """Return a message for each file that differs from its digest."""
    faults = []
    for name in filter(exported.has, (*MODEL_FILES, INFERENCE_YML)):
        try:
            exported.check(name)
        except WeightsError as error:
            faults.append(str(error))
    return faults


def _pictures(
    config: Config | None,
    exported: Exported,
    places: Sequence[str],
    data_dir: str | None,
    unreadable: list[str],
) -> Iterator[Picture]:
    """Yield the images that the user names, or some of Eval and drawn ones; add messages to ``unreadable``."""
    if not places:
        own = [] if config is None else eval_images(config, _EVAL_IMAGES)
        height = exported.policy.image_shape[1]
        yield from (Picture(pixels) for pixels in [*own, *drawn_images(exported.charset.characters, height)])
        return
    listed = list_images(places, data_dir).with_labels(exported.charset)
    unreadable += listed.bad_lines
    for image in listed.images:
        try:
            yield Picture(read_image(image.source()), image.label)
        except DataError as error:
            unreadable.append(str(error))


def open_clients(folder: Path, exported: Exported, stack: ExitStack) -> tuple[list[Reader], list[str]]:
    """Return a reader for each installed client that can read this export, and notes about the others.

    Args:
        folder: the folder of the export.
        exported: its description.
        stack: ends the processes.
    """
    readers: list[Reader] = []
    notes = []
    for package, (release, _) in _CLIENTS.items():
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        if not version.startswith(f"{release}."):
            notes.append(f"{package} {version} is not compared: only version {release} is supported")
        elif not exported.has(ONNX):
            notes.append(f"{package} {version} is not compared: it reads {ONNX}, which was not exported")
        else:
            context = multiprocessing.get_context("spawn")
            ends_quietly = (signal.SIGINT, signal.SIG_DFL)  # at Ctrl-C, without a traceback
            pool = stack.enter_context(ProcessPoolExecutor(1, context, signal.signal, ends_quietly))
            read = partial(_read_in, pool, package, str(folder), exported)
            own = _own_policy(package, exported)
            note = ""
            if own.kind != exported.policy.kind:
                note = f"it has no policy {exported.policy.kind}, so it is compared with the network under {own.kind}"
            readers.append(Reader(f"{package} {version}", read, own, note))
    return readers, notes


def _own_policy(package: str, exported: Exported) -> WidthPolicy:
    """Return the policy of a client, which widens long images unless it squashes them."""
    # PaddleOCR 2.x finds the width of a graph of one width in its input
    takes_one_width = exported.width is not None and package == "paddleocr"
    if exported.policy.kind == "squash" or takes_one_width:
        return exported.policy
    return replace(exported.policy, kind="widen", max_width=None)


def _read_in(
    pool: ProcessPoolExecutor, package: str, folder: str, exported: Exported, pixels: np.ndarray
) -> Output:
    output = pool.submit(_read, package, folder, exported.policy, pixels).result()
    # The clients are told to leave texts in the order of the image, as the lines in the model card do.
    return output._replace(text="".join(symbol for _, symbol in exported.charset.as_read(output.text)))


def _read(package: str, folder: str, policy: WidthPolicy, pixels: np.ndarray) -> Output:
    return _client(package, folder, policy)(policy.turned(pixels))


@cache  # in the process of the client: one model for all images
def _client(package: str, folder: str, policy: WidthPolicy) -> Read:
    return _CLIENTS[package][1](folder, policy)


def _paddleocr2(folder: str, policy: WidthPolicy) -> Read:
    """Return PaddleOCR 2.x, used as the lines in the model card do."""
    recognizer = open_text_recognizer(clients.paddleocr2_options(folder, policy))
    recognizer.postprocess_op.reverse = False
    recognizer.predictor = recorder = _Recorder(recognizer.predictor)

    def read(pixels: np.ndarray) -> Output:
        image = pixels[:, :, ::-1].copy() if policy.color == "RGB" else pixels
        texts, _ = recognizer([image])
        return Output(texts[0][0], recorder.output[0])

    return read


def _rapidocr3(folder: str, policy: WidthPolicy) -> Read:
    """Return RapidOCR 3.x, used as the lines in the model card do."""
    engine = import_module("rapidocr").RapidOCR(params=clients.rapidocr_options(folder, policy))
    _, height, width = policy.image_shape
    recorder: _Recorder | None = None

    def read(pixels: np.ndarray) -> Output:
        nonlocal recorder
        image = pixels
        if policy.kind == "squash":  # RapidOCR itself keeps the aspect ratio
            image = cv2.resize(image, (width, height))
        if policy.color == "RGB":
            image = image[:, :, ::-1].copy()
        if recorder is None:
            engine(image)  # opens the model
            recorder = engine.text_rec.session.session = _Recorder(engine.text_rec.session.session)
        text = "".join(engine(image).txts or ())
        return Output(text, recorder.output[0])

    return read


class _Recorder(Proxy):
    """An ONNX Runtime session that keeps its last output."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.output = np.zeros(0, np.float32)

    def run(self, names: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Call the session's own ``run``."""
        outputs = self.real.run(names, inputs)
        self.output = outputs[0]
        return outputs


# package: the release whose interface is used, and what opens it
_CLIENTS: dict[str, tuple[int, Callable[[str, WidthPolicy], Read]]] = {
    "paddleocr": (2, _paddleocr2),
    "rapidocr": (3, _rapidocr3),
}
