"""Import the host, and complete it with what its form lacks."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ppocr_ext.errors import HostError, MissingPackageError, PPOCRExtError
from ppocr_ext.host.locate import INSTALL_WHEEL, Location
from ppocr_ext.host.quiet import quiet_imports
from ppocr_ext.host.unknown_symbol import MAPPING, MapUnknownCharacters
from ppocr_ext.messages import INSTALL_PADDLE

GRAFT = Path(__file__).resolve().parent / "graft"
GRAFTED = ("modeling", "losses", "optimizer", "metrics")
# imgaug needs numpy 1; OpenCV from 4.12 on needs numpy 2.
IMGAUG_ON_NUMPY_1 = (
    "pip install imgaug 'numpy<2' "
    "'opencv-python<4.12' 'opencv-contrib-python<4.12' 'opencv-python-headless<4.12'"
)
_DISTRIBUTION = {"cv2": "opencv-python", "skimage": "scikit-image", "PIL": "pillow", "yaml": "pyyaml"}


@dataclass(frozen=True)
class HostModules:
    """The host's modules that we call."""

    program: ModuleType
    data: ModuleType
    postprocess: ModuleType
    utility: ModuleType
    logging: ModuleType


def import_host(location: Location) -> HostModules:
    """Import the host at ``location``, with our packages grafted where it has none of its own.

    Raises:
        HostError: another ``ppocr`` or ``tools`` is imported already, or the host's own import fails.
        MissingPackageError: Paddle is missing.
    """
    if importlib.util.find_spec("paddle") is None:
        raise MissingPackageError(
            f"Paddle is not installed. For the CPU: {INSTALL_PADDLE}. "
            f"For an NVIDIA GPU: pip install 'ppocr-ext[gpu]'.",
            code="missing_package",
        )
    root = str(location.root)
    if root not in sys.path:
        # At the end, as paddleocr 2.x itself does: the host's top-level names must not hide a user's.
        sys.path.append(root)
    with quiet_imports():
        ppocr = _import_package("ppocr", location)
        if str(GRAFT) not in ppocr.__path__ and missing_packages(location.root):
            # Behind the host's own folder: what the host has wins, what it lacks is ours.
            ppocr.__path__.append(str(GRAFT))
        _import_package("tools", location)
        data = import_from_host("ppocr.data", location)
        if hasattr(data, "imaug"):  # PaddleOCR builds its transforms by the names of this module
            setattr(data.imaug, MAPPING, MapUnknownCharacters)
        return HostModules(
            program=import_from_host("tools.program", location),
            data=data,
            postprocess=import_from_host("ppocr.postprocess", location),
            utility=import_from_host("ppocr.utils.utility", location),
            logging=import_from_host("ppocr.utils.logging", location),
        )


def missing_packages(root: Path) -> list[str]:
    """Return those of the four training packages that the host at ``root`` lacks."""
    return [name for name in GRAFTED if not (root / "ppocr" / name).is_dir()]


def _import_package(name: str, location: Location) -> ModuleType:
    """Import the top-level package ``name`` from the host's folder, whatever else is called so."""
    known = sys.modules.get(name)
    if known is not None:
        folders = [Path(folder).resolve() for folder in getattr(known, "__path__", [])]
        if location.root / name in folders:
            return known
        where = folders[0] if folders else getattr(known, "__file__", "this process")
        raise HostError(
            f"Another package called {name!r} ({where}) was imported before PaddleOCR's at {location.root}, "
            f"and one process can hold only one. Run the command in a process of its own.",
            code="host_in_use",
        )
    spec = importlib.machinery.PathFinder.find_spec(name, [str(location.root)])
    if spec is None:
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
    said = (str(reason).splitlines() or ["no reason given"])[0]
    what = f"{module} of PaddleOCR at {location.root} cannot be imported: {type(reason).__name__}: {said}"
    return f"{what.rstrip('.')}. {_remedy(reason, location)}"


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
