"""Files that a role needs, and how all issues are said at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from official_facts import Check, facts, only

from ppocr_ext.config import Config
from ppocr_ext.issues import InvalidConfigError, Issue, report_issues


def test_all_missing_files_are_named(two: Config, check: Check) -> None:
    found = check(
        two.with_values(
            {
                "Train.dataset.label_file_list": [f"/no/lists/{number}.txt" for number in range(32)],
                "Train.dataset.data_dir": "/no/data",
                "Eval.dataset.label_file_list": "no.txt",
                "Architecture.Models.Teacher.pretrained": "/no/teacher",
                "Global.character_dict_path": "/no/dict.txt",
            }
        )
    )
    assert [(issue.path, issue.code) for issue in found[1:]] == [
        ("Train.dataset.data_dir", "missing_folder"),  # once, for all that are in /no
        ("Eval.dataset.label_file_list", "missing_file"),
        ("Architecture.Models.Teacher.pretrained", "missing_file"),
    ]
    assert found[0].path == "Global.character_dict_path"
    named = ("/no/dict.txt", "no folder /no ", "no.txt", "/no/teacher.pdparams")
    assert all(name in issue.message for name, issue in zip(named, found, strict=True))


@pytest.mark.parametrize("name", ["PP-OCRv6_medum_rec", "pretrain/PP-OCRv6_medium_rec_pretrained.pdparams"])
def test_a_misspelt_name_or_a_file_of_official_weights_is_answered_with_the_name(
    name: str, two: Config, check: Check
) -> None:
    path = "Architecture.Models.Teacher.pretrained"
    issue = only(check(two.with_values({path: name})))
    assert facts([issue]) == [("error", "missing_file", path)] and "'PP-OCRv6_medium_rec'" in issue.message


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("data\\train", "data/train"),
        ("~/train", str(Path.home() / "train")),
        (" train ", "train"),
        ("D:\\data\\train", "/mnt/d/data/train"),
        ("./train", None),
    ],
)
def test_a_path_of_another_system_or_shell_is_answered_with_the_right_form(
    written: str, right: str | None, one: Config, check: Check
) -> None:
    keys = ("Global.character_dict_path", "Train.dataset.data_dir", "Eval.dataset.label_file_list")
    for key in (*keys, "Global.pretrained_model"):
        issue = only(check(one.with_values({key: written})))
        assert issue.path == key and issue.code in ("missing_file", "missing_folder")
        assert (f"'{right}'" in issue.message) is (right is not None)
    # of a folder that is written, the name is taken as it stands
    found = check(one.with_values({"Global.save_model_dir": written}))
    expected = [] if right is None else [("warning", "literal_path", "Global.save_model_dir")]
    assert facts(found) == expected and all(f"'{right}'" in issue.message for issue in found)


def test_files_that_the_dataset_does_not_read_are_not_checked(one: Config, check: Check) -> None:
    path = "Train.dataset"
    dataset = {"name": "LMDBDataSet", "label_file_list": ["/no/train.txt"], "ds_width": None}
    found = check(one.with_values({f"{path}.{key}": value for key, value in dataset.items()}))
    assert ("warning", "unused_key", f"{path}.label_file_list") in facts(found)
    assert not any(issue.code == "missing_file" for issue in found)
    found = check(one.with_values({path: {"name": "CaptchaDataSet", "size": 1, "data_dir": "/no"}}))
    assert ("warning", "unused_key", f"{path}.data_dir") in facts(found)
    assert not any(issue.code == "missing_folder" for issue in found)


def test_a_space_with_two_classes_is_a_warning(one: Config, tmp_path: Path, check: Check) -> None:
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("0\n \n1\n")
    both = one.with_values({"Global.character_dict_path": str(dictionary), "Global.use_space_char": True})
    (warning,) = check(both)
    assert facts([warning]) == [("warning", "space_twice", "Global.use_space_char")]
    assert f"{dictionary}:2" in warning.message and "4" in warning.message
    assert check(both, "eval") == [warning]
    assert check(both.with_values({"Global.use_space_char": False})) == []
    dictionary.write_text("0\n1\n")
    assert check(both) == []


def test_an_evaluation_needs_its_own_files_alone(two: Config, check: Check) -> None:
    values = {
        "Train.dataset.label_file_list": ["/no/x"],
        "Architecture.Models.Teacher.pretrained": "/no/teacher",
    }
    assert check(two.with_values(values), "eval") == []
    (issue,) = check(two.with_values({**values, "Global.checkpoints": "/no/best"}), "eval")
    assert facts([issue]) == [("error", "missing_file", "Global.checkpoints")]
    assert "/no/best.pdparams" in issue.message


def test_a_whole_models_weights_go_before_those_of_sub_models(two: Config, data: Path, check: Check) -> None:
    values = {
        "Global.pretrained_model": str(data / "teacher"),
        "Architecture.Models.Teacher.pretrained": "/no/teacher",
    }
    assert check(two.with_values(values)) == []


def test_a_checkpoint_with_a_journal_is_not_missing(two: Config, tmp_path: Path, check: Check) -> None:
    renames = {f".latest{e}.abcd_123.tmp": f"latest{e}" for e in (".pdparams", ".pdopt", ".states")}
    (tmp_path / "latest.journal").write_text(json.dumps(renames))
    assert check(two.with_values({"Global.checkpoints": str(tmp_path / "latest")})) == []


def test_a_wrong_class_count_and_lines_that_no_label_uses(one: Config, tmp_path: Path, check: Check) -> None:
    path = "Architecture.Head.out_channels_list"
    (issue,) = check(one.with_values({path: {"CTCLabelDecode": 97}}))
    assert facts([issue]) == [("warning", "class_count", f"{path}.CTCLabelDecode")]
    assert "97" in issue.message and "5" in issue.message
    for text, count, has_onnx in (("a\n\na\nbc\n", 3, True), ("a\n\n", 1, False)):
        (tmp_path / "dict.txt").write_text(text)
        values = {"Global.character_dict_path": str(tmp_path / "dict.txt"), "Global.use_space_char": False}
        (issue,) = check(one.with_values(values))
        assert facts([issue]) == [("warning", "dictionary_lines", "Global.character_dict_path")]
        assert f" {count} of " in issue.message and ("ONNX" not in issue.message) is has_onnx


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
def test_a_label_file_must_be_a_path(listed: list[object], one: Config, check: Check) -> None:
    found = check(one.with_values({"Train.dataset.label_file_list": listed}))
    assert ("error", "bad_value", "Train.dataset.label_file_list") in facts(found)


def test_an_empty_delimiter(one: Config, check: Check) -> None:
    found = check(one.with_values({"Train.dataset.delimiter": ""}))
    assert facts(found) == [("error", "empty_value", "Train.dataset.delimiter")]


@pytest.mark.parametrize("key", ["Global.model_name", "Global.pdx_model_name"])
def test_a_name_that_the_export_does_not_use_is_a_warning(key: str, one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({key: "PP-OCRv9_mobile_rec"}))
    assert (issue.level, issue.code, issue.path) == ("warning", "unknown_model_name", key)
    assert check(one.with_values({key: "PP-OCRv5_mobile_rec"})) == []
    (turned,) = check(one.with_values({key: "arabic_PP-OCRv5_mobile_rec"}))
    assert (turned.level, turned.code) == ("warning", "arabic_name")
