"""What is said of a set of centers."""

import numpy as np

from ppocr_ext.centers.summary import Coverage, rival_distance, to_text
from ppocr_ext.data.center_table import CenterTable


def table_of(characters, centers):
    count = len(characters)
    return CenterTable(
        np.arange(1, count + 1),
        tuple(characters),
        np.array(centers, "float32"),
        np.ones(count, int),
        np.zeros(count),
    )


def test_the_distance_to_the_nearest_look_alike():
    table = table_of("未末来土士", [[0, 0], [3, 4], [6, 8], [0, 1], [0, 3]])
    # 25 of 未, 末 and 来, each to its nearest; 4 of 土 and 士
    assert rival_distance(table, ["未末来", "土士", "甲由"]) == 25.0
    assert rival_distance(table, ["未甲", "甲由"]) is None


def test_it_is_told_where_there_is_one():
    covered = Coverage(2, (), ())
    assert "look-alikes: squared distance to the nearest other one 12.5" in to_text(covered, [], 12.5)
    assert "look-alikes" not in to_text(covered, [], None)
