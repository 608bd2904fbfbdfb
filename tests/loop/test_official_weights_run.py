"""A run from official weights by name, with a frozen part and rates by part, through the real commands."""

import json
import re
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import paddle
import pytest
import yaml
from error_codes import raises_code

from ppocr_ext.check.files import weights_to_load
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.checkpoint.official_weights import official, table
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.io.resources import CACHE_VARIABLE, file_digest
from ppocr_ext.modeling import build_model
from ppocr_ext.run.model_setup import official_records, require_recorded
from ppocr_ext.run.run import Run

pytestmark = pytest.mark.usefixtures("no_released_models")
NAME = "PP-OCRv5_mobile_rec"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve a file as the weights of `NAME`; return its path and the list of requests."""
    file, requests = tmp_path / "served.pdparams", []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
            requests.append(self.path)
            content = file.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        entry = replace(
            official(NAME), address=f"http://127.0.0.1:{server.server_port}/{NAME}.pdparams", dictionary=None
        )
        monkeypatch.setitem(table(), NAME, entry)
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        yield file, requests
        server.shutdown()


def run(capsys: pytest.CaptureFixture[str], command: str, *arguments: object) -> tuple[int, str]:
    code = main([command, *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.e2e
def test_training_from_a_name_with_a_frozen_part(tiny, tmp_path, served, capsys):
    file, requests = served
    config = tiny(
        "student",
        **{
            "Global.epoch_num": 1,
            "Global.report": True,
            "Global.pretrained_model": NAME,
            "Global.freeze": ["backbone.*", "head.ctc_encoder.*"],
            "Optimizer.lr_mult": {"head.*": 0.5, "head.before_gtc.*": 0.0},
        },
    )
    resolved = _with_counts(config)
    paddle.save(build_model(resolved.at("Architecture").thaw()).state_dict(), str(file))
    before, digest = read_state(file), file_digest(file)
    (tmp_path / "my.yml").write_text(config.to_yaml(), encoding="utf-8")

    code, said = run(capsys, "train", "-c", "my.yml")
    assert code == 0, said
    assert len(requests) == 1
    assert said.index(f"{NAME}: sha256 {digest} (none is published") < said.index("head.ctc_encoder")
    assert said.index("head.ctc_encoder") < said.index("epoch 1/1")
    rows = {
        name: rest for name, *rest in re.findall(r"^(\S+) +([\d,]+) +([\d,]+)  (.+)$", said, re.MULTILINE)
    }
    assert rows["backbone"][1:] == rows["head.ctc_encoder"][1:] == ["0", "-"]
    assert rows["head.ctc_head"][0] == rows["head.ctc_head"][1] and rows["head.ctc_head"][2] == "x 0.5"
    assert rows["head.before_gtc"][2] == "x 0"

    after = read_state(tmp_path / "run" / "latest.pdparams")
    frozen = ("backbone.", "head.ctc_encoder.", "head.before_gtc.")
    statistics = [name for name in before if name.startswith("backbone.") and name.endswith("._mean")]
    assert statistics
    for name, value in before.items():
        moved = not np.array_equal(after[name], value)
        if name.startswith(frozen):
            assert not moved, name
        elif name.endswith(".weight"):
            assert moved, name

    record = {"sha256": digest, "address": table()[NAME].address}
    for recorded in (
        json.loads((tmp_path / "run" / "run.json").read_text())["official_weights"],
        yaml.safe_load((tmp_path / "run" / "config.yml").read_text())["Global"]["official_weights"],
    ):
        assert recorded[NAME].items() >= record.items() and "paddlex 3.7.2" in recorded[NAME]["source"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"<td>backbone</td><td>{rows['backbone'][0]}</td><td>0</td><td>–</td>" in page

    # evaluated and resumed from that record, without the weights
    table()[NAME].file.unlink()
    _evaluates_and_resumes(tmp_path, capsys)
    assert len(requests) == 1
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept["official_weights"][NAME].items() >= record.items() and kept["epoch"] == 2

    # another file of that name is refused
    paddle.save({name: paddle.to_tensor(value + 1) for name, value in before.items()}, str(file))
    table()[NAME].file.with_suffix(".sha256").unlink()
    code, said = run(capsys, "train", "-c", "run/config.yml", "-o", "Global.save_model_dir=again")
    assert code == 2 and "[digest_mismatch]" in said and digest in said and "config.yml:" in said


def _with_counts(config: Config) -> Config:
    from ppocr_ext.config import resolve_charset, with_class_counts
    from ppocr_ext.host import open_host

    return with_class_counts(config, resolve_charset(config, open_host().find_file))


def _evaluates_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "eval", "-c", "run/config.yml", "-o", "Global.checkpoints=run/best_accuracy")
    assert code == 0, said
    # from the config of the first start, which has no record
    code, said = run(
        capsys, "train", "-c", "my.yml", "-o", "Global.checkpoints=run/latest", "Global.epoch_num=2"
    )
    assert code == 0 and "resuming from run/latest" in said, said


def test_a_record_is_compared_and_kept(served):
    file, _ = served
    paddle.save({"weight": paddle.zeros([1])}, str(file))
    digest = file_digest(file)
    table()[NAME].fetch()
    named = Config({"Global": {"pretrained_model": NAME}})
    require_recorded(named, NAME)
    records = official_records(named, [NAME, "my/best_accuracy"], None)
    assert list(records) == [NAME] and records[NAME]["sha256"] == digest
    again = named.with_values({"Global.official_weights": records})
    require_recorded(again, NAME)
    assert official_records(again, ["run/latest"], None) == records
    assert official_records(Config({"Global": {"official_weights": records}}), [], None) == {}
    other = named.with_values({"Global.official_weights": {NAME: {"sha256": "0" * 64}}})
    require_recorded(other, "my/best_accuracy")
    with raises_code(WeightsError, "digest_mismatch", digest, "0" * 64):
        require_recorded(other, NAME)
    for record in (3, [NAME], {NAME: "0" * 64}, {NAME: {"sha256": 3}}):
        config = Config({"Global": {"official_weights": record}}, "my.yml")
        with raises_code(ConfigError, "bad_value", "my.yml", "Global.official_weights"):
            require_recorded(config, NAME)


@pytest.fixture
def unreachable(tmp_path, monkeypatch):
    """Nobody answers at the address of `NAME`."""
    entry = replace(official(NAME), address="http://127.0.0.1:9/none.pdparams", dictionary=None)
    monkeypatch.setitem(table(), NAME, entry)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("kind", "key", "can_go_on"),
    [
        ("student", "Global.pretrained_model", True),
        ("distill", "Architecture.Models.Student.pretrained", True),
        ("distill", "Architecture.Models.Teacher.pretrained", False),
    ],
)
def test_a_download_that_fails_is_said_before_the_data_are_checked(
    kind, key, can_go_on, tiny, tmp_path, unreachable
):
    (tmp_path / "none.txt").write_text("no/image.png\t123\n")
    values = {key: NAME, "Train.dataset.label_file_list": [str(tmp_path / "none.txt")]}
    with pytest.raises(WeightsError) as caught:
        Run.build(tiny(kind, **values), "train")
    assert caught.value.code == "download_failed" and key in str(caught.value)
    assert (f"-o {key}=null" in str(caught.value)) is can_go_on
    assert ("Optimizer.lr.learning_rate" in str(caught.value)) is can_go_on
    with raises_code(DataError, "too_many_unusable"):
        Run.build(tiny(kind, **{**values, key: None, "Global.dry_step": False}), "train")


def test_official_weights_beside_a_teacher_of_its_own_are_both_wanted(tiny):
    teacher, student = (f"Architecture.Models.{name}.pretrained" for name in ("Teacher", "Student"))
    values = {"Global.pretrained_model": NAME, teacher: NAME, student: NAME}
    wanted = [dotted(path) for path, _ in weights_to_load(tiny("distill", **values), "train")]
    assert wanted == ["Global.pretrained_model", teacher]
    file = {**values, "Global.pretrained_model": "my/file"}
    assert [dotted(path) for path, _ in weights_to_load(tiny("distill", **file), "train")] == wanted[:1]
    resumed = {**values, "Global.checkpoints": "my/latest"}
    assert [name for _, name in weights_to_load(tiny("distill", **resumed), "train")] == ["my/latest"]
    alone = {**values, "Global.pretrained_model": None}
    assert [dotted(path) for path, _ in weights_to_load(tiny("distill", **alone), "train")] == [
        teacher,
        student,
    ]
    assert list(weights_to_load(tiny("distill", **alone), "eval")) == []


def test_the_check_says_that_weights_would_be_downloaded(tiny, tmp_path, served, capsys):
    file, requests = served
    config = tiny("student", **{"Global.pretrained_model": NAME, "Global.strict": True})
    (tmp_path / "my.yml").write_text(config.to_yaml(), encoding="utf-8")
    code, said = run(capsys, "config", "-c", "my.yml", "--check", "--data", "none")
    address = table()[NAME].address
    assert code == 0 and NAME in said and address in said and requests == []
    paddle.save({"weight": paddle.zeros([1])}, str(file))
    table()[NAME].fetch()
    code, said = run(capsys, "config", "-c", "my.yml", "--check", "--data", "none")
    assert code == 0 and "will download" not in said and len(requests) == 1
