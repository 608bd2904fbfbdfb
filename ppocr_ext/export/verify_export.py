"""Verify an exported folder: read the same images with the trained network, each form of the model, and clients."""

from __future__ import annotations

import math
import multiprocessing
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

from ppocr_ext.config import Config
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.export import clients
from ppocr_ext.export.exporter import load_on_cpu, policy_of_width
from ppocr_ext.export.verify import (
    Comparison,
    Fault,
    Picture,
    Reader,
    Seen,
    compare,
    dictionary_faults,
    eval_images,
    open_forms,
)
from ppocr_ext.host.facade import open_text_recognizer
from ppocr_ext.inference.comparison import TOLERANCE, drawn_images
from ppocr_ext.inference.formats import MODEL_FILES
from ppocr_ext.inference.runners import ONNX, NetworkEngine
from ppocr_ext.io.resources import file_digest
from ppocr_ext.recognition.images import list_images, read_image
from ppocr_ext.recognition.opening import INFERENCE_YML, Exported, RecognizerParts, read_exported
from ppocr_ext.recognition.resize import WidthPolicy
from ppocr_ext.run.recogniser import BEST, CONFIG_FILE, recogniser_config

Read = Callable[[np.ndarray], Seen]

NETWORK = "trained network"
_OF_EVAL = 4  # images of Eval, besides the drawn ones


@dataclass
class Verification:
    """What was found.

    Attributes:
        reference: name of the reader that the others must equal.
        rows: a comparison for each reader; the first is the reference with itself.
        faults: of the folder itself, such as a file that was replaced.
        notes: what could not be compared, and why.
        unreadable: a message for each image that could not be read.
    """

    reference: str
    rows: list[Comparison] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def agrees(self, tolerance: float) -> bool:
        """Return True if every reader equals the reference, and the files are those that were exported."""
        return not self.faults and all(row.agrees(tolerance) for row in self.rows)


def verify_export(
    folder: Path,
    *,
    run: Path | None = None,
    options: Sequence[str] = (),
    host_path: str | None = None,
    images: Sequence[str] = (),
    data_dir: str | None = None,
    tolerance: float = TOLERANCE,
    with_clients: bool = True,
    trust_model: bool = False,
) -> Verification:
    """Read images with everything that can read an export, and compare.

    Args:
        folder: that ``ppocr-ext export`` wrote.
        run: folder of the run or its config; None: the folder that holds the export, if its weights were exported.
        options: of the run's config, as after ``-o``.
        host_path: a PaddleOCR checkout; None searches for a host.
        images: files, folders, patterns, a label file; none: some of Eval and drawn ones.
        data_dir: start of image paths in a label file; None: its own folder.
        tolerance: the largest difference of probabilities that is accepted.
        with_clients: also read with the clients that are installed.
        trust_model: also run files that are not those of ``model.json``.

    Raises:
        PPOCRExtError: the folder, the run or all images cannot be read, or there is nothing to compare with.
    """
    exported = read_exported(folder)
    if not trust_model:  # a model is a program
        exported.check(*(name for name in MODEL_FILES if (folder / name).is_file()))
    forms, failed = open_forms(folder, exported.policy, exported.reorder)
    config = _config(exported, run, options)
    name = NETWORK if config is not None else next(iter(forms), "")
    if config is not None:
        right = _network(config, exported, host_path)
    elif forms:
        right = forms.pop(name)
    else:
        missing = f"{folder} has none of {', '.join(MODEL_FILES)}. Fix: export the model again."
        raise next(iter(failed.values()), WeightsError(missing, code="missing_file"))
    found = Verification(name, faults=_changed(exported))
    if config is None:
        found.faults += dictionary_faults(exported.charset, right.charset)
        found.notes.append(
            f"the trained network is not compared: give its run with --run. In its place: {name}"
        )
    with ExitStack() as stack:
        readers, notes = open_clients(folder, exported, stack) if with_clients else ([], [])
        if not (forms or readers or failed):
            raise DataError(
                f"{folder} has only one form of the model, and nothing to compare it with. Fix: give the run that it "
                f"was exported from with --run.",
                code="nothing_to_compare",
            )
        found.notes += notes
        pictures = _pictures(config, exported, images, data_dir, found)
        shown = tqdm(pictures, desc="verify", unit=" images", disable=None, leave=False)
        found.rows = compare(name, right, forms, readers, shown, exported.width is None, tolerance)
    if not found.rows[0].images:
        raise DataError(
            f"no image can be read. The first: {''.join(found.unreadable[:1])}. Fix: correct the paths.",
            code="no_images",
        )
    found.rows += [
        Comparison(name, largest=math.inf, faults=[Fault("graph", str(why))]) for name, why in failed.items()
    ]
    return found


def _config(exported: Exported, run: Path | None, options: Sequence[str]) -> Config | None:
    """Return the config of the run; None if none is given and the export does not lie in its run."""
    if run is not None:
        return recogniser_config(run, options)
    for run in exported.folder.resolve().parents[:2]:  # of RUN/inference, and RUN/best_accuracy/inference
        weights = run / f"{BEST}.pdparams"
        if not (run / CONFIG_FILE).is_file() or not weights.is_file():
            continue
        if file_digest(weights) == exported.weights_digest:
            return recogniser_config(run, options)
    return None


def _network(config: Config, exported: Exported, host_path: str | None) -> RecognizerParts:
    """Return the trained network with the width policy of its own config."""
    trained = load_on_cpu(config, host_path=host_path, model=exported.sub_model)
    policy = policy_of_width(WidthPolicy.from_config(trained.config), exported.width)
    return RecognizerParts(NetworkEngine(trained.network), policy, trained.charset)


def _changed(exported: Exported) -> list[Fault]:
    """Return the files that are not as they were exported."""
    faults = []
    for name in filter(exported.has, (*MODEL_FILES, INFERENCE_YML)):
        try:
            exported.check(name)
        except WeightsError as error:
            faults.append(Fault("files", str(error)))
    return faults


def _pictures(
    config: Config | None,
    exported: Exported,
    places: Sequence[str],
    data_dir: str | None,
    found: Verification,
) -> Iterator[Picture]:
    """Yield the images that the user names, or some of Eval and drawn ones."""
    if not places:
        own = [] if config is None else eval_images(config, _OF_EVAL)
        height = exported.policy.image_shape[1]
        yield from (Picture(pixels) for pixels in [*own, *drawn_images(exported.charset.characters, height)])
        return
    listed = list_images(places, data_dir)
    found.unreadable += listed.bad_lines
    for image in listed.images:
        try:
            yield Picture(read_image(image.source()), image.label)
        except DataError as error:
            found.unreadable.append(str(error))


def open_clients(folder: Path, exported: Exported, stack: ExitStack) -> tuple[list[Reader], list[str]]:
    """Return a reader for each installed client that reads this export, and notes on the others.

    Args:
        folder: of the export.
        exported: what it says of itself.
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
            notes.append(f"{package} {version} is not compared: only version {release} is run from here")
        elif not exported.has(ONNX):
            notes.append(f"{package} {version} is not compared: it reads {ONNX}, which was not exported")
        else:
            pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
            see = partial(_see_in, pool, package, str(folder), exported.policy)
            own = _own_policy(package, exported)
            note = ""
            if own.kind != exported.policy.kind:
                note = (
                    f"it cannot {exported.policy.kind}, so it is compared with the network under {own.kind}"
                )
            readers.append(Reader(f"{package} {version}", see, "client", own, note))
    return readers, notes


def _own_policy(package: str, exported: Exported) -> WidthPolicy:
    """Return how a client prepares images: it widens long ones unless it squashes them."""
    # PaddleOCR 2.x reads the one width of a graph from its input
    takes_one_width = exported.width is not None and package == "paddleocr"
    if exported.policy.kind == "squash" or takes_one_width:
        return exported.policy
    return replace(exported.policy, kind="widen", max_width=None)


def _see_in(
    pool: ProcessPoolExecutor, package: str, folder: str, policy: WidthPolicy, pixels: np.ndarray
) -> Seen:
    return pool.submit(_see, package, folder, policy, pixels).result()


def _see(package: str, folder: str, policy: WidthPolicy, pixels: np.ndarray) -> Seen:
    return _opened(package, folder, policy)(pixels)


@cache  # in the process of the client: one model for all images
def _opened(package: str, folder: str, policy: WidthPolicy) -> Read:
    return _CLIENTS[package][1](folder, policy)


def _paddleocr2(folder: str, policy: WidthPolicy) -> Read:
    """Return PaddleOCR 2.x, used as the lines in the model card do."""
    recognizer = open_text_recognizer(clients.paddleocr2_options(folder, policy))
    recognizer.predictor = recorder = _Recorder(recognizer.predictor)

    def see(pixels: np.ndarray) -> Seen:
        given = pixels[:, :, ::-1].copy() if policy.color == "RGB" else pixels
        texts, _ = recognizer([given])
        return Seen(texts[0][0], recorder.output[0], recorder.input[0])

    return see


def _rapidocr3(folder: str, policy: WidthPolicy) -> Read:
    """Return RapidOCR 3.x, used as the lines in the model card do."""
    engine = import_module("rapidocr").RapidOCR(params=clients.rapidocr_options(folder, policy))
    _, height, width = policy.image_shape
    recorder: _Recorder | None = None

    def see(pixels: np.ndarray) -> Seen:
        nonlocal recorder
        given = pixels
        if policy.kind == "squash":  # which it cannot do itself
            given = cv2.resize(given, (width, height))
        if policy.color == "RGB":
            given = given[:, :, ::-1].copy()
        if recorder is None:
            engine(given)  # opens the model
            recorder = engine.text_rec.session.session = _Recorder(engine.text_rec.session.session)
        text = "".join(engine(given).txts or ())
        return Seen(text, recorder.output[0], recorder.input[0])

    return see


class _Recorder:
    """An ONNX Runtime session that keeps its last input and output."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.input = self.output = np.zeros(0, np.float32)

    def run(self, names: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Call the session's own ``run``."""
        found = self._session.run(names, given)
        (self.input,) = given.values()
        self.output = found[0]
        return found

    def __getattr__(self, name: str) -> Any:
        """Return what the session has under a name."""
        return getattr(self._session, name)


# package: the release whose interface is used, and what opens it
_CLIENTS: dict[str, tuple[int, Callable[[str, WidthPolicy], Read]]] = {
    "paddleocr": (2, _paddleocr2),
    "rapidocr": (3, _rapidocr3),
}
