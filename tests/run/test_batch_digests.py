"""The batches of each kind of dataset are those of the stored digests, in one and two processes and after a resume.

``PYTHONPATH=tests:tools python tests/run/test_batch_digests.py`` writes them anew. A digest covers what does not depend
on the versions of OpenCV and NumPy: the size of each image, its labels, and the random numbers that come after its
augmentation.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle.distributed as dist
import pytest
from error_codes import raises_code
from tiny_runs import DRAWING, MULTI_SCALE, tiny_config

from ppocr_ext.cli.main import main
from ppocr_ext.data.sample_seeds import Views
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import open_host
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.loader_setup import RunData, open_data
from ppocr_ext.run.networks import build_network
from ppocr_ext.run.team import Team

STORED = Path(__file__).parents[1] / "fixtures" / "batches" / "digests.json"
SIMPLE, MULTI, LMDB = "SimpleDataSet", "MultiScaleDataSet", "LMDBDataSet"
CASES: dict[str, dict[str, Any]] = {
    "simple": {"name": SIMPLE},
    "in order": {"name": SIMPLE, "shuffle": False},
    "ratio_list": {"name": SIMPLE, "ratio_list": [0.5, 1.0]},
    "multi scale": {"name": MULTI},
    "multi scale, ratio_list": {"name": MULTI, "ratio_list": [0.5, 1.0]},
    "ds_width": {"name": MULTI, "ds_width": True},
    "lmdb": {"name": LMDB},
    "drawn": {"name": "CaptchaDataSet"},
    "views": {"name": SIMPLE, "views": Views(7, 2)},
    "views, ds_width": {"name": MULTI, "ds_width": True, "views": Views(7, 2)},
    "views, lmdb": {"name": LMDB, "views": Views(7, 2)},
}
LISTS = ("first.txt", "second.txt")


class Alone(Team):
    """A process that tells itself what process 0 would tell it."""

    def text_of_first(self, name: str, text: str) -> str:
        """Return ``text``."""
        return text


def make_images(folder: Path) -> Path:
    """Write 24 images of several widths, each with a label of its own, two label files, and an LMDB of them."""
    draw = np.random.RandomState(3)
    lines = []
    for number in range(24):
        height, width = 32, 40 + 12 * (number * 7 % 24)
        cv2.imwrite(str(folder / f"{number}.png"), draw.randint(0, 256, (height, width, 3)).astype(np.uint8))
        lines.append(f"{number}.png\t{number:05d}\t{width}\t{height}\n")
    usable = "".join(lines)
    lines.insert(5, "absent.png\t123\t40\t32\n")  # found by the check of labels
    lines.insert(8, "lost.png\t99999\t52\t32\n")  # is lost after it
    (folder / LISTS[0]).write_text("".join(lines[:11]), encoding="utf-8")
    (folder / LISTS[1]).write_text("".join(lines[11:]), encoding="utf-8")
    (folder / "dict.txt").write_text("\n".join("0123456789"), encoding="utf-8")
    (folder / "all.txt").write_text(usable, encoding="utf-8")
    given = ["--label-files", str(folder / "all.txt"), "--data-dir", str(folder)]
    assert main(["make-lmdb", *given, "--out", str(folder / "lmdb")]) == 0
    return folder


def case_data(
    images: Path, folder: Path, case: str, rank: int, size: int, workers: int = 0, **more: Any
) -> RunData:
    """Return the data of a case in process ``rank`` of ``size``; one image is lost after the check of labels."""
    given = dict(CASES[case])
    section = tiny_config(images, folder, "student").thaw()["Train"]
    section["loader"]["shuffle"] = given.pop("shuffle", True)
    section["loader"] |= {"batch_size_per_card": 3, "num_workers": workers}
    views = given.pop("views", None)
    dataset = section["dataset"] | {"ext_op_transform_idx": 1, **given}
    first, *others = dataset["transforms"]
    dataset["transforms"] = [first, *DRAWING, *others]
    if given["name"] == MULTI:
        section["sampler"] = MULTI_SCALE | {"fix_bs": False, "first_bs": 3}
        dataset["transforms"] = [each for each in dataset["transforms"] if "RecResizeImg" not in each]
    if given["name"] == LMDB:
        dataset["data_dir"] = str(images / "lmdb")
    elif given["name"] == "CaptchaDataSet":
        keep = {key: dataset[key] for key in ("transforms", "ext_op_transform_idx")}
        own = {"size": 24, "characters": "0123456789", "length": [4, 5], "width": 160, "height": 60}
        dataset = {**keep, **given, **own}
    else:
        dataset["label_file_list"] = [str(images / name) for name in LISTS]
    section["dataset"] = dataset
    values = {
        "Train": section,
        "Eval.dataset.label_file_list": [str(images / "all.txt")],
        "Eval.loader.batch_size_per_card": 5,
        "Global.dry_step": False,
        "Global.max_text_length": 12,
        "Global.max_unusable": 0.5,
        "Global.allow_different_preprocessing": True,
        "Architecture.Head.head_list.NRTRHead.max_text_length": 12,
        **more,
    }
    context = open_context(tiny_config(images, folder, "student", **values), RunOptions("train"))
    context = replace(context, team=Alone(None, rank, size))
    lost = Path(shutil.copy(images / "0.png", images / "lost.png"))
    data = open_data(context, build_network(context.components, context.charset), views)
    lost.unlink()
    return data


def read(data: RunData, epoch: int, skip: int = 0) -> Iterator[Any]:
    """Read an epoch as training does."""

    def nothing() -> None:
        """Do nothing."""

    data.train_loader.train(epoch, skip, nothing, nothing)
    return iter(data.train_loader)


def digests(batches: Iterator[Any]) -> str:
    """Return four characters for each batch."""
    return " ".join(
        blake2b(b"".join(each.numpy().tobytes() for each in batch), digest_size=2).hexdigest()
        for batch in batches
    )


@pytest.fixture
def patched(monkeypatch):
    """Replace the image of a sample by its size and random numbers; set the number of processes."""
    keep = open_host().component("operator", "KeepKeys")
    kept = keep.__call__

    def size_and_draws(self: Any, data: Any) -> Any:
        entries = kept(self, data)
        entries[0] = np.array([*entries[0].shape, random.random(), np.random.random()])
        return entries

    monkeypatch.setattr(keep, "__call__", size_and_draws)

    def processes(rank: int, size: int) -> None:
        monkeypatch.setattr(dist, "get_world_size", lambda *group: size)
        monkeypatch.setattr(dist, "get_rank", lambda *group: rank)
        monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(size))
        monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))

    return processes


def digests_of(images: Path, folder: Path, case: str, patched: Any) -> dict[str, Any]:
    """Return the digests of two epochs in each process of one and of two, and those of ``Eval``."""
    found: dict[str, Any] = {}
    for rank, size in ((0, 1), (0, 2), (1, 2)):
        patched(rank, size)
        data = case_data(images, folder, case, rank, size)
        if size == 1:
            found["eval"] = digests(iter(data.eval_loader))
        first, second = digests(read(data, 1)), digests(read(data, 2))
        found[f"{rank} of {size}"] = [first, second]
        resumed = digests(read(case_data(images, folder, case, rank, size, 2 - size), 2, skip=1))
        assert resumed.split() == second.split()[1:], "a run that resumes reads other batches"
    return found


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The images of all cases."""
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("case", CASES)
def test_batches_are_the_stored_ones(images, tmp_path, patched, case):
    assert digests_of(images, tmp_path, case, patched) == json.loads(STORED.read_text(encoding="utf-8"))[case]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("views")])
def test_views_are_the_same_with_any_seed_and_in_another_order(images, tmp_path, case):
    whole = {"Train.dataset.label_file_list": [str(images / "all.txt")]}  # no image is lost
    one, other = (
        case_data(images, tmp_path, case, 0, 1, **whole, **{"Global.seed": seed}) for seed in (1, 2)
    )
    first, second, third, elsewhere = (
        [image.tobytes() for batch in read(data, epoch) for image in batch[0].numpy()]
        for data, epoch in ((one, 1), (one, 2), (one, 3), (other, 1))
    )
    assert Counter(first) == Counter(third) == Counter(elsewhere)
    assert first != third and first != elsewhere and not {*first} & {*second}
    loader = one.train_loader
    stored = [
        image.tobytes() for batch in loader.read_view(1, loader.of_view(1)) for image in batch[0].numpy()
    ]
    assert Counter(stored) == Counter(first)


def test_a_share_drawn_anew_has_no_views(images, tmp_path):
    with raises_code(ConfigError, "conflicting_keys"):
        case_data(images, tmp_path, "views", 0, 1, **{"Train.dataset.ratio_list": [0.5, 1.0]})


def write() -> None:
    """Write the digests of today's code."""
    from tempfile import TemporaryDirectory

    found = {}
    with TemporaryDirectory() as folder:
        (Path(folder) / "images").mkdir()
        images = make_images(Path(folder) / "images")
        for case in CASES:
            with pytest.MonkeyPatch.context() as patch:
                found[case] = digests_of(images, Path(folder), case, patched.__wrapped__(patch))
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
