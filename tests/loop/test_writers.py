"""TensorBoard, VisualDL and Weights & Biases get the numbers of metrics.jsonl, each step once, also after a resume."""

import inspect
import json
import math
import struct
import sys
import types
from collections import Counter

import paddle
import pytest
from error_codes import raises_code
from tiny_runs import StopAfter, metrics

from ppocr_ext.config import Config
from ppocr_ext.errors import MissingPackageError, PPOCRExtError
from ppocr_ext.loop import session
from ppocr_ext.loop.events import EvalDone, Outcome, Position, StepDone
from ppocr_ext.loop.hooks.metric_writers import LineScalars, Writer, require_packages, writers_for
from ppocr_ext.loop.hooks.metrics_log import MetricsLog
from ppocr_ext.loop.session import train

ALL = {
    "Global.use_tensorboard": True,
    "Global.use_visualdl": True,
    "wandb": {"project": "lines", "tags": ["a"]},
}
TRAIN = ("epoch", "loss", "lr", "ips", "grad_norm", "blank_share")


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "wandb_home"))


# measured in some steps
MONITORS = ("blank_probability", "text_length", "distinct_texts", "nrtr_end_share", "first_loss")


def expected(folder):
    """(name, step) → number, worked out of metrics.jsonl by hand."""
    found, best = {}, 0.0
    for line in metrics(folder):
        step = line["step"]
        if line["kind"] == "train":
            found |= {(f"train/{key}", step): line[key] for key in TRAIN}
            found |= {(f"train/{key}", step): line[key] for key in MONITORS if key in line}
            found |= {
                (f"loss/{name}", step): line["losses"][f"{name.upper()}Loss"] for name in ("ctc", "nrtr")
            }
        else:
            best = line["acc"] if line["is_best"] else best
            found |= {
                (f"eval/{k}", step): v
                for k, v in line.items()
                if k not in ("kind", "step", "time", "is_best")
            }
            found["eval/best_acc", step] = best
    return found


def tensorboard_events(folder):
    from tensorboardX.proto import event_pb2

    (file,) = (folder / "tensorboard").iterdir()
    content, at = file.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        yield event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
        at += 16 + length


def visualdl_scalars(folder):
    from visualdl import LogReader

    (file,) = (folder / "visualdl").iterdir()
    reader = LogReader(file_path=str(file))
    return [
        ((tag, record.id), record.value)
        for tag in reader.get_tags()["scalar"]
        for record in reader.get_data("scalar", tag)
    ]


def wandb_records(file):
    """Records of an offline run: a LevelDB log (32 KiB blocks; crc, length, type) after 7 bytes of head."""
    from wandb.proto import wandb_internal_pb2

    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def wandb_numbers(file):
    found = []
    for record in wandb_records(file):
        if record.WhichOneof("record_type") == "history":
            row = {
                (item.key or "/".join(item.nested_key)): json.loads(item.value_json)
                for item in record.history.item
            }
            step = row.pop("_step", record.history.step.num)
            found += [((name, step), value) for name, value in row.items() if not name.startswith("_")]
    return found


def same(found, folder):
    """Whether (key, value) pairs hold every number once, in float32."""
    wanted = expected(folder)
    assert max(Counter(key for key, _ in found).values()) == 1
    assert set(dict(found)) == set(wanted)
    return all(math.isclose(value, wanted[key], rel_tol=1e-6, abs_tol=1e-12) for key, value in found)


@pytest.mark.e2e
def test_all_three_hold_metrics_jsonl_after_a_stop_and_a_resume(tiny, tmp_path, offline):
    folder = tmp_path / "run"
    config = tiny("student", **ALL)
    assert train(config, hooks=[StopAfter(4)]).status == "stopped"
    (first,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    with (folder / "metrics.jsonl").open("a") as stream:  # what comes after the last checkpoint is done again
        stream.write(json.dumps({"kind": "train", "step": 5, "time": 1, "loss": 99.0, "losses": {}}) + "\n")
    assert train(config.with_values({"Global.checkpoints": str(folder / "latest")})).status == "finished"
    assert {step for _, step in expected(folder)} == {1, 2, 3, 4, 5, 6}

    events = list(tensorboard_events(folder))
    scalars = [
        ((value.tag, event.step), value.simple_value)
        for event in events
        for value in event.summary.value
        if value.HasField("simple_value")
    ]
    assert same(scalars, folder)
    texts = [v.tensor.string_val[0].decode() for e in events for v in e.summary.value if v.tensor.string_val]
    assert "SVTRv2" in texts[0] and texts[-1].startswith("finished")

    assert same(visualdl_scalars(folder), folder)

    last = max((folder / "wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    assert last != first and last.stem == first.stem  # another file, under the same id
    assert same(wandb_numbers(last), folder)
    (run,) = [record.run for record in wandb_records(last) if record.WhichOneof("record_type") == "run"][:1]
    assert (run.project, list(run.tags), run.display_name) == ("lines", ["a"], "run")
    assert "SVTRv2" in str(run.config)


def test_a_writer_that_cannot_be_opened_leaves_the_records_of_an_earlier_run(tiny, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    assert train(tiny("student")).status == "finished"
    before = {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "run.json")}

    def fail(*args):
        raise PPOCRExtError("no server", code="no_server")

    monkeypatch.setattr("ppocr_ext.loop.hooks.metric_writers.WandbWriter.open", fail)
    with raises_code(PPOCRExtError, "no_server"):
        train(tiny("student", wandb={}), overwrite=True)
    assert (folder / "best_accuracy.pdparams").is_file()
    assert before == {name: (folder / name).read_bytes() for name in before}


class Listed(Writer):
    package = "listed"

    def __init__(self):
        self.calls = []

    def open(self, folder, config):
        self.calls.append("open")

    def write(self, numbers, step, when):
        self.calls.append(numbers)

    def close(self, outcome):
        self.calls.append(outcome.status)


@pytest.fixture
def run(tmp_path):
    part = types.SimpleNamespace
    return part(context=part(folder=tmp_path, config=Config()), metric=part(main_indicator="acc"))


def test_writers_are_closed_when_a_run_fails(run):
    writer, position = Listed(), Position(0, 0, 0, 1, 10)
    log = MetricsLog(1, [writer], lambda *window: None)
    log.on_start(run, types.SimpleNamespace(start=position, best={}, hook_states={}))
    log.on_step(StepDone(position, {"loss": paddle.to_tensor(1.0)}, 0.1, 8))
    log.on_eval(EvalDone(position, {"acc": 0.5}, True, {}))
    log.on_end(Outcome("failed", position, {}, "OSError"))
    assert writer.calls[0] == "open" and writer.calls[-1] == "failed" and len(writer.calls) == 4
    assert writer.calls[1]["train/loss"] == 1.0 and writer.calls[2]["eval/best_acc"] == 0.5


def test_numbers_that_are_not_finite_are_left_out_and_a_single_part_is_the_loss():
    numbers = LineScalars("acc")
    line = {"kind": "train", "step": 1, "time": 2.0, "lr": 0.1, "loss": None, "losses": {"CTCLoss": 3.0}}
    assert numbers.of(line) == {"train/lr": 0.1}
    line["losses"]["loss_nrtr_Student_1"] = None
    assert numbers.of(line) == {"train/lr": 0.1, "loss/ctc": 3.0}
    evals = [
        numbers.of({"kind": "eval", "step": 1, "acc": acc, "is_best": acc < 0.9}) for acc in (0.4, 0.6, 0.9)
    ]
    assert [line["eval/best_acc"] for line in evals] == [0.4, 0.6, 0.6]


@pytest.mark.parametrize(
    ("values", "package", "extra"),
    [
        ({"use_tensorboard": True}, "tensorboardX", "tensorboard"),
        ({"use_visualdl": True}, "visualdl", "visualdl"),
        ({"use_wandb": True}, "wandb", "wandb"),
    ],
)
def test_a_package_that_is_missing_is_said_before_anything_is_built(
    monkeypatch, tmp_path, values, package, extra
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(session, "open_host", lambda path: pytest.fail("the host has been opened"))
    folder = tmp_path / "run"
    with raises_code(MissingPackageError, "missing_package", f"'ppocr-ext[{extra}]'"):
        train(Config({"Global": {**values, "save_model_dir": str(folder)}}))
    assert not folder.exists()


def test_a_package_that_fails_when_it_is_imported(monkeypatch, tmp_path):
    (tmp_path / "visualdl.py").write_text("raise TypeError('Descriptors cannot be created directly')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "visualdl", raising=False)
    with raises_code(MissingPackageError, "missing_package", "visualdl", "Descriptors"):
        require_packages(Config({"Global": {"use_visualdl": True}}))


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ({}, 0),
        ({"wandb": {}}, 1),  # as in PaddleOCR, the section is enough
        ({"wandb": {"project": "x"}, "Global": {"use_wandb": False}}, 0),
        ({"Global": {"use_wandb": True, "use_tensorboard": True, "use_visualdl": True}}, 3),
        ({"Global": {"use_tensorboard": False}}, 0),
    ],
)
def test_which_writers_a_config_asks_for(values, count):
    assert len(writers_for(Config(values))) == count


def test_a_run_that_goes_on_sends_wandb_only_what_it_has_not(monkeypatch, tmp_path):
    import wandb

    sent, begun = [], []

    def init(**options):
        begun.append(options)
        log = lambda numbers, step: sent.append(step)  # noqa: E731
        return types.SimpleNamespace(id="abc", dir="x", offline=False, url="u", step=4, log=log)

    monkeypatch.setattr(wandb, "init", init)
    for values in ({}, {"Global": {"checkpoints": "run/latest"}}, {}):
        (writer,) = writers_for(Config({"wandb": {}}))
        writer.open(tmp_path, Config(values))
    for step in range(1, 7):
        writer.write({"train/loss": 1.0}, step, 0.0)
    assert [options.get("id") for options in begun] == [None, "abc", None]
    assert {options["resume"] for options in begun} == {"allow"}
    assert sent == [4, 5, 6]


@pytest.mark.parametrize("values", [{"tags": 3}, {"mode": "nonsense"}, {"projct": "x"}])
def test_values_that_wandb_cannot_use_are_refused(values, tmp_path, offline):
    config = Config({"wandb": values})
    (writer,) = writers_for(config)
    with raises_code(PPOCRExtError, "bad_value", "wandb"):
        writer.open(tmp_path, config)


def test_wandb_has_paddleocrs_keys_of_its_section():
    import wandb

    keys = {"project", "name", "id", "entity", "dir", "group", "tags", "notes", "job_type"}
    assert keys <= set(inspect.signature(wandb.init).parameters)


def test_no_way_to_wandbs_server_is_an_error_that_names_the_ways_out(monkeypatch, tmp_path):
    import wandb

    def refuse(**options):
        seconds = options["settings"].init_timeout
        assert seconds <= 60
        raise wandb.errors.CommError("no such host")

    monkeypatch.setattr(wandb, "init", refuse)
    (writer,) = writers_for(Config({"wandb": {}}))
    with raises_code(PPOCRExtError, "service_unavailable", "no such host", "WANDB_MODE=offline"):
        writer.open(tmp_path, Config())
