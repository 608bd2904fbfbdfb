"""Verify an exported folder: read the same images with the trained network, each form of the model, and clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from ppocr_ext.config import Config
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.export.exporter import load_on_cpu, policy_of_width
from ppocr_ext.export.files import INFERENCE_YML
from ppocr_ext.export.verify import (
    Comparison,
    Fault,
    Picture,
    compare,
    dictionary_faults,
    eval_images,
    open_forms,
)
from ppocr_ext.export.verify_clients import open_clients
from ppocr_ext.inference.comparison import TOLERANCE, drawn_images
from ppocr_ext.inference.formats import MODEL_FILES
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.io.file_names import file_digest
from ppocr_ext.recognition.images import list_images, read_image
from ppocr_ext.recognition.opening import Exported, RecognizerParts, read_exported
from ppocr_ext.recognition.resize import WidthPolicy
from ppocr_ext.run.recogniser import BEST, CONFIG_FILE, recogniser_config

NETWORK = "trained network"
_OF_EVAL = 4  # images


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """How an export is verified.

    Attributes:
        run: folder of the run or its config; None: the folder that holds the export, if its weights were exported.
        options: of the run's config, as after ``-o``.
        host_path: a PaddleOCR checkout; None searches for a host.
        images: files, folders, patterns; none: some of Eval and drawn ones.
        data: a label file, whose images are read in place of these.
        tolerance: the largest difference of probabilities that is accepted.
        clients: also read with the clients that are installed.
        trust_model: also run files that are not those of ``model.json``.
    """

    run: Path | None = None
    options: Sequence[str] = ()
    host_path: str | None = None
    images: Sequence[str] = ()
    data: str | None = None
    tolerance: float = TOLERANCE
    clients: bool = True
    trust_model: bool = False


@dataclass
class Verification:
    """What was found.

    Attributes:
        reference: name of the reader that the others must equal.
        any_width: the graph should take every width.
        rows: a comparison for each reader; the first is the reference with itself.
        faults: of the folder itself, such as a file that was replaced.
        notes: what could not be compared, and why.
        unreadable: why an image could not be read, of each such image.
    """

    reference: str
    any_width: bool
    rows: list[Comparison] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def agrees(self, tolerance: float) -> bool:
        """Return True if every reader equals the reference, and the files are those that were exported."""
        return not self.faults and all(row.agrees(tolerance) for row in self.rows)


def verify_export(folder: Path, options: VerifyOptions) -> Verification:
    """Read images with everything that can read an export, and compare.

    Args:
        folder: that ``ppocr-ext export`` wrote.
        options: how.

    Raises:
        PPOCRExtError: the folder, the run or all images cannot be read, or there is nothing to compare with.
    """
    exported = read_exported(folder)
    if not options.trust_model:  # a model is a program
        exported.check(*(name for name in MODEL_FILES if (folder / name).is_file()))
    forms, failed = open_forms(folder, exported.policy, exported.reorder)
    config = _config(exported, options)
    name = NETWORK if config is not None else next(iter(forms), "")
    if config is not None:
        right = _network(config, exported, options)
    elif forms:
        right = forms.pop(name)
    else:
        missing = f"{folder} has none of {', '.join(MODEL_FILES)}. Fix: export the model again."
        raise next(iter(failed.values()), WeightsError(missing, code="missing_file"))
    found = Verification(name, exported.width is None, faults=_changed(exported))
    if config is None:
        found.faults += dictionary_faults(exported.charset, right.charset)
        found.notes.append(
            f"the trained network is not compared: give its run with --run. In its place: {name}"
        )
    with ExitStack() as stack:
        clients, notes = open_clients(folder, exported, stack) if options.clients else ([], [])
        if not (forms or clients or failed):
            raise DataError(
                f"{folder} has only one form of the model, and nothing to compare it with. Fix: give the run that it "
                f"was exported from with --run.",
                code="nothing_to_compare",
            )
        found.notes += notes
        pictures = _pictures(config, exported, options, found)
        shown = tqdm(pictures, desc="verify", unit=" images", disable=None, leave=False)
        found.rows = compare(name, right, forms, clients, shown, found.any_width, options.tolerance)
    if not found.rows[0].images:
        raise DataError(
            f"no image can be read. The first: {''.join(found.unreadable[:1])}. Fix: correct the paths.",
            code="no_images",
        )
    found.rows += [
        Comparison(name, largest=math.inf, faults=[Fault("graph", str(why))]) for name, why in failed.items()
    ]
    return found


def _config(exported: Exported, options: VerifyOptions) -> Config | None:
    """Return the config of the run; None if none is given and the export does not lie in its run."""
    if options.run is not None:
        return recogniser_config(options.run, options.options)
    for run in exported.folder.resolve().parents[:2]:  # of RUN/inference, and RUN/best_accuracy/inference
        weights = run / f"{BEST}.pdparams"
        if not (run / CONFIG_FILE).is_file() or not weights.is_file():
            continue
        if file_digest(weights) == exported.weights_digest:
            return recogniser_config(run, options.options)
    return None


def _network(config: Config, exported: Exported, options: VerifyOptions) -> RecognizerParts:
    """Return the trained network with the width policy of its own config."""
    trained = load_on_cpu(config, host_path=options.host_path, model=exported.sub_model)
    policy = policy_of_width(WidthPolicy.from_config(trained.config), exported.width)
    return RecognizerParts(NetworkEngine(trained.network), policy, trained.charset)


def _changed(exported: Exported) -> list[Fault]:
    """Return the files that are not as they were exported."""
    faults = []
    for name in (*MODEL_FILES, INFERENCE_YML):
        if exported.has(name):
            try:
                exported.check(name)
            except WeightsError as error:
                faults.append(Fault("files", str(error)))
    return faults


def _pictures(
    config: Config | None, exported: Exported, options: VerifyOptions, found: Verification
) -> Iterator[Picture]:
    """Yield the images that the user names, or some of Eval and drawn ones."""
    places = [options.data] if options.data else options.images
    if not places:
        own = [] if config is None else eval_images(config, _OF_EVAL)
        height = exported.policy.image_shape[1]
        yield from (Picture(pixels) for pixels in [*own, *drawn_images(exported.charset.characters, height)])
        return
    listed = list_images(places)
    found.unreadable += listed.bad_lines
    for image in listed.images:
        try:
            yield Picture(read_image(image.source()), image.label)
        except DataError as error:
            found.unreadable.append(str(error))
