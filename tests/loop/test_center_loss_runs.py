"""Center loss in a run: its features and state, and the overlay that fine-tunes a trained recogniser with it."""

import numpy as np
import pytest
from center_files import centers_file
from error_codes import raises_code
from tiny_runs import StopAfter, metrics, single_head

from ppocr_ext.checkpoint.files import read_plain_pickle, read_state
from ppocr_ext.cli.main import main
from ppocr_ext.config import fit_center_losses, load
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.io.resources import config_path
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.adapter import HostLoop
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run
from ppocr_ext.run.train_setup import loss_state, restore_loss

DIM = 16  # of the tiny student's frames


def with_center_loss(config, **options):
    losses = config.thaw()["Loss"]["loss_config_list"]
    return config.with_values(
        {"Loss.loss_config_list": [*losses, {"CenterLoss": {"weight": 0.1, "update": "ema", **options}}]}
    )


def test_a_stopped_run_goes_on_with_its_centers(tiny, tmp_path):
    def config(name):
        return with_center_loss(tiny("student", **{"Global.save_model_dir": str(tmp_path / name)}))

    train(config("whole"))
    train(config("broken"), hooks=[StopAfter(4)])
    train(config("broken").with_values({"Global.checkpoints": str(tmp_path / "broken" / "latest")}))

    ours, theirs = (read_plain_pickle(tmp_path / n / "latest.states")["loss"] for n in ("broken", "whole"))
    assert ours.keys() == theirs.keys()
    [centers] = [value for name, value in theirs.items() if name.endswith("centers")]
    assert centers.shape == (11, DIM)
    assert np.abs(centers[0]).max() > 0  # the blank has one
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)
    ours, theirs = (read_state(tmp_path / n / "latest.pdparams") for n in ("broken", "whole"))
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert not any("centers" in name for name in theirs)


def test_a_distillation_with_centers_from_a_file(tiny, tmp_path):
    config = tiny("distill")
    losses = config.thaw()["Loss"]["loss_config_list"]
    entry = {
        "weight": 0.05,
        "model_name_list": ["Student"],
        "key": "head_out",
        "multi_head": True,
        "center_file_path": centers_file(tmp_path / "centers.npz", np.zeros([11, DIM])),
        "frames": "aligned",
        "blank": False,
    }
    config = config.with_values(
        {
            "Loss.loss_config_list": [*losses, {"DistillationCenterLoss": entry}],
            "Global.cal_metric_during_train": True,
        }
    )
    run = Run.build(config, "train")
    assert run.network.train_requests["Student"].features
    assert not run.network.train_requests["Teacher"].features
    seen = []

    class Watch(Hook):
        def on_step(self, step):
            seen.append(float(step.losses["loss_center_Student_0"]))

    HostLoop(run, run.training, [Watch()]).train()
    assert len(seen) == 6
    assert all(np.isfinite(seen))
    assert any(value > 0 for value in seen)
    assert len(evaluate(run).predictions) == 10  # of (features, probabilities)


def test_centers_of_another_size_are_refused_before_training(tiny, tmp_path):
    config = with_center_loss(
        tiny("student"), update="frozen", center_file_path=centers_file(tmp_path / "c.npz", np.zeros([11, 7]))
    )
    with pytest.raises(InvalidConfigError) as refused:
        Run.build(config, "train")
    (issue,) = refused.value.issues
    assert issue.path == "Loss.loss_config_list.CenterLoss"
    assert "7 features" in issue.message and "16" in issue.message


def test_centers_of_another_shape_in_a_checkpoint_are_refused(tiny, tmp_path):
    loss = Run.build(with_center_loss(tiny("student")), "train").training.loss
    state = {name: value[:-1] if value.ndim else value for name, value in loss_state(loss).items()}
    with raises_code(WeightsError, "shape_mismatch"):
        restore_loss(loss, state, tmp_path / "latest")


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["distill", "single"])
def test_export_and_fine_tune_as_the_overlay_says(tiny, tmp_path, capsys, kind):
    values = {"Global.save_teacher": True, "Global.report": False}
    config = single_head(tiny("student", **values)) if kind == "single" else tiny(kind, **values)
    train(config)
    (tmp_path / "config.yml").write_text(config.to_yaml())
    common = ["-c", str(tmp_path / "config.yml")]
    trained = f"Global.pretrained_model={tmp_path / 'run' / 'latest'}"
    centers = tmp_path / "centers.npz"
    code = main(["export-center", *common, "-o", trained, "--frames", "aligned", "--output", str(centers)])
    assert code == 0, capsys.readouterr()

    overlay = str(config_path("overlays/center_loss.yml"))
    options = [
        trained,
        f"Global.save_model_dir={tmp_path / 'tuned'}",
        f"Loss.loss_config_list.CenterLoss.center_file_path={centers}",
    ]
    code = main(["train", *common, overlay, "-o", *options])
    said = capsys.readouterr()
    assert code == 0, said
    assert "other weights" not in said.out + said.err
    for line in metrics(tmp_path / "tuned", "train"):
        assert min(line["losses"].values()) > 0
        assert (
            "loss_center" in line["losses"] if kind == "single" else "loss_center_Student_0" in line["losses"]
        )
    code = main(["eval", "-c", str(tmp_path / "tuned" / "config.yml")]
        + ["-o", f"Global.checkpoints={tmp_path / 'tuned' / 'latest'}"])  # fmt: skip
    assert code == 0, capsys.readouterr()


def laid_over(config, folder, **values):
    (folder / "config.yml").write_text(config.to_yaml())
    config = load([str(folder / "config.yml"), config_path("overlays/center_loss.yml")])
    return config.with_values({"Global.save_model_dir": str(folder / "run"), **values})


def test_a_loss_without_a_list_becomes_a_part(tiny, tmp_path):
    config = single_head(tiny("student")).with_values({"Loss.use_focal_loss": True})
    assert fit_center_losses(config) is config
    loss = fit_center_losses(laid_over(config, tmp_path)).thaw()["Loss"]
    ctc, center = loss.pop("loss_config_list")
    assert loss == {"name": "CombinedLoss"}
    assert ctc == {"CTCLoss": {"weight": 1.0, "use_focal_loss": True}}
    assert center["CenterLoss"]["weight"] == 0.2


@pytest.mark.parametrize("name", ["CTCLoss", "NRTRLoss"])
def test_a_list_that_its_loss_does_not_take_is_refused(tiny, tmp_path, name):
    config = laid_over(tiny("student"), tmp_path, **{"Loss.name": name})
    with raises_code(ConfigError, "unused_list", name):
        fit_center_losses(config)


def test_a_user_s_own_loss_keeps_its_list(tiny, tmp_path):
    config = laid_over(tiny("student"), tmp_path, **{"Loss.name": "MyLoss"})
    assert fit_center_losses(config) is config
    assert fit_center_losses(plain := tiny("student")) is plain  # without the overlay


@pytest.mark.parametrize("begins", [True, False])
def test_centers_of_other_weights_are_said(tiny, tmp_path, caplog, begins):
    file = centers_file(tmp_path / "centers.npz", np.ones([11, 12]), model_digest="0" * 64)
    config = laid_over(single_head(tiny("student", **{"Global.epoch_num": 1})), tmp_path)
    config = config.with_values({"Loss.loss_config_list.CenterLoss.center_file_path": file})
    if not begins:
        train(config)
        more = {"Global.checkpoints": str(tmp_path / "run" / "latest"), "Global.epoch_num": 2}
        config = config.with_values(more)
        caplog.clear()
    Run.build(config, "train")
    assert ("centers.npz was exported from other weights than those of the model" in caplog.text) is begins


def test_files_by_sub_model_reach_the_loss_of_a_distillation(tiny, tmp_path):
    files = {"Student": centers_file(tmp_path / "centers.npz", np.ones([11, 16]), model="Student")}
    config = laid_over(tiny("distill"), tmp_path)
    config = config.with_values({"Loss.loss_config_list.CenterLoss.center_file_path": files})
    run = Run.build(config, "train")
    [centers] = [v for n, v in run.training.loss.state_dict().items() if n.endswith("bank.centers")]
    assert centers.numpy().tolist() == np.ones([11, 16]).tolist()


def test_only_trained_sub_models_are_pulled(tiny):
    config = tiny("distill")
    losses = config.thaw()["Loss"]["loss_config_list"]
    config = config.with_values({"Loss.loss_config_list": [*losses, {"CenterLoss": {"weight": 0.5}}]})
    last = fit_center_losses(config).thaw()["Loss"]["loss_config_list"][-1]
    assert last == {
        "DistillationCenterLoss": {
            "model_name_list": ["Student"],
            "key": "head_out",
            "multi_head": True,
            "weight": 0.5,
        }
    }
