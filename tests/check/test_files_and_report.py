"""Files that a role needs, and how all issues are said at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from official_facts import Check

from ppocr_ext.config import Config
from ppocr_ext.issues import InvalidConfigError, Issue, report_issues


def test_files_that_are_not_there_are_all_named(two: Config, check: Check) -> None:
    found = check(
        two.with_values(
            {
                "Train.dataset.label_file_list": ["/no/train.txt"],
                "Train.dataset.data_dir": "/no/data",
                "Eval.dataset.label_file_list": "/no/val.txt",
                "Architecture.Models.Teacher.pretrained": "/no/teacher",
                "Global.character_dict_path": "/no/dict.txt",
            }
        )
    )
    assert len(found) == 5
    assert found[0].startswith("error: Global.character_dict_path: the dictionary /no/dict.txt is not there.")
    assert found[1].startswith("error: Train.dataset.label_file_list.0: there is no file /no/train.txt")
    assert found[2].startswith("error: Train.dataset.data_dir: there is no folder /no/data")
    assert found[3].startswith("error: Eval.dataset.label_file_list: there is no file /no/val.txt")
    assert found[4].startswith(
        "error: Architecture.Models.Teacher.pretrained: there is no file /no/teacher.pdparams."
    )


def test_files_that_the_dataset_does_not_read_are_not_looked_for(one: Config, check: Check) -> None:
    path = "Train.dataset"
    dataset = {"name": "LMDBDataSet", "label_file_list": ["/no/train.txt"], "ds_width": None}
    found = check(one.with_values({f"{path}.{key}": value for key, value in dataset.items()}))
    assert f"warning: {path}.label_file_list: the key is not used." in found
    assert not any("/no/train.txt" in issue for issue in found)
    found = check(one.with_values({path: {"name": "CaptchaDataSet", "size": 1, "data_dir": "/no"}}))
    assert f"warning: {path}.data_dir: the key is not used." in found
    assert not any("there is no folder" in issue for issue in found)


def test_a_space_that_is_two_classes_is_warned_of(one: Config, tmp_path: Path, check: Check) -> None:
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("0\n \n1\n")
    both = one.with_values({"Global.character_dict_path": str(dictionary), "Global.use_space_char": True})
    (warning,) = check(both)
    assert warning.startswith("warning: Global.use_space_char: ")
    assert f"{dictionary}:2" in warning and "labels use 4" in warning and "use_space_char: false" in warning
    assert check(both, "eval") == [warning]
    assert check(both.with_values({"Global.use_space_char": False})) == []
    dictionary.write_text("0\n1\n")
    assert check(both) == []


def test_groups_of_look_alikes_are_read(one: Config, data: Path, tmp_path: Path, check: Check) -> None:
    (tmp_path / "one.txt").write_text("未\n", encoding="utf-8")
    (tmp_path / "centers.npz").write_bytes(b"")
    path = "Loss.loss_config_list.CenterLoss.look_alikes"

    def issues(look_alikes: object) -> list[str]:
        center = {"center_file_path": str(tmp_path / "centers.npz"), "look_alikes": look_alikes}
        loss = {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"CenterLoss": center}]}
        return [issue for issue in check(one.with_values({"Loss": loss})) if "look_alikes" in issue]

    assert issues(3) == issues("shipped") == []
    (missing,) = issues("/no/groups.txt")
    assert missing.startswith(
        f"error: {path}: /no/groups.txt: the groups of look-alikes cannot be read (No such"
    )
    (single,) = issues(str(tmp_path / "one.txt"))
    assert single.startswith(f"error: {path}: ") and "one.txt:1: '未' is no group" in single
    for value in (0, 2.5, True, ["未末"]):
        (other,) = issues(value)
        assert "is neither a number of at least 1, nor `shipped`, nor a file of groups" in other
    assert issues("3") == [f"error: {path}: '3' is text. Write the number without quotes."]


def test_an_evaluation_needs_its_own_files_alone(two: Config, check: Check) -> None:
    values = {
        "Train.dataset.label_file_list": ["/no/x"],
        "Architecture.Models.Teacher.pretrained": "/no/teacher",
    }
    assert check(two.with_values(values), "eval") == []
    (issue,) = check(two.with_values({**values, "Global.checkpoints": "/no/best"}), "eval")
    assert issue.startswith(
        "error: Global.checkpoints: there is no file /no/best.pdparams. Give the path of weights"
    )


def test_a_whole_models_weights_go_before_those_of_sub_models(two: Config, data: Path, check: Check) -> None:
    values = {
        "Global.pretrained_model": str(data / "teacher"),
        "Architecture.Models.Teacher.pretrained": "/no/teacher",
    }
    assert check(two.with_values(values)) == []


def test_a_checkpoint_that_was_being_written_is_there(two: Config, tmp_path: Path, check: Check) -> None:
    renames = {f".latest{e}.abcd_123.tmp": f"latest{e}" for e in (".pdparams", ".pdopt", ".states")}
    (tmp_path / "latest.journal").write_text(json.dumps(renames))
    assert check(two.with_values({"Global.checkpoints": str(tmp_path / "latest")})) == []


def test_a_journal_that_loading_would_refuse_is_no_checkpoint(
    two: Config, tmp_path: Path, check: Check
) -> None:
    (tmp_path / "latest.journal").write_text("{}")
    (issue,) = check(two.with_values({"Global.checkpoints": str(tmp_path / "latest")}))
    assert issue.startswith(f"error: Global.checkpoints: {tmp_path}/latest.journal: ")


def test_a_flawed_dictionary_and_a_count_of_another_one(one: Config, tmp_path: Path, check: Check) -> None:
    path = "Architecture.Head.out_channels_list"
    (issue,) = check(one.with_values({path: {"CTCLabelDecode": 97}}))
    assert issue.startswith(f"error: {path}.CTCLabelDecode: is 97, but 5 fits ")
    (tmp_path / "dict.txt").write_text("a\na\n")
    (issue,) = check(one.with_values({"Global.character_dict_path": str(tmp_path / "dict.txt")}))
    assert (
        issue.startswith("error: Global.character_dict_path: ")
        and "line 2: 'a' again, first on line 1" in issue
    )


def issue(level: str, path: str, where: str = "my.yml:3") -> Issue:
    return Issue("bad_value", level, path, where, "is wrong.")  # type: ignore[arg-type]


def test_a_single_issue_is_the_error() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        report_issues([issue("error", "Global.x")])
    assert caught.value.issues == [issue("error", "Global.x")] and caught.value.code == "bad_value"
    assert str(caught.value) == issue("error", "Global.x").text == "my.yml:3: Global.x: is wrong."
    assert str(issue("error", "Global.x")) == "my.yml:3: Global.x: is wrong. [bad_value]"


def test_several_issues_are_listed_once_each() -> None:
    first, second = issue("error", "Global.x"), issue("error", "Loss", "")
    with pytest.raises(InvalidConfigError) as caught:
        report_issues([first, first, second])
    assert caught.value.issues == [first, second] and caught.value.code == "config_issues"
    assert str(caught.value).splitlines()[1:] == [f"  {first}", f"  {second}"]


def test_warnings_are_logged_and_strict_makes_them_errors(warned: list[str]) -> None:
    warning = issue("warning", "Global.x")
    report_issues([warning, warning])
    assert warned == [str(warning)]
    with pytest.raises(InvalidConfigError) as caught:
        report_issues([warning], strict=True)
    assert caught.value.issues == [warning]
    report_issues([], strict=True)


@pytest.mark.parametrize("listed", [[None], [5]])
def test_a_label_file_that_is_no_path(listed: list[object], one: Config, check: Check) -> None:
    found = check(one.with_values({"Train.dataset.label_file_list": listed}))
    assert any(issue.startswith("error: Train.dataset.label_file_list.0: ") for issue in found)


def test_an_empty_delimiter(one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({"Train.dataset.delimiter": ""}))
    assert issue.startswith("error: Train.dataset.delimiter: ")
