"""``Global.unknown_char: map``: unknown characters are one class, and a reading of it is never right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle
import pytest
from lmdb_files import write_lmdb

from ppocr_ext.charset import Charset
from ppocr_ext.check import check_config
from ppocr_ext.config import Config
from ppocr_ext.evaluation.predictions import Prediction, count_confusions
from ppocr_ext.host import open_host
from ppocr_ext.host.complete import JudgedDecoder
from ppocr_ext.recognition.images import ImageList, ListedImage
from ppocr_ext.run.run import Run
from ppocr_ext.text_direction import RIGHT_TO_LEFT, turned

SYMBOL = "□"
LABELS = (
    "12a4",
    "1□34",
    "1234",
    "ab",
)  # with characters outside the dictionary, with the symbol itself, without
CLASS = 11  # of the symbol, behind ten digits
Tiny = Callable[..., Config]


@pytest.fixture
def data(tmp_path):
    """Images with ``LABELS``, as a label file and as an LMDB, and a dictionary with the symbol."""
    image = np.full((32, 128, 3), 255, np.uint8)
    cv2.putText(image, "1234", (10, 26), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 0), 2)
    content = bytes(cv2.imencode(".png", image)[1])
    (tmp_path / "a.png").write_bytes(content)
    (tmp_path / "list.txt").write_text("".join(f"a.png\t{label}\n" for label in LABELS), encoding="utf-8")
    (tmp_path / "dict.txt").write_text("\n".join([*"0123456789", SYMBOL]) + "\n", encoding="utf-8")
    write_lmdb(tmp_path / "lmdb", LABELS, images=dict.fromkeys(range(1, len(LABELS) + 1), content))
    return tmp_path


def mapping(tiny: Tiny, data: Path, **values: Any) -> Config:
    lists = {f"{mode}.dataset.label_file_list": [str(data / "list.txt")] for mode in ("Train", "Eval")}
    folders = {f"{mode}.dataset.data_dir": str(data) for mode in ("Train", "Eval")}
    return tiny(
        "student",
        **{"Global.unknown_char": "map", "Global.unknown_symbol": SYMBOL},
        **{"Global.character_dict_path": str(data / "dict.txt"), "Train.loader.batch_size_per_card": 4},
        **lists,
        **folders,
    ).with_values(values)


def ids(batch: Any) -> set[tuple[int, ...]]:
    return {
        tuple(row[:n].tolist()) for row, n in zip(batch[1].numpy(), batch[3].numpy().reshape(-1), strict=True)
    }


EXPECTED = {(2, 3, CLASS, 5), (2, CLASS, 4, 5), (2, 3, 4, 5), (CLASS, CLASS)}


def test_labels_are_mapped_before_the_encoder(tiny, data):
    run = Run.build(mapping(tiny, data), "train")  # the dry step compares the labels too
    assert run.data.preflight["Train"].usable == 4 and run.data.preflight["Train"].mapped == 2
    batch = next(iter(run.data.train_loader))
    assert ids(batch) == EXPECTED
    nrtr = {tuple(row[1 : row.index(3)]) for row in batch[2].numpy().tolist()}
    assert nrtr == {tuple(c + 3 for c in label) for label in EXPECTED}
    # the network reads exactly the classes of the labels: only the label without the symbol is right
    evaluated = next(iter(run.data.eval_loader))
    label, length = evaluated[1].numpy(), evaluated[3].numpy().reshape(-1)
    frames = np.zeros([4, 16, 12], "float32")
    for row, n in enumerate(length):
        frames[row, :, 0] = 1.0
        frames[row, np.arange(n) * 2, 0] = 0.0
        frames[row, np.arange(n) * 2, label[row, :n]] = 1.0
    decoded = run.decoder(paddle.to_tensor(frames), label)
    assert [text for text, _ in decoded[0]] == ["12□4", "1□34", "1234", "□□"]
    assert [text for text, _ in decoded[1]] == ["12�4", "1�34", "1234", "��"]
    run.metric(decoded)
    numbers = run.metric.get_metric()
    assert numbers["acc"] == pytest.approx(1 / 4, abs=1e-4)
    assert numbers["norm_edit_dis"] == pytest.approx(1 - (1 / 4 + 1 / 4 + 1) / 4, abs=1e-4)
    read = [Prediction("", label, text, 1.0) for (text, _), (label, _) in zip(*decoded, strict=True)]
    assert [each.correct for each in read] == [False, False, True, False]
    score = count_confusions((each.label, each.text) for each in read).characters[SYMBOL]
    assert (score.predicted, score.correct) == (4, 0)


def test_labels_of_an_lmdb_are_mapped(tiny, data):
    dataset = {"Train.dataset.name": "LMDBDataSet", "Train.dataset.data_dir": str(data / "lmdb")}
    config = mapping(tiny, data, **{"Global.dry_step": False}).with_values(dataset)
    assert ids(next(iter(Run.build(config, "train").data.train_loader))) == EXPECTED


@pytest.mark.parametrize("name", ["SimpleDataSet", "LMDBDataSet"])
def test_labels_are_turned_before_their_images_are_joined(tiny, data, name):
    """RecConAug joins two images: the label of the left one comes first."""
    labels = ("שלום 12", "ab אבג")
    symbols = sorted({*"".join(labels)} - {" "})
    (data / "dict.txt").write_text("\n".join(symbols) + "\n", encoding="utf-8")
    (data / "list.txt").write_text("".join(f"a.png\t{label}\n" for label in labels), encoding="utf-8")
    content = (data / "a.png").read_bytes()
    write_lmdb(data / "rtl", labels, images=dict.fromkeys((1, 2), content))
    values = {"Global.text_direction": RIGHT_TO_LEFT, "Global.unknown_char": "drop_line"}
    long = dict.fromkeys(
        ("Global.max_text_length", "Architecture.Head.head_list.NRTRHead.max_text_length"), 30
    )
    config = mapping(tiny, data, **values, **long, **{"Global.use_space_char": True})
    joining = {
        "RecConAug": {"prob": 1.0, "ext_data_num": 1, "image_shape": [32, 320, 3], "max_text_length": 30}
    }
    for step in ([], [joining]):
        transforms = config.thaw()["Train"]["dataset"]["transforms"]
        dataset = {"Train.dataset.name": name, "Train.dataset.ext_op_transform_idx": 1}
        dataset |= {"Train.dataset.transforms": [transforms[0], *step, *transforms[1:]]}
        dataset |= {"Train.dataset.data_dir": str(data / "rtl" if name == "LMDBDataSet" else data)}
        dataset |= {"Train.loader.batch_size_per_card": 2, "Global.unknown_symbol": None}
        run = Run.build(config.with_values(dataset), "train")
        classes = dict(enumerate([*symbols, " "], 1))
        found = {"".join(map(classes.__getitem__, row)) for row in ids(next(iter(run.data.train_loader)))}
        one, two = map(turned, labels)
        assert found <= (
            {first + second for first in (one, two) for second in (one, two)} if step else {one, two}
        )


def test_a_decoder_of_sub_models_and_one_without_labels():
    charset = Charset((*"ab", SYMBOL), unknown_symbol=SYMBOL)
    pair = ([("a□", 0.5)], [("a□", 1.0)])
    decode = JudgedDecoder(lambda found: found, charset)
    assert decode({"Student": pair}) == {"Student": ([("a□", 0.5)], [("a�", 1.0)])}
    assert decode(pair[0]) == [("a□", 0.5)]


def test_a_reading_of_the_symbol_is_not_the_label_of_a_file():
    charset = Charset((*"ab", SYMBOL, "�"), unknown_symbol=SYMBOL)
    found = ImageList([ListedImage("1", Path("1"), "a□"), ListedImage("2", Path("2"), None)], [])
    assert [image.label for image in found.with_labels(charset).images] == ["a⁇", None]
    plain = Charset((*"ab", SYMBOL))
    assert [image.label for image in found.with_labels(plain).images] == ["a□", None]
    assert plain.encoded("ax") == "ax" and charset.encoded("axb") == "a□b"


@pytest.mark.parametrize(("values", "level", "code"), [
    ({"Global.unknown_symbol": "<unk>"}, "error", "bad_value"),
    ({"Global.unknown_char": "drop_char"}, "warning", "ignored_value"),
])  # fmt: skip
def test_the_symbol_is_a_line_of_the_dictionary(values, level, code, tiny, data):
    found = check_config(mapping(tiny, data).with_values(values), open_host(), "eval")
    assert [(issue.level, issue.code, issue.path) for issue in found] == [
        (level, code, "Global.unknown_symbol")
    ]
    assert check_config(mapping(tiny, data), open_host(), "eval") == []
