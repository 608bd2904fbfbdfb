import json
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from error_codes import raises_code
from saved_runs import save_run
from tiny_runs import StopAfter, metrics, tiny_config

from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config, load
from ppocr_ext.config.config_view import override
from ppocr_ext.errors import ConfigError, DataError, ModelError, PPOCRExtError, WeightsError
from ppocr_ext.evaluation.evaluate import evaluate, select_model
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train
from ppocr_ext.metrics import RecMetric
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.registry import BACKBONES, LOSSES, METRICS
from ppocr_ext.run.run import Run


class LookAtTeacher(Hook):
    """Keep digests of the teacher before and after a run, and whether it was ever in train mode."""

    def on_start(self, run, training):
        self.run, self.before = run, state_digest(run.network.Teacher)

    def on_step(self, step):
        layers = self.run.network.Teacher.sublayers(include_self=True)
        assert not any(layer.training for layer in layers)

    def on_end(self, outcome):
        self.after, self.student = (state_digest(self.run.network.models[n]) for n in ("Teacher", "Student"))


@pytest.fixture(scope="module")
def look():
    return LookAtTeacher()


@pytest.fixture(scope="module")
def finished(captchas, tmp_path_factory, look):
    """The folder of a finished distillation, which tests only read."""
    folder = tmp_path_factory.mktemp("finished")
    train(tiny_config(captchas, folder), hooks=[look])
    return folder / "run"


@pytest.fixture(scope="module")
def both(captchas, tmp_path_factory):
    """The checkpoint of a distillation that has its teacher too, without the suffix."""
    folder = tmp_path_factory.mktemp("both")
    train(tiny_config(captchas, folder, **{"Global.save_teacher": True, "Global.epoch_num": 1}))
    return folder / "run" / "latest"


def assert_loaded(network, saved, prefix=""):
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), saved[f"{prefix}{name}"], err_msg=name)


@pytest.fixture(scope="module")
def teacher(weights):
    return weights


@pytest.fixture
def own_teacher(teacher, tmp_path):
    """A copy of `teacher` that a test may change."""
    return Path(shutil.copytree(teacher.parent, tmp_path / "teacher")) / "latest"


def test_the_run_folder_holds_what_is_needed_to_repeat_or_assess_it(finished):
    names = {p.name for p in finished.iterdir()}
    assert {"config.yml", "run.json", "train.log", "metrics.jsonl", "preflight.json"} <= names
    for name in ("latest", "best_accuracy"):
        assert {f"{name}.pdparams", f"{name}.pdopt", f"{name}.states"} <= names
    record = json.loads((finished / "run.json").read_text())
    assert (record["status"], record["global_step"], record["epoch"]) == ("finished", 6, 2)
    assert set(record["frozen"]) == {"Teacher"}
    assert record["dictionary"]["classes"] == 11
    lines = metrics(finished, "train")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in metrics(finished, "eval")] == [3, 6]
    assert lines[0]["loss"] == pytest.approx(sum(lines[0]["losses"].values()), rel=1e-5)
    log = (finished / "train.log").read_text()
    assert "epoch" in log and "host: PaddleOCR " in log.splitlines()[0]
    assert all(name.startswith("Student.") for name in read_state(finished / "latest.pdparams"))

    plain = yaml.safe_load((finished / "config.yml").read_text())  # as PaddleOCR's own scripts read it
    heads = plain["Architecture"]["Models"]["Student"]["Head"]["out_channels_list"]
    assert heads == {"CTCLabelDecode": 11, "NRTRLabelDecode": 14}
    again = load([finished / "config.yml"])
    run = Run.build(again.with_values({"Global.checkpoints": str(finished / "latest")}), "eval")
    assert len(evaluate(run).predictions) == 10


def test_every_line_is_evaluated_during_training(tiny, captchas, tmp_path, monkeypatch):
    lines = (captchas / "val_list.txt").read_text().splitlines()[:5]
    (tmp_path / "five.txt").write_text("\n".join(lines) + "\n")
    config = tiny(
        "student",
        **{
            "Eval.dataset.label_file_list": [str(tmp_path / "five.txt")],
            "Eval.loader.batch_size_per_card": 2,
            "Eval.loader.drop_last": True,
            "Eval.loader.shuffle": True,
            "Global.report": True,
        },
    )
    counts = []

    class Counting(RecMetric):
        def get_metric(self):
            counts.append(self._totals[-1])
            return super().get_metric()

    monkeypatch.setitem(METRICS._own, "RecMetric", Counting)
    train(config)
    assert counts[-2:] == [5, 5]  # after what the dry step counted
    loader = load([tmp_path / "run" / "config.yml"]).at("Eval.loader")
    assert (loader["drop_last"], loader["shuffle"]) == (False, False)
    assert (tmp_path / "run" / "train.log").read_text().count("Eval.loader.drop_last") == 1
    samples = json.loads((tmp_path / "run" / "samples.json").read_text())
    assert samples["judged"] == 5


def test_accuracy_says_what_it_makes_of_spaces(finished, tiny, tmp_path):
    assert not any("acc_with_space" in line for line in metrics(finished))
    assert "acc_with_space" not in (finished / "train.log").read_text()
    values = {"Global.use_space_char": True, "Global.report": True, "Global.epoch_num": 1}
    train(tiny("distill", **values))
    (line,) = metrics(tmp_path / "run", "eval")
    assert "acc_with_space" in line
    log = (tmp_path / "run" / "train.log").read_text()
    (said,) = re.findall(r"eval at step .*", log)
    assert "acc_with_space" in said and log.count("spaces ignored (Metric.ignore_space: true)") == 1
    page = (tmp_path / "run" / "report.html").read_text()
    assert "spaces ignored (Metric.ignore_space: true)" in page and "acc_with_space" in page
    run = Run.build(tiny("distill", **values, **{"Global.checkpoints": f"{tmp_path}/run/latest"}), "eval")
    assert "acc_with_space" in evaluate(run).metrics


def test_save_teacher_adds_the_teacher_and_both_kinds_load(both, tiny):
    state = read_state(both.with_suffix(".pdparams"))
    assert {name.split(".")[0] for name in state} == {"Student", "Teacher"}
    run = Run.build(select_model(tiny("distill", **{"Global.checkpoints": str(both)}), "Teacher"), "eval")
    assert_loaded(run.network.Teacher, state, "Teacher.")
    assert len(evaluate(run).predictions) == 10


def test_a_teacher_is_evaluated_with_its_own_file(finished, teacher, tiny):
    student = {"Global.checkpoints": str(finished / "latest")}
    with raises_code(WeightsError, "missing_weights", "Teacher"):
        Run.build(select_model(tiny("distill", **student), "Teacher"), "eval")
    values = {**student, "Architecture.Models.Teacher.pretrained": str(teacher)}
    run = Run.build(select_model(tiny("distill", **values), "Teacher"), "eval")
    assert_loaded(run.network.Teacher, read_state(teacher.with_suffix(".pdparams")))
    assert len(evaluate(run).predictions) == 10
    # and the student is evaluated without the teacher's file
    gone = {**values, "Architecture.Models.Teacher.pretrained": "no/where"}
    assert len(evaluate(Run.build(tiny("distill", **gone), "eval")).predictions) == 10


def test_a_frozen_teacher_is_bit_identical_after_training(finished, look):
    assert look.before == look.after != look.student


def test_a_teacher_that_changes_is_noticed(tiny):
    class Meddle(Hook):
        def on_start(self, run, training):
            self.run = run

        def on_step(self, step):
            with paddle.no_grad():
                parameter = self.run.network.Teacher.parameters()[0]
                parameter.set_value(parameter + 1)

    with raises_code(ModelError, "frozen_changed", "Teacher"):
        train(tiny("distill"), hooks=[Meddle()])


@pytest.mark.parametrize(("kind", "model"), [("student", ""), ("distill", ".Models.Student")])
def test_an_error_of_a_part_starts_with_its_place(tiny, tmp_path, kind, model):
    backbone = f"Architecture{model}.Backbone"
    wrong = {f"{backbone}.name": "SVTRv2", f"{backbone}.dims": [7, 32, 96]}
    (tmp_path / "tiny.yml").write_text(tiny(kind).with_values(wrong).to_yaml())
    config = load(tmp_path / "tiny.yml")
    with pytest.raises(InvalidConfigError) as found:
        Run.build(config, "train")
    assert "tiny.yml:" in config.where(f"{backbone}.dims")
    assert str(found.value).startswith(f"{config.where(f'{backbone}.dims')}: {backbone}.dims: SVTRv2: ")
    given = [f"{path}={value}" for path, value in wrong.items()]
    with pytest.raises(InvalidConfigError) as found:
        Run.build(Config.of(override(config._node, given)), "train")
    assert str(found.value).startswith(f"-o {backbone}.dims=[7, 32, 96]: {backbone}.dims: SVTRv2: ")


def test_branches_that_no_loss_reads_are_neither_computed_nor_trained(tiny):
    config = tiny("distill")
    losses = [loss for loss in config.thaw()["Loss"]["loss_config_list"] if "DistillationCTCLoss" in loss]
    run = Run.build(config.with_values({"Loss.loss_config_list": losses}), "train")
    student = run.network.Student
    assert all(p.stop_gradient for p in student.head.gtc_head.parameters())
    assert not any(p.stop_gradient for p in student.head.ctc_head.parameters())
    batch = next(iter(run.data.train_loader))
    run.model.train()
    outputs = run.model(batch[0], data=batch[1:])
    assert set(outputs) == {"Student"}  # a frozen model that nothing reads does not run
    assert "gtc" not in outputs["Student"]["head_out"] and "ctc" in outputs["Student"]["head_out"]


def test_eval_reads_each_head_and_records_what_was_read(finished, tiny, captchas):
    run = Run.build(tiny("distill", **{"Global.checkpoints": str(finished / "latest")}), "eval")
    ctc = evaluate(run)
    gtc = evaluate(run, "gtc")
    assert [p.text for p in evaluate(run).predictions] == [p.text for p in ctc.predictions]
    lines = [line.split("\t") for line in (captchas / "val_list.txt").read_text().splitlines()]
    for result in (ctc, gtc):
        assert [(p.image, p.label) for p in result.predictions] == [tuple(line) for line in lines]
        assert result.skipped == 0
        right = sum(p.text == p.label for p in result.predictions)
        assert result.metrics["acc"] == pytest.approx(right / 10, abs=1e-4)


def test_samples_of_an_evaluation_keep_their_lines(finished, tiny, captchas, tmp_path):
    """Where a bad line is left out and counted, where a ratio draws, and where labels do not fit the frames."""

    def judged(**values):
        config = tiny("distill", **{"Global.checkpoints": str(finished / "latest"), **values})
        return evaluate(Run.build(config, "eval"))

    lines = (captchas / "val_list.txt").read_text().splitlines()
    (tmp_path / "val.txt").write_text("\n".join([*lines[:3], "nowhere.png\t1234", *lines[3:5]]) + "\n")
    result = judged(
        **{"Global.max_unusable": 0.2, "Eval.dataset.label_file_list": [str(tmp_path / "val.txt")]}
    )
    assert (len(result.predictions), result.skipped) == (5, 1)
    assert [p.image for p in result.predictions] == [line.split("\t")[0] for line in lines[:5]]

    loader = {"Eval.loader.drop_last": True, "Eval.loader.batch_size_per_card": 4}
    result = judged(**{"Eval.dataset.ratio_list": [0.5], **loader})
    labels = dict(line.split("\t") for line in lines)
    assert len(result.predictions) == 5
    assert all(labels[p.image] == p.label for p in result.predictions)

    # 4 frames, for labels of 4 to 6 characters: they count as read wrongly
    narrow = {"Eval.dataset.transforms.RecResizeImg.image_shape": [3, 32, 32], "Global.max_unusable": 1}
    result = judged(**narrow, **{"Global.allow_different_preprocessing": True})
    assert (len(result.predictions), result.skipped) == (10, 0)


def test_eval_without_weights_names_the_key_that_gives_them(tiny):
    with raises_code(WeightsError, "missing_weights", "Global.checkpoints"):
        Run.build(tiny("student"), "eval")


def test_unknown_model_and_missing_head_are_named(finished, tiny, tmp_path):
    config = tiny("distill", **{"Global.checkpoints": str(finished / "latest")})
    for several, name in ((config, "Nobody"), (tiny("student"), "Student")):
        with raises_code(ConfigError, "unknown_sub_model"):
            select_model(several, name)
    heads = config.thaw()["Architecture"]["Models"]["Student"]["Head"]["head_list"][:1]
    folder = str(tmp_path / "plain")
    plain = tiny(
        "student", **{"Architecture.Head.head_list": heads, "Loss.loss_config_list": [{"CTCLoss": {}}]}
    )
    save_run(plain, tmp_path / "plain")
    run = Run.build(plain.with_values({"Global.checkpoints": f"{folder}/best_accuracy"}), "eval")
    with raises_code(ConfigError, "unknown_head", "--head gtc"):
        evaluate(run, "gtc")


def test_a_checkpoint_of_another_dictionary_is_refused(finished, tiny, tmp_path):
    (tmp_path / "reversed.txt").write_text("\n".join("9876543210") + "\n")
    other = {
        "Global.checkpoints": str(finished / "latest"),
        "Global.character_dict_path": str(tmp_path / "reversed.txt"),
    }
    with raises_code(WeightsError, "charset_mismatch", "--old-dict"):
        Run.build(tiny("distill", **other), "eval")
    with raises_code(WeightsError, "charset_mismatch", "Global.pretrained_model"):
        Run.build(tiny("distill", **other), "train")
    first = evaluate(
        Run.build(tiny("distill", **{"Global.checkpoints": other["Global.checkpoints"]}), "eval")
    )
    old = str(tiny("distill").at("Global.character_dict_path"))
    again = evaluate(Run.build(tiny("distill", **other), "eval", old_dictionary=old))
    assert [p.text for p in again.predictions] == [p.text for p in first.predictions]


def test_another_dictionary_over_the_config_of_a_run(finished, tiny, tmp_path, capsys):
    old = str(tiny().at("Global.character_dict_path"))
    (tmp_path / "new.txt").write_text("\n".join("0123456789ab") + "\n")
    new = f"Global.character_dict_path={tmp_path / 'new.txt'}"
    (tmp_path / "overlay.yml").write_text(f"Global: {{character_dict_path: {tmp_path / 'new.txt'}}}\n")
    weights = f"Global.checkpoints={finished / 'latest'}"
    config = str(finished / "config.yml")
    for given in (["-c", config, "-o", new], ["-c", config, str(tmp_path / "overlay.yml")]):
        code = main(["eval", *given, "-o", weights, "--old-dict", old])
        assert code == 0, capsys.readouterr()
    again = [
        f"Global.pretrained_model={finished / 'latest'}",
        f"Global.save_model_dir={tmp_path / 'again'}",
        "Global.epoch_num=1",
        "Global.report=false",
    ]
    code = main(["train", "-c", config, "-o", new, *again, "--old-dict", old])
    assert code == 0, capsys.readouterr()
    written = yaml.safe_load((tmp_path / "again" / "config.yml").read_text())
    path = "Architecture.Models.Student.Head.out_channels_list"
    assert path in written["computed"] and "Global.character_dict_path" not in written["computed"]
    head = written["Architecture"]["Models"]["Student"]["Head"]
    assert head["out_channels_list"] == {"CTCLabelDecode": 13, "NRTRLabelDecode": 16}


def test_weights_that_have_the_new_dictionary_are_not_carried_over(teacher, tiny, tmp_path):
    (tmp_path / "reversed.txt").write_text("\n".join("9876543210") + "\n")
    config = tiny("distill", **{"Architecture.Models.Teacher.pretrained": str(teacher)})
    run = Run.build(config, "train", old_dictionary=str(tmp_path / "reversed.txt"))
    assert_loaded(run.network.Teacher, read_state(teacher.with_suffix(".pdparams")))


def test_a_resumed_distillation_has_the_teacher_that_it_began_with(both, teacher, tiny, tmp_path):
    latest = tmp_path / "run" / "latest"
    start = {"Global.pretrained_model": str(both)}
    train(tiny("distill", **start), hooks=[StopAfter(2)])
    go_on = {**start, "Global.checkpoints": str(latest)}
    run = Run.build(tiny("distill", **go_on), "train")
    saved, stopped = (read_state(file.with_suffix(".pdparams")) for file in (both, latest))
    fc = "Student.head.ctc_head.fc.weight"
    assert not np.array_equal(stopped[fc], saved[fc])
    assert_loaded(run.network.Teacher, saved, "Teacher.")
    assert_loaded(run.network.Student, stopped, "Student.")
    other = {"Global.checkpoints": str(latest), "Architecture.Models.Teacher.pretrained": str(teacher)}
    with raises_code(WeightsError, "other_teacher", latest, "Teacher"):
        Run.build(tiny("distill", **other), "train")


def test_a_file_of_one_model_goes_to_the_model_that_is_trained(teacher, tiny):
    models = tiny("distill").thaw()["Architecture"]["Models"]
    three = {"Architecture.Models": {"Assistant": models["Teacher"], **models}}
    run = Run.build(tiny("distill", **three, **{"Global.pretrained_model": str(teacher)}), "train")
    assert_loaded(run.network.Student, read_state(teacher.with_suffix(".pdparams")))


def test_a_longer_run_follows_the_longer_schedule_and_the_log_says_how_the_rate_jumps(
    teacher, tiny, tmp_path
):
    train(tiny("student", **{"Global.checkpoints": str(teacher)}))
    (line,) = re.findall(".*learning rate changes.*", (tmp_path / "run" / "train.log").read_text())
    before, now, old_rate, new_rate = map(float, re.findall(r"\d+(?:\.\d+)?", line)[-4:])
    assert (before, now, old_rate, new_rate) == (3, 6, 0, 0.0025)
    assert metrics(tmp_path / "run", "train")[0]["lr"] == pytest.approx(0.0025, rel=1e-3)


@pytest.mark.parametrize("existed", [False, True])
def test_a_start_that_fails_leaves_no_new_folder(tiny, tmp_path, existed):
    folder = tmp_path / "new" / "run"
    if existed:
        folder.mkdir(parents=True)
    late = {"Architecture.Models.Teacher.pretrained": str(tmp_path / "teacher")}
    paddle.save({"x": paddle.zeros([1])}, str(tmp_path / "teacher.pdparams"))
    # the last one's error names a file like the record of preflight, which is kept only where the data are refused
    record = {"Architecture.Models.Teacher.pretrained": str(folder / "preflight.json")}
    for values in ({"Global.character_dict_path": "no.txt"}, late, record):
        with pytest.raises(PPOCRExtError):
            train(tiny("distill", **{"Global.save_model_dir": str(folder), **values}))
        assert folder.exists() == existed
        assert (tmp_path / "new").exists() == existed


def test_a_start_whose_data_are_refused_keeps_what_its_message_names(tiny, captchas, tmp_path):
    (tmp_path / "bad.txt").write_text("no.png\t1234\n" * 3)
    with raises_code(DataError, "too_many_unusable", "run/preflight.json"):
        train(tiny("student", **{"Train.dataset.label_file_list": [str(tmp_path / "bad.txt")]}))
    assert (tmp_path / "run" / "preflight.json").is_file()


def test_a_signal_in_the_last_step_is_remembered(tiny):
    outcome = train(tiny("student", **{"Global.epoch_num": 1}), hooks=[StopAfter(3)])
    assert (outcome.status, outcome.signal) == ("finished", signal.SIGINT)


def test_weights_load_after_a_save_that_was_killed_and_beside_a_damaged_progress(own_teacher, tiny):
    folder, saved = own_teacher.parent, read_state(own_teacher.with_suffix(".pdparams"))
    renames = {f".latest.{e}.abcd_123.tmp": f"latest.{e}" for e in ("pdparams", "pdopt", "states")}
    for temporary, final in renames.items():
        (folder / final).rename(folder / temporary)
    (folder / "latest.journal").write_text(json.dumps(renames))
    Run.build(tiny("distill", **{"Architecture.Models.Teacher.pretrained": str(own_teacher)}), "train")
    assert (folder / "latest.pdparams").is_file()
    own_teacher.with_suffix(".states").write_bytes(b"")
    run = Run.build(tiny("student", **{"Global.pretrained_model": str(own_teacher)}), "train")
    np.testing.assert_array_equal(run.model.head.ctc_head.fc.bias.numpy(), saved["head.ctc_head.fc.bias"])


def test_a_stop_at_an_epochs_last_step_keeps_what_is_due(tiny, tmp_path):
    outcome = train(tiny("student", **{"Global.save_epoch_step": 1}), hooks=[StopAfter(3)])
    assert outcome.status == "stopped"
    assert (tmp_path / "run" / "iter_epoch_1.pdparams").is_file()
    assert outcome.position.completed().epoch == 1


def test_too_few_samples_for_one_batch_are_refused(tiny):
    with raises_code(DataError, "no_batch", 24, 500):
        Run.build(tiny("student", **{"Train.loader.batch_size_per_card": 500}), "train")


def test_a_users_own_backbone_and_loss_train(tiny, tmp_path, monkeypatch):
    parts = Path(__file__).with_name("processes_parts.py")
    monkeypatch.syspath_prepend(str(parts.parent))
    for known, name in ((sys.modules, parts.stem), (BACKBONES._own, "Columns"), (LOSSES._own, "SilentCTC")):
        monkeypatch.delitem(known, name, raising=False)  # another test may have imported them
    config = tiny(
        "student",
        **{
            "Global.plugins": [parts.stem],
            "Architecture.Backbone": {"name": "Columns", "width": 16},
            "Loss": {"name": "SilentCTC"},
        },
    )
    outcome = train(config)
    assert (outcome.status, outcome.position.global_step) == ("finished", 6)
    assert "silent" in metrics(tmp_path / "run")[0]["losses"]
    assert str(parts) in (tmp_path / "run" / "train.log").read_text()
    with raises_code(ConfigError, "bad_plugin", "Global.plugins", "nobody_has_this"):
        Run.build(tiny("student", **{"Global.plugins": ["nobody_has_this"]}), "train")
