"""Assert which error is raised by its code and by facts, not by the wording of its message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ppocr_ext.errors import PPOCRExtError


@contextmanager
def raises_code(kind: type[PPOCRExtError], code: str, *facts: object) -> Iterator[None]:
    """Check that the block raises ``kind`` with ``code``, and that the message has all ``facts``."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code, caught.value
    for fact in facts:
        assert str(fact) in str(caught.value)
