"""Lines that a random network reads correctly, and how centers are compared with a checkout's."""

import numpy as np
from benchmarks.export_center_data import prepare
from benchmarks.passes import make_centers
from benchmarks.whole import difference

from ppocr_ext.run import compiled_models


def test_every_line_is_read_correctly_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_models, "LEAST_SAMPLES", 7)
    prepare(str(tmp_path), "tiny", lines=6, batch=4)
    found = make_centers(str(tmp_path), ["centers", "engine"])
    # the six twice, so that networks are compiled
    assert (found["lines"], found["correct"], len(found["images_per_second"])) == (12, 12, 2)
    with np.load(tmp_path / "ours.npz") as ours:
        assert ours["counts"].sum() == 12 * 16  # each frame of each line
        assert len(ours["class_ids"]) > 5  # of eleven: the frames are not all of one class


def test_centers_of_other_classes_are_no_agreement(tmp_path):
    for name, ids in (("a", [0, 1]), ("b", [0, 2])):
        np.savez(tmp_path / f"{name}.npz", class_ids=np.array(ids), centers=np.ones((2, 3)))
    assert difference(tmp_path / "a.npz", tmp_path / "b.npz") == float("inf")
