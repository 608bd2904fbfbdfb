"""The overlay that turns a trained recogniser's config into a fine-tuning with center loss."""

import pytest

from ppocr_ext.cli.main import main
from ppocr_ext.config import load, name_sub_models
from ppocr_ext.resources import config_path
from ppocr_ext.training.session import train


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["student", "distill"])
def test_export_and_fine_tune_as_the_overlay_says(tiny, tmp_path, capsys, kind):
    config = tiny(kind, **{"Global.save_teacher": True, "Global.report": False})
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
    metrics = (tmp_path / "tuned" / "metrics.jsonl").read_text()
    assert "loss_center" in metrics or "CenterLoss" in metrics
    code = main(["eval", "-c", str(tmp_path / "tuned" / "config.yml")]
        + ["-o", f"Global.checkpoints={tmp_path / 'tuned' / 'latest'}"])  # fmt: skip
    assert code == 0, capsys.readouterr()


def test_a_single_model_s_config_stays_as_it_is(tiny):
    config = tiny("student")
    assert name_sub_models(config) is config


def test_only_trained_sub_models_are_pulled(tiny):
    config = tiny("distill")
    losses = config.thaw()["Loss"]["loss_config_list"]
    config = config.with_values({"Loss.loss_config_list": [*losses, {"CenterLoss": {"weight": 0.5}}]})
    last = name_sub_models(config).thaw()["Loss"]["loss_config_list"][-1]
    assert last == {
        "DistillationCenterLoss": {
            "model_name_list": ["Student"],
            "key": "head_out",
            "multi_head": True,
            "weight": 0.5,
        }
    }


@pytest.mark.parametrize("base", ["svtrv2/student.yml", "svtrv2/distill.yml", "quickstart/distill.yml"])
def test_the_overlay_fits_every_kind_of_config(base):
    config = load([config_path(base), config_path("overlays/center_loss.yml")])
    assert config.at("Loss.loss_config_list.CenterLoss.labels") == "aligned"
