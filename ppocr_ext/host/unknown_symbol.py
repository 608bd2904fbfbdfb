"""``Global.unknown_char: map`` in PaddleOCR's data pipeline and decoders: one class for all unknown characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ppocr_ext.charset import Charset

T = TypeVar("T")
_ENCODER = "LabelEncode"


class MapUnknownCharacters:
    """A transform before the label encoder: replace characters outside the dictionary by ``Global.unknown_symbol``.

    PaddleOCR gives each operator the keys of ``Global``; it would remove such characters from the label.
    """

    def __init__(
        self, character_dict_path: str, unknown_symbol: str, use_space_char: bool = False, **unused: Any
    ) -> None:
        charset = Charset.from_file(character_dict_path, use_space_char, lenient=True)
        self._charset = charset.with_unknown_symbol(unknown_symbol)

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return ``data`` with its label mapped."""
        return {**data, "label": self._charset.mapped(data["label"])}


MAPPING = MapUnknownCharacters.__name__


def insert_mapping(names: Sequence[str], transforms: list[T], entry_at: Callable[[T], T]) -> None:
    """Insert the mapping before the first label encoder, if there is one.

    Args:
        names: of the transforms.
        transforms: one entry for each name; changed.
        entry_at: returns the entry of the mapping, for that of the encoder.
    """
    position = next((place for place, name in enumerate(names) if name.endswith(_ENCODER)), None)
    if position is not None:
        transforms.insert(position, entry_at(transforms[position]))


class JudgedDecoder:
    """A decoder of the host whose labels have, in place of the unknown symbol, a character that is never read.

    So metrics, confusions and predictions files never count a reading of the symbol as right.
    """

    def __init__(self, decoder: Any, charset: Charset) -> None:
        self._decoder = decoder
        self._charset = charset

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the decoder returns: texts, (texts, labels), or these by sub-model."""
        decoded = self._decoder(*args, **kwargs)
        if isinstance(decoded, dict):
            return {name: self._to_compare(each) for name, each in decoded.items()}
        return self._to_compare(decoded)

    def decode(self, *args: Any, **kwargs: Any) -> list[tuple[str, Any]]:
        """Return the labels of class ids, as the decoder's own ``decode`` does."""
        return self._labels(self._decoder.decode(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def _to_compare(self, decoded: Any) -> Any:
        if not isinstance(decoded, tuple) or len(decoded) != 2:  # only texts, where there are no labels
            return decoded
        return decoded[0], self._labels(decoded[1])

    def _labels(self, labels: Any) -> list[tuple[str, Any]]:
        return [(self._charset.label_to_compare(text), *rest) for text, *rest in labels]
