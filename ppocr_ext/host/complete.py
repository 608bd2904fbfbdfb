"""Import the host without noise on the console, and add the packages that it lacks."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ppocr_ext.base import Proxy
from ppocr_ext.base.parts import BRANCH_ROWS
from ppocr_ext.charset import Charset
from ppocr_ext.errors import HostError, MissingPackageError, PPOCRExtError
from ppocr_ext.host.locate import INSTALL_WHEEL, Location
from ppocr_ext.io.image_pixels import is_tall
from ppocr_ext.messages import INSTALL_PADDLE
from ppocr_ext.text_direction import LEFT_TO_RIGHT


class PrepareLabels:
    """The first transform: it maps unknown characters, and turns labels of right-to-left scripts.

    PaddleOCR's encoder would remove these characters. RecConAug appends labels as their images stand side by side.
    PaddleOCR gives each transform the keys of ``Global``.
    """

    def __init__(
        self,
        character_dict_path: str,
        use_space_char: bool = False,
        unknown_char: str = "",
        unknown_symbol: str = "",
        text_direction: str = LEFT_TO_RIGHT,
        **unused: Any,
    ) -> None:
        self._charset = replace(
            Charset.from_file(character_dict_path, use_space_char, lenient=True),
            unknown_symbol=unknown_symbol if unknown_char == "map" else "",
            direction=text_direction,
        )

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return ``data`` with its label as the encoder takes it."""
        return {**data, "label": self._charset.in_image_order(self._charset.encoded(data["label"]))}


class TurnTallImage:
    """Turn an image as clients do before they read it; PaddleOCR does not so in training."""

    def __init__(self, **unused: Any) -> None:
        """Ignore the keys of ``Global``."""

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return ``data`` with its decoded image turned by 90° to the left if it is tall."""
        pixels = data["image"]
        return {**data, "image": np.rot90(pixels).copy()} if is_tall(*pixels.shape[:2]) else data


PREPARING, TURNING = PrepareLabels.__name__, TurnTallImage.__name__


class JudgedDecoder(Proxy):
    """A decoder of the host that returns texts as they are read, and labels as they are compared with them.

    In labels a character that is never read replaces the unknown symbol, so metrics, confusions and files of
    predictions never count a predicted symbol as correct.

    PaddleOCR's NRTR decoder takes the scores of two lines for a pair of ids and probabilities; it gets such a pair.
    """

    def __init__(self, decoder: Any, charset: Charset) -> None:
        super().__init__(decoder)
        self._charset = charset

    def __call__(self, predictions: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the decoder: texts, (texts, labels), or these by sub-model."""
        decoded = self.real(self._unambiguous(predictions), *args, **kwargs)
        if isinstance(decoded, dict):
            return {name: self._judged(each) for name, each in decoded.items()}
        return self._judged(decoded)

    def decode(self, *args: Any, **kwargs: Any) -> list[tuple[str, Any]]:
        """Return the labels of class ids, as the decoder's own ``decode`` does."""
        return self._labels(self.real.decode(*args, **kwargs))

    def _unambiguous(self, predictions: Any) -> Any:
        if type(self.real).__name__ != BRANCH_ROWS["gtc"].decoder or not hasattr(predictions, "numpy"):
            return predictions
        scores = predictions.numpy()
        start = np.full([len(scores), 1], 2)  # <s>, which the decoder removes
        return [np.hstack([start, scores.argmax(axis=2)]), np.hstack([start, scores.max(axis=2)])]

    def _judged(self, decoded: Any) -> Any:
        if not isinstance(decoded, tuple) or len(decoded) != 2:  # texts without labels
            return self._texts(decoded)
        return self._texts(decoded[0]), self._labels(decoded[1])

    def _texts(self, texts: Any) -> Any:
        if not self._charset.turns_texts:
            return texts
        return [("".join(each for _, each in self._charset.as_read(text)), *rest) for text, *rest in texts]

    def _labels(self, labels: Any) -> list[tuple[str, Any]]:
        return [(self._charset.decoded_label(text), *rest) for text, *rest in labels]


# The packages of `ppocr` that the wheel lacks, and the package of ppocr_ext that replaces each
_MODELING = ("architectures", "backbones", "heads", "necks", "transforms")
_GRAFTED = {
    "modeling": "modeling",
    **{f"modeling.{name}": "modeling" for name in _MODELING},
    "losses": "losses",
    "optimizer": "optim",
    "metrics": "metrics",
}
# imgaug needs numpy 1; OpenCV from 4.12 on needs numpy 2.
IMGAUG_ON_NUMPY_1 = (
    "pip install imgaug 'numpy<2' "
    "'opencv-python<4.12' 'opencv-contrib-python<4.12' 'opencv-python-headless<4.12'"
)
_DISTRIBUTION = {"cv2": "opencv-python", "skimage": "scikit-image", "PIL": "pillow", "yaml": "pyyaml"}
# Messages at each import or start that do not concern users of this package: about a compiler cache for custom
# operators, AI Studio's encryption of models, and weight decay of a parameter that replaces the optimizer's.
_NO_CCACHE = "No ccache found"
_LINES = ("Skipping import of the encryption module", "If regularizer of a Parameter has been set by")


@dataclass(frozen=True)
class HostModules:
    """The host's modules that we call."""

    program: ModuleType
    data: ModuleType
    postprocess: ModuleType
    utility: ModuleType
    logging: ModuleType


def import_host(location: Location) -> HostModules:
    """Import the host at ``location``, with our packages in place of those that it lacks.

    Raises:
        HostError: another ``ppocr`` or ``tools`` is imported already, or the host's own import fails.
        MissingPackageError: Paddle is missing.
    """
    if importlib.util.find_spec("paddle") is None:
        raise MissingPackageError(
            f"Paddle is not installed. For the CPU: {INSTALL_PADDLE}. For an NVIDIA GPU: see docs/install.md.",
            code="missing_package",
        )
    root = str(location.root)
    if root not in sys.path:
        # At the end, like paddleocr 2.x: the host's top-level names must not hide the user's modules.
        sys.path.append(root)
    with quiet_imports():
        _import_package("ppocr", location)
        for name in _GRAFTED:
            if name.partition(".")[0] in missing_packages(location.root):
                sys.modules.setdefault(f"ppocr.{name}", _Graft(name))
        _import_package("tools", location)
        data = import_from_host("ppocr.data", location)
        if hasattr(data, "imaug"):  # PaddleOCR finds transforms by their names in this module
            setattr(data.imaug, PREPARING, PrepareLabels)
            setattr(data.imaug, TURNING, TurnTallImage)
        return HostModules(
            program=import_from_host("tools.program", location),
            data=data,
            postprocess=import_from_host("ppocr.postprocess", location),
            utility=import_from_host("ppocr.utils.utility", location),
            logging=import_from_host("ppocr.utils.logging", location),
        )


def missing_packages(root: Path) -> list[str]:
    """Return which of the four training packages the host at ``root`` lacks."""
    names = [name for name in _GRAFTED if "." not in name]
    return [name for name in names if not (root / "ppocr" / name).is_dir()]


class _Graft(ModuleType):
    """A package of ``ppocr`` that the host lacks, with the names of our package."""

    def __init__(self, name: str) -> None:
        super().__init__(f"ppocr.{name}")
        self.__path__: list[str] = []  # makes it a package, which may have modules
        self._room = _GRAFTED[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by the import itself
            raise AttributeError(name)
        return getattr(importlib.import_module(f"ppocr_ext.{self._room}"), name)


def _import_package(name: str, location: Location) -> ModuleType:
    """Import the top-level package ``name`` from the host's folder, even if there is another one of this name."""
    if (known := sys.modules.get(name)) is not None:
        folders = [Path(folder).resolve() for folder in getattr(known, "__path__", [])]
        if location.root / name in folders:
            return known
        where = folders[0] if folders else getattr(known, "__file__", "this process")
        raise HostError(
            f"Another package called {name!r} ({where}) was imported before PaddleOCR's at {location.root}, "
            f"and one process can hold only one. Run the command in a process of its own.",
            code="host_in_use",
        )
    if (spec := importlib.machinery.PathFinder.find_spec(name, [str(location.root)])) is None:
        raise HostError(f"PaddleOCR at {location.root} has no package {name!r}.", code="incomplete_host")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if spec.loader is not None:
        try:
            spec.loader.exec_module(module)
        except Exception as reason:
            del sys.modules[name]
            raise HostError(explain(reason, name, location), code="host_import_failed") from reason
    return module


def import_from_host(name: str, location: Location) -> ModuleType:
    """Import a module of the host.

    Raises:
        HostError: it cannot be imported; the message gives the reason and what fixes it.
    """
    try:
        with quiet_imports():
            return importlib.import_module(name)
    except PPOCRExtError:
        raise
    except Exception as reason:
        raise HostError(explain(reason, name, location), code="host_import_failed") from reason


def explain(reason: BaseException, module: str, location: Location) -> str:
    """Return why ``module`` of the host cannot be imported, and the command that fixes it."""
    message = (str(reason).splitlines() or ["no reason given"])[0].rstrip(".")
    what = f"{module} of PaddleOCR at {location.root} cannot be imported: {type(reason).__name__}: {message}"
    return f"{what}. {_remedy(reason, location)}"


def _remedy(reason: BaseException, location: Location) -> str:
    missing = reason.name if isinstance(reason, ModuleNotFoundError) and reason.name else None
    frames = traceback.extract_tb(reason.__traceback__)
    if missing == "imgaug" or any("imgaug" in Path(frame.filename).parts for frame in frames):
        packaged = f"PaddleOCR 2.10 needs neither: {INSTALL_WHEEL}"
        if location.form == "checkout":
            packaged = "The packaged PaddleOCR 2.10 needs neither: leave out --host and PADDLEOCR_HOME."
        return f"This host uses imgaug, which works with numpy 1 only: {IMGAUG_ON_NUMPY_1}. {packaged}"
    if missing is None:
        return "Run again with --debug to see where."
    top = missing.partition(".")[0]
    if top in ("ppocr", "tools"):
        return f"This host has no {missing}. Use a complete checkout, or the packaged host."
    if top == "ppocr_ext":
        return "ppocr-ext itself is incomplete: pip install --force-reinstall --no-deps ppocr-ext"
    return f"It needs a package that is not installed: pip install {_DISTRIBUTION.get(top, top)}"


def _worth_saying(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_LINES)


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Hide noise inside this context, in which Paddle and the host are imported."""
    # albumentations looks for its newest version on the network when it is imported.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    host_logger = logging.getLogger("ppocr")
    host_logger.addFilter(_worth_saying)
    logging.getLogger().addFilter(_worth_saying)  # Paddle's optimizers log there, after the import
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_CCACHE)
            yield
    finally:
        host_logger.removeFilter(_worth_saying)


def import_paddle() -> None:
    """Import Paddle; a SIGTERM during the import takes effect after it, without a C++ traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with quiet_imports():
            import paddle  # noqa: F401
        quiet_signals()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def quiet_signals() -> None:
    """Remove Paddle's signal handlers, which print a C++ traceback when a process is told to end.

    Call it after the host, and so Paddle, is imported. Handlers of Python are kept.
    """
    paddle = sys.modules.get("paddle")
    if paddle is None or threading.current_thread() is not threading.main_thread():
        return
    paddle.disable_signal_handler()
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if handler is not None:  # None: a handler that is not of Python
            signal.signal(number, handler)
