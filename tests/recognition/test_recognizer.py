"""`Recognizer` reads what `eval` reads, from any source, in batches and threads of any number."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from docstring_examples import check_example
from error_codes import raises_code
from saved_runs import network_of
from test_ctc_text import frames
from waiting import HANG

from ppocr_ext import Recognizer
from ppocr_ext.charset import Charset
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.run.run import Run


def content(readings):
    return [(each.text, round(each.confidence, 4), each.error) for each in readings]


def test_it_reads_what_an_evaluation_reads(run, images, captchas):
    options = [f"Global.checkpoints={run / 'best_accuracy'}", "Eval.loader.batch_size_per_card=3"]
    judged = evaluate(Run.build(load([run / "config.yml"], options), "eval")).predictions
    readings = Recognizer(run).read([captchas / each.image for each in judged])
    assert [each.text for each in readings] == [each.text for each in judged]
    assert [each.confidence for each in readings] == pytest.approx([each.confidence for each in judged])
    assert len({each.text for each in readings}) > 5  # of 10


def test_an_image_that_memory_does_not_suffice_for_fails_alone(run, images, monkeypatch):
    recognizer, prepare, calls = Recognizer(run), WidthPolicy.prepare, []
    expected = content(recognizer.read(images))

    def fail_once(policy, image):
        calls.append(image)
        if len(calls) == 2:
            raise MemoryError
        return prepare(policy, image)

    monkeypatch.setattr(WidthPolicy, "prepare", fail_once)
    found = recognizer.read(images)
    assert str(images[1]) in found[1].error and found[1].text == ""
    assert content([found[0], *found[2:]]) == [expected[0], *expected[2:]]


def test_an_exported_folder_and_a_compiled_run_read_the_same(run, exported, images):
    expected = content(Recognizer(run).read(images))
    for source, engine in ((exported, None), (exported, "onnx"), (exported, "paddle"), (run, "paddle")):
        recognizer = Recognizer(source, engine=engine, threads=1)
        assert recognizer.engine == (engine or "onnx")
        assert content(recognizer.read(images)) == expected


def test_an_onnx_file_reads_the_same_also_without_its_folder(run, exported, images, tmp_path):
    expected = content(Recognizer(run).read(images))
    alone = shutil.copy(exported / "inference.onnx", tmp_path / "my model.onnx")
    assert content(Recognizer(exported / "inference.onnx").read(images)) == expected
    with raises_code(WeightsError, "unknown_model", alone, "--trust-model"):
        Recognizer(alone)
    assert content(Recognizer(alone, trust_model=True).read(images)) == expected


def test_a_config_and_its_options_choose_the_weights(run, images):
    config = load([run / "config.yml"], [f"Global.pretrained_model={run / 'best_accuracy'}"])
    assert content(Recognizer.from_config(config).read(images)) == content(Recognizer(run).read(images))
    assert content(Recognizer(run / "config.yml", device="cpu").read(images)) == content(
        Recognizer(run).read(images)
    )


@pytest.fixture(scope="module")
def widening(run):
    """A recogniser that widens, so that images come in many widths."""
    network, charset = network_of(load(run / "config.yml"))
    policy = WidthPolicy("widen", (3, 32, 64))
    return Recognizer(RecognizerParts(NetworkEngine(network), policy, charset))


def noise(count=40):
    rng = np.random.default_rng(4)
    return [rng.integers(0, 256, (32, int(rng.choice([40, 96, 97, 160])), 3), np.uint8) for _ in range(count)]


def test_a_batch_never_changes_a_text(widening):
    one = widening.read(noise(), batch_size=1)
    assert len({each.text for each in one}) > 20
    for size in (3, 8, 100):
        several = widening.read(noise(), batch_size=size)
        assert [each.text for each in several] == [each.text for each in one]
        assert [each.image for each in several] == list(range(40))


def test_threads_share_one_object(run, exported, images):
    for source in (run, exported):
        recognizer = Recognizer(source)
        expected, found = content(recognizer.read(images)), {}

        def work(number, recognizer=recognizer, found=found):
            found[number] = content(recognizer.read(images[number:] + images[:number], batch_size=number + 1))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[number] for number in range(4)] == [expected[n:] + expected[:n] for n in range(4)]


def test_paths_bytes_and_arrays_of_all_kinds_in_one_call(run, images):
    recognizer = Recognizer(run)
    path = images[0]
    pixels = cv2.imread(str(path))
    grey = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    (expected,) = content(recognizer.read(path))
    forms = [str(path), path.read_bytes(), pixels, np.dstack([pixels, grey]), pixels.astype(np.uint16) * 257]
    assert content(recognizer.read(forms)) == [expected] * 5
    assert content(recognizer.read(grey)) == content(recognizer.read(np.dstack([grey] * 3)))
    assert [each.image for each in recognizer.read([path, pixels])] == [str(path), 1]
    assert content(recognizer.read(each for each in [pixels])) == [expected]
    assert recognizer.read([]) == []


def test_what_cannot_be_read_is_reported_and_the_rest_is_read(run, images, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    given = ["nowhere.png", images[0], tmp_path / "text.png", None, images[1]]
    readings = Recognizer(run).read(given)
    assert content(readings)[1::3] == content(Recognizer(run).read(images[:2]))
    for place, named in ((0, "nowhere.png"), (2, "text.png"), (3, "NoneType")):
        assert (readings[place].text, readings[place].confidence) == ("", 0.0)
        assert named in readings[place].error
    assert readings[0].to_json() == {"image": "nowhere.png", "error": readings[0].error}


def test_a_stream_reads_ahead_by_a_batch_alone(run, images):
    taken = []

    def source():
        for image in images:
            taken.append(image)
            yield image

    stream = Recognizer(run).stream(source(), batch_size=2)
    first = next(stream)
    assert first.image == str(images[0]) and len(taken) <= 4
    stream.close()
    assert len(taken) <= 4


class OneFrameIn4:
    """An engine that sees the character x in the column where the image is white."""

    name = "network"

    def probabilities(self, images):
        columns = images[:, 0].max(axis=1).reshape(len(images), -1, 4).max(axis=2)  # [B, T]
        return np.stack([frames(*((1, 0.9) if white > 0 else (0, 0.8) for white in row)) for row in columns])


@pytest.mark.parametrize(
    ("policy", "size", "white"),
    [
        (WidthPolicy("pad", (3, 16, 64)), (32, 60), (24, 31)),  # filled up to 128 columns of the image
        (WidthPolicy("pad", (3, 16, 64)), (16, 128), (40, 47)),  # squeezed by 2
        (WidthPolicy("squash", (3, 16, 64)), (16, 32), (20, 21)),  # drawn out by 2
        (WidthPolicy("widen", (3, 16, 64)), (8, 80), (50, 51)),
    ],
)
def test_characters_have_the_columns_of_the_image(policy, size, white):
    image = np.zeros((*size, 3), np.uint8)
    image[:, white[0] : white[1] + 1] = 255
    (reading,) = Recognizer(RecognizerParts(OneFrameIn4(), policy, Charset(("x", "y", "z")))).read(image)
    (character,) = reading.characters
    assert character.text == "x" and character.confidence == pytest.approx(0.9)
    frame = 4 * size[0] / 16 if policy.kind != "squash" else 4 * size[1] / 64
    frame = 4 * 128 / 64 if size == (16, 128) else frame  # columns of the image in one frame
    assert white[0] - frame <= character.first_column <= white[0]
    assert white[1] <= character.last_column <= white[1] + frame


def damaged(exported, folder, **changes):
    shutil.copytree(exported, folder)
    described = json.loads((folder / "model.json").read_text())
    for key, value in changes.items():
        if value is None:
            del described[key]
        else:
            described[key] = value
    (folder / "model.json").write_text(json.dumps(described))
    return folder


def test_an_export_that_is_not_as_it_was_is_refused(exported, tmp_path):
    for number, name in enumerate(("inference.onnx", "inference.pdiparams", "charset.txt")):
        folder = damaged(exported, tmp_path / str(number))
        engine = "paddle" if name.endswith("pdiparams") else "onnx"
        (folder / name).write_bytes((folder / name).read_bytes()[:-7])
        with raises_code(WeightsError, "digest_mismatch", folder / name):
            Recognizer(folder, engine=engine)
        (folder / name).unlink()
        missing = (DataError, "unreadable_file") if name == "charset.txt" else (WeightsError, "missing_file")
        with raises_code(*missing, folder / name):
            Recognizer(folder, engine=engine)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"format": 2}, "unsupported_format"),
        ({"format": None}, "bad_content"),
        ({"files": [1]}, "bad_content"),
        ({"width_policy": {"kind": "pad"}}, "bad_content"),
        ({"classes": 12}, "class_count"),
    ],
)
def test_a_description_of_another_form_is_refused(exported, tmp_path, changes, code):
    folder = damaged(exported, tmp_path / "folder", **changes)
    with raises_code(DataError, code, folder):
        Recognizer(folder)
    for text in ("", "[]", "{"):
        (folder / "model.json").write_text(text)
        with raises_code(DataError, "bad_content" if text == "[]" else "unreadable_file", folder):
            Recognizer(folder)


def test_an_onnx_file_with_another_dictionary_or_none_is_refused(exported, images, tmp_path):
    model, other = onnx.load(str(exported / "inference.onnx")), tmp_path / "other.onnx"
    entries = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**entries, "character": "a\nb\nc"})
    onnx.save(model, str(other))
    with raises_code(WeightsError, "charset_mismatch", 11, 4):
        Recognizer(other, trust_model=True).read(images)
    del entries["character"]
    onnx.helper.set_model_props(model, entries)
    onnx.save(model, str(other))
    with raises_code(WeightsError, "not_exported", "other.onnx", "character"):
        Recognizer(other, trust_model=True)


def test_options_that_the_source_does_not_take(run, exported, images):
    for options in ({"engine": "network"}, {"device": "gpu"}, {"options": ["a=1"]}, {"model": "Student"}):
        with raises_code(ConfigError, "unsupported_option", exported):
            Recognizer(exported, **options)
    with raises_code(ConfigError, "unsupported_engine", run, "export"):
        Recognizer(run, engine="onnx")
    with raises_code(ConfigError, "unsupported_option", run):
        Recognizer(run, threads=2)
    with raises_code(ConfigError, "unsupported_engine"):
        Recognizer(exported / "inference.onnx", engine="paddle")
    with raises_code(ConfigError, "unsupported_option"):
        Recognizer(load([run / "config.yml"]), options=["Global.seed=1"])
    for options in ({"engine": "tensorrt"}, {"device": "tpu"}, {"threads": 0}):
        with raises_code(ConfigError, "bad_value", *options):
            Recognizer(run, **options)
    recognizer = Recognizer(exported)
    with raises_code(DataError, "bad_value", "batch_size"):
        recognizer.read(images, batch_size=0)
    with raises_code(DataError, "bad_value", "int"):
        recognizer.read(5)


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("nowhere", DataError, "missing_file"),
        ("best_accuracy.pdparams", DataError, "not_a_recogniser"),
        ("config.yaml", ConfigError, "unreadable_file"),
    ],
)
def test_a_source_that_is_none(run, name, kind, code):
    with raises_code(kind, code, name):
        Recognizer(run / name)


def test_the_package_itself_stays_light_and_an_export_needs_no_paddle(exported, images):
    program = f"""
import sys
import ppocr_ext
assert not {{"cv2", "numpy"}} & sys.modules.keys()
recognizer = ppocr_ext.Recognizer({str(exported)!r}, engine="onnx")
print(recognizer.read({str(images[0])!r})[0].text)
assert not {{"paddle", "ppocr", "paddleocr"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == Recognizer(exported).read(images[0])[0].text


def test_the_example_of_its_docstring(run, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("output").mkdir()
    Path("output/my_run").symlink_to(run)
    for name, image in zip(("first.png", "second.png"), images, strict=False):
        Path(name).symlink_to(image)
    check_example(Recognizer, {"Recognizer": Recognizer})
