"""What is wrong with a config, and how it is said: all of it at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ppocr_ext.errors import ConfigError

_LOG = logging.getLogger("ppocr_ext")
PLUGIN_NOT_LOADED = "plugin_not_loaded"  # a plugin that was not imported may know it


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, or looks wrong.

    Attributes:
        level: ``"error"``: the run cannot be, or would not be what the config says; ``"warning"``: it can.
        path: the key, as ``"Global.epoch_num"``; empty for the config as a whole.
        where: the place where it was written, as ``"my.yml:12"`` or ``"-o Global.epoch_num=3"``; or empty.
        message: what is wrong, and what to do.
        code: name of the kind of fault, such as `PLUGIN_NOT_LOADED`; most have none.
    """

    level: Literal["error", "warning"]
    path: str
    where: str
    message: str
    code: str = ""

    def __str__(self) -> str:
        """``my.yml:12: Global.epohc_num: unknown key. Did you mean 'epoch_num'?``, and the code in brackets."""
        text = ": ".join(part for part in (self.where, self.path, self.message) if part)
        return f"{text} [{self.code}]" if self.code else text


def report(faults: Iterable[Fault], strict: bool = False) -> None:
    """Log the warnings, each once, and raise all errors as one.

    Args:
        faults: as :func:`check_config` gives them.
        strict: a warning is an error.

    Raises:
        ConfigError: there is an error; the message is its sentence, or lists all of them.
    """
    unique = list(dict.fromkeys(faults))
    errors = [fault for fault in unique if strict or fault.level == "error"]
    for fault in unique:
        if fault not in errors:
            _LOG.warning("%s", fault)
    if len(errors) == 1:
        raise ConfigError(str(errors[0]))
    if errors:
        listed = "\n".join(f"  {fault}" for fault in errors)
        raise ConfigError(f"the config has {len(errors)} faults:\n{listed}")
