"""What follows from the samples: dictionary, sizes, batch and steps; and the config that says so."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from saved_runs import save_run
from tiny_runs import captchas, tiny

from ppocr_ext import limits
from ppocr_ext.base.parts import POSITIONS
from ppocr_ext.charset import Charset
from ppocr_ext.config import load
from ppocr_ext.config.derive import with_class_counts
from ppocr_ext.data.batches import batch_size_key
from ppocr_ext.first_run import decisions
from ppocr_ext.first_run.bases import Base, covering_weights, open_base, small_base
from ppocr_ext.first_run.decisions import Facts, Plan
from ppocr_ext.first_run.writing import Data, Lists, config_text
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_root
from ppocr_ext.optim.optimizers import match_patterns
from ppocr_ext.text_direction import LEFT_TO_RIGHT, RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL

__all__ = ["captchas", "tiny"]
pytestmark = pytest.mark.usefixtures("no_released_models")
WORDS = Facts(
    5_000, dict.fromkeys("abcdefgh", 100), [2, 6, 12, 14, 15], {n: n + 2 for n in range(1, 16)}, [1, 3, 6]
)
PLATES = Facts(1_300, dict.fromkeys("0123456789AB", 300), [10, 10, 10, 10, 10], {10: 14}, [4.5, 4.6, 4.7])


def decide(facts: Facts, base: Base, **options: Any) -> Plan:
    return decisions.decide(facts, base, Path("my"), **options)


def width(plan: Plan) -> int:
    return plan["RecResizeImg.image_shape"][2]


def is_stretched(plan: Plan) -> bool:
    return any(row[:2] == ("RecResizeImg.padding", False) for row in plan.decisions)


def official(tmp_path: Path, name: str = "en_PP-OCRv5_mobile_rec") -> Base:
    return open_base(name, tmp_path)


def test_lines_of_one_length_with_few_frames_are_stretched() -> None:
    plates, words = decide(PLATES, small_base()), decide(WORDS, small_base())
    assert (width(plates), is_stretched(plates)) == (240, True)
    assert (width(words), is_stretched(words)) == (240, False)


def test_images_are_wide_enough_for_the_label_that_needs_most_frames() -> None:
    doubled = WORDS._replace(frames={15: 29}, ratios=[1, 2, 2.5])
    assert width(decide(doubled, small_base())) >= 8 * 29


@pytest.mark.parametrize(
    ("facts", "lengths"),
    [
        (WORDS, 17),  # 15, and 2 for NRTR
        (WORDS._replace(lengths=[2, 6, 12, 14, 300]), 30),  # one very long label does not widen the network
    ],
)
def test_the_longest_label_fits_unless_it_is_alone(facts: Facts, lengths: int) -> None:
    assert decide(facts, small_base()).longest == lengths - 2


@pytest.mark.parametrize("samples", [15, 60, 300, 1_000, 50_000])
def test_an_epoch_has_at_least_twenty_steps(samples: int, tmp_path: Path) -> None:
    for base, can_draw in ((small_base(), False), (official(tmp_path), True)):
        plan = decide(WORDS._replace(samples=samples), base, can_draw=can_draw)
        batch = plan[batch_size_key(base.config)]
        assert batch >= 1 and samples // batch >= min(20, samples // 4)
        assert plan.steps > plan["Global.eval_batch_step"][1] > 0


@pytest.mark.parametrize(("most", "batch", "batches"), [(64, 64, 1), (40, 32, 2), (20, 16, 4), (1, 1, 64)])
def test_a_smaller_batch_keeps_the_samples_of_an_optimizer_step(
    most: int, batch: int, batches: int, tmp_path: Path
) -> None:
    base = official(tmp_path)
    before = decide(WORDS, base)
    plan = before.with_batch_of(most, "memory")
    assert plan[batch_size_key(base.config)] == batch
    assert plan.steps == batches * before.steps
    assert plan["Global.eval_batch_step"][1] == batches * before["Global.eval_batch_step"][1]
    assert plan["Optimizer.lr.learning_rate"] == before["Optimizer.lr.learning_rate"]
    if batches > 1:
        assert plan["Global.accumulate"] == batches
    keys = [row.key for row in plan.decisions]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("samples", [16, 100, 1_300, 60_000, 200_000])
def test_the_rate_rises_in_a_small_part_of_the_training(samples: int, tmp_path: Path) -> None:
    for base in (small_base(), official(tmp_path)):
        plan = decide(WORDS._replace(samples=samples), base)
        assert 0.01 <= round(plan["Optimizer.lr.warmup_epoch"] / plan["Global.epoch_num"], 2) <= 0.1


@pytest.mark.parametrize("samples", [30, 257, 1_300, 5_000])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("fix_bs", [False, True])
def test_the_steps_of_a_sampler_of_several_scales_are_its_own(
    samples: int, wide: bool, fix_bs: bool, tmp_path: Path
) -> None:
    base = official(tmp_path)
    base = replace(base, config=base.config.with_values({"Train.sampler.fix_bs": fix_bs}))
    facts = WORDS._replace(samples=samples, ratios=[4, 12, 20] if wide else WORDS.ratios)
    plan = decide(facts, base)
    options = base.config.at("Train.sampler").thaw()
    del options["name"]
    values = {row.key: row.value for row in plan.decisions}
    options["scales"] = values.get("Train.sampler.scales", options["scales"])
    options["first_bs"] = values["Train.sampler.first_bs"]
    open_host()
    module = importlib.import_module("ppocr.data.multi_scale_sampler")
    facts_of_images = {"data_idx_order_list": range(samples), "ds_width": False, "seed": 1}
    images = type("Images", (), {"__len__": lambda self: samples, **facts_of_images})()
    sampler = module.MultiScaleSampler(images, **options)
    assert plan.steps == plan["Global.epoch_num"] * len(sampler)
    assert plan["Global.eval_batch_step"][1] == max(1, round(plan.steps / 20))


def test_a_run_from_nothing_goes_on_at_a_tenth_of_its_rate(tiny: Any, tmp_path: Path) -> None:
    rates = []
    for name, begins_with in (("from_nothing", None), ("fine_tuned", "weights")):
        values = {"Global.pretrained_model": begins_with, "Optimizer.lr.learning_rate": 0.004}
        save_run(tiny("student", **values), tmp_path / name)
        plan = decide(WORDS, open_base(str(tmp_path / name), tmp_path))
        rates.append(plan["Optimizer.lr.learning_rate"])
    assert rates == [pytest.approx(0.0004), 0.004]


def test_a_run_beside_drawn_lines_goes_on_with_as_large_steps(tiny: Any, tmp_path: Path) -> None:
    batches = []
    for name, mix in (("alone", None), ("beside", [{"dataset": {"label_file_list": []}, "share": 0.75}])):
        save_run(tiny("student", **{"Train.mix": mix}), tmp_path / name)
        plan = decide(WORDS._replace(samples=60_000), open_base(str(tmp_path / name), tmp_path))
        batches.append(plan["Train.loader.batch_size_per_card"])
    assert batches[1] == 4 * batches[0]


@pytest.mark.parametrize("name", ["small", "en_PP-OCRv5_mobile_rec", "ch_RepSVTR_rec"])
@pytest.mark.parametrize("longest", [15, 22, 57, 120])
def test_ctc_has_two_frames_for_each_character(name: str, longest: int, tmp_path: Path) -> None:
    facts = WORDS._replace(
        lengths=[2, 6, longest, longest, longest], frames={n: n for n in range(1, longest + 1)}
    )
    plan = decide(facts, small_base() if name == "small" else official(tmp_path, name))
    values = {row.key: row.value for row in plan.decisions}
    frames = width(plan) // 8
    if name.startswith("en") and values.get("Architecture.Backbone.train_frames") != "width":
        frames = 40
    assert frames >= 2 * longest
    positions = values.get(
        "Architecture.Head.use_pos", plan.base.config.at("Architecture.Head.use_pos", False)
    )
    assert not positions or frames <= POSITIONS


def test_few_lines_without_weights_are_trained_beside_drawn_ones(tmp_path: Path) -> None:
    plan = decide(PLATES, small_base())
    assert (plan.drawn, plan.share) == (8_700, 0.75)
    assert decide(PLATES._replace(samples=9_900), small_base()).share == 0.01
    assert decide(PLATES._replace(samples=20_000), small_base()).drawn == 0
    assert decide(PLATES, official(tmp_path)).drawn == 0


@pytest.mark.parametrize("samples", [1, 9, 15, 30, 1_100])
def test_few_lines_take_as_many_steps_as_are_said(samples: int) -> None:
    plan = decide(PLATES._replace(samples=samples), small_base())
    seen = plan.steps * plan["Train.loader.batch_size_per_card"] / (1 - plan.share)
    assert seen == pytest.approx(60_000, rel=0.06)


def test_the_dictionary_of_the_base_stays_grows_or_is_cut(tmp_path: Path) -> None:
    base = official(tmp_path)
    assert base.charset is not None
    own = base.charset.characters[:-1]  # the space is added
    assert decide(WORDS, base).dictionary is None
    assert decide(WORDS, base)["Metric.ignore_space"] is False  # the base may read spaces
    grown = decide(WORDS._replace(characters={"a": 3, "鳥": 1, " ": 2}), base)
    assert grown.dictionary == (*own, "鳥") and grown["Global.use_space_char"]
    assert "1 new: 鳥" in grown.decisions[0].why and grown["Metric.ignore_space"] is False
    cut = decide(WORDS, base, characters="0123456789abcdefgh")
    assert (
        cut.dictionary == tuple(c for c in own if c in "0123456789abcdefgh") and " " not in cut.characters()
    )
    assert decide(WORDS, small_base()).dictionary == tuple("abcdefgh")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Hello 42!", "en_PP-OCRv5_mobile_rec"),
        ("Привет", "eslav_PP-OCRv5_mobile_rec"),
        ("สวัสดี", "th_PP-OCRv5_mobile_rec"),
        ("训练", "PP-OCRv5_mobile_rec"),
        ("안녕", "korean_PP-OCRv5_mobile_rec"),
    ],
)
def test_the_smallest_official_network_that_knows_all_characters_comes_first(text: str, first: str) -> None:
    covers = covering_weights(text)
    assert covers[0][:2] == (first, 1.0)
    shares = [each.share for each in covers]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("name", ["v2_mobile", "v4_mobile", "v6_small", "v6_tiny"])
def test_batch_norms_of_a_released_neck_are_frozen_if_batches_are_small(name: str, tmp_path: Path) -> None:
    from ppocr_ext.checkpoint.conversion import ctc_alone
    from ppocr_ext.modeling import build_model

    (tmp_path / "dict.txt").write_text("a\nb\n")
    charset = Charset.from_file(tmp_path / "dict.txt")
    config = load(config_root() / f"pp-ocr/{name}.yml")
    network = build_model(ctc_alone(with_class_counts(config, charset).at("Architecture")))
    norms = [name for name, layer in network.named_sublayers() if hasattr(layer, "_variance")]
    base = Base(name, (f"configs/pp-ocr/{name}.yml",), config, "released", charset, is_released=True)
    new = WORDS._replace(characters=dict.fromkeys("abc", 100))
    few = new._replace(samples=90)
    rows = [row.value for row in decide(few, base).decisions if row.key == "Global.freeze"]
    frozen = set(match_patterns(network, rows[0], "Global.freeze")) if rows else set()
    neck = [each for each in norms if each.startswith("head.ctc_encoder")]
    weights = {f"{each}.{part}" for each in neck for part in ("weight", "bias")}
    assert frozen == weights
    for other in (decide(new, base), decide(few, official(tmp_path))):
        assert not [row for row in other.decisions if row.key == "Global.freeze"]
    # what knows all characters is trained with care
    known = decide(new._replace(characters={"a": 200, "b": 100}), base)
    assert known["Global.freeze"] == (rows[0] if rows else None)
    rate = "Optimizer.lr.learning_rate"
    assert known[rate] == pytest.approx(decide(new, base)[rate] / 10)


def test_wide_lines_widen_an_official_network_with_its_frames(tmp_path: Path) -> None:
    wide = WORDS._replace(lengths=[10, 40, 60, 60, 60], frames={60: 63}, ratios=[4, 12, 20])
    plan = decide(wide, official(tmp_path))
    values = {row.key: row.value for row in plan.decisions}
    assert values["RecResizeImg.image_shape"] == [3, 48, 960]
    assert values["Train.sampler.scales"] == [[960, 32], [960, 48], [960, 64]]
    assert values["Architecture.Backbone.train_frames"] == "width"
    other = {row.key for row in decide(wide, official(tmp_path, "ch_RepSVTR_rec")).decisions}
    assert "Train.sampler.scales" in other and "Architecture.Backbone.train_frames" not in other
    base = replace(official(tmp_path), is_released=True)
    narrow, usual = (decide(WORDS._replace(ratios=[1, 3, ratio]), base) for ratio in (3, 6.6))
    assert (width(narrow), narrow["Architecture.Backbone.train_frames"]) == (240, "width")
    assert (width(usual), usual["Architecture.Backbone.train_frames"]) == (320, None)


def test_longer_lines_widen_the_images_of_eval_unless_one_width_is_read(tmp_path: Path) -> None:
    squashing = small_base()
    values = {"Architecture.Backbone": {"name": "SVTRNet", "img_size": [48, 320]}}
    of_one_width = replace(squashing, config=squashing.config.with_values(values))
    bases = {"words": (WORDS, small_base()), "plates": (PLATES, small_base()), "fixed": (WORDS, of_one_width)}
    plans = {name: decide(facts, base) for name, (facts, base) in bases.items()}
    assert {name: plan["RecResizeImg.eval_mode"] for name, plan in plans.items()} == {
        "words": True,
        "plates": None,
        "fixed": None,
    }
    assert "more than 15 characters are not read" in next(
        row.why for row in plans["plates"].decisions if row.key == "RecResizeImg.image_shape"
    )
    # a run that widened, whose new lines are stretched
    widened = squashing.config.with_values({"Eval.dataset.transforms.RecResizeImg.eval_mode": True})
    plan = decide(PLATES, replace(squashing, config=widened))
    assert plan["RecResizeImg.eval_mode"] is False
    data = Data(tmp_path, tmp_path / "train.txt")
    (tmp_path / "config.yml").write_text(config_text(plans["words"], Lists(data, data), tmp_path, "init"))
    config: Any = load(tmp_path / "config.yml")
    resizing = [
        config.at(f"{mode}.dataset.transforms.RecResizeImg.eval_mode", None) for mode in ("Train", "Eval")
    ]
    assert resizing == [None, True]


@pytest.mark.parametrize(
    ("order", "direction"),
    [("logical", RIGHT_TO_LEFT), ("visual", RIGHT_TO_LEFT_VISUAL), ("", RIGHT_TO_LEFT)],
)
def test_letters_decide_the_direction_and_no_path_does(order: str, direction: str) -> None:
    hebrew = WORDS._replace(characters=dict.fromkeys("\u05d0\u05d1\u05d2 12", 9), order=order)
    plan = decide(hebrew, small_base())
    assert plan["Global.text_direction"] == direction
    assert plan.of_drawn("\u05d0\u05d112") == (
        "12\u05d1\u05d0" if direction == RIGHT_TO_LEFT else "\u05d0\u05d112"
    )
    latin = decide(WORDS, small_base()), decisions.decide(WORDS, small_base(), Path("arabic/my"))
    found = [[row.value for row in plan.decisions if row.key == "Global.text_direction"] for plan in latin]
    assert found == [[], [LEFT_TO_RIGHT]]


def test_an_arabic_base_keeps_its_direction(tmp_path: Path) -> None:
    plan = decide(WORDS, official(tmp_path, "arabic_PP-OCRv5_mobile_rec"))
    assert plan["Global.text_direction"] == RIGHT_TO_LEFT_VISUAL


@pytest.mark.parametrize("name", ["small", "en_PP-OCRv5_mobile_rec", "PP-OCRv3_mobile_rec", "ch_RepSVTR_rec"])
@pytest.mark.parametrize("facts", [WORDS, PLATES])
def test_the_config_is_short_and_says_what_was_decided(name: str, facts: Facts, tmp_path: Path) -> None:
    base = small_base() if name == "small" else open_base(name, tmp_path)
    plan = decide(facts, base)
    lists = Lists(Data(tmp_path / "a: b", tmp_path / "train.txt"), Data(tmp_path / "no", tmp_path / "true"))
    text = config_text(plan, lists, tmp_path, "ppocr-ext init 'x\ny'")
    assert len(text.splitlines()) <= 30 and text.splitlines()[1].startswith("_BASE_: ")
    (tmp_path / "config.yml").write_text(text, encoding="utf-8")
    config: Any = load(tmp_path / "config.yml")
    assert config.at("Train.dataset.data_dir") == str(tmp_path / "a: b")
    assert config.at("Eval.dataset.label_file_list") == (str(tmp_path / "true"),)
    for row in plan.decisions:
        if not row.key.startswith("RecResizeImg"):
            assert config.at(row.key) == (tuple(row.value) if isinstance(row.value, list) else row.value)
    assert config.at("Eval.dataset.transforms.RecResizeImg.image_shape")[2] == width(plan)
    assert config.at("Eval.dataset.transforms.RecResizeImg.padding", True) is not is_stretched(plan)
    assert config.at("Global.pretrained_model", None) == base.weights


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1000000\n", 1_000_000), ("max\n", None), ("9223372036854771712", None)]
)
def test_a_container_may_have_less_memory_than_its_machine(
    text: str, bytes_: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(limits, "Path", lambda _, name: tmp_path / name)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert limits.memory_limit() == (bytes_ or whole)
