"""What a worker of a loader prepares: every transform is measured, and a share of decoding follows from the times."""

from __future__ import annotations

from benchmark import main
from benchmarks import fresh
from benchmarks.loader import AUGMENT, DECODE, LoaderCost


def test_images_a_second_and_the_share_of_decoding():
    cost = LoaderCost(
        "drawn", {DECODE: 0.001, AUGMENT: 0.006, "MultiLabelEncode": 0.002, "RecResizeImg": 0.001}
    )
    assert cost.cells() == ["drawn", "1,000", "3,000", "6,000", "250", "100", "25%", "10%"]


def test_each_kind_of_images_is_measured(in_this_process, capsys):
    in_this_process(fresh)
    assert main(["loader", "--images", "3", "--rounds", "1"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if " × " in line]
    assert [row[0].split()[1] for row in rows] == ["PNG", "JPG", "PNG", "JPG"]
    assert all(int(row[4].replace(",", "")) >= int(row[5].replace(",", "")) > 0 for row in rows)
