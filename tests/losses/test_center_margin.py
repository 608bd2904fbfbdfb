"""The margin of center loss against a reference frame by frame: nearest centers, and groups of look-alikes."""

from pathlib import Path

import numpy as np
import paddle
import pytest
from center_files import centers_file
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.losses import CenterLoss, LossContext

CHARSET = Charset(tuple("O0oQl1Ixyz"))  # class ids 1 to 10
CLASSES, DIM = 11, 5
CONTEXT = LossContext(CHARSET, {None: DIM})
GROUPS = "# mine\nO0o\nOQ\nl1I|\nx未\n"
# by the groups, the characters that are in the dictionary
RIVALS = {1: [2, 3, 4], 2: [1, 3], 3: [1, 2], 4: [1], 5: [6, 7], 6: [5, 7], 7: [5, 6]}


@pytest.fixture
def groups(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(GROUPS, encoding="utf-8")
    return str(path)


def drawn_centers(tmp_path: Path, ids: list[int]) -> str:
    values = np.random.default_rng(1).normal(size=[len(ids), DIM])
    return centers_file(tmp_path / "centers.npz", values, ids, [CHARSET.ctc_symbols[i] for i in ids])


def inputs(seed: int = 0) -> tuple[paddle.Tensor, paddle.Tensor]:
    rng = np.random.default_rng(seed)
    features = paddle.to_tensor(rng.normal(size=[4, 30, DIM]).astype("float32"), stop_gradient=False)
    return features, paddle.to_tensor(rng.normal(size=[4, 30, CLASSES]).astype("float32"))


def naive(
    features: paddle.Tensor,
    logits: paddle.Tensor,
    centers: dict[int, np.ndarray],
    rivals: dict[int, list[int]],
    margin: float,
) -> tuple[float, np.ndarray]:
    """The distance and the hinge, in float64, frame by frame; and the gradient."""
    rows = features.numpy().reshape(-1, DIM).astype(np.float64)
    ids = logits.numpy().argmax(-1).ravel()
    distances, hinges = [], []
    for i, (row, c) in enumerate(zip(rows, ids, strict=True)):
        if c not in centers:
            continue
        own = centers[c].astype(np.float64)
        distances.append((i, ((row - own) ** 2).sum(), 2 * (row - own)))
        others = [centers[n].astype(np.float64) for n in rivals.get(c, []) if n in centers]
        if others:
            near = min(others, key=lambda other: ((row - other) ** 2).sum())
            over = ((row - own) ** 2).sum() - ((row - near) ** 2).sum() + margin
            hinges.append((i, max(0.0, over), 2 * (near - own) * (over > 0)))
    gradient = np.zeros_like(rows)
    total = 0.0
    for part in (distances, hinges):
        for i, value, slope in part:
            total += value / len(part)
            gradient[i] += slope / len(part)
    return total, gradient.reshape(features.shape)


def known(loss: CenterLoss) -> dict[int, np.ndarray]:
    centers = loss.bank.centers.numpy()
    return {int(c): centers[c] for c in np.flatnonzero(loss.bank.known.numpy())}


@pytest.mark.parametrize("ids", [list(range(CLASSES)), [0, 1, 2, 4, 5, 8, 9]], ids=["all", "some lack"])
@pytest.mark.parametrize("blank", [True, False])
def test_groups_equal_the_reference(tmp_path, groups, ids, blank):
    features, logits = inputs()
    file = drawn_centers(tmp_path, ids)
    loss = CenterLoss(center_file_path=file, margin=1.5, look_alikes=groups, blank=blank, context=CONTEXT)
    centers = known(loss)
    if not blank:
        centers.pop(0, None)
    value = loss((features, logits), [])["loss"]
    value.backward()
    expected, gradient = naive(features, logits, centers, RIVALS, 1.5)
    assert float(value) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(features.grad.numpy(), gradient, atol=1e-6)


@pytest.mark.parametrize("count", [1, 3, 10**6])
def test_nearest_centers_equal_the_reference(tmp_path, count):
    features, logits = inputs()
    file = drawn_centers(tmp_path, [0, 1, 2, 4, 5, 8, 9])
    loss = CenterLoss(center_file_path=file, margin=0.7, look_alikes=count, context=CONTEXT)
    centers = known(loss)
    rivals = {}
    for c, own in centers.items():
        others = [n for n in centers if n not in (0, c)]
        others.sort(key=lambda n, own=own: float(((centers[n] - own) ** 2).sum()))
        rivals[c] = others[:count] if c else []
    value = loss((features, logits), [])["loss"]
    expected, _ = naive(features, logits, centers, rivals, 0.7)
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_centers_that_form_during_training_become_rivals_at_once(groups):
    loss = CenterLoss(update="ema", margin=2.0, look_alikes=groups, context=CONTEXT)

    def step(c: int, at: float) -> float:
        logits = np.zeros([1, 1, CLASSES], np.float32)
        logits[0, 0, c] = 9.0
        feature = paddle.full([1, 1, DIM], at)
        return float(loss((feature, paddle.to_tensor(logits)), [])["loss"])

    assert step(5, 0.0) == 0.0  # it alone has a center
    assert step(6, 1.0) == 0.0  # at its own center, 5 away from the other
    # 0.25 · 5 from its own center, as far from that of `1`
    assert step(5, 0.5) == pytest.approx(1.25 + 2.0)


@pytest.mark.parametrize(
    ("text", "ids", "code"),
    [
        ("未末\n己已\n", list(range(CLASSES)), "no_look_alikes"),  # of other characters
        (GROUPS, [0, 1, 5, 9], "no_look_alikes"),  # no group has two centers
        (None, list(range(CLASSES)), "unreadable_file"),
    ],
)
def test_groups_that_serve_no_center_are_refused(tmp_path, text, ids, code):
    path = tmp_path / "groups.txt"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    file = drawn_centers(tmp_path, ids)
    with raises_code(DataError, code, path):
        CenterLoss(center_file_path=file, margin=1.0, look_alikes=str(path), context=CONTEXT)
    if text is not None:
        with raises_code(ConfigError, "missing_context"):  # groups need the dictionary
            CenterLoss(CLASSES, DIM, center_file_path=file, margin=1.0, look_alikes=str(path))


@pytest.mark.parametrize("value", [0, -1, 2.5, True, None, ["未末"]])
def test_other_values_are_refused(value):
    with raises_code(ConfigError, "bad_value", repr(value)):
        CenterLoss(update="ema", look_alikes=value, context=CONTEXT)


def frames_of(values: dict[int, float]) -> tuple[paddle.Tensor, paddle.Tensor]:
    """One line with a frame of each class, all of whose features have one value."""
    logits = np.zeros([1, len(values), CLASSES], np.float32)
    logits[0, np.arange(len(values)), list(values)] = 9.0
    features = np.repeat(np.array(list(values.values()), np.float32)[None, :, None], DIM, axis=2)
    return paddle.to_tensor(features), paddle.to_tensor(logits)


def number_of_nearest(count: int = 1, momentum: float = 0.5) -> CenterLoss:
    return CenterLoss(update="ema", margin=3.0, look_alikes=count, momentum=momentum, context=CONTEXT)


def test_classes_that_get_a_center_later_have_a_margin_at_once():
    loss = number_of_nearest()
    assert float(loss(frames_of({1: 0.0}), [])["loss"]) == 0.0  # it alone has a center
    # both at their centers, 5 apart in squared distance, nearer than a margin of 6
    loss.margin = loss._margin_term.margin = 6.0
    assert float(loss(frames_of({1: 0.0, 2: 1.0}), [])["loss"]) == pytest.approx(1.0)
    # a third one lies nearer to both than they to each other: 1.25 away
    assert float(loss(frames_of({3: 0.5}), [])["loss"]) == pytest.approx(6.0 - 1.25)


def moved_apart(loss: CenterLoss, steps: int) -> None:
    """Steps in which 1, which is nearest to 2 at first, moves to 3."""
    for step in range(steps):
        loss(frames_of({1: 0.2 if step < 50 else 10.0, 2: 0.0, 3: 10.1}), [])


def test_the_nearest_are_looked_for_again_every_100_steps():
    loss = number_of_nearest()
    moved_apart(loss, 100)
    at_2 = frames_of({2: 10.1})  # a frame of 2 that lies among those of 3 and 1
    assert loss._margin_term.neighbours.numpy()[1].tolist() == [2]
    loss(at_2, [])
    assert loss._margin_term.neighbours.numpy()[1].tolist() == [3]


@pytest.mark.parametrize("steps", [60, 99, 100])
def test_a_run_that_goes_on_has_the_same_neighbours(steps):
    loss, other = number_of_nearest(), number_of_nearest()
    moved_apart(loss, steps)
    state = {name: value.numpy() for name, value in loss.state_dict().items()}
    other.set_state_dict(state)
    for seed in range(3):
        inputs_now = inputs(seed)
        assert float(other(inputs_now, [])["loss"]) == float(loss(inputs_now, [])["loss"]) > 0.0
        frames = frames_of({1: 9.0 - seed, 2: 3.0})
        assert float(other(frames, [])["loss"]) == float(loss(frames, [])["loss"]) > 0.0


def test_a_state_without_neighbours_finds_them_anew():
    loss, other = number_of_nearest(), number_of_nearest()
    moved_apart(loss, 60)
    state = {n: v.numpy() for n, v in loss.state_dict().items() if "neighbours" not in n}
    assert len(state) == len(loss.state_dict()) - 1
    other.set_state_dict(state)
    other(frames_of({1: 10.0}), [])
    assert other._margin_term.neighbours.numpy()[1].tolist() == [3]
