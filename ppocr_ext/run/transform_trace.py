"""Note what each transform of a dataset gets and how it fails, for the dry step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, named_items
from ppocr_ext.host.unknown_symbol import MAPPING, insert_mapping

ConfigPath = tuple[str, ...]


@dataclass
class TransformTrace:
    """What the transforms of a sample got so far, and how the one at ``position`` failed, if it did.

    Attributes:
        names: name and config path of each transform.
        text: the last label that was text.
        last_seen: for each key of a sample, the last transform that got it.
    """

    names: list[tuple[str, ConfigPath]]
    position: int = -1
    data: Any = None
    text: str | None = None
    last_seen: dict[str, int] = field(default_factory=dict)
    failed: bool = False
    error: Exception | None = None


class _TracedTransform:
    """A transform that notes in a trace what it gets and how it fails."""

    def __init__(self, operator: Any, position: int, trace: TransformTrace) -> None:
        self._operator, self._position, self._trace = operator, position, trace

    def __call__(self, data: Any) -> Any:
        trace = self._trace
        trace.position, trace.data = self._position, data
        if isinstance(data, Mapping):
            trace.last_seen.update(dict.fromkeys(map(str, data), self._position))
            trace.text = data["label"] if isinstance(data.get("label"), str) else trace.text
        try:
            result = self._operator(data)
        except Exception as error:
            trace.failed, trace.error = True, error
            raise
        trace.failed = result is None
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


def trace_transforms(dataset: Any, config: Config, mode: str, charset: Charset) -> TransformTrace:
    """Let the transforms of ``dataset``, the last ones of the config, note what they do; return where they do."""
    operators = list(getattr(dataset, "ops", None) or ())
    listed = list(named_items(config, mode, "dataset", "transforms"))
    if charset.unknown_symbol:  # see host_config
        insert_mapping([name for name, _ in listed], listed, lambda encoder: (MAPPING, encoder[1]))
    trace = TransformTrace(listed[len(listed) - len(operators) :])
    if len(trace.names) == len(operators) > 0:
        dataset.ops = [_TracedTransform(each, number, trace) for number, each in enumerate(operators)]
    return trace
