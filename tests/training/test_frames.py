import re

import paddle
import pytest

from ppocr_ext.errors import DataError
from ppocr_ext.training.frames import ctc_frames, image_shapes
from ppocr_ext.training.run import Run


class Recogniser(paddle.nn.Layer):
    """Gives a frame for eight columns, in the form asked for."""

    def __init__(self, form):
        super().__init__()
        self.form = form

    def forward(self, x):
        assert not self.training
        probabilities = paddle.zeros([x.shape[0], x.shape[3] // 8, 11])
        return self.form(probabilities)


@pytest.mark.parametrize(
    "form",
    [
        lambda p: p,
        lambda p: (paddle.zeros([1, 2, 5]), p),
        lambda p: {"head_out": p},
        lambda p: {"Student": {"head_out": p}, "Teacher": {"head_out": paddle.concat([p, p], axis=1)}},
        lambda p: {"Student": {"head_out": (p, p)}},
    ],
)
def test_the_least_number_of_frames_of_what_is_decoded(tiny, form):
    model = Recogniser(form)
    assert ctc_frames(model, tiny("student"), "Eval") == 16
    assert model.training


def test_of_several_scales_the_narrowest_counts(tiny):
    config = tiny(
        "student", **{"Train.sampler": {"name": "MultiScaleSampler", "scales": [[320, 32], [160, 48]]}}
    )
    assert image_shapes(config, "Train") == [(3, 32, 320), (3, 48, 160)]
    assert ctc_frames(Recogniser(lambda p: p), config, "Train") == 20


def test_unknown_where_widths_vary_or_the_decoder_is_another(tiny):
    model = Recogniser(lambda p: p)
    varying = {"name": "MultiScaleSampler", "scales": [[320, 32]]}
    config = tiny("student", **{"Train.sampler": varying, "Train.dataset.ds_width": True})
    assert ctc_frames(model, config, "Train") is None
    assert ctc_frames(model, tiny("student", **{"PostProcess.name": "NRTRLabelDecode"}), "Eval") is None
    assert ctc_frames(Recogniser(lambda p: [p.mean()]), tiny("student"), "Eval") is None


def test_labels_that_do_not_fit_the_frames_are_left_out(tiny, captchas):
    narrow = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    for entry in narrow:
        if "RecResizeImg" in entry:
            entry["RecResizeImg"]["image_shape"] = [3, 32, 32]  # 4 frames
    labels = [line.split("\t")[1] for line in (captchas / "train_list.txt").read_text().splitlines()]
    fitting = [t for t in labels if len(t) + sum(a == b for a, b in zip(t, t[1:], strict=False)) <= 4]
    values = {"Train.loader.batch_size_per_card": 1, "Global.max_unusable": 1}
    run = Run.build(tiny("student", **{"Train.dataset.transforms": narrow, **values}), "train")
    assert run.preflight["Train"].usable == len(fitting) < len(labels)
    assert run.preflight["Train"].counts == {"too_long_for_frames": len(labels) - len(fitting)}


def test_the_key_that_has_the_sizes_is_named(tiny):
    sampler = {"name": "MultiScaleSampler", "scales": [[16, 32]], "first_bs": 4}
    config = tiny("student", **{"Train.sampler": sampler, "Train.dataset.name": "MultiScaleDataSet"})
    with pytest.raises(DataError, match="Make `Train.sampler.scales` wider, or take such labels out"):
        Run.build(config.with_values({"Train.dataset.ds_width": False}), "train")


def test_when_no_label_fits_the_message_says_so(tiny):
    narrow = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    for entry in narrow:
        if "RecResizeImg" in entry:
            entry["RecResizeImg"]["image_shape"] = [3, 32, 16]
    with pytest.raises(DataError, match="Make `RecResizeImg.image_shape` wider, or"):
        Run.build(tiny("student", **{"Train.dataset.transforms": narrow}), "train")


def test_one_message_tells_all_that_long_labels_need(tiny, captchas, tmp_path):
    """What it says is enough: with it the same lines are used."""
    image = (captchas / "train_list.txt").read_text().split("\t")[0]
    (tmp_path / "list.txt").write_text(f"{image}\t{'0123456789' * 3}\n{image}\t{'1122334455' * 2}9\n" * 8)
    config = tiny("student", **{"Train.dataset.label_file_list": [str(tmp_path / "list.txt")]})
    with pytest.raises(DataError) as refused:
        Run.build(config, "train")
    length = int(re.search(r"Global\.max_text_length: (\d+)", str(refused.value))[1])
    width = int(re.search(r"(\d+) in place of 128", str(refused.value))[1])
    transforms = config.thaw()["Train"]["dataset"]["transforms"]
    for entry in transforms:
        if "RecResizeImg" in entry:
            entry["RecResizeImg"]["image_shape"] = [3, 32, width]
    values = {
        "Global.max_text_length": length,
        "Architecture.Head.head_list.NRTRHead.max_text_length": length,
        "Train.dataset.transforms": transforms,
        "Eval.dataset.transforms": transforms,
    }
    run = Run.build(config.with_values(values), "train")
    assert (length, run.preflight["Train"].usable) == (32, 16)
