"""Bad inputs, in groups: how each is made, and what it is called."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from error_bench import Bench, Harmful, pickled

Arrange = Callable[[Bench], list[str]]
ERROR = r"error: .*\Z"
GOES_ON: dict[str, Any] = {"code": 0, "shows": r"train data: .*?$"}  # the sample is skipped
NEAREST = r"error: .*?Did you mean '\w+'\?"  # what else there is depends on the host


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes:
        what: what is wrong.
        arrange: makes it so, and gives the command line.
        code: the exit code.
        shows: pattern of the message in what the command said.
        names: what the message has to name: the place and the remedy.
        unforeseen: the message may say ``internal error``.
    """

    what: str
    arrange: Arrange
    code: int = 2
    shows: str = ERROR
    names: tuple[str, ...] = ()
    unforeseen: bool = False


@dataclass(frozen=True)
class Group:
    """Cases under one heading."""

    title: str
    cases: tuple[Case, ...]


REORDERED = "\n".join("9876543210") + "\n"


def case(what: str, arrange: Arrange, *names: str, **options: object) -> Case:
    return Case(what, arrange, names=names, **options)  # type: ignore[arg-type]


def group(title: str, *cases: Case) -> Group:
    return Group(title, cases)


def train(*options: str, flags: tuple[str, ...] = ()) -> list[str]:
    return ["train", "-c", "config.yml", *flags, *(["-o", *options] if options else [])]


def judge(*options: str, checkpoint: str = "trained/latest") -> list[str]:
    return ["eval", "-c", "config.yml", "-o", f"Global.checkpoints={checkpoint}", *options]


def given(*options: str) -> Arrange:
    """Training with ``options`` and nothing else that is bad."""
    return lambda bench: train(*options)


def call(words: str) -> Arrange:
    """A command whose files are good."""
    return lambda bench: words.split()


def with_line(number: int, line: str, *options: str, flags: tuple[str, ...] = ()) -> Arrange:
    def arrange(bench: Bench) -> list[str]:
        bench.change_line(number, line)
        return train(*options, flags=flags)

    return arrange


def writing(name: str, content: str | bytes, *command: str) -> Arrange:
    """The words of ``command``, beside a file that is bad."""

    def arrange(bench: Bench) -> list[str]:
        bench.write(name, content)
        return list(command)

    return arrange


def with_file(name: str, text: str | bytes, *options: str) -> Arrange:
    return writing(name, text, *train(*options))


def label(text: str) -> Callable[[str], str]:
    return lambda line: f"{line.split(chr(9))[0]}\t{text}"


# Configuration


def no_gpu(built: bool) -> Arrange:
    def arrange(bench: Bench) -> list[str]:
        import paddle

        bench.patch.setattr(paddle, "is_compiled_with_cuda", lambda: built)
        bench.patch.setattr(paddle.device.cuda, "device_count", lambda: 0)
        bench.patch.setattr(paddle, "__version__", "3.x")
        return train("Global.use_gpu=true")

    return arrange


CONFIGURATION = group(
    "Configuration",
    case("A configuration that is not there", call("train -c none.yml"), "none.yml"),
    case(
        "Broken YAML",
        writing("broken.yml", "Global:\n  epoch_num: [1, 2\n  seed: 3\n", "train", "-c", "broken.yml"),
        "broken.yml:2",
    ),
    case(
        "YAML that builds Python objects",
        writing(
            "hostile.yml",
            "Global:\n  epoch_num: !!python/object/apply:os.system [ls]\n",
            "train",
            "-c",
            "hostile.yml",
        ),
        ":2",
    ),
    case("A misspelt key of `Global`", given("Global.max_text_lenght=8"), "max_text_length"),
    case(
        "An unknown backbone",
        given("Architecture.Backbone.name=SVTRv3"),
        "Did you mean 'SVTRv2'?",
        shows=NEAREST,
    ),
    case(
        "`Eval` that resizes images differently from `Train`",
        lambda bench: judge(
            "Eval.dataset.transforms.RecResizeImg={image_shape: [3, 48, 72], padding: false}"
        ),
        "Eval.dataset.transforms.RecResizeImg.image_shape",
        "Global.allow_different_preprocessing=true",
        code=0,
        shows=r"warning: -o Eval.*?in Train[^\n]*",
    ),
    case("`use_gpu: true` with Paddle for the CPU", no_gpu(built=False), "Global.use_gpu=false"),
    case("`use_gpu: true` without a GPU", no_gpu(built=True), "Global.use_gpu=false"),
    case(
        "`eval_batch_step` beyond the end of the run",
        given("Global.eval_batch_step=[0,1000]"),
        "step 3",
        code=0,
        shows=r"warning: Global.eval_batch_step.*?$",
    ),
)


# Data


def both_bad(bench: Bench) -> list[str]:
    bench.change_lines(label("12x4"), "data/val.txt")
    for number in (3, 5, 7):
        bench.change_line(number, f"gone{number}.png\t1234")
    return train()


def outside(bench: Bench) -> list[str]:
    bench.change_lines(lambda line: f"../data/{line}")
    (bench.folder / "images").mkdir()
    return train("Train.dataset.data_dir=images")


def broken_image(cut: int, *options: str, **where: str) -> Arrange:
    def arrange(bench: Bench) -> list[str]:
        file = bench.folder / "data" / "train04.png"
        file.write_bytes(file.read_bytes()[:cut])
        return train(*options)

    return arrange


def damaged_inside(bench: Bench, name: str = "train04.png") -> None:
    """An image whose head and end are in order."""
    file = bench.folder / "data" / name
    content = bytearray(file.read_bytes())
    at = content.index(b"IDAT")
    content[at + 4 : at + 12] = b"\xff" * 8
    file.write_bytes(content)


def damaged(*numbers: int, flags: tuple[str, ...] = ()) -> Arrange:
    def arrange(bench: Bench) -> list[str]:
        for number in numbers:
            damaged_inside(bench, f"train{number:02d}.png")
        return train(flags=flags)

    return arrange


DATA = group(
    "Label files and images",
    case(
        "A label file that is not there",
        given("Train.dataset.label_file_list=[data/none.txt]"),
        "data/none.txt",
        "label_file_list",
    ),
    case(
        "One line of 24 that cannot be used", with_line(3, "train02.png\t12 4"), "data/train.txt:3", **GOES_ON
    ),
    case(
        "Too many lines that cannot be used, in `Train` and in `Eval`",
        both_bad,
        "data/train.txt:3",
        "data/val.txt:1",
    ),
    case(
        "One line that cannot be used, with `--strict`",
        with_line(3, "train02.png\t", flags=("--strict",)),
        "data/train.txt:3",
    ),
    case("Images outside `data_dir`", outside, "-o Global.allow_outside_data_dir=true"),
    case("An image that is not there", with_line(5, "gone.png\t1234"), "data/train.txt:5", **GOES_ON),
    case("An image that is cut short, or none", broken_image(300), "data/train.txt:5", **GOES_ON),
    case(
        "An image that is damaged inside: found when it is loaded",
        damaged(4),
        "data/train.txt:5",
        code=0,
        shows=r"warning: Train: .*?$",
    ),
    case(
        "The same, more often than `max_unusable` admits",
        damaged(2, 4, 6),
        "data/train.txt:",
        "Global.max_unusable",
    ),
    case(
        "Fewer lines than a batch, with `drop_last`",
        given("Train.loader.batch_size_per_card=100"),
        "Train.loader.drop_last=false",
    ),
)


# A folder for `init`


def folder(name: str, *words: str, **files: str) -> Arrange:
    """Call `init` on a folder with two images and other files; ``_txt`` in a name stands for ``.txt``."""

    def arrange(bench: Bench) -> list[str]:
        for image in ("a.png", "b.png"):
            bench.write(f"{name}/{image}", (bench.folder / "data" / "train00.png").read_bytes())
        for file, text in files.items():
            bench.write(f"{name}/{file.replace('_', '.')}", text)
        return ["init", name, *words]

    return arrange


FOLDER = group(
    "A folder for `init`",
    case("No texts", folder("photos"), "photos", "--text-from-name"),
    case(
        "Boxes without texts",
        folder("yolo", a_txt="0 0.5 0.5 0.1 0.2\n", b_txt="0 0.5 0.5 0.1 0.2\n"),
        "YOLO",
    ),
    case(
        "Two lists with other texts",
        folder("both", list_txt="a.png\tone\n", more_csv="image,text\na.png,two\n"),
        "--format tsv",
        "--format csv",
    ),
    case(
        "A list that may be a part of a split, or not",
        folder("doubt", train_txt="a.png\tone\n", **{"crash-test_txt": "b.png\ttwo\n"}),
        "crash-test.txt",
        "--split",
    ),
    case(
        "A list of `--labels` without a sample",
        folder("notes", "--labels", "list.txt", "notes.txt", list_txt="a.png\tone\n", notes_txt="all read\n"),
        "notes.txt",
    ),
    case("Too few samples", folder("few", list_txt="a.png\tone\nb.png\ttwo\n"), "2 samples"),
    case(
        "Characters that no label has",
        call("init data --labels data/train.txt --characters xyz"),
        "--characters",
    ),
    case("A base that is no run", call("init data --labels data/train.txt --base nothing"), "nothing"),
    case("A folder that is there already", call("init data --labels data/train.txt --out data"), "--force"),
)


# LMDB


LMDB = group(
    "LMDB",
    case(
        "A folder that is not there",
        given("Train.dataset.name=LMDBDataSet", "Train.dataset.data_dir=none"),
        "none",
    ),
    case("A folder that is not an LMDB", given("Train.dataset.name=LMDBDataSet"), "data", "make-lmdb"),
)


# Dictionaries


DICTIONARY = group(
    "Dictionaries",
    case(
        "A dictionary that is not there",
        given("Global.character_dict_path=none.txt"),
        "none.txt",
        "Global.character_dict_path",
    ),
    case("One that is not UTF-8", with_file("dict.txt", "0\n1\n简\n".encode("gbk")), "dict.txt:3"),
)


# Weights


def other_weights(name: str, content: bytes, *options: str) -> Arrange:
    return with_file(f"{name}.pdparams", content, f"Global.pretrained_model={name}", *options)


def cut_checkpoint(bench: Bench) -> list[str]:
    file = bench.folder / "trained" / "latest.pdparams"
    file.write_bytes(file.read_bytes()[:1000])
    return train("Global.checkpoints=trained/latest", "Global.epoch_num=2")


WEIGHTS = group(
    "Weights and checkpoints",
    case("A checkpoint that is not there", given("Global.checkpoints=trained/last"), "trained/latest"),
    case("A run folder in place of a checkpoint", given("Global.checkpoints=trained"), "trained/latest"),
    case("A truncated one", cut_checkpoint, "trained/latest.pdparams"),
    case("A pickle that would run code", other_weights("hostile", pickled({"weight": Harmful()})), "system"),
    case(
        "Another width",
        given("Global.pretrained_model=trained/latest", "Architecture.Backbone.dims=[8, 16, 32]"),
        "Global.pretrained_partial",
    ),
    case(
        "Weights of a dictionary of another size",
        with_file(
            "larger.txt",
            "\n".join("0123456789abc") + "\n",
            "Global.pretrained_model=trained/latest",
            "Global.character_dict_path=larger.txt",
        ),
        "--old-dict",
    ),
    case(
        "An evaluation with a dictionary of the same size in another order",
        writing("reordered.txt", REORDERED, *judge("Global.character_dict_path=reordered.txt")),
        "--old-dict",
    ),
    case("A finished run that is to go on", given("Global.checkpoints=trained/latest"), "Global.epoch_num"),
    case("An evaluation without weights", call("eval -c config.yml"), "-o Global.checkpoints="),
)


# Reading images

DETECTOR = """Global: {model_name: PP-OCRv5_mobile_det}
PreProcess: {transform_ops: [DetResizeForTest: null]}
PostProcess: {name: DBPostProcess}
"""


def predict(*images: str, source: str = "trained", options: tuple[str, ...] = ()) -> Arrange:
    return lambda bench: ["predict", source, *images, *(["-o", *options] if options else [])]


def no_best(bench: Bench) -> list[str]:
    for file in (bench.folder / "trained").glob("best_accuracy.*"):
        file.unlink()
    return ["predict", "trained", "data/val00.png"]


ONNX_GRAPH = b"\x3a\x02\x12\x00"  # field 7, the graph, with an empty name


def detector(bench: Bench) -> list[str]:
    bench.write("det.onnx", ONNX_GRAPH)
    bench.write("det.yml", DETECTOR)
    return ["predict", "det.onnx", "data/val00.png"]


READING = group(
    "Reading images",
    case("A folder that is not there", predict("scans"), "scans"),
    case(
        "Images that cannot be read; the others are read",
        writing(
            "broken.png",
            b"no image",
            "predict",
            "trained",
            "data/val00.png",
            "broken.png",
            "gone.png",
            "--output",
            "texts.tsv",
        ),
        "broken.png",
        "gone.png",
        code=1,
        shows=r"unreadable: .*?read: [^;]*",
    ),
    case("No image that can be read", predict("gone.png"), "gone.png", "--data-dir"),
    case("A folder without a run", predict("data", source="data"), "data"),
    case("A run without a best checkpoint", no_best, "trained/latest"),
    case("A config without weights", predict("data/val00.png", source="config.yml"), "Global.checkpoints"),
    case(
        "Weights of another dictionary",
        writing(
            "reordered.txt",
            REORDERED,
            "predict",
            "trained",
            "data/val00.png",
            "-o",
            "Global.character_dict_path=reordered.txt",
        ),
        "--old-dict",
    ),
    case(
        "A file of weights in place of its run",
        predict("data/val00.png", source="trained/best_accuracy.pdparams"),
        "Global.checkpoints",
    ),
    case(
        "An ONNX file that is neither in a `model.json` nor in our table",
        writing("model.onnx", ONNX_GRAPH, "predict", "model.onnx", "data/val00.png"),
        "--trust-model",
    ),
    case(
        "An ONNX file that is cut short",
        writing("model.onnx", ONNX_GRAPH[:-1], "predict", "model.onnx", "data/val00.png"),
        "model.onnx",
    ),
    case(
        "A released detector",
        detector,
        "PP-OCRv5_mobile_det",
    ),
    case(
        "A dictionary for a run, which has its own",
        call("predict trained data/val00.png --dict dict.txt"),
        "--old-dict",
    ),
    case(
        "An engine for exported models, with a run folder",
        call("predict trained data/val00.png --engine onnx"),
        "ppocr-ext export",
    ),
)


# Centers


def export(*options: str, checkpoint: str = "trained/latest") -> list[str]:
    return ["export-center", "-c", "config.yml", "-o", f"Global.pretrained_model={checkpoint}", *options]


def center_loss(**options: object) -> list[str]:
    written = ", ".join(f"{key}: {value}" for key, value in options.items())
    return train(f"+Loss.loss_config_list.CenterLoss={{{written}}}")


def centers(file: str, content: bytes) -> Arrange:
    """Training with center loss from a file that is bad."""

    def arrange(bench: Bench) -> list[str]:
        bench.write(file, content)
        return center_loss(center_file_path=file)

    return arrange


CENTERS = group(
    "Centers and center loss",
    case(
        "Centers of a recogniser that reads no line correctly",
        lambda bench: export(),
        "reads 0% of them",
        "--frames aligned",
    ),
    case(
        "A file of centers that is not there",
        lambda bench: center_loss(center_file_path="centers.npz"),
        "centers.npz",
        "export-center",
    ),
    case(
        "A pickle of centers that would run code",
        centers("train_center.pkl", pickled({1: Harmful()})),
        "train_center.pkl",
        "system",
        "export-center",
    ),
)


# While it runs

_OWN_DATA = """
import os
import numpy as np
from paddle.io import Dataset
from ppocr_ext.registry import DATASETS

@DATASETS.register("{name}")
class Own(Dataset):
    need_reset = False

    def __init__(self, config, mode, logger, seed=None):
        super().__init__()

    def __len__(self):
        return 16

    def __getitem__(self, index):
        ctc, gtc = np.zeros(8, np.int64), np.zeros(8, np.int64)
        ctc[:2], gtc[:4] = 1, (2, 4, 4, 3)
        {code}
        image = np.random.default_rng(index).random((3, 32, 128), np.float32)  # black ones have NaN gradients
        return image, ctc, gtc, np.int64(2), np.float32(1)
"""


def own_data(name: str, code: str, *options: str) -> Arrange:
    """A dataset of the user's own, which does ``code``."""

    def arrange(bench: Bench) -> list[str]:
        plugin = bench.plugin(f"{name}_module", _OWN_DATA.format(name=name, code=code))
        return train(plugin, f"Train.dataset.name={name}", *options)

    return arrange


def disk_full(bench: Bench) -> list[str]:
    from ppocr_ext.checkpoint import files

    def refuse(path: Path, content: bytes) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    bench.patch.setattr(files, "write_temporary", refuse)
    return train()


def not_allowed(bench: Bench) -> list[str]:
    real = Path.mkdir

    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        if path.name == "locked":  # permissions do not hold for root
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        real(path, *args, **kwargs)  # type: ignore[arg-type]

    bench.patch.setattr(Path, "mkdir", refuse)
    return train("Global.save_model_dir=locked")


RUNNING = group(
    "While it runs",
    case(
        "An error of Paddle in the middle of training",
        own_data(
            "PaddleData",
            'raise ValueError("(InvalidArgument) The shapes [8, 32] and [16] do not fit.\\n'
            '  [Hint: Expected a == b.] (at /paddle/x.cc:1)")',
        ),
        "--debug",
    ),
    case("An error in code of your own", own_data("FaultyData", "{}['width']"), "--debug", unforeseen=True),
    case("No space left", disk_full, "output", "free some space"),
    case("A run folder that may not be written", not_allowed, "locked"),
    case("A file in the place of the run folder", given("Global.save_model_dir=dict.txt"), "dict.txt"),
    case(
        "A new run in the folder of another one",
        given("Global.save_model_dir=trained"),
        "--resume trained",
        "--overwrite",
    ),
    case(
        "SIGTERM while it trains",
        own_data("TerminatedData", "os.kill(os.getpid(), 15) if index == 9 else None", "Eval=!remove"),
        "--resume output",
        code=143,
        shows=r"resume with: .*?$",
    ),
    case(
        "Ctrl-C before it trains",
        lambda bench: train(bench.plugin("interrupting", "import os; os.kill(os.getpid(), 2)")),
        code=130,
        shows="interrupted",
    ),
)

# Export


def no_converter(bench: Bench) -> list[str]:
    bench.patch.setitem(sys.modules, "paddle2onnx", None)
    return ["export", "trained"]


EXPORT = group(
    "Export",
    case("No run and no config", call("export"), "-c"),
    case("A config without weights", call("export -c config.yml"), "Global.checkpoints"),
    case(
        "A folder that is not empty",
        writing("model/notes.txt", "mine", "export", "trained", "--output", "model", "--format", "paddle"),
        "model",
        "notes.txt",
        "--force",
    ),
    case(
        "A width that does not fit a model that squashes images",
        call("export trained --width 100"),
        "--width 128",
    ),
    case(
        "A converter that is not installed", no_converter, "paddle2onnx", "ppocr-ext[onnx]", "--format paddle"
    ),
    case(
        "`verify` with a folder that is not an export",
        call("verify trained"),
        "trained/model.json",
        "ppocr-ext export",
    ),
)

GROUPS = (CONFIGURATION, DATA, FOLDER, LMDB, DICTIONARY, WEIGHTS, READING, CENTERS, EXPORT, RUNNING)
