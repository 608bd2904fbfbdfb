"""The margin of center loss in a run: groups of look-alikes meet the dictionary of the run."""

import re

import pytest

from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.session import train


def with_margin(config, look_alikes):
    losses = config.thaw()["Loss"]["loss_config_list"]
    center = {"weight": 0.1, "update": "ema", "margin": 1000.0, "look_alikes": look_alikes}
    center["frames"] = "aligned"
    return config.with_values({"Loss.loss_config_list": [*losses, {"CenterLoss": center}]})


@pytest.mark.parametrize("kind", ["student", "distill"])
def test_groups_of_a_file(tiny, tmp_path, kind, capsys):
    groups = tmp_path / "groups.txt"
    groups.write_text("083\n17\n", encoding="utf-8")
    config = with_margin(tiny(kind, **{"Global.epoch_num": 1}), str(groups))
    train(config)
    said = re.findall(r"center(?:loss)? ([\d.]+)", capsys.readouterr().out, re.IGNORECASE)
    assert len(said) == 3
    assert max(map(float, said)) > 50  # 0.1 of a margin of 1000 is there


def test_groups_without_characters_of_the_dictionary(tiny, tmp_path):
    groups = tmp_path / "groups.txt"
    groups.write_text("未末\n", encoding="utf-8")
    with pytest.raises(InvalidConfigError) as refused:
        train(with_margin(tiny("student"), str(groups)))
    (issue,) = refused.value.issues
    assert issue.path == "Loss.loss_config_list.CenterLoss"
    assert "groups.txt" in issue.message and "dict.txt" in issue.message
