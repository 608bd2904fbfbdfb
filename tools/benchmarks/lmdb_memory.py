"""Show the memory that the order of many LMDB samples takes: ``python tools/benchmarks/lmdb_memory.py [SAMPLES]``.

The LMDB itself has one sample; the check of labels is told that it has SAMPLES. So what is measured is what grows with
their number: the rows of the dataset, the sampler, and an epoch's batches of indices as they are read.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb

from ppocr_ext.data.load_failures import LoadFailures
from ppocr_ext.data.preflight_report import FileReport, UnusableLimit
from ppocr_ext.host import open_host
from ppocr_ext.run.datasets import lmdb_dataset_class
from ppocr_ext.run.loader import SeededBatches, loader_parts


def peak() -> float:
    """Return the peak of this process's memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(samples: int) -> None:
    """Print the peak after each part."""
    host = open_host()
    with TemporaryDirectory() as folder:
        with lmdb.open(folder) as environment, environment.begin(write=True) as writer:
            for key, value in (("num-samples", "1"), ("label-000000001", "1"), ("image-000000001", "1")):
                writer.put(key.encode(), value.encode())
        print(f"{samples:,} samples; before: {peak():,.0f} MB")
        report = FileReport(Path(folder), lines=bytearray(b"\1") * samples)
        failures = LoadFailures("Train", samples, 0, UnusableLimit())
        print(f"the check of labels: {peak():,.0f} MB")
        dataset = {"name": "LMDBDataSet", "data_dir": folder, "transforms": []}
        loader = {"batch_size_per_card": 128, "shuffle": True, "drop_last": False, "num_workers": 0}
        config = {"Global": {}, "Train": {"dataset": dataset, "loader": loader}}
        base = host.component("dataset", "LMDBDataSet")
        parts = loader_parts(
            host, config, "Train", 1, dataset_class=lmdb_dataset_class(base, failures, [report], folder)
        )
        print(f"dataset: {peak():,.0f} MB")
        count = sum(len(batch) for batch in SeededBatches(parts.batch_sampler, (1, 1, 0)))
        print(f"an epoch of {count:,} indices: {peak():,.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10**7)
