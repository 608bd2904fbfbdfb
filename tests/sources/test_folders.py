"""Encodings, paths, several label files, formats that are not read, and files that were made to harm."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pytest
from error_codes import raises_code
from folders import BOX, POLYGON, TEXTS, draw, images, page_line, quoted, tabs, write, write_json
from test_recognise import crops, entries, pages, texts_of

from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_RECORD_BYTES
from ppocr_ext.sources import listing
from ppocr_ext.sources.recognise import recognise, unlabelled

CHINESE = {"a.jpg": "京A·12345", "b c.PNG": "文字识别", "中文/图 1.png": "深圳"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "gb18030"])
@pytest.mark.parametrize("form", ["tsv", "csv", "json", "text_files"])
def test_an_encoding_is_found(tmp_path: Path, form: str, encoding: str, end: str) -> None:
    images(tmp_path, CHINESE)
    contents = {
        "tsv": {"标签.txt": tabs(CHINESE, end)},
        "csv": {"l.csv": f"image,text{end}" + quoted(CHINESE).replace("\n", end)},
        "json": {"l.json": json.dumps(CHINESE, ensure_ascii=False, indent=1)},
        "text_files": {str(Path(image).with_suffix(".txt")): text + end for image, text in CHINESE.items()},
    }
    for name, content in contents[form].items():
        write(tmp_path, name, content, encoding)
    if form == "text_files" and encoding in ("utf-16-le", "utf-16-be"):
        return  # nothing tells them in Chinese alone
    source = recognise(tmp_path)
    assert (source.format, texts_of(source)) == (form, CHINESE)
    assert any(encoding[:6].upper() in note for note in source.notes) != encoding.startswith("utf-8")


def test_a_broken_line_does_not_change_the_encoding(tmp_path: Path) -> None:
    images(tmp_path, CHINESE)
    (tmp_path / "l.txt").write_bytes(tabs(CHINESE).encode() + b"a.jpg\tx\xff\n")
    samples, skipped = entries(recognise(tmp_path))
    assert [sample.text for sample in samples] == list(CHINESE.values())
    assert [(each.reason, each.place, each.image) for each in skipped] == [("bad_text", "l.txt:4", "a.jpg")]


OTHERS = {
    "cp1252": "Zürich café",
    "cp1251": "кот и",
    "cp950": "統一編號 國立臺灣大學",
    "cp949": "헌법",  # 清过 in GB18030: as usual
    "cp874": "ภาษาไทย กรุงเทพมหานคร",
}
LETTERS = {
    "cp949": ["대한민국", "12가3456", "서울특별시 강남구"],
    "euc_jp": ["東京都渋谷区", "ありがとう", "株式会社 A"],
    "cp932": ["東京都渋谷区", "ありがとう", "株式会社 A"],
    "gb18030": ["螺丝", "东京の味", "有限公司 A"],
}


@pytest.mark.parametrize("form", ["csv", "text_files"])
@pytest.mark.parametrize("encoding", LETTERS)
def test_the_letters_that_come_out_decide_the_encoding(tmp_path: Path, encoding: str, form: str) -> None:
    texts = {f"{number}.jpg": text for number, text in enumerate(LETTERS[encoding])}
    images(tmp_path, texts)
    beside = {f"{Path(image).stem}.txt": text for image, text in texts.items()}
    for name, text in ({"l.csv": f"image,text\n{quoted(texts)}"} if form == "csv" else beside).items():
        write(tmp_path, name, text, encoding)
    source = recognise(tmp_path)
    assert texts_of(source) == texts
    assert [note for note in source.notes if encoding.upper() in note]


def test_names_in_chinese_have_few_usual_letters(tmp_path: Path) -> None:
    names = [
        "欧阳娜",
        "诸葛亮",
        "司马懿",
        "慕容雪",
        "赵敏",
        "刘备",
        "孙悟空",
        "林黛玉",
        "贾宝玉",
        "薛蟠",
        "王熙凤",
        "李逵",
        "武松",
        "宋江",
        "鲁智深",
    ]
    texts = {f"{number}.jpg": name for number, name in enumerate(names)}
    images(tmp_path, texts)
    write(tmp_path, "l.csv", f"image,text\n{quoted(texts)}", "gb18030")
    assert texts_of(recognise(tmp_path)) == texts


def test_a_text_in_utf_8_stays_so_among_others(tmp_path: Path) -> None:
    texts = {f"{number}.jpg": f"京A{number:05}" for number in range(12)}
    images(tmp_path, texts)
    for number, text in enumerate(texts.values()):
        write(tmp_path, f"{number}.txt", text, "utf-8" if number == 5 else "gb18030")
    assert texts_of(recognise(tmp_path)) == texts


@pytest.mark.parametrize("name", ["l.txt", "l.csv", "a.txt"])
@pytest.mark.parametrize("encoding", OTHERS)
def test_another_encoding_is_refused(tmp_path: Path, encoding: str, name: str) -> None:
    draw(tmp_path / "a.jpg")
    text = OTHERS[encoding]
    content = {"l.txt": f"a.jpg\t{text}\n", "l.csv": f"image,text\na.jpg,{text}\n", "a.txt": text}
    write(tmp_path, name, content[name], encoding)
    with raises_code(DataError, "bad_encoding", name):
        recognise(tmp_path)


def test_a_file_is_decided_as_a_whole_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_BLOCK", 7)
    images(tmp_path, CHINESE)
    ascii_first = {f"gone{number}.jpg": "ASCII" for number in range(9)}
    write(tmp_path, "l.txt", tabs(ascii_first | CHINESE), "gb18030")
    assert texts_of(recognise(tmp_path)) == CHINESE


def test_short_texts_beside_images_are_decided_together(tmp_path: Path) -> None:
    texts = {
        "1.png": "鲁A1",
        "2.png": "A1",
        "3.png": "京A1",
        "4.png": "沪A1",
    }  # 鲁 in GB18030 is valid UTF-8, too
    images(tmp_path, texts)
    for image, text in texts.items():
        write(tmp_path, Path(image).with_suffix(".txt").name, text, "gb18030")
    source = recognise(tmp_path)
    assert texts_of(source) == texts
    assert len(source.notes) == 1


def test_a_list_names_what_stands_in_its_place(tmp_path: Path) -> None:
    images(tmp_path, ["img/a.png"])
    write(tmp_path, "l.txt", "img/a.jpg\tA\n")
    with raises_code(DataError, "no_samples", "img/a.png"):
        recognise(tmp_path)
    for letters in ("/t", "\\t"):
        write(tmp_path, "l.txt", f"img/a.png{letters}A\n")
        with raises_code(DataError, "unsupported_data", "letters"):
            recognise(tmp_path)


@pytest.mark.parametrize("other", ["val", "B"])
@pytest.mark.parametrize("form", ["list", "beside"])
def test_a_missing_image_is_not_that_of_another_folder(tmp_path: Path, form: str, other: str) -> None:
    texts = {"train/1.png": "gone", "train/2.png": "A", f"{other}/1.png": "B", f"{other}/3.png": "C"}
    images(tmp_path, [image for image in texts if texts[image] != "gone"])
    for image, text in texts.items():
        name = Path(image).name
        file = f"labels-{Path(image).parts[0]}.txt" if form == "list" else f"{name[0]}.gt.txt"
        with (tmp_path / Path(image).parent / file).open("a") as stream:
            stream.write(f"{name}\t{text}\n" if form == "list" else text)
    samples, skipped = entries(recognise(tmp_path))
    assert {each.image: each.text for each in samples} == {i: t for i, t in texts.items() if t != "gone"}
    assert [each.reason for each in skipped] == ["missing_image"]


@pytest.mark.parametrize(
    ("own", "other", "image"),
    [
        ("Test/Gt", "Training/Gt", "Test/Img"),
        ("labels/val", "labels/train", "images/val"),
        ("a", "a/old", "a"),
    ],
)
def test_an_image_belongs_to_the_nearest_text(tmp_path: Path, own: str, other: str, image: str) -> None:
    images(tmp_path, [f"{image}/1.png", f"{image}/2.png"])
    for name in ("1", "2", "3"):
        write(tmp_path, f"{own}/gt_{name}.txt", f"{POLYGON},own\n")
        write(tmp_path, f"{other}/gt_{name}.txt", f"{POLYGON},other\n")
    source = recognise(tmp_path)
    assert {each.image: each.text for each in source.samples()} == {f"{image}/{n}.png": "own" for n in (1, 2)}
    assert {f"{other}/gt_{n}.txt" for n in (1, 2, 3)} <= {
        note.partition(" is not read")[0] for note in source.notes
    }


PATHS = {
    "train/1.png": "train/1.png", "./train/1.png": "train/1.png", "list/../train/1.png": "train/1.png",
    "train\\1.png": "train/1.png", "2.png": "list/2.png", "list/2.PNG": "list/2.png", "inner.png": "inner.png",
    "DATA/train/1.png": "train/1.png", "{root}/train/1.png": "train/1.png", "/home/me/only.png": "other/only.png",
    "C:\\Users\\me\\only.png": "other/only.png", "C:\\Users\\me\\train\\1.png": "train/1.png",
    "/home/me/1.png": None,  # two of this name
    "gone/only.png": None,  # not where it says, although other paths are right
    "/etc/hostname": None, "../secret.png": None, "link.png": None, "folder_link/secret.png": None,
    "x" * 5000: None, "a\0b.png": None,
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_leads_to_an_image_of_the_folder(tmp_path: Path, path: str) -> None:
    root = tmp_path / "DATA"
    images(root, ["train/1.png", "val/1.png", "list/2.png", "other/only.png"])
    draw(tmp_path / "secret.png")
    (root / "link.png").symlink_to("../secret.png")
    (root / "folder_link").symlink_to("..")
    (root / "inner.png").symlink_to("train/1.png")
    write(root, "list/l.txt", f"2.png\tfirst\n2.png\tsecond\n{path.replace('{root}', str(root))}\ttext\n")
    samples, _ = entries(recognise(root, labels=[str(root / "list" / "l.txt")]))
    assert {each.text: each.image for each in samples}.get("text") == PATHS[path]


@pytest.mark.parametrize(
    ("path", "image"),
    [("i/A.png", "i/A.png"), ("i/a.png", "i/a.png"), ("{root}/i/a.png", "i/a.png"), ("/x/i/a.png", "i/a.png"),
     ("DATA/i/A.png", "i/A.png"), ("i/../i/a.png", "i/a.png"), ("A.png", "i/A.png"), ("a.png", "i/a.png"),
     ("i/A.PNG", None), ("/x/A.PNG", None), ("A.PNG", None), ("i/B.png", "i/b.PNG"), ("/x/B.png", "i/b.PNG")],
)  # fmt: skip
def test_letters_of_another_case_are_another_image(tmp_path: Path, path: str, image: str | None) -> None:
    root = tmp_path / "DATA"
    draw(root / "i/A.png", size=(400, 400))  # much larger: not the photo of the other one
    images(root, ["i/a.png", "i/b.PNG"])
    path = path.replace("{root}", str(root))
    write(root, "l.txt", f"{Path(path).parent / 'b.PNG'}\tfirst\n{path}\ttext\n")
    samples, _ = entries(recognise(root))
    assert {each.text: each.image for each in samples} == {"first": "i/b.PNG"} | (
        {"text": image} if image else {}
    )


@pytest.mark.parametrize(
    ("names", "texts", "pairs"),
    [
        (["A.png", "a.png"], ["A.txt", "a.txt"], {"A.png": "A.txt", "a.png": "a.txt"}),
        (
            ["A.png", "b.PNG"],
            ["A.gt.txt", "a.gt.txt", "B.gt.txt"],
            {"A.png": "A.gt.txt", "b.PNG": "B.gt.txt"},
        ),
        (["t/A.png", "v/a.png"], ["t/a.txt", "v/A.txt"], {"t/A.png": "t/a.txt", "v/a.png": "v/A.txt"}),
    ],
)
def test_a_text_beside_is_of_the_image_that_is_spelled_alike(
    tmp_path: Path, names: list[str], texts: list[str], pairs: dict[str, str]
) -> None:
    images(tmp_path, names)
    for name in texts:
        write(tmp_path, name, name)
    assert texts_of(recognise(tmp_path)) == pairs


@pytest.mark.parametrize(
    ("name", "text", "image"),
    [
        ("labels/train/9.txt", "A", "images/val/9.png"),
        ("labels/train/9.gt.txt", "A", "images/val/9.png"),
        ("train/9.json", json.dumps({"shapes": [{"label": "A", "points": [[1, 1], [9, 9]]}]}), "val/9.png"),
        ("train.txt", "9.png\tA\n", "images/val/9.png"),
        ("l.txt", "/x/train/9.png\tA\n", "images/val/9.png"),
    ],
)
def test_a_text_of_a_split_is_not_of_an_image_of_another(
    tmp_path: Path, name: str, text: str, image: str
) -> None:
    images(tmp_path, ["images/train/1.png", image])
    write(tmp_path, "1.jsonl", '{"image": "images/train/1.png", "text": "one"}')
    write(tmp_path, name, text)
    assert texts_of(recognise(tmp_path)) == {"images/train/1.png": "one"}


def test_a_list_of_a_split_may_name_images_of_one_folder(tmp_path: Path) -> None:
    images(tmp_path, ["test_images/1.png", "test_images/2.png"])
    for split, name in (("train", "1"), ("val", "2")):
        write(tmp_path, f"{split}.txt", f"/x/{name}.png\t{split}\n")
    samples, _ = entries(recognise(tmp_path))
    assert [each.split for each in samples] == [each.text for each in samples] == ["train", "val"]


def test_images_found_by_name_are_counted(tmp_path: Path) -> None:
    images(tmp_path, ["x/1.png", "x/2.png"])
    write(tmp_path, "l.txt", "D:\\y\\1.png\tA\nD:\\y\\2.png\tB\nD:\\y\\3.png\tC\n")
    source = recognise(tmp_path)
    assert texts_of(source) == {"x/1.png": "A", "x/2.png": "B"}
    assert [note.endswith(": 2.") for note in source.notes] == [True]


def test_a_folder_of_ppocrlabel_may_have_another_name(tmp_path: Path) -> None:
    pages(tmp_path)
    (tmp_path / "F").rename(tmp_path / "renamed")
    for root in (tmp_path, tmp_path / "renamed"):
        samples, _ = entries(recognise(root))
        assert [Path(each.image).name for each in samples] == ["1.jpg"]


@pytest.mark.parametrize("name", ["a\tb.png", "[1].png", "a\nb.png"])
def test_a_path_that_no_label_file_can_hold_is_skipped(tmp_path: Path, name: str) -> None:
    images(tmp_path, ["1.png", name])
    write_json(tmp_path, "labels.json", {name: "A", "1.png": "B"})
    samples, skipped = entries(recognise(tmp_path))
    assert [each.image for each in samples] == ["1.png"] and [each.reason for each in skipped] == ["bad_path"]


def splits(root: Path, folders: list[str], lists: tuple[str, ...] = (), **options: bool) -> dict[str, str]:
    """Return the split of the image in each folder, or that each list names; ``""``: none."""
    for folder in folders:
        draw(root / folder / "1.png")
        write(root, f"{folder}/1.txt", folder)
    for number, file in enumerate(lists):
        draw(root / "images" / f"{number}.png")
        write(root, file, f"images/{number}.png\t{file}\n")
    return {each.text: each.split for each in entries(recognise(root, **options))[0]}


@pytest.mark.parametrize(
    "names",
    [
        {"train": "train", "val": "val", "test": "test"},
        {"TrainSet": "train", "TestSet": "test"},
        {"trainset": "train", "valset": "val", "testset": "test"},
        {"训练集": "train", "验证集": "val", "测试集": "test"},
        {"训练": "train", "测试": "test"},
        {"車牌訓練集": "train", "車牌測試集": "test"},
        {"training": "train", "validation": "val", "extra": ""},
        {"train": "train", "holdout": "val"},
        {"train_images": "train", "dev": "val"},
        {"train2017": "train", "val2017": "val"},
        {"icdar train": "train", "icdar test": "test"},
        {"ch4_training_images": "train", "ch4_test_images": "test", "Challenge4_Test_Task1_GT": "test"},
        {
            "ch4_training_localization_transcription_gt": "train",
            "ch4_test_images_gt": "test",
            "icdar_c4_train_imgs": "",
        },
        {"all/train/x": "train", "all/test/x": "test"},
        {"crash test": "", "dev board": "", "street": ""},
        {"压力测试": "", "街道": ""},
        {"trainers": "", "contest": "", "evaluated": ""},
        {"train_val": "", "street": ""},
        {"train_data": ""},
        {"ocr-training-data": "", "street": ""},
        {"train_data": "train", "val_data": "val"},
        {"train_data/rec/train": "train", "train_data/rec/val": "val", "train_data/crop_img": ""},
    ],
)
def test_folders_that_are_named_as_parts_are_the_split(tmp_path: Path, names: dict[str, str]) -> None:
    assert splits(tmp_path, list(names)) == names


@pytest.mark.parametrize(
    "names",
    [
        {"rec_gt_train.txt": "train", "rec_gt_val.txt": "val"},
        {"labels.txt": "", "test.txt": "test"},
        {"plates_train.txt": "train", "plates_eval.txt": "val"},
        {"l.TRAIN.txt": "train", "l.VALID.txt": "val"},
    ],
)
def test_lists_that_are_named_as_parts_are_the_split(tmp_path: Path, names: dict[str, str]) -> None:
    assert splits(tmp_path, [], tuple(names)) == names


@pytest.mark.parametrize(
    "folders",
    [
        ["train", "crash test"],
        ["dev", "test", "prod"],
        ["crash", "crash test"],
        ["a train", "b val"],
        ["images", "en_val"],  # of EasyOCR
    ],
)
def test_a_part_that_is_in_doubt_is_asked_for(tmp_path: Path, folders: list[str]) -> None:
    with raises_code(DataError, "ambiguous_split", "--split"):
        splits(tmp_path, folders)
    assert set(splits(tmp_path, folders, ask_for_split=False).values()) <= {"", "train"}


def test_a_name_with_a_word_of_a_split_is_named(tmp_path: Path) -> None:
    splits(tmp_path, ["crash test", "dev board", "street"])
    notes = " ".join(recognise(tmp_path).notes)
    assert "crash test" in notes and "dev board" in notes and "street" not in notes


def test_the_list_of_all_crops_is_not_the_part_that_trains(tmp_path: Path) -> None:
    """As PPOCRLabel's script splits, which copies the crops of a page into folders of the parts."""
    parts = {"train": ["1", "2"], "val": ["3"], "test": ["4"]}
    for part, names in parts.items():
        paths = {f"{name}_crop_0.jpg": name for name in names}
        images(
            tmp_path,
            [f"train_data/{folder}/{path}" for path in paths for folder in ("crop_img", f"rec/{part}")],
        )
        write(
            tmp_path,
            f"train_data/rec/{part}.txt",
            tabs({f"/x/rec/{part}/{path}": t for path, t in paths.items()}),
        )
    write(tmp_path, "train_data/rec_gt.txt", "".join(f"crop_img/{n}_crop_0.jpg\t{n}\n" for n in "1234"))
    samples, _ = entries(recognise(tmp_path))
    assert {part: [each.text for each in samples if each.split == part] for part in parts} == parts


def test_crops_of_ppocrlabel_win_and_name_their_pages(tmp_path: Path) -> None:
    crops(tmp_path)
    source = recognise(tmp_path)
    assert {each.group for each in entries(source)[0]} == {"F/crop_img/1"}
    assert any("--format ppocrlabel" in note for note in source.notes)
    assert texts_of(recognise(tmp_path, format="ppocrlabel")) == {"F/1.jpg": "one"}
    assert unlabelled(source) == (2, ("F/2.jpg", "F/3.jpg"))


def lists(root: Path, *files: tuple[str, dict[str, str]]) -> None:
    images(root, TEXTS)
    for name, texts in files:
        write(root, name, tabs(texts) if name.endswith("txt") else "image,text\n" + quoted(texts))


A, B, BAD = {"a.jpg": "A"}, {"b c.PNG": "B"}, {"a.jpg": "other"}
CHOICES = {
    "all of the splits": ([("train.txt", A), ("val.txt", B), ("all.txt", A | B)], ("train.txt", "val.txt")),
    "the same": ([("l.csv", A), ("l.txt", A)], ("l.txt",)),
    "an old list": ([("l.txt", A), ("old.txt", {"gone.jpg": "x"})], ("l.txt",)),
    "a copy in a folder below": ([("l.txt", A), ("backup/l.txt", A)], ("l.txt",)),
    "two parts": ([("1.txt", A), ("2.txt", B)], ("1.txt", "2.txt")),
    "the same in two splits": ([("train.txt", A), ("val.txt", A)], ("train.txt", "val.txt")),
    "an image in two splits": ([("train.txt", A), ("val.txt", BAD)], ("train.txt", "val.txt")),
    "results": ([("l.csv", A), ("data/output/pred.txt", B)], ("l.csv",)),
    "results alone": ([("output/l.txt", A)], ("output/l.txt",)),
    "two lists that differ": ([("1.txt", A | B), ("2.txt", B | BAD)], None),
    "two formats that differ": ([("l.csv", A), ("l.txt", BAD)], None),
    "two formats of two parts": ([("l.csv", A), ("l.txt", B)], None),
}


@pytest.mark.parametrize("name", CHOICES)
def test_exactly_one_reading_results(tmp_path: Path, name: str) -> None:
    files, chosen = CHOICES[name]
    lists(tmp_path, *files)
    if chosen:
        source = recognise(tmp_path)
        assert source.files == chosen
        names = {next((split for split in ("train", "val") if split in file), "") for file in chosen}
        assert {each.split for each in entries(source)[0]} == names
        assert len(source.notes) == len(files) - len(chosen)
        return
    flag = "--labels" if files[0][0].endswith("txt") else "--format"
    different = [] if "parts" in name else ["a.jpg 'A'", "a.jpg 'other'"]
    with raises_code(DataError, "ambiguous_data", flag, *(file for file, _ in files), *different):
        recognise(tmp_path)
    for file, texts in files:
        assert texts_of(recognise(tmp_path, labels=[str(tmp_path / file)])) == texts


def test_labels_name_the_files_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists(tmp_path, ("predictions.txt", A), ("l.txt", BAD))
    monkeypatch.chdir(tmp_path)
    assert texts_of(recognise(Path(), labels=["predictions.txt"])) == A
    lists(tmp_path, ("output/l.txt", B))
    assert texts_of(recognise(tmp_path, labels=["predictions.txt", "output/l.txt"])) == A | B
    write(tmp_path, "l.xlsx", "PK")
    with raises_code(DataError, "unread_labels", "l.xlsx", "CSV"):
        recognise(tmp_path, labels=["predictions.txt", "l.xlsx"])
    with raises_code(DataError, "missing_file", "gone.txt"):
        recognise(tmp_path, labels=["gone.txt"])


def test_a_list_that_is_not_read_is_named(tmp_path: Path) -> None:
    broken = "".join(f"nothing {number}\n" for number in range(300)) + tabs(B)
    lists(tmp_path, ("l.txt", A))
    write(tmp_path, "broken.txt", broken)
    write(tmp_path, "gone.txt", tabs({f"gone{n}.jpg": "x" for n in range(300)}))
    write(tmp_path, "table.xlsx", "PK")
    write(tmp_path, "more.tags", "1 a.JPG\n")
    write(tmp_path, "show.py", "import images\nimages.show('a.jpg')\n")  # no list
    source = recognise(tmp_path)
    assert source.files == ("l.txt",) and len(source.notes) == 4
    for file in ("broken.txt", "gone.txt", "table.xlsx", "more.tags"):
        assert sum(note.startswith(file) for note in source.notes) == 1
        with raises_code(DataError, "unread_labels", file):
            recognise(tmp_path, labels=["l.txt", file])
    copy = {"l.txt": A, "copy.txt": A}
    lists(tmp_path, *copy.items())
    assert texts_of(recognise(tmp_path, labels=list(copy))) == A


def test_more_lists_than_are_looked_at_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_MOST_FILES", 3)
    names = [f"{n}.jpg" for n in range(5)]
    images(tmp_path, names)
    for n, name in enumerate(names):
        write(tmp_path, f"list_{n}.txt", tabs({name: str(n)}))
    source = recognise(tmp_path)
    assert len(source.files) == 3 and any("list_3.txt" in note for note in source.notes)
    every = [f"list_{n}.txt" for n in range(5)]
    assert len(texts_of(recognise(tmp_path, labels=every))) == 5


def test_texts_in_names_need_a_pattern(tmp_path: Path) -> None:
    images(tmp_path, ["京A1_0.png", "B2_1.PNG", "x.jpg"])
    with raises_code(DataError, "no_samples", "2 .png", "x.jpg"):
        recognise(tmp_path)
    for pattern in (r"^(?P<text>[^_]+)_\d", r"^([^_]+)_\d", r"^[^_]+(?=_)"):
        samples, skipped = entries(source := recognise(tmp_path, text_from_name=pattern))
        assert {each.text for each in samples} == {"京A1", "B2"}
        assert [(each.reason, each.image) for each in skipped] == [("name_differs", "x.jpg")]
        assert unlabelled(source)[0] == 0
    with raises_code(DataError, "bad_value"):
        recognise(tmp_path, text_from_name="(")


@pytest.mark.parametrize(
    ("names", "reads"),
    [
        (["a/京A1_0.png", "a/B2_1.PNG", "x.jpg"], {"^[^-_ ]+": "京A1", "[^-_ ]+$": "0", ".+": "京A1_0"}),
        (["1_A_2.png", "3_B_4.png"], {"^[^-_ ]+": "1", "[^-_ ]+$": "2", "(?<=[-_ ])[^-_ ]+(?=[-_ ])": "A"}),
        (["AB.png", "CD.png"], {"^[^-_ ]+": "AB"}),
        (["A/1.png", "京/1.png"], {"[^/]+(?=/[^/]*$)": "京"}),  # a folder for each class
    ],
)
def test_the_error_shows_what_names_of_images_may_say(
    tmp_path: Path, names: list[str], reads: dict[str, str]
) -> None:
    images(tmp_path, names)
    with raises_code(DataError, "no_samples", *map(shlex.quote, reads), *map(repr, reads.values())):
        recognise(tmp_path)
    for pattern, text in reads.items():
        samples, _ = entries(recognise(tmp_path, text_from_name=pattern))
        assert text in {each.text for each in samples}


def test_a_named_label_file_is_read_or_is_an_error(tmp_path: Path) -> None:
    bad = "".join(f"gone{number}.jpg\tx\n" for number in range(400))
    lists(tmp_path, ("l.txt", A), ("old.txt", {"gone.jpg": "x"}))
    for name, text in {
        "late.list": bad + "b c.PNG\tB\n",
        "l.tmp": tabs(B),
        "no.csv": "image,width\na.jpg,9\n",
    }.items():
        write(tmp_path, name, text)
    assert texts_of(recognise(tmp_path)) == A | B  # late.list, too
    for name in ("late.list", "l.tmp"):
        assert texts_of(recognise(tmp_path, labels=[str(tmp_path / name)])) == B
    for names in (["no.csv"], ["l.txt", "no.csv"], ["l.txt", "old.txt"]):
        code = "unread_labels" if "l.txt" in names else "no_samples"
        with raises_code(DataError, code, names[-1], "`text`" if "no.csv" in names else "gone.jpg"):
            recognise(tmp_path, labels=[str(tmp_path / name) for name in names])


@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        ("l.csv", "file_name,width,class\na.jpg,9,x\n", "column `text`"),
        ("l.csv", "file_name,width\na.jpg,9\nb.jpg,8\n", "column `text`"),
        ("l.csv", "id,words\n1,x\n", "column `image`"),
        (
            "l.csv",
            "a.jpg,x,train\nb.jpg,y,train\n",
            "write as its first line `image,text,column3`, which reads 'x', 'y'.",
        ),
        (
            "l.csv",
            "a.jpg,CA,A\nb.jpg,CA,B\nc.jpg,TX,C\nd.jpg,TX,D",
            "`image,column2,text`, which reads 'A', 'B', 'C', or "
            "`image,text,column3`, which reads 'CA', 'CA', 'TX'.",
        ),
        ("l.csv", "file,state,number\na.jpg,CA,A\nb.jpg,CA,B\n", "`image,state,text`, which reads 'A', 'B'."),
        ("l.json", '[{"image": "a.jpg", "class": 3}]', "field `text`"),
        ("l.jsonl", '{"file": "a.jpg", "id": 3}\n', "field `text`"),
        ("l.csv", "image,label,xmin,ymin\na.jpg,plate,1,2\n", "boxes"),
        ("l.txt", "a.jpg\nb.jpg\n", r"'a.jpg\nb.jpg\n', and its lines have no text"),
        ("l.txt", "a.jpg 1,2,3,4,0\n", "1,2,3,4,0"),
        ("l.lst", "a.jpg|A\n", "a.jpg|A"),
        ("l.tags", "a.jpg|A\n", "a.jpg|A"),
        ("l.txt", "", "no text"),
        ("box/b.csv", f"{POLYGON},1950\n", "image has its name"),
    ],
)
def test_the_error_says_what_a_file_has_not(tmp_path: Path, name: str, text: str, fact: str) -> None:
    draw(tmp_path / "a.jpg")
    write(tmp_path, name, text)
    with raises_code(DataError, "no_samples", name, fact):
        recognise(tmp_path)


PLACES = {  # label file, path in it, images -> the one that is meant, and whether there is a doubt
    "as the list says": ("l.txt", "photos/1.png", "photos/1.png", False),
    "as an absolute path says": ("l.txt", "/x/photos/1.png", "photos/1.png", False),
    "beside the list": ("photos/l.txt", "1.png", "photos/1.png", False),
    "in a folder of crops": ("l.txt", "1.png", "crops/1.png", True),
    "in its folder": ("crops/l.txt", "1.png", "crops/1.png", False),
    "elsewhere": ("l.txt", "/x/1.png", "crops/1.png", True),
    "in images": ("labels/l.txt", "1.png", "crops/1.png", True),
}


@pytest.mark.parametrize("photos", ["photos", "images"])
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("folder", ["crops", "small"])
def test_a_line_is_read_rather_than_its_photo(tmp_path: Path, name: str, photos: str, folder: str) -> None:
    file, path, image, doubt = PLACES[name]
    draw(tmp_path / photos / "1.png", size=(400, 400))
    draw(tmp_path / folder / "1.png")
    file, path, image = (
        each.replace("photos", photos).replace("crops", folder) for each in (file, path, image)
    )
    write(tmp_path, file, f"{path}\tA\n")
    source = recognise(tmp_path)
    assert texts_of(source) == {image: "A"}
    assert doubt == any(note.endswith(f": {image}.") for note in source.notes)


@pytest.mark.parametrize(("file", "image"), [("l.txt", "crops/1.png"), ("a/l.txt", "a/1.png")])
def test_lines_below_the_list_are_read_rather_than_photos_beside_it(
    tmp_path: Path, file: str, image: str
) -> None:
    draw((tmp_path / file).with_name("1.png"), size=(400, 400))
    draw(tmp_path / "crops/1.png")
    write(tmp_path, file, "1.png\tA\n")
    source = recognise(tmp_path)
    assert texts_of(source) == {image: "A"}
    assert len(source.notes) == (file == "l.txt")


def test_a_text_beside_belongs_to_the_line_rather_than_to_its_photo(tmp_path: Path) -> None:
    draw(tmp_path / "photos/1.png", size=(400, 400))
    draw(tmp_path / "crops/1.png")
    write(tmp_path, "labels/1.txt", "A")
    source = recognise(tmp_path)
    assert texts_of(source) == {"crops/1.png": "A"}
    assert len(source.notes) == 1


def test_polygons_that_begin_elsewhere_are_counted(tmp_path: Path) -> None:
    draw(tmp_path / "a.jpg")
    write(tmp_path, "a.txt", f"{POLYGON},A\n10,30,50,30,50,10,10,10,B\n50,30,10,30,10,10,50,10,C\n")
    source = recognise(tmp_path)
    assert {each.box for each in entries(source)[0]} == {BOX}
    assert [note.endswith(": 2.") for note in source.notes] == [True]


def test_lists_of_one_tool_are_all_read(tmp_path: Path) -> None:
    images(tmp_path, ["1.jpg", "2.jpg", "3.jpg"])
    write(tmp_path, "train.txt", "/x/1.jpg, A\n")
    write(tmp_path, "latin_train.txt", "/x/2.jpg, B, C\n/x/3.jpg, D\n")
    assert texts_of(recognise(tmp_path)) == {"1.jpg": "A", "2.jpg": "B, C", "3.jpg": "D"}


def test_images_without_text_and_texts_without_images_are_counted(tmp_path: Path) -> None:
    lists(tmp_path, ("l.txt", A | {"1.jpg": "x", "2.jpg": "y"}))
    source = recognise(tmp_path)
    assert unlabelled(source) == (2, ("b c.PNG", "中文/图 1.png"))
    images(tmp_path, ["samples.png"])
    assert unlabelled(recognise(tmp_path))[0] == 3
    (tmp_path / "dataset.json").write_text("{}")  # of make-dataset, whose overview needs no label
    assert unlabelled(recognise(tmp_path))[0] == 2
    assert Counter(each.reason for each in entries(source)[1]) == {"missing_image": 2}
    shutil.rmtree(tmp_path / "中文")
    (tmp_path / "a.jpg").unlink()
    with raises_code(DataError, "no_samples", "3 missing_image", "l.txt", "a.jpg", "1.jpg"):
        recognise(tmp_path)


DEEP = "[" * 100_000
NO_TEXT = '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1}]}'
REFUSED: dict[str, list[tuple[str, str]]] = {
    "unsupported_data": [
        ("a.txt", "0 0.5 0.5 0.2 0.1\n1 0.1 0.2 0.3 0.4\n"),
        ("labels/7.txt", "0 0.5 0.5 0.2 0.1\n"), ("classes.txt", "plate\n"), ("gt_a.txt", f"{POLYGON}\n"),
        ("_annotations.csv", "filename,class,xmin\na.jpg,plate,1\n"),
        ("_annotations.train.jsonl", '{"image": "a.jpg", "prefix": "", "suffix": "x"}\n'),
        ("a.xml", "<annotation><object><name>plate</name><bndbox></bndbox></object></annotation>"),
        ("train.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12\n"),
        ("words.xml", "<tagset><image><imageName>a.jpg</imageName></image></tagset>"),
        ("train.jsonl", '{"info": {}, "annotations": [{"image_id": "a", "paragraphs": []}]}'),
        ("via.csv", "filename,region_shape_attributes,region_attributes\n"),
        ("output.manifest", '{"source-ref": "s3://b/a.jpg", "job": {}}\n'), ("train.txt", '["a.jpg", "b.jpg"]\tx\n'),
        ("a.txt", "1 1 5 1 5 5 1 5 plate 0\n"),
        ("poly_gt_a.txt", "x: [[1 5 5 1]], y: [[1 1 5 5]], ornt: [u'h'], transcriptions: [u'OPEN']\n"),
        ("l.csv", 'annotation_id,bbox,id,ocr,text\n1,"[{""original_width"": 9}]",1,a.jpg,x\n'),
        ("l.json", '[{"ocr": "a.jpg", "bbox": [{"original_width": 9}], "transcription": "x"}]'),
        ("a.txt", "plate 0.00 0 0.0 1 1 5 5 0 0 0 0 0 0 0\n"),
        ("train.parquet", "PAR1"), ("data.ZIP", "PK"), ("labels.xlsx", "PK"),
    ],
    "no_samples": [
        ("l.csv", "image,label,xmin,ymin\na.jpg,plate,1,2\n"),
        ("l.csv", "id,name\n1,x\n"), ("imlist.txt", "a.jpg\nb.jpg\n"), ("keys.txt", "a\tb\n"), ("x.log", "a.jpg\tx\n"),
        ("labels.json", '{"a.jpg": {"polygons": [[[0, 0]]], "img_dimensions": [4, 4]}}'),
        ("a.txt", "a.jpg\t193\t168\t190\t57\tDF2332\n"), ("train.txt", "a.jpg 1,2,3,4,0\n"),
        ("classes.json", '["a", "b"]'), ("l.json", NO_TEXT), ("l.jsonl", '{"image": "a.jpg", "class": 3}\n'),
        ("l.json", '{"images": 3, "annotations": [1, {"image_id": [], "attributes": 2}]}'),
        ("l.json", '[{"annotations": [{"result": [{"value": 1}, 2]}, 3], "data": 4}]'),
        ("l.json", '[{"image": {}, "text": 1}, {"image": "a.jpg", "text": ["x", 3]}]'),
        ("annotations.xml", "<annotations><track id='0'></track></annotations>"),
    ],
    "bad_content": [
        ("a.xml", '<!DOCTYPE x [<!ENTITY a "aa">]><annotations>&a;</annotations>'),
        ("a.xml", "\ufeff<!DOCTYPE x><annotations></annotations>"),  # in UTF-16
        ("a.xml", "<annotations>"),
        ("l.json", '[{"image": "a.jpg", "text": "x"}, ' + DEEP),
        ("l.json", '{"a.jpg": "text"'), ("l.json", '[{"image": "a.jpg", "text": "x"},' + "1," * 10_000_000 + "1]"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("code", "each"), [(code, each) for code in REFUSED for each in REFUSED[code]])
def test_other_files_are_no_label_files(tmp_path: Path, code: str, each: tuple[str, str]) -> None:
    file, text = each
    draw(tmp_path / "a.jpg")
    write(tmp_path, file, text, "utf-16-le" if text.startswith("\ufeff") else "utf-8")
    with raises_code(DataError, code, "Fix:", file):
        recognise(tmp_path)


@pytest.mark.parametrize("place", ["gone", "file.txt", "empty"])
def test_a_place_without_data_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").touch()
    (tmp_path / "empty").mkdir()
    with raises_code(DataError, "no_samples" if place == "empty" else "missing_folder", place):
        recognise(tmp_path / place)
    with raises_code(DataError, "bad_value", "csv_no_header"):
        recognise(tmp_path, format="cvs")


def test_a_deep_or_odd_line_of_pages_is_skipped(tmp_path: Path) -> None:
    draw(tmp_path / "a.jpg")
    far = 'a.jpg\t[{"transcription": "x", "points": [[1e999, 0], [2, 2]]}]'
    odd = [f"a.jpg\t[{{{DEEP}", 'a.jpg\t[{"transcription": "x"}, 3]', far]
    write(tmp_path, "Label.txt", page_line("a.jpg", ("one", False)) * 9 + "\n".join(odd))
    samples, skipped = entries(recognise(tmp_path))
    assert [each.text for each in samples] == ["one"]
    assert [each.reason for each in skipped] == ["bad_line", "bad_box", "bad_box"]


def test_a_long_line_is_skipped_and_a_page_may_be_long(tmp_path: Path) -> None:
    draw(tmp_path / "a.jpg")
    many = page_line("a.jpg", *((str(number), False) for number in range(2000)))
    endless = "a.jpg\t[" + " " * (MAX_RECORD_BYTES + 9) + "]\n"
    write(tmp_path, "Label.txt", many + endless + page_line("a.jpg", ("end", False)))
    samples, skipped = entries(recognise(tmp_path))
    assert len(many) > 1 << 16 and len(samples) == 2001 and samples[-1].place == "Label.txt:3"
    assert [each.reason for each in skipped] == ["bad_line"]


@pytest.mark.parametrize("special", ["pipe", "folder", "outside"])
def test_only_regular_files_inside_are_opened(tmp_path: Path, special: str) -> None:
    root = tmp_path / "data"
    draw(root / "a.jpg")
    draw(root / "b.jpg")
    write(root, "l.txt", "a.jpg\tA\n")
    write(tmp_path, "b.txt", "b.jpg\tB\n")
    make = {"pipe": os.mkfifo, "folder": Path.mkdir, "outside": lambda path: path.symlink_to("../b.txt")}
    for name in ("b.txt", "list.json", "x.xml"):
        make[special](root / name)
    assert texts_of(recognise(root)) == {"a.jpg": "A"}


def test_a_path_is_looked_for_in_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    images(tmp_path, [f"{number}/same.png" for number in range(count)])
    lines = (f"/x/same.png\t{number}\n0/same.png\t{number}\n" for number in range(count))
    write(tmp_path, "l.txt", "".join(lines))
    looks: list[str] = []
    folded = listing._folded
    monkeypatch.setattr(listing, "_folded", lambda text: looks.append(text) or folded(text))
    assert len(entries(recognise(tmp_path))[0]) == count
    assert len(looks) < 60 * count
