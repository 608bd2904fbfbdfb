"""Weights that are loaded: by names, shapes and dictionaries; numbers that no training writes are refused."""

import logging
import os
import pickle

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.errors import WeightsError


def charset_of(text, use_space=False):
    return Charset(characters=tuple(text), use_space=use_space, path=None)


DIGITS = charset_of("0123456789")


class Head(paddle.nn.Layer):
    def __init__(self, charset, dim=4):
        super().__init__()
        self.fc = paddle.nn.Linear(dim, charset.ctc_classes)


class Gtc(paddle.nn.Layer):
    def __init__(self, charset, dim=4):
        super().__init__()
        self.embedding = paddle.nn.Layer()
        self.embedding.embedding = paddle.nn.Embedding(charset.nrtr_rows, dim)
        self.tgt_word_prj = paddle.nn.Linear(dim, charset.nrtr_rows, bias_attr=False)


class Recogniser(paddle.nn.Layer):
    """Names and class axes of a MultiHead recogniser, without the rest of it."""

    def __init__(self, charset=DIGITS, dim=4):
        super().__init__()
        self.backbone = paddle.nn.Linear(3, dim)
        self.head = paddle.nn.Layer()
        self.head.ctc_head = Head(charset, dim)
        self.head.gtc_head = Gtc(charset, dim)


@pytest.fixture
def caplog_ours(caplog):
    logger = logging.getLogger("ppocr_ext")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, logger="ppocr_ext")
    yield caplog
    logger.removeHandler(caplog.handler)


def save(tmp_path, state, name="w"):
    paddle.save(state, str(tmp_path / f"{name}.pdparams"))
    return tmp_path / name


def same(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    return all(np.array_equal(ours[n].numpy(), theirs[n].numpy()) for n in ours)


class RunsACommand:
    def __reduce__(self):
        return os.system, ("echo ran > /dev/null",)


def test_no_code_of_a_file_is_run(tmp_path):
    (tmp_path / "evil.pdparams").write_bytes(pickle.dumps({"a": RunsACommand()}))
    with raises_code(WeightsError, "damaged_file", "posix.system"):
        load_weights(Recogniser(), tmp_path / "evil")


@pytest.mark.parametrize("prefix", ["", "module.", "_layers.", "Student.", "Teacher.", "module.Student."])
def test_prefixes_are_recognised(tmp_path, prefix):
    source, target = Recogniser(), Recogniser()
    path = save(tmp_path, {prefix + n: t for n, t in source.state_dict().items()})
    match = load_weights(target, path, first_prefix="Student.")
    assert same(source, target)
    assert len(match.matched) == len(target.state_dict())


def test_of_two_sub_models_in_a_file_the_preferred_one_is_taken(tmp_path):
    student, teacher, target = Recogniser(), Recogniser(), Recogniser()
    state = {f"Teacher.{n}": t for n, t in teacher.state_dict().items()}
    state |= {f"Student.{n}": t for n, t in student.state_dict().items()}
    load_weights(target, save(tmp_path, state), first_prefix="Student.")
    assert same(student, target)
    load_weights(target, save(tmp_path, state), first_prefix="Teacher.")
    assert same(teacher, target)


def test_a_single_model_fills_a_sub_model(tmp_path):
    class Pair(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.Student = Recogniser()
            self.Teacher = Recogniser()

    source, pair = Recogniser(), Pair()
    load_weights(pair, save(tmp_path, source.state_dict()), only=("Student.",))
    assert same(source, pair.Student)


def test_partial_loads_what_fits_and_says_so(tmp_path, caplog_ours):
    source, target = Recogniser(), Recogniser()
    state = {**source.state_dict(), "extra.weight": paddle.ones([2])}
    del state["backbone.bias"]
    match = load_weights(target, save(tmp_path, state), partial=True)
    np.testing.assert_array_equal(target.backbone.weight.numpy(), source.backbone.weight.numpy())
    assert match.unexpected == ["extra.weight"]
    assert "backbone.bias" in caplog_ours.text and "extra.weight" in caplog_ours.text
    with raises_code(WeightsError, "weights_mismatch", "backbone.bias"):
        load_weights(Recogniser(), save(tmp_path, state))


def test_weights_that_do_not_fit_say_why(tmp_path):
    wider, big = Recogniser(dim=6), charset_of(chr(0x4E00 + i) for i in range(6624))
    with raises_code(WeightsError, "weights_mismatch", "backbone.weight", "[3, 6]", "[3, 4]"):
        load_weights(Recogniser(), save(tmp_path, wider.state_dict()))
    facts = ("6625", "ppocr_keys_v1.txt", "11", "pretrained_dict")  # a dictionary of another size
    with raises_code(WeightsError, "weights_mismatch", *facts):
        load_weights(Recogniser(), save(tmp_path, Recogniser(big).state_dict()), charset=DIGITS)
    with raises_code(WeightsError, "architecture_mismatch"):
        load_weights(Recogniser(), save(tmp_path, {"conv1.weight": paddle.ones([2])}))


def test_rows_are_carried_over_character_by_character(tmp_path, caplog_ours):
    old = charset_of("cab")
    new = charset_of("abxc ", use_space=True)
    source, target = Recogniser(old), Recogniser(new)
    initial = {n: t.numpy().copy() for n, t in target.state_dict().items()}
    load_weights(target, save(tmp_path, source.state_dict()), charset=new, old_charset=old)

    ours, theirs = target.head.ctc_head.fc, source.head.ctc_head.fc
    for i, symbol in enumerate(new.ctc_symbols):
        if symbol in old.ctc_symbols:
            j = old.ctc_symbols.index(symbol)
            np.testing.assert_array_equal(ours.weight.numpy()[:, i], theirs.weight.numpy()[:, j])
            assert ours.bias.numpy()[i] == theirs.bias.numpy()[j]
        else:
            np.testing.assert_array_equal(ours.weight.numpy()[:, i], initial["head.ctc_head.fc.weight"][:, i])
    rows, old_rows = (
        target.head.gtc_head.embedding.embedding.weight,
        source.head.gtc_head.embedding.embedding.weight,
    )
    for i, symbol in enumerate(new.nrtr_symbols):
        if symbol in old.nrtr_symbols:
            np.testing.assert_array_equal(rows.numpy()[i], old_rows.numpy()[old.nrtr_symbols.index(symbol)])
    np.testing.assert_array_equal(target.backbone.weight.numpy(), source.backbone.weight.numpy())
    assert "3 characters carried over" in caplog_ours.text
    assert "2 new" in caplog_ours.text


@pytest.mark.parametrize(
    ("trained", "given", "assumed"),
    [
        (("ab", False), ("ab", False), False),  # reordered, of the same size
        (("ab", False), ("ab", False), True),
        # whether the network was trained with the space is found out; a dictionary may hold a space itself
        (("ab  ", True), ("ab  ", True), False),
        (("ab ", False), ("ab  ", True), False),
    ],
)
def test_rows_go_to_their_characters_in_another_order(tmp_path, trained, given, assumed):
    old, new = charset_of(*given), charset_of("ba")
    source, target = Recogniser(charset_of(*trained)), Recogniser(new)
    path = save(tmp_path, source.state_dict())
    load_weights(target, path, charset=new, old_charset=old, old_is_assumed=assumed)
    np.testing.assert_array_equal(
        target.head.ctc_head.fc.weight.numpy()[:, 1], source.head.ctc_head.fc.weight.numpy()[:, 2]
    )


def test_an_old_dictionary_that_does_not_fit_the_file_is_an_error(tmp_path):
    path = save(tmp_path, Recogniser(DIGITS).state_dict())
    wrong = charset_of("abc")
    with raises_code(WeightsError, "charset_mismatch", "11 CTC classes", "gives 4"):
        load_weights(Recogniser(), path, charset=DIGITS, old_charset=wrong)


def test_a_file_that_fits_is_loaded_although_the_assumed_dictionary_has_another_count(tmp_path, caplog_ours):
    source, target = Recogniser(DIGITS), Recogniser(DIGITS)
    path = save(tmp_path, source.state_dict())
    wrong = charset_of("abc")
    load_weights(target, path, charset=DIGITS, old_charset=wrong, old_is_assumed=True)
    for name, value in source.state_dict().items():
        np.testing.assert_array_equal(target.state_dict()[name].numpy(), value.numpy())
    assert "11 CTC classes" in caplog_ours.text


def test_if_no_dictionary_has_the_count_of_the_file_all_counts_are_named(tmp_path):
    path = save(tmp_path, Recogniser(DIGITS).state_dict())
    old, new = (charset_of(text) for text in ("abc", "abcde"))
    facts = ("11 CTC classes", "gives 4", "gives 6", "Global.character_dict_path", "pretrained_dict")
    with raises_code(WeightsError, "charset_mismatch", *facts):
        load_weights(Recogniser(new), path, charset=new, old_charset=old, old_is_assumed=True)


@pytest.mark.parametrize("assumed", [True, False])
def test_weights_of_another_network_are_refused_as_such_whatever_the_dictionary(tmp_path, assumed):
    path = save(tmp_path, Recogniser(DIGITS).state_dict())
    old, new = (charset_of(text) for text in ("abc", "abcde"))
    model = Recogniser(new)
    model.neck = paddle.nn.Sequential(*[paddle.nn.Linear(2, 2) for _ in range(8)])
    with pytest.raises(WeightsError) as error:
        load_weights(model, path, charset=new, old_charset=old, old_is_assumed=assumed)
    assert error.value.code == "weights_mismatch" and "weights of this network" in str(error.value)
    assert "another dictionary" not in str(error.value)


def test_carried_rows_of_bfloat16_weights_are_numbers(tmp_path):
    old, new = Charset(characters=tuple("ab")), Charset(characters=tuple("ba"))
    source, target = Recogniser(old), Recogniser(new)
    rounded = {n: t.astype("bfloat16") for n, t in source.state_dict().items()}
    load_weights(target, save(tmp_path, rounded), charset=new, old_charset=old)
    expected = rounded["head.ctc_head.fc.weight"].astype("float32").numpy()
    np.testing.assert_array_equal(target.head.ctc_head.fc.weight.numpy(), expected[:, [0, 2, 1]])


def test_a_dictionary_that_is_not_the_recorded_one_is_an_error(tmp_path):
    trained, given, new = (Charset(characters=tuple(text)) for text in ("abc", "acb", "cab"))
    path = save(tmp_path, Recogniser(trained).state_dict())
    (tmp_path / "w.states").write_bytes(pickle.dumps({"charset_digest": trained.digest}, protocol=2))
    with raises_code(WeightsError, "charset_mismatch"):
        load_weights(Recogniser(new), path, charset=new, old_charset=given)
    load_weights(Recogniser(new), path, charset=new, old_charset=trained)


def network(width=4):
    return paddle.nn.Sequential(
        ("backbone", paddle.nn.Sequential(paddle.nn.Linear(3, width), paddle.nn.Linear(width, 3))),
        ("norm", paddle.nn.BatchNorm1D(3)),
    )


def written(file, change):
    """Write the weights of a network, after ``change`` of its arrays."""
    state = {name: value.numpy() for name, value in network().state_dict().items()}
    change(state)
    file.write_bytes(pickle.dumps(state))
    return file


def put(name, value):
    def change(state):
        state[name] = value(state[name])

    return change


def first(number):
    def value(array):
        array.flat[0] = number
        return array

    return value


def without_backbone(state):
    for name in state:
        if name.startswith("backbone"):
            state[name] = np.zeros_like(state[name])


@pytest.mark.parametrize(
    ("code", "fact", "change"),
    [
        ("nonfinite_weights", "backbone.1.weight", put("backbone.1.weight", first(np.nan))),
        ("nonfinite_weights", "norm._mean", put("norm._mean", first(-np.inf))),
        ("bad_content", "complex", put("backbone.0.bias", lambda a: a.astype("complex64"))),
        ("negative_variance", "norm._variance", put("norm._variance", first(-0.5))),
        ("zero_weights", "backbone", without_backbone),
    ],
)
def test_numbers_of_no_trained_network_are_refused(tmp_path, code, fact, change):
    model = network()
    before = model.backbone[0].weight.numpy()
    with raises_code(WeightsError, code, "latest.pdparams", fact):
        load_weights(model, written(tmp_path / "latest.pdparams", change))
    np.testing.assert_array_equal(model.backbone[0].weight.numpy(), before)  # nothing was loaded


def test_zeros_that_a_network_may_have_and_entries_that_are_not_loaded_are_accepted(tmp_path):
    def change(state):
        state["backbone.1.weight"] *= 0
        state["backbone.0.bias"] *= 0
        state["other"] = np.array([np.nan])

    assert load_weights(network(), written(tmp_path / "latest.pdparams", change)).matched


@pytest.mark.parametrize(
    "states", [{"epoch": -3}, {"epoch": 1, "global_step": -1}, {"step_in_epoch": 1.5}, {"epoch": "one"}]
)
def test_a_position_that_no_run_has_is_refused(tmp_path, states):
    (tmp_path / "latest.states").write_bytes(pickle.dumps(states))
    with raises_code(WeightsError, "bad_content", "latest.states", list(states)[-1]):
        Checkpoint(tmp_path / "latest").train_state()
