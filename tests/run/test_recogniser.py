"""One trained recogniser is loaded without its data, from a run folder or a config."""

import shutil

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from saved_runs import network_of, save_checkpoint, save_run

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.run.recogniser import load_recogniser, recogniser_config


@pytest.fixture
def run(tiny, tmp_path):
    """A run folder whose data are gone, and the network of its best checkpoint."""
    folder = tmp_path / "my run"
    # a resumed run has the checkpoint that it started from in its config
    config = tiny(
        "student", **{"Global.checkpoints": str(folder / "latest"), "Eval.dataset.data_dir": "gone"}
    )
    network, charset = save_run(config, folder)
    save_checkpoint(network_of(config, 1)[0], charset, folder / "latest")
    return folder, network


def probabilities(network):
    images = np.random.default_rng(0).normal(0, 1, (2, 3, 32, 128)).astype("float32")
    return NetworkEngine(network).probabilities(images)


def same(ours, theirs):
    return np.array_equal(probabilities(ours), probabilities(theirs))


@pytest.mark.parametrize("name", ["", "config.yml"])
def test_a_run_folder_gives_its_best_checkpoint(run, name):
    folder, network = run
    state = np.random.get_state()[1].copy()
    found = load_recogniser(recogniser_config(folder / name))
    assert same(found.network, network)
    assert found.weights == folder / "best_accuracy.pdparams"
    assert found.sub_model is None and found.charset.ctc_classes == 11
    assert np.array_equal(np.random.get_state()[1], state)  # of the program that reads images


def test_an_option_names_another_checkpoint(run):
    folder, network = run
    config = recogniser_config(folder, [f"Global.checkpoints={folder / 'latest'}"])
    found = load_recogniser(config)
    assert found.weights == folder / "latest.pdparams"
    assert not same(found.network, network)


def test_of_a_distillation_the_student_is_loaded_alone(run, tiny):
    folder, network = run
    config = tiny(
        "distill",
        **{"Global.checkpoints": str(folder / "distilled"), "Architecture.Models.Teacher.pretrained": "gone"},
    )
    save_checkpoint(network, network_of(config)[1], folder / "distilled", "Student.")
    found = load_recogniser(config)
    assert found.sub_model == "Student" and same(found.network, network)
    with raises_code(ConfigError, "missing_file", "gone"):
        load_recogniser(config, model="Teacher")
    with raises_code(ConfigError, "unknown_sub_model", "Pupil"):
        load_recogniser(config, model="Pupil")


def test_weights_that_are_not_complete_are_refused_even_where_training_allowed_it(run, tmp_path):
    folder, network = run
    state = network.state_dict()
    name = next(iter(state))
    del state[name]
    paddle.save(state, str(tmp_path / "part.pdparams"))
    options = [f"Global.pretrained_model={tmp_path / 'part'}", "Global.checkpoints=null"]
    config = recogniser_config(folder, [*options, "Global.pretrained_partial=true"])
    with raises_code(WeightsError, "weights_mismatch", name):
        load_recogniser(config)


def test_weights_of_another_dictionary_are_refused_or_carried_over(run, tmp_path):
    folder, network = run
    other = tmp_path / "other.txt"
    other.write_text("\n".join("9876543210") + "\n")
    config = recogniser_config(folder, [f"Global.character_dict_path={other}"])
    with raises_code(WeightsError, "charset_mismatch", other):
        load_recogniser(config)
    old = load(folder / "config.yml").at("Global.character_dict_path")
    turned = load_recogniser(config, old_dictionary=old)
    ours, theirs = probabilities(turned.network), probabilities(network)
    assert np.allclose(ours[..., 1:], theirs[..., :0:-1], atol=1e-5)


def test_a_config_without_weights_a_folder_without_a_run_and_a_run_without_a_best(run, tiny, tmp_path):
    folder, _ = run
    with raises_code(WeightsError, "missing_weights", "Global.checkpoints"):
        load_recogniser(tiny("student"))
    with raises_code(DataError, "no_run", tmp_path):
        recogniser_config(tmp_path)
    (folder / "best_accuracy.pdparams").unlink()
    with raises_code(WeightsError, "missing_file", folder / "latest"):
        recogniser_config(folder)
    shutil.copy(folder / "config.yml", tmp_path / "config.yml")
    assert recogniser_config(tmp_path / "config.yml").at("Global.checkpoints") == str(folder / "latest")


def test_a_recogniser_that_ctc_does_not_read_is_refused(tiny):
    config = tiny("student", **{"PostProcess.name": "NRTRLabelDecode"})
    with raises_code(ConfigError, "unsupported_component", "NRTRLabelDecode"):
        load_recogniser(config)
