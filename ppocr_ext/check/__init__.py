"""Check a config: all its issues at once, in the order in which users correct them."""

from __future__ import annotations

from collections.abc import Sequence

from ppocr_ext.check.architecture import check_architecture
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.data import check_data, check_images, check_preprocessing
from ppocr_ext.check.files import check_dictionary, check_files
from ppocr_ext.check.objective import check_decoder, check_loss, check_metric, check_optimizer, check_training
from ppocr_ext.check.other_configs import other_config
from ppocr_ext.check.settings import check_global, check_sections, check_values
from ppocr_ext.check.sub_models import check_sub_models
from ppocr_ext.config import Config, derive_values
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue

__all__ = ["check_config"]

_OF_TRAINING = (check_loss, check_optimizer, check_sub_models, check_training)
_CHECKS = (
    check_sections,
    check_global,
    check_architecture,
    check_loss,
    check_optimizer,
    check_decoder,
    check_metric,
    check_data,
    check_images,
    check_preprocessing,
    check_values,  # after the checks of keys, which report values of a wrong type
    check_dictionary,
    check_files,
    check_sub_models,
    check_training,
)


def check_config(config: Config, host: Host, role: str, unloaded_plugins: Sequence[str] = ()) -> list[Issue]:
    """Return all issues of a config, without building a model, importing a module or changing anything.

    Components are those of the registries (import ``Global.plugins`` before) and of the host.

    Args:
        config: as loaded, with overlays and overrides.
        host: opened.
        role: ``"train"``, ``"eval"`` or ``"predict"``. Sections and files that it does not need are not checked.
        unloaded_plugins: modules of ``Global.plugins`` that are not imported; a name that only they may have is a
            warning.

    Returns:
        The issues, each once, in the order of the config's sections.
    """
    return check_all(config, host, role, unloaded_plugins)[0]


def check_all(
    config: Config, host: Host, role: str, unloaded_plugins: Sequence[str] = (), processes: int = 1
) -> tuple[list[Issue], list[tuple[str, ...]]]:
    """Return the issues of :func:`check_config`, and the paths of the keys that no component takes.

    ``processes`` is the number of processes of the run; each reads its own batches.
    """
    if (other := other_config(config)) is not None:
        return [other], []
    check = ConfigCheck(derive_values(config), host, role, tuple(unloaded_plugins), processes)
    for check_part in _CHECKS:
        if role == "train" or check_part not in _OF_TRAINING:
            check_part(check)
    return list(dict.fromkeys(check.issues)), check.unused_keys
