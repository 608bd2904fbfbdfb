"""Issues, which the checks of config, labels and environment report all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ppocr_ext.errors import ConfigError, with_code
from ppocr_ext.messages import LOG

Level = Literal["error", "warning", "note"]
_SHOWN = 3  # examples in a message


@dataclass(frozen=True)
class Issue:
    """One problem that a check found in a config, in labels, in images or on this machine.

    Attributes:
        code: stable name of the kind of issue, such as ``"unknown_key"``.
        level: ``"error"`` if the run cannot start, or would not be what the config says; ``"warning"`` if it can start;
            ``"note"`` for something in the data that may be intended.
        path: the config key, as ``"Global.epoch_num"``; empty for the config as a whole.
        where: the place of the value, as ``"my.yml:12"`` or ``"-o Global.epoch_num=3"``; empty if unknown.
        message: what is wrong; of a config also how to fix it.
        fix: how to fix it, a sentence; empty if the message says it.
        count: how many labels, images or samples have it; 0 for an issue of a config.
        share: how many of all that were looked at have it, from 0 to 1.
        examples: the place (file and line) and the label or another detail of the first of them; either may be empty.
    """

    code: str
    level: Level
    path: str
    where: str
    message: str
    fix: str = ""
    count: int = 0
    share: float = 0.0
    examples: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return ``my.yml:12: Global.epohc_num: unknown key. Did you mean 'epoch_num'? [unknown_key]``."""
        return with_code(self.text, self.code)

    def to_json(self) -> dict[str, str]:
        """Return plain values, for ``preflight.json``."""
        names = ("code", "level", "path", "where")
        return {**{name: getattr(self, name) for name in names}, "message": self.sentence}

    def to_counts(self) -> dict[str, Any]:
        """Return plain values, for ``init.json``."""
        names = ("code", "level", "count", "share", "examples", "message", "fix")
        return {name: getattr(self, name) for name in names}

    @property
    def sentence(self) -> str:
        """Return the message with the first examples, and the fix."""
        examples = [  # a detail may be in quotes already
            ": ".join(filter(None, (place, text if text.startswith(("'", '"')) else text and f"'{text}'")))
            for place, text in self.examples[:_SHOWN]
        ]
        listed = f" ({', '.join(examples)})" if examples else ""
        return f"{self.message}{listed}{self.fix and f'. Fix: {self.fix}'}"

    @property
    def text(self) -> str:
        """Return place, path and sentence, without the code."""
        return ": ".join(part for part in (self.where, self.path, self.sentence) if part)


class InvalidConfigError(ConfigError):
    """A config has issues of level error; the message lists all of them.

    Attributes:
        issues: the issues, each once.
    """

    def __init__(self, issues: list[Issue]) -> None:
        self.issues = issues
        if len(issues) == 1:
            super().__init__(issues[0].text, code=issues[0].code)
        else:
            listed = "\n".join(f"  {issue}" for issue in issues)
            super().__init__(f"the config has {len(issues)} issues:\n{listed}", code="config_issues")

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to pickle it; Python would build it from its message."""
        return type(self), (self.issues,)


def report_issues(issues: Iterable[Issue], strict: bool = False) -> None:
    """Log the warnings, each once, and raise all errors as one.

    Args:
        issues: as ``check_config`` returns them.
        strict: True treats a warning as an error.

    Raises:
        InvalidConfigError: there is an issue of level error.
    """
    unique = list(dict.fromkeys(issues))
    errors = [issue for issue in unique if strict or issue.level == "error"]
    for issue in unique:
        if issue not in errors:
            LOG.warning("%s", issue)
    if errors:
        raise InvalidConfigError(errors)
