"""What other parts of the package stand on: facts about PaddleOCR, and the base of proxies. It imports none of them."""

from __future__ import annotations

from typing import Any


class Proxy:
    """An object in the place of ``real``: an attribute that it does not define is that of ``real``."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        # pickle and copy ask for these before `real` is set, and want those of the proxy
        if name == "real" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real, name)
