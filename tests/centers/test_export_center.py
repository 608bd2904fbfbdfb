"""Centers of a tiny trained run: against a plain loop, in parts, and of each sub-model."""

import json
import shlex
import signal

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from tiny_runs import single_head, tiny_config

from ppocr_ext.centers.collect import (
    CollectOptions,
    collect,
    config_of_model,
    label_positions,
    remove_partial,
    table_of,
)
from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.cli import export_center as export_command
from ppocr_ext.cli import train as train_command
from ppocr_ext.cli.main import build_parser, main
from ppocr_ext.config import fit_center_losses, load
from ppocr_ext.errors import DataError
from ppocr_ext.io.resources import find_config
from ppocr_ext.loop.session import train
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.run.run import Run


@pytest.fixture(scope="module")
def trained(captchas, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    config = tiny_config(captchas, folder)
    train(config)
    return config.with_values({"Global.checkpoints": str(folder / "run" / "latest")})


def built(config, name="Student", split="train"):
    single, found = config_of_model(config, name, split)
    return Run.build(single, "eval", weights_of=found or "Student")


def plain_loop(run, all_lines):
    """As PaddleOCR's `update_center`: frame by frame, the mean updated by each."""
    label, length = label_positions(run.context.config)
    sums: dict[int, np.ndarray] = {}
    counts: dict[int, int] = {}
    run.model.eval()
    with FeatureTap(run.model) as tap, paddle.no_grad():
        for batch in run.data.eval_loader:
            output = run.model(batch[0])
            probabilities = (output["head_out"] if isinstance(output, dict) else output).numpy()
            features = tap.features.numpy()
            for line, best in enumerate(probabilities.argmax(-1)):
                read = [c for t, c in enumerate(best) if c and (t == 0 or c != best[t - 1])]
                if not all_lines and read != batch[label][line, : int(batch[length][line])].tolist():
                    continue
                for t, c in enumerate(best.tolist()):
                    sums[c] = sums.get(c, 0.0) + features[line, t].astype(np.float64)
                    counts[c] = counts.get(c, 0) + 1
    return {c: sums[c] / counts[c] for c in sums}, counts


@pytest.fixture
def single(captchas, tmp_path, tiny):
    """A run of one CTC head with two linear layers."""
    config = single_head(tiny("student", **{"Global.epoch_num": 1, "Global.report": False}))
    train(config)
    return config.with_values({"Global.checkpoints": str(tmp_path / "run" / "latest")})


@pytest.mark.parametrize(("which", "name", "features"), [("trained", "Student", 16), ("single", None, 12)])
def test_centers_are_those_of_a_plain_loop(request, which, name, features):
    run = built(request.getfixturevalue(which), name)
    assert not hasattr(run.model, "Teacher")
    expected, counts = plain_loop(run, all_lines=True)
    table = table_of(collect(run, CollectOptions(all_lines=True)), run.context.charset, {})
    assert table.class_ids.tolist() == sorted(expected)
    assert dict(zip(table.class_ids.tolist(), table.counts.tolist(), strict=True)) == counts
    for c, center in zip(table.class_ids.tolist(), table.centers, strict=True):
        np.testing.assert_allclose(center, expected[c], rtol=1e-5, atol=1e-6)
    assert table.feat_dim == features  # the input of the last layer
    assert table.characters[0] == "blank"
    assert table.meta["charset_digest"] == run.context.charset.digest


def test_the_model_is_unchanged_and_two_passes_are_equal(trained):
    run = built(trained)
    before = {name: value.numpy() for name, value in run.model.state_dict().items()}
    first = collect(run, CollectOptions(frames="aligned"))
    again = collect(built(trained), CollectOptions(frames="aligned"))
    np.testing.assert_array_equal(first.sums, again.sums)
    for name, value in run.model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert first.samples == 24


def test_aligned_frames_are_of_the_labels_alone(trained, captchas):
    run = built(trained)
    table = table_of(collect(run, CollectOptions(frames="aligned")), run.context.charset, {})
    labels = [line.split("\t")[1] for line in (captchas / "train_list.txt").read_text().splitlines()]
    assert set(table.characters[1:]) == set("".join(labels))
    assert table.counts.sum() == 24 * 16  # each frame of each line


def test_an_interrupted_pass_goes_on(trained, tmp_path, monkeypatch):
    from ppocr_ext.centers import collect as module

    options = CollectOptions(all_lines=True, partial=tmp_path / "partial.npz", resume=True)
    config = trained.with_values({"Eval.loader.batch_size_per_card": 5})
    whole = collect(built(config), CollectOptions(all_lines=True))
    real, calls = module.CenterAccumulator.add, []

    def interrupted(*args):
        real(*args)
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module.CenterAccumulator, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect(built(config), options)
    monkeypatch.undo()
    result = collect(built(config), options)
    assert (result.samples, result.correct) == (whole.samples, whole.correct)
    assert (result.counts == whole.counts).all()
    np.testing.assert_allclose(result.sums, whole.sums, rtol=1e-9)
    assert (tmp_path / "partial.npz").exists()  # until the centers are written
    others = (
        {"frames": "aligned", "all_lines": True},
        {"all_lines": False},
        {"all_lines": True, "limit": 20},
    )
    for other in others:
        with raises_code(DataError, "other_pass"):
            collect(built(config), CollectOptions(partial=tmp_path / "partial.npz", resume=True, **other))
    remove_partial(options)
    assert not (tmp_path / "partial.npz").exists()


def test_a_label_file_that_has_changed_is_another_pass(trained, captchas, tmp_path, monkeypatch):
    from ppocr_ext.centers import collect as module

    labels = tmp_path / "labels.txt"
    lines = (captchas / "train_list.txt").read_text().splitlines()
    labels.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(module, "_SAVE_EVERY", 0.0)
    options = CollectOptions(all_lines=True, partial=tmp_path / "partial.npz", resume=True)
    config = trained.with_values({"Train.dataset.label_file_list": [str(labels)]})
    collect(built(config), options)
    assert collect(built(config), options).samples == 24
    name, label = lines[3].split("\t")
    lines[3] = f"{name}\t{label[::-1]}"
    assert label != label[::-1]
    labels.write_text("\n".join(lines) + "\n")
    with raises_code(DataError, "other_pass"):
        collect(built(config), options)


def test_a_result_that_cannot_be_written_keeps_what_was_added_up(trained, tmp_path, monkeypatch, capsys):
    from ppocr_ext.centers import collect as module
    from ppocr_ext.characters.center_table import CenterTable

    config = trained.with_values({"Eval.loader.batch_size_per_card": 5})
    (tmp_path / "config.yml").write_text(config.to_yaml())
    command = ["export-center", "-c", str(tmp_path / "config.yml"), "--frames", "aligned"]
    command += ["--output", str(tmp_path / "centers.npz")]
    partial = tmp_path / "centers.partial.npz"

    def full(*_):
        raise OSError(28, "No space left on device", "centers.npz")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_SAVE_EVERY", 0.0)
        patch.setattr(CenterTable, "save", full)
        assert main(command) != 0
    assert partial.exists()
    assert "No space left" in capsys.readouterr().err
    with monkeypatch.context() as patch:  # the centers are there before anything is compared
        patch.setattr("ppocr_ext.centers.center_summary.nearest_pairs", full)
        assert main([*command, "--resume"]) != 0
    assert read_centers(tmp_path / "centers.npz").meta["lines"] == 24
    assert partial.exists()
    monkeypatch.setattr(module.CenterAccumulator, "add", full)  # no batch is left to add
    assert main([*command, "--resume"]) == 0, capsys.readouterr()
    assert not partial.exists()


def test_the_command_writes_centers_map_summary_and_pickle(trained, tmp_path, capsys):
    (tmp_path / "config.yml").write_text(trained.to_yaml())
    out = tmp_path / "an out" / "centers.npz"
    code = main(
        ["export-center", "-c", str(tmp_path / "config.yml"), "--frames", "aligned"]
        + ["--output", str(out), "--pkl", str(tmp_path / "train_center.pkl")]
    )
    said = capsys.readouterr().out
    assert code == 0, said
    table = read_centers(out)
    assert table.feat_dim == 16
    assert out.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    summary = json.loads(out.with_suffix(".json").read_text())
    assert summary["centers"] == len(table.class_ids)
    assert summary["nearest_pairs"]
    assert summary["squared_distance_of_look_alikes"] is None  # no shipped group has two of these digits
    assert summary["look_alikes_in_spreads"] == {}
    np.testing.assert_array_equal(read_centers(tmp_path / "train_center.pkl").centers, table.centers)
    assert "characters with a center: 10 of 10" in said
    assert table.meta["charset"] == "dict.txt"
    assert table.meta["limit"] is None
    (hint,) = [line.removeprefix("use it: ") for line in said.splitlines() if line.startswith("use it: ")]
    name, command, *words = shlex.split(hint)
    assert (name, command) == ("ppocr-ext", "train")
    args = build_parser("train", train_command).parse_args(words)
    tuned = load([find_config(path) for path in args.config], args.opt)
    assert tuned.at("Global.pretrained_model") == trained.at("Global.checkpoints")
    assert tuned.at("Global.checkpoints") is None
    assert tuned.at("Global.save_model_dir") == "./output/center_loss"
    assert tuned.at("Loss.loss_config_list.CenterLoss.center_file_path") == str(out)


def test_the_pickle_that_a_center_loss_names_is_written_beside_the_centers(
    trained, tmp_path, monkeypatch, capsys
):
    loss = {"CenterLoss": {"weight": 0.1, "center_file_path": "old/train_center.pkl"}}
    losses = [*trained.thaw()["Loss"]["loss_config_list"], loss]
    (tmp_path / "config.yml").write_text(trained.with_values({"Loss.loss_config_list": losses}).to_yaml())
    monkeypatch.chdir(tmp_path)
    command = ["export-center", "-c", "config.yml", "--frames", "aligned", "--output", "new/centers.npz"]
    assert main(command) == 0, capsys.readouterr()
    table = read_centers(tmp_path / "new/centers.npz")
    np.testing.assert_array_equal(read_centers(tmp_path / "new/train_center.pkl").centers, table.centers)
    assert not (tmp_path / "old").exists()


def printed(words, config):
    """The config of the command that is printed for ``export-center`` with these words."""
    given = build_parser("export-center", export_command).parse_args(words)
    name, command, *rest = shlex.split(export_command._training_command(given, config))
    assert (name, command) == ("ppocr-ext", "train")
    args = build_parser("train", train_command).parse_args(rest)
    return load([find_config(path) for path in args.config], args.opt)


@pytest.mark.parametrize("option", ["Global.checkpoints=new/best", "+Global.checkpoints=new/best"])
def test_the_printed_command_does_not_go_on_with_a_checkpoint_of_the_file(trained, tmp_path, option):
    file = tmp_path / "my.yml"
    file.write_text(trained.with_values({"Global.checkpoints": "old/latest"}).to_yaml())
    words = ["-c", str(file), "-o", option]
    tuned = printed(words, load([file], [option]))
    assert (tuned.at("Global.checkpoints"), tuned.at("Global.pretrained_model")) == (None, "new/best")


def test_the_printed_command_sets_the_file_of_the_center_loss_that_is_there(trained, tmp_path):
    overlaid = load([_write(tmp_path, trained), find_config("configs/overlays/center_loss.yml")])
    recorded = tmp_path / "recorded.yml"
    recorded.write_text(fit_center_losses(overlaid).to_yaml())
    tuned = printed(["-c", str(recorded), "--output", "new.npz"], load([recorded]))
    names = [
        next(iter(entry)) for entry in tuned.at("Loss.loss_config_list") if "Center" in next(iter(entry))
    ]
    assert len(names) == 1
    assert tuned.at(f"Loss.loss_config_list.{names[0]}.center_file_path") == "new.npz"


def _write(folder, config):
    (folder / "base.yml").write_text(config.to_yaml())
    return folder / "base.yml"


@pytest.mark.parametrize(
    "files", [["--output", "c.json"], ["--output", "c.png"], ["--output", "c.npz", "--pkl", "./c.npz"]]
)
def test_no_file_replaces_another(trained, tmp_path, monkeypatch, capsys, files):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yml").write_text(trained.to_yaml())
    assert main(["export-center", "-c", "config.yml", *files]) == 2
    assert "[same_file]" in capsys.readouterr().err
    assert not list(tmp_path.glob("c.*"))


def test_a_pass_that_is_stopped_gives_the_command_that_goes_on(trained, tmp_path, monkeypatch, capsys):
    from ppocr_ext.centers import collect as module

    (tmp_path / "my config.yml").write_text(trained.to_yaml())
    command = ["export-center", "-c", str(tmp_path / "my config.yml"), "--frames", "aligned"]
    command += ["--output", str(tmp_path / "centers.npz")]
    add = module.CenterAccumulator.add

    def stop(*args):
        add(*args)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(module.CenterAccumulator, "add", stop)
        assert main(command) == 130
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("resume with: ")]
    words = shlex.split(line.removeprefix("resume with: "))
    assert words == ["ppocr-ext", *command, "--resume"]
    assert main(words[1:]) == 0


def test_the_lines_of_train_are_called_so(trained, tmp_path, captchas, capsys):
    lines = (captchas / "train_list.txt").read_text().splitlines()
    (tmp_path / "train.txt").write_text("\n".join(["no.png\t123", *lines[1:4]]) + "\n")
    bad = {"Train.dataset.label_file_list": [str(tmp_path / "train.txt")]}
    for values, place in (
        (bad, "Train: "),
        ({"Train.dataset.label_file_list": ["no.txt"]}, "Train.dataset.label_file_list.0: "),
    ):
        (tmp_path / "config.yml").write_text(trained.with_values(values).to_yaml())
        assert main(["export-center", "-c", str(tmp_path / "config.yml")]) == 2
        assert f"error: {place}" in capsys.readouterr().err


def test_an_lmdb_gives_the_centers_of_the_files_it_was_made_of(trained, captchas, tmp_path):
    lists = ["--label-files", str(captchas / "train_list.txt"), "--data-dir", str(captchas)]
    assert main(["make-lmdb", *lists, "--out", str(tmp_path / "lmdb")]) == 0
    expected = collect(built(trained), CollectOptions(frames="aligned"))
    lmdb = {"Train.dataset.name": "LMDBDataSet", "Train.dataset.data_dir": str(tmp_path / "lmdb")}
    run = built(trained.with_values(lmdb))
    assert type(run.data.eval_loader.dataset).__name__ == "LMDBDataSet"
    found = collect(run, CollectOptions(frames="aligned"))
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-6, atol=1e-6)
