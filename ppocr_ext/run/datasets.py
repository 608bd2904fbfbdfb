"""Extend the host's datasets: unusable samples are skipped, and a sample that fails is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.data.label_file import parse_line
from ppocr_ext.data.lmdb.reader import open_sets
from ppocr_ext.data.load_failures import LoadFailures, report_failures
from ppocr_ext.data.preflight_report import FileReport


def label_file_dataset_class(
    base: Any, failures: LoadFailures, label_files: Sequence[Path], delimiter: str
) -> type:
    """Return the host's dataset of label files, ``SimpleDataSet`` or ``MultiScaleDataSet``, with reports.

    Args:
        base: the host's class.
        failures: counts the samples that fail when they are loaded.
        label_files: as the config names them; a line that fails is looked up there.
        delimiter: of the label files.
    """
    return report_failures(base, failures, _line_of, _line_finder(label_files, delimiter))


def _line_of(dataset: Any, index: int) -> bytes:
    """Return the line of the sample at ``index``; under ``ds_width`` the host sorts samples by width."""
    by_width = getattr(dataset, "wh_ratio_sort", None) if getattr(dataset, "ds_width", False) else None
    return bytes(dataset.data_lines[(dataset.data_idx_order_list if by_width is None else by_width)[index]])


def _line_finder(label_files: Sequence[Path], delimiter: str) -> Callable[[bytes], str]:
    """Return the function that names the place of a line; it reads the files, so that no place is kept in memory."""

    def place(line: bytes) -> str:
        wanted = parse_line(2, line, delimiter)  # not the first, whose byte order mark is already removed
        for file in label_files:
            with file.open("rb") as stream:
                for number, raw in enumerate(stream, start=1):
                    if parse_line(number, raw, delimiter).content == wanted.content:
                        return f"{file}:{number}"
        return ", ".join(wanted.images)

    return place


def lmdb_dataset_class(base: Any, failures: LoadFailures, reports: Sequence[FileReport]) -> type:
    """Return the host's ``LMDBDataSet`` without the samples that preflight found unusable, with reports.

    Samplers see the number of usable samples. An LMDB is opened once for all its readers.

    Args:
        base: the host's class.
        failures: counts the samples that fail when they are loaded.
        reports: what preflight found, an entry for each LMDB.
    """

    class UsableSamples(base):
        def __init__(self, config: Any, mode: str, logger: Any, seed: int | None = None) -> None:
            before = np.random.get_state()
            np.random.seed(seed)  # the host shuffles here: a resumed run needs the same order
            try:
                super().__init__(config, mode, logger, seed)
            finally:
                np.random.set_state(before)

        def load_hierarchical_lmdb_dataset(self, data_dir: str) -> dict[int, dict[str, Any]]:
            return {
                number: {
                    "dirpath": str(each.path),
                    "env": each.environment,
                    "txn": each.transaction,
                    "num_samples": each.count,
                }
                for number, each in enumerate(open_sets(data_dir))
            }

        def dataset_traversal(self) -> Any:
            rows = np.asarray(super().dataset_traversal(), np.int64)
            usable = np.zeros(len(rows), bool)
            for number, report in enumerate(reports):
                of_set = rows[:, 0] == number
                usable[of_set] = report.usable_array()[rows[of_set, 1] - 1]
            return rows[usable]

    UsableSamples.__name__ = base.__name__
    return report_failures(
        UsableSamples, failures, lambda dataset, index: sample_name(dataset, index).encode(), bytes.decode
    )


def sample_name(dataset: Any, index: int) -> str:
    """Return ``folder#12``: the sample at ``index`` of an ``LMDBDataSet``."""
    number, sample = (int(part) for part in dataset.data_idx_order_list[index])
    return f"{dataset.lmdb_sets[number]['dirpath']}#{sample}"


def image_names(dataset: Any, delimiter: str) -> Iterator[str]:
    """Yield image paths, or names of samples, in the order of the data; none if the dataset has neither."""
    if hasattr(dataset, "lmdb_sets"):
        yield from (sample_name(dataset, index) for index in range(len(dataset)))
    elif hasattr(dataset, "data_lines"):
        for index in dataset.data_idx_order_list:
            yield parse_line(index + 1, dataset.data_lines[index], delimiter).images[0]
