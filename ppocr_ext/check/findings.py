"""Issues of a config, each with the place of the key that it is about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, TypeVar

from ppocr_ext.config import Config
from ppocr_ext.config.node import COMPUTED, Place, dotted
from ppocr_ext.errors import ConfigError, PPOCRExtError
from ppocr_ext.issues import Issue
from ppocr_ext.messages import end_text

T = TypeVar("T")
KeyPath = tuple[str, ...]  # of a key in a config


@dataclass
class Findings:
    """The issues of a config, in the order in which they are found.

    Attributes:
        config: the config.
        issues: the issues so far.
    """

    config: Config
    _: KW_ONLY
    issues: list[Issue] = field(default_factory=list)

    def place(self, path: KeyPath) -> Place:
        """Return the place of the value at ``path``, or of the nearest one above it."""
        for end in range(len(path), 0, -1):
            with suppress(ConfigError):
                return self.config.place(path[:end])
        return COMPUTED

    def where(self, path: KeyPath) -> str:
        """Return the text of :meth:`place`; empty for a computed value."""
        place = self.place(path)
        return "" if place == COMPUTED else place.text

    def error(self, path: KeyPath, code: str, message: str) -> None:
        """Add an issue that keeps the run from starting, or from being what the config says."""
        self._add("error", path, code, message)

    def warning(self, path: KeyPath, code: str, message: str) -> None:
        """Add an issue that does not keep the run from starting, such as a value without effect."""
        self._add("warning", path, code, message)

    def _add(self, level: Literal["error", "warning"], path: KeyPath, code: str, message: str) -> None:
        message = message.removeprefix(f"{self.place(path).text}: ").removeprefix(f"{dotted(path)}: ")
        self.issues.append(Issue(code, level, dotted(path), self.where(path), message))

    def raised(self, path: KeyPath, stage: str, error: Exception, what: str = "") -> None:
        """Add the issue that the part at ``path`` raised ``error``.

        Args:
            path: of the part; an error of this package may name a key below it.
            stage: what the part did; the code is ``STAGE_failed`` unless the error has one of its own.
            error: the exception.
            what: begins the message, unless a stage other than the network raised an error of this package, which
                says what is wrong itself.
        """
        known = error if isinstance(error, PPOCRExtError) else PPOCRExtError()
        code = f"{stage}_failed" if known.code == PPOCRExtError.code else known.code
        text = described_error(error)
        self.error((*path, *known.key), code, text if error is known and stage != "network" else what + text)

    def attempt(self, path: KeyPath, stage: str, build: Callable[[], T], what: str = "") -> T | None:
        """Return the result of ``build``, which builds or calls the part at ``path``; None, with an issue, if it fails.

        The other arguments are those of :meth:`raised`.
        """
        try:
            return build()
        except Exception as error:
            self.raised(path, stage, error, what)
            return None


def described_error(error: BaseException) -> str:
    """Return the text of an exception as a sentence, for a message about a part of the config."""
    text = end_text(error).removeprefix("internal error: ").rstrip()
    return text if text.endswith((".", "?")) else f"{text}."
