"""Write the lines of code that load an exported model in each client; imports no Paddle."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppocr_ext.base.parts import CLIENT_NAMES
from ppocr_ext.charset import Charset
from ppocr_ext.check.files import MODEL_NAME_KEYS, client_name_problem
from ppocr_ext.config import Config
from ppocr_ext.config.node import dotted
from ppocr_ext.data.sample_rules import most_characters
from ppocr_ext.errors import ConfigError
from ppocr_ext.inference.runners import ONNX
from ppocr_ext.io.image_pixels import TALL
from ppocr_ext.limits import MAX_INPUT_WIDTH
from ppocr_ext.messages import LOG
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.text_direction import ARABIC

CLIENT_WIDTH = MAX_INPUT_WIDTH  # the limit of PaddleOCR's 3.x client


def shell_command(folder: str | Path, model_name: str, policy: WidthPolicy, engine: str | None = None) -> str:
    """Return the command that reads an image with PaddleOCR 3.7; ``engine`` ``"onnxruntime"`` needs no Paddle."""
    words = ["paddleocr", "text_recognition", "-i", "IMAGE", "--model_name", model_name]
    words += ["--model_dir", str(folder), "--device", "cpu", *(["--engine", engine] if engine else [])]
    words += ["--input_shape", *map(str, policy.image_shape)] if policy.kind == "squash" else []
    return shlex.join(words)


def width_warning(policy: WidthPolicy) -> str:
    """Return what users of the clients must know about the width of the input."""
    _, height, width = policy.image_shape
    if policy.kind == "squash":
        return (
            f"Every image is resized to {height} x {width} pixels, whatever its shape (policy squash). Lines of more "
            f"than about {most_characters(width)} characters are not read. PaddleOCR 3.x does so only with input_shape "
            f"[3, {height}, {width}], which inference.yml cannot set; without it texts are wrong."
        )
    if policy.kind == "pad":
        return (
            f"Images keep their aspect ratio at height {height}; longer ones are squeezed to {width} pixels (policy "
            f"pad). PaddleOCR 3.x widens the input up to {CLIENT_WIDTH} pixels instead, so it may read long images "
            f"differently. Do not give it input_shape."
        )
    return (
        f"Images keep their aspect ratio at height {height}; the input is as wide as the image needs, and at least "
        f"{width} pixels (policy widen). PaddleOCR 3.x does the same up to {CLIENT_WIDTH} pixels. Do not give it "
        f"input_shape."
    )


def python_lines(folder: str, model_name: str, policy: WidthPolicy, engine: str | None = None) -> str:
    """Return the lines for PaddleOCR 3.7 in Python; ``engine`` ``"onnxruntime"`` needs no Paddle."""
    options = [f'model_name="{model_name}"', f"model_dir={_text(folder)}", 'device="cpu"']
    options += [f"input_shape={list(policy.image_shape)}"] if policy.kind == "squash" else []
    options += [f"engine={_text(engine)}"] if engine else []
    return f"""\
from paddleocr import TextRecognition

model = TextRecognition({", ".join(options)})
for result in model.predict("IMAGE", batch_size=1):
    print(result["rec_text"], result["rec_score"])"""


def _text(value: str) -> str:
    """Return a string of Python in double quotes."""
    return json.dumps(value, ensure_ascii=False)


def rapidocr_options(folder: str, policy: WidthPolicy) -> dict[str, Any]:
    """Return the ``params`` with which RapidOCR 3.10 reads the ONNX file, without detection and classification."""
    return {
        "Global.use_det": False,
        "Global.use_cls": False,
        "Global.use_preprocess_img": False,
        "Rec.model_path": f"{folder}/{ONNX}",
        "Rec.rec_img_shape": list(policy.image_shape),
    }


# The first line, and how a text is shown: the three clients below do not turn texts themselves.
_BIDI = "from bidi import get_display  # pip install python-bidi: turns texts of right-to-left scripts\n"


def rapidocr_lines(folder: str, policy: WidthPolicy, turns: bool = False) -> str:
    """Return the lines for RapidOCR 3.10; ``turns`` the texts of right-to-left scripts."""
    options = "\n".join(
        f'    "{key}": {_text(value) if isinstance(value, str) else value},'
        for key, value in rapidocr_options(folder, policy).items()
    )
    texts = "[get_display(text) for text in result.txts]" if turns else "result.txts"
    return f"""\
{_BIDI * turns}import cv2
from rapidocr import RapidOCR

options = {{
{options}
}}
engine = RapidOCR(params=options)
{_caller_image(policy)}
result = engine(image)
print({texts}, result.scores)"""


def _caller_image(policy: WidthPolicy) -> str:
    """Return the lines that read an image for a client that does not squash it and does not reverse its channels."""
    lines = ['image = cv2.imread("IMAGE")', *_turning(policy)]
    if policy.kind == "squash":
        _, height, width = policy.image_shape
        lines.append(f"image = cv2.resize(image, ({width}, {height}))")
    if policy.color == "RGB":
        lines.append("image = image[:, :, ::-1].copy()")
    return "\n".join(lines)


def _turning(policy: WidthPolicy) -> list[str]:
    """Return the lines that turn a tall image, which clients do only with what they detect."""
    lines = [
        f"if image.shape[0] >= {TALL} * image.shape[1]:  # as it would be after text detection",
        "    image = cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE)",
    ]
    return lines if policy.turns else []


def paddleocr2_options(folder: str, policy: WidthPolicy) -> list[str]:
    """Return the options with which PaddleOCR 2.10 reads the ONNX file."""
    _, height, width = policy.image_shape
    algorithm = "SVTR" if policy.kind == "squash" else "SVTR_LCNet"
    return [
        "--use_gpu=false",
        "--use_onnx=true",
        f"--rec_model_dir={folder}/{ONNX}",
        f"--rec_char_dict_path={folder}/charset.txt",
        f"--rec_image_shape=3,{height},{width}",
        f"--rec_algorithm={algorithm}",
        "--rec_batch_num=1",
    ]


def paddleocr2_lines(folder: str, policy: WidthPolicy, turns: bool = False) -> str:
    """Return the lines for PaddleOCR 2.10, which reads the ONNX file; ``turns`` texts of right-to-left scripts."""
    options = "\n".join(f"    {_text(option)}," for option in paddleocr2_options(folder, policy))
    # With its option --rec_algorithm=SVTR it squashes.
    lines = _caller_image(replace(policy, kind="pad"))
    read = "texts, _ = TextRecognizer(args)([image])\nprint(texts)"
    if turns:
        read = (
            "recognizer = TextRecognizer(args)\n"
            'recognizer.postprocess_op.reverse = False  # it turns texts only if the path of charset.txt has "arabic"\n'
            "texts, _ = recognizer([image])\n"
            "print([(get_display(text), score) for text, score in texts])"
        )
    return f"""\
{_BIDI * turns}import cv2
import paddleocr  # before tools, which it makes importable
from tools.infer import utility
from tools.infer.predict_rec import TextRecognizer

options = [
{options}
]
args = utility.init_args().parse_args(options)
{lines}
{read}"""


def recognizer_lines(folder: str) -> str:
    """Return the lines for this package."""
    return f"""\
from ppocr_ext import Recognizer

print(Recognizer({_text(folder)}).read("IMAGE"))"""


def onnxruntime_lines(folder: str, policy: WidthPolicy, turns: bool = False) -> str:
    """Return the lines for ONNX Runtime; they need only NumPy and OpenCV, and python-bidi if ``turns``."""
    _, height, width = policy.image_shape
    if policy.kind == "squash":
        size = f"columns = filled = {width}"
    elif policy.kind == "pad":
        size = f"columns, filled = {width}, min({width}, math.ceil({height} * ratio))"
    else:
        size = (
            f"columns = int({height} * max({width} / {height}, ratio))\n"
            f"filled = min(columns, math.ceil({height} * ratio))"
        )
    file = _text(f"{folder}/charset.txt")
    flip = "\nimage = image[:, :, ::-1]  # the network takes RGB" if policy.color == "RGB" else ""
    turn = "".join(f"\n{line}" for line in _turning(policy))
    text = '"".join(characters[classes[t] - 1] for t in starts)'
    text = f"get_display({text})" if turns else text
    return f"""\
import math

{_BIDI * turns}import cv2
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession({_text(f"{folder}/{ONNX}")})
characters = open({file}, encoding="utf-8", newline="\\n").read().removesuffix("\\n").split("\\n")

image = cv2.imread("IMAGE")  # uint8, blue, green, red{turn}{flip}
ratio = image.shape[1] / image.shape[0]
{size}
pixels = cv2.resize(image, (filled, {height})).astype(np.float32).transpose(2, 0, 1)
batch = np.zeros((1, 3, {height}, columns), np.float32)
batch[0, :, :, :filled] = (pixels / 255 - 0.5) / 0.5

(probabilities,) = session.run(None, {{"x": batch}})
classes = probabilities[0].argmax(axis=1)
starts = [t for t, c in enumerate(classes) if c != 0 and (t == 0 or c != classes[t - 1])]
confidence = probabilities[0].max(axis=1)[starts].mean() if starts else 0.0
print({text}, confidence)"""


# The official recognisers of each backbone; the first is the default.
_FAMILIES = {
    "SVTRv2": ("ch_SVTRv2_rec",),
    "RepSVTR": ("ch_RepSVTR_rec",),
    "MobileNetV1Enhance": ("PP-OCRv3_mobile_rec",),
    "PPLCNetV3": ("PP-OCRv5_mobile_rec", "PP-OCRv4_mobile_rec"),
    "PPHGNet_small": ("PP-OCRv4_server_rec",),
    "PPHGNetV2_B4": ("PP-OCRv5_server_rec",),
}
_OTHER = "PP-OCRv4_mobile_rec"  # for this name the client does not choose an engine that needs another form


def choose_name(config: Config, sub_model: str | None, charset: Charset, given: str | None = None) -> str:
    """Return the name under which PaddleOCR's 3.x client loads a model.

    Args:
        config: the config of the training.
        sub_model: the entry of ``Architecture.Models`` that is exported; None in a config of one model.
        charset: its dictionary.
        given: ``--model-name``; without it, ``Global.pdx_model_name``, ``Global.model_name`` or the name of an
            official recogniser with the same backbone is used. A name of the config that does not fit is a warning,
            and not used: PaddleOCR trains with any name.

    Raises:
        ConfigError: the client does not know ``given``, or its rule for it contradicts the direction of the texts.
    """
    names = [
        ("--model-name", given),
        *((key, config.at(key, default=None)) for key in map(dotted, MODEL_NAME_KEYS)),
    ]
    own = _of_family(
        config, ("Architecture",) if sub_model is None else ("Architecture", "Models", sub_model)
    )
    if charset.turns_texts:
        own = f"{ARABIC}{own}" if f"{ARABIC}{own}" in CLIENT_NAMES else f"{ARABIC}PP-OCRv5_mobile_rec"
    for source, name in names:
        if name:
            problem = client_name_problem(str(name), charset)
            if problem is None:
                return str(name)
            text = f"{source}: {problem.message}"
            if name == given:
                raise ConfigError(f"{text} Here it may be --model-name {own}.", code=problem.code)
            LOG.warning("%s Used instead: %s. Other clients read no name.", text, own)
    return own


def _of_family(config: Config, path: tuple[str, ...]) -> str:
    backbone = config.at((*path, "Backbone", "name"), default=None)
    if backbone == "PPLCNetV4":
        name = f"PP-OCRv6_{config.at((*path, 'Backbone', 'model_size'), default='small')}_rec"
        return name if name in CLIENT_NAMES else _OTHER
    family = _FAMILIES.get(str(backbone), (_OTHER,))
    weights = (
        config.settings.pretrained_model,
        config.at((*path, "pretrained"), default=None),
    )
    return next((name for name in weights if name in family), family[0])
