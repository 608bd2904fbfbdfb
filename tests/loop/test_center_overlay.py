"""The overlay that turns a trained recogniser's config into a fine-tuning with center loss."""

import numpy as np
import pytest
from center_files import centers_file
from error_codes import raises_code
from tiny_runs import metrics, single_head

from ppocr_ext.cli.main import main
from ppocr_ext.config import fit_center_losses, load
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.resources import config_path
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run


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
    assert center["CenterLoss"]["weight"] == 0.05


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
    [centers] = [v for n, v in run.loss.state_dict().items() if n.endswith("bank.centers")]
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
