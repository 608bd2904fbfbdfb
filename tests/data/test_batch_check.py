"""The check of a batch's labels: their positions, which ones fit, and when misfits end the run."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from error_codes import raises_code
from waiting import HANG

from ppocr_ext.data.batch_check import BatchLabelCheck, misfit_rows
from ppocr_ext.data.batches import MULTI_HEAD, BatchLayout, kept_keys
from ppocr_ext.data.sample_rules import frames_needed
from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import DataError

LAYOUT = BatchLayout.of_keys(["image", "label", "length"])
FITS, TOO_LONG = [1, 2, 3], [1, 1, 1]  # 3 and 5 frames


def frames(height, width):
    return {(32, 64): 4}.get((height, width))


def sample(ids, width=64, kind=np.int64):
    label = np.zeros(6, kind)
    label[: len(ids)] = ids
    return [np.zeros((3, 32, width), np.float32), label, np.array(len(ids))]


def check(**options):
    return BatchLabelCheck(LAYOUT, 11, **{"limit": UnusableLimit(0.1), "frames": frames, **options})


def test_the_layout_follows_the_kept_keys():
    assert BatchLayout.of_keys(MULTI_HEAD) == BatchLayout(0, 1, 2, 3, 4)
    assert BatchLayout.of_keys(["image", "length", "label_sar", "label_ctc"]) == BatchLayout(0, 3, 2, 1, None)
    assert kept_keys([{"DecodeImage": None}, {"KeepKeys": {"keep_keys": ["image"]}}]) == ("image",)
    assert kept_keys(None) is None


def test_a_label_fits_as_a_naive_count_says():
    rng = np.random.default_rng(0)
    labels, lengths = rng.integers(1, 3, (200, 6)), rng.integers(0, 7, 200)
    for count in range(1, 12):
        naive = [
            row
            for row, (label, n) in enumerate(zip(labels, lengths, strict=True))
            if n + sum(label[i] == label[i + 1] for i in range(n - 1)) > count
        ]
        assert misfit_rows(labels, lengths, count) == naive
    assert [frames_needed(text) for text in ("", "a", "aab", "aaa")] == [0, 1, 4, 5]


def test_misfits_are_warnings_at_powers_of_ten_and_an_error_above_the_limit(caplog):
    label_check = check(limit=UnusableLimit(0.5))
    with caplog.at_level(logging.INFO, "ppocr_ext"):
        label_check([sample(FITS), sample(FITS)])
        for _ in range(10):
            label_check([sample(TOO_LONG), sample(FITS), sample(FITS)])
    assert len(caplog.records) == 2 and "need 5 frames, CTC has 4" in caplog.text
    assert ["1 of 5 " in caplog.messages[0], "10 of 32 " in caplog.messages[1]] == [True, True]
    label_check([sample(FITS)] * 60)
    with pytest.raises(
        DataError, match=r"^Train\.dataset\.transforms: .*\n.*3 characters with 2 repeats"
    ) as error:
        for _ in range(200):
            label_check([sample(TOO_LONG), sample(TOO_LONG), sample(FITS)])
    assert error.value.code == "too_long_for_frames"


def test_below_100_samples_only_eight_without_a_fit_are_refused():
    label_check = check(limit=UnusableLimit(0.0))
    label_check([sample(TOO_LONG), sample(FITS)])
    label_check([sample(TOO_LONG)] * 50)
    with pytest.raises(DataError):
        label_check([sample(FITS)] * 50)  # now of 102 samples
        label_check([sample(TOO_LONG)])
    one_by_one = check(limit=UnusableLimit(1.0))
    for _ in range(7):  # RecConAug may have made the first of small batches too long
        one_by_one([sample(TOO_LONG)])
    with pytest.raises(DataError, match="8 of 8"):
        one_by_one([sample(TOO_LONG)])
    with pytest.raises(DataError, match=r"Global\.strict"):
        check(limit=UnusableLimit(1.0, strict=True))([sample(TOO_LONG), sample(FITS)])


def test_an_unknown_image_size_and_unknown_forms_are_not_checked():
    check()([sample(TOO_LONG, width=65)])
    check(frames=None)([sample(TOO_LONG)])
    for odd in ([{"image": 1}], [["a", "b", "c"]], [sample([1]), [1, np.ones(2), 1]], []):
        check()(odd)


@pytest.mark.parametrize("entries", [0, 1, 2])
def test_a_sample_with_too_few_entries_is_refused(entries):
    with raises_code(DataError, "missing_batch_entry", f"{entries} entries"):
        check()([sample(FITS), sample(FITS)[:entries]])


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.float32])
def test_labels_of_any_number_type_are_checked(kind):
    check()([sample(FITS, kind=kind)])
    with raises_code(DataError, "bad_label", 11):
        check()([sample([1, 11], kind=kind)])


def test_counts_are_shared_with_processes_that_are_given_the_check():
    code = """
import multiprocessing
import numpy as np
from ppocr_ext.data.batch_check import BatchLabelCheck
from ppocr_ext.data.batches import BatchLayout
from ppocr_ext.data.unusable_limit import UnusableLimit
multiprocessing.set_start_method("spawn")  # all is pickled
layout = BatchLayout.of_keys(["image", "label", "length"])
sample = [np.zeros((3, 1, 1)), np.array([1, 1]), np.array(2)]
check = BatchLabelCheck(layout, 11, UnusableLimit(), frames=max)
process = multiprocessing.Process(target=check, args=([sample, sample[:1] + [np.array([1, 0]), np.array(1)]],))
process.start()
process.join()
print(process.exitcode, list(check._counts))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert done.stdout.split("\n")[0] == "0 [2, 1]", done.stderr


def test_a_short_epoch_is_compared_with_the_limit_at_its_end():
    label_check = check(limit=UnusableLimit(0.1))
    label_check.set_epoch_size(24)
    for _ in range(2):
        label_check([sample(TOO_LONG)] * 6 + [sample(FITS)] * 2)
    with raises_code(DataError, "too_long_for_frames", "18 of 24"):
        label_check([sample(TOO_LONG)] * 6 + [sample(FITS)] * 2)
