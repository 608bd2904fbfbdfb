#!/usr/bin/env python3
"""Compare what ppocr-ext and the client of a released model read on the same lines; print a row and each difference.

The client runs in an environment of its own, whose interpreter is given. It reads one image at a time, with its
recogniser alone and its own pre-processing. The client `network` is the network that a training begins with, here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from ppocr_ext import Recognizer  # noqa: E402
from ppocr_ext.host.complete import import_paddle  # noqa: E402

import_paddle()
from ppocr_ext.checkpoint.conversion import conversion_of, ctc_alone  # noqa: E402
from ppocr_ext.checkpoint.weights import load_weights  # noqa: E402
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.config.derive import with_class_counts  # noqa: E402
from ppocr_ext.config.global_keys import NETWORK  # noqa: E402
from ppocr_ext.inference.released import find_released  # noqa: E402
from ppocr_ext.inference.runners import NetworkEngine  # noqa: E402
from ppocr_ext.io.resources import config_root  # noqa: E402
from ppocr_ext.modeling import build_model  # noqa: E402
from ppocr_ext.recognition.images import WidthPolicy, list_images  # noqa: E402
from ppocr_ext.recognition.opening import RecognizerParts  # noqa: E402

# Each defines `read(pixels) -> (text, score)`, from the model and the official name in `sys.argv`.
CLIENTS = {
    "rapidocr": """
from rapidocr import RapidOCR
alone = dict.fromkeys(["Global.use_det", "Global.use_cls", "Global.use_preprocess_img"], False)
reader = RapidOCR(params={**alone, "Global.text_score": 0, "Global.log_level": "error", "Rec.model_path": MODEL})
def read(pixels):
    result = reader(pixels)
    return (result.txts[0], result.scores[0]) if result.txts else ("", 0)
""",
    "rapidocr_onnxruntime": """
import rapidocr_onnxruntime
reader = rapidocr_onnxruntime.RapidOCR(rec_model_path=MODEL)
recogniser = getattr(reader, "text_rec", None) or reader.text_recognizer
read = lambda pixels: recogniser([pixels])[0][0]
""",
    "rapidocr_paddle": """
import rapidocr_paddle
recogniser = rapidocr_paddle.RapidOCR(rec_model_path=MODEL).text_rec
read = lambda pixels: recogniser([pixels])[0][0]
""",
    "paddleocr": """
from paddleocr import TextRecognition
recogniser = TextRecognition(model_name=NAME, model_dir=MODEL, device="cpu")
def read(pixels):
    result = recogniser.predict(pixels)[0]
    return result["rec_text"], result["rec_score"]
""",
}
LOOP = """
import json, sys
MODEL, NAME = sys.argv[1:]
{client}
import cv2
readings = [read(cv2.imread(path)) for path in json.load(sys.stdin)]
print("\\n" + json.dumps([[text, float(score)] for text, score in readings]))
"""


def network_of(place: str, policy: WidthPolicy) -> Recognizer:
    """Return the network that a training begins with, as a recogniser; `Recognizer` has read the model already."""
    model = find_released(place)
    assert model is not None
    made = conversion_of(model)
    charset = model.charset(made.classes)
    config = with_class_counts(load(config_root() / made.config), charset)
    network = build_model(ctc_alone(config.at("Architecture")))
    load_weights(network, made.file)
    return Recognizer(RecognizerParts(NetworkEngine(network), policy, charset))


def main() -> None:
    """Print a row of the table, and a line for each text that differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="folder or ONNX file that both read")
    parser.add_argument("images", nargs="+", metavar="IMAGES", help="as in `ppocr-ext predict`")
    parser.add_argument("--python", help="the interpreter of the client's environment")
    parser.add_argument("--client", required=True, choices=[NETWORK, *CLIENTS])
    parser.add_argument("--name", required=True, help="PaddleOCR's name of the model: PP-OCRv6_small_rec")
    parser.add_argument("--trust-model", action="store_true", help="run files that are not in our table")
    args = parser.parse_args()
    recognizer = Recognizer(args.model, trust_model=args.trust_model)
    images = [str(image.place) for image in list_images(args.images).images]
    if args.client == NETWORK:
        network = network_of(args.model, recognizer.policy)
        theirs = [(reading.text, reading.confidence) for reading in network.read(images)]
    else:
        words = [args.python, "-c", LOOP.format(client=CLIENTS[args.client]), args.model, args.name]
        done = subprocess.run(words, check=True, input=json.dumps(images), stdout=subprocess.PIPE, text=True)
        theirs = json.loads(done.stdout.splitlines()[-1])  # a client may print before
    pairs = list(zip(recognizer.read(images), theirs, strict=True))
    scores = [abs(mine.confidence - score) for mine, (text, score) in pairs if mine.text == text]
    equal = f"{len(scores):,} of {len(pairs):,}"
    print(recognizer.origin)
    print(f"| {args.name} | {recognizer.engine} | {args.client} | {equal} | {max(scores, default=0):.1e} |")
    for mine, (text, score) in pairs:
        if mine.text != text:
            print(f"  {mine.image}: {mine.text!r} {mine.confidence:.4f}, client {text!r} {score:.4f}")


if __name__ == "__main__":
    main()
