"""Centers out of PaddleOCR's own distillation config of SVTRv2, as it is but for its size, of either sub-model."""

from __future__ import annotations

from pathlib import Path

import paddle
import pytest
from official_facts import official, with_data
from tiny_runs import TINY, captchas  # noqa: F401

from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.checkpoint.weights import state_digest
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.run.run import Run

LINES = 6


@pytest.fixture(scope="module")
def distilled(
    captchas: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, str]]:
    """A folder with ``config.yml``, a ``checkpoint`` of what is trained and the ``teacher``'s own weights; digests."""
    folder = tmp_path_factory.mktemp("official")
    plain = with_data(official("SVTRv2/ch_SVTRv2_rec_distillation"), captchas)
    for mode, listed in (("Train", "train_list.txt"), ("Eval", "val_list.txt")):
        lines = (captchas / listed).read_text().splitlines()[:LINES]
        (folder / listed).write_text("\n".join(lines) + "\n")
        plain[mode]["dataset"]["label_file_list"] = [str(folder / listed)]
        plain[mode]["loader"] |= {"num_workers": 0, "batch_size_per_card": 4, "drop_last": False}
    plain["Architecture"]["Models"]["Teacher"]["Backbone"] = TINY["Backbone"]
    plain["Architecture"]["Models"]["Teacher"]["pretrained"] = str(folder / "teacher")
    plain["Global"] |= {"use_gpu": False, "use_space_char": False, "save_model_dir": str(folder / "run")}
    (folder / "config.yml").write_text(Config(plain).to_yaml())
    plain["Architecture"]["Models"]["Teacher"]["pretrained"] = None
    plain["Global"]["allow_untrained_teacher"] = True
    run = Run.build(Config(plain), "train")
    paddle.save(run.sub_model("Teacher").state_dict(), str(folder / "teacher.pdparams"))
    student = {f"Student.{name}": value for name, value in run.sub_model("Student").state_dict().items()}
    paddle.save(student, str(folder / "checkpoint.pdparams"))
    return folder, {name: state_digest(run.sub_model(name)) for name in ("Student", "Teacher")}


@pytest.mark.parametrize("name", ["Student", "Teacher"])
def test_centers_of_a_sub_model(distilled: tuple[Path, dict[str, str]], name: str, tmp_path: Path) -> None:
    folder, digests = distilled
    before = (folder / "config.yml").read_bytes()
    out = tmp_path / "centers.npz"
    code = main(
        ["export-center", "-c", str(folder / "config.yml"), "--model", name, "--frames", "aligned"]
        + ["-o", f"Global.pretrained_model={folder / 'checkpoint'}", "--output", str(out)]
    )
    assert code == 0
    table = read_centers(out)
    frames = 320 // 8
    assert table.counts.sum() == LINES * frames
    assert table.feat_dim == 120  # of the neck
    assert (table.meta["model"], table.meta["lines"]) == (name, LINES)
    assert (folder / "config.yml").read_bytes() == before
    assert table.meta["model_digest"] == digests[name]
