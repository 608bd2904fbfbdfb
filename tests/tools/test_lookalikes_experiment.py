"""What the experiment trains and what it tables; the runs themselves are stood in for."""

import numpy as np
import pytest
from experiments import lookalikes
from experiments.lookalikes import change_interval, errors_by_line, groups_of_letters, main, to_markdown

from ppocr_ext.evaluation.predictions import Prediction, write_predictions


def lines(texts, label="未土"):
    return [Prediction(f"{i}.png", label, text, 1.0) for i, text in enumerate(texts)]


def test_kana_and_punctuation_are_no_letters():
    groups = groups_of_letters()
    assert {"己已巳", "O0o"} <= set(groups)
    assert not set("ニロ.") & set("".join(groups))


def test_errors_are_counted_by_line():
    counts = errors_by_line(lines(["未土", "末土", "未上"]), ["未末", "土士"])
    assert counts.tolist() == [[2, 0], [2, 1], [2, 0]]


def test_the_interval_of_a_change():
    plain = np.array([[[2, 1]] * 50 + [[2, 0]] * 50])
    assert change_interval(plain, plain) == (0.0, 0.0)
    half = np.array([[[2, 1]] * 25 + [[2, 0]] * 75])
    low, high = change_interval(plain, half)
    assert low < -0.5 < high < 0


def test_the_table_compares_with_plain():
    def of(wrong):
        return lines(["末土"] * wrong + ["未土"] * (100 - wrong))

    results = {"as released": [of(50)], "plain": [of(40), of(20)], "aligned": [of(10), of(20)]}
    general = {"as released": [[0.5]], "plain": [[0.5], [0.25]], "aligned": [[1.0], [0.0]]}
    rows = {
        row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]]
        for row in to_markdown(results, general, ["words"]).splitlines()
    }
    assert rows["as released"] == ["50", "25.0%", "", "", "50.0%", "50.0%"]
    assert rows["plain"][:3] == ["40, 20", "20.0%, 10.0%", ""]
    assert rows["aligned"][2].startswith("-50% (")
    first, second = map(float, rows["aligned"][3].split(", "))
    assert first < 1e-6
    assert second == 1.0
    assert rows["aligned"][-2:] == ["90.0%, 80.0%", "100.0%, 0.0%"]


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Note the commands of a run, and write what they would."""
    seen = []

    def run_command(here, name, words):
        seen.append((here.name, name, words))
        here.mkdir(parents=True, exist_ok=True)
        if words[0] == "init":
            (here / "my").mkdir()
            (here / "my" / "config.yml").write_text("Optimizer: {lr: {learning_rate: 0.00007}}\n")
        elif words[0] == "export-center":
            (here / words[words.index("--output") + 1]).touch()
        elif words[0] == "predict":
            write_predictions(here / name, lines(["未土"] * 3 + ["末土"]))
        return 1.0

    monkeypatch.setattr(lookalikes, "run_command", run_command)
    monkeypatch.setattr(lookalikes, "draw_lines", lambda folder, places: None)
    monkeypatch.chdir(tmp_path)
    return seen


def test_all_arms_take_equal_steps_from_the_same_weights(commands, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["lookalikes.py", "--seeds", "1", "2"])
    assert main() == 0
    trained = {(seed, name): words for seed, name, words in commands if words[0] == "train"}
    assert set(trained) == {(seed, name) for seed in ("seed1", "seed2") for name in lookalikes.ARMS}
    for (seed, _), words in trained.items():
        assert {f"Global.seed={seed[-1]}", "Optimizer.lr.learning_rate=7e-05"} <= set(words)
    centered = {name: " ".join(words) for (seed, name), words in trained.items() if seed == "seed1"}
    assert "CenterLoss" not in centered["plain"]
    assert 'CenterLoss.center_file_path="centers_argmax.npz"' in centered["PaddleOCR"]
    assert "hard.txt" in centered["hard"]
    tests = [
        n for n, (_, name, words) in enumerate(commands) if words[0] == "predict" and name != "train.tsv"
    ]
    assert len(tests) == 1 + 2 * len(lookalikes.ARMS)
    assert all(words[0] == "predict" for _, _, words in commands[tests[0] :])
    assert "| aligned |" in capsys.readouterr().out
