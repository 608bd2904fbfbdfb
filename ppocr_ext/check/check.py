"""All checks of a config, in the order of what a reader would correct first."""

from __future__ import annotations

from collections.abc import Sequence

from ppocr_ext.check.architecture import check_architecture
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.data import check_data
from ppocr_ext.check.files import check_dictionary, check_files
from ppocr_ext.check.images import check_images
from ppocr_ext.check.labels import check_labels
from ppocr_ext.check.networks import check_networks
from ppocr_ext.check.objective import check_decoder, check_loss, check_metric, check_optimizer
from ppocr_ext.check.same_preprocessing import check_preprocessing
from ppocr_ext.check.settings import check_global, check_loaders, check_sections
from ppocr_ext.config import Config, derive_values
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue


def check_config(config: Config, host: Host, role: str, unloaded_plugins: Sequence[str] = ()) -> list[Issue]:
    """Everything that is wrong with a config, before anything heavy is built.

    Nothing is changed, no module is imported, and no model is built. Components are those of the registries (import
    ``Global.plugins`` before) and of the host.

    Args:
        config: as loaded, with overlays and overrides.
        host: opened.
        role: ``"train"`` or ``"eval"``: sections and files that the other alone needs are not looked for.
        unloaded_plugins: modules of ``Global.plugins`` that are not imported; what they alone may know is a warning.

    Returns:
        The issues, each once, in the order of the config's sections.
    """
    check = ConfigCheck(derive_values(config), host, role, tuple(unloaded_plugins))
    check_sections(check)
    check_global(check)
    check_architecture(check)
    if role == "train":
        check_loss(check)
        check_optimizer(check)
    check_decoder(check)
    check_metric(check)
    for mode in check.modes:
        check_data(check, mode)
    check_images(check)
    check_preprocessing(check)
    check_loaders(check)
    check_networks(check)
    check_labels(check)
    check_dictionary(check)
    check_files(check)
    return list(dict.fromkeys(check.issues))
