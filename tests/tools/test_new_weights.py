"""The benchmark of graphs for new weights: from how many images on they pay."""

from benchmarks.new_weights import NewWeightsCosts, measure_new_weights

PARTS = {"trace": [3.0], "write": [1.0, 2.0, 1.5], "open": [0.5], "compare": [1.0]}
MEMORY = {"network": 3_000_000, "compiled": 1_500_000}


def test_an_evaluation_pays_from_as_many_images_as_save_what_its_graph_costs():
    passes = {"network": [0.9, 0.75, 0.3], "compiled": [0.375, 0.1, 0.9]}
    costs = NewWeightsCosts("three images", PARTS | passes, 3, MEMORY)
    # three images take 0.75 or 0.375 seconds, so each saves 0.125
    assert costs.to_markdown().endswith(
        "| 3.00 | 1.50 | 0.50 | 1.00 | 250.00 | 125.00 | 48 images | 24 images | 3.0 | 1.5 |"
    )
    costs = NewWeightsCosts("three images", PARTS | {"network": [0.1], "compiled": [0.1]}, 3, MEMORY)
    assert costs.to_markdown().endswith("| never | never | 3.0 | 1.5 |")


def test_each_part_is_measured():
    costs = measure_new_weights("tiny", batch=1, rounds=2)
    assert {name: len(times) for name, times in costs.seconds.items()} == {
        "trace": 1,
        **dict.fromkeys(("write", "open", "compare", "network", "compiled"), 2),
    }
    assert all(time > 0 for times in costs.seconds.values() for time in times)
