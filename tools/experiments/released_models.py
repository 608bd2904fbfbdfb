#!/usr/bin/env python3
"""Compare what ppocr-ext and the client of a released model read on the same lines; print a row and each difference.

The client runs in an environment of its own, whose interpreter is given. It reads one image at a time, with its
recogniser alone and its own pre-processing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from ppocr_ext import Recognizer  # noqa: E402
from ppocr_ext.recognition.images import list_images  # noqa: E402

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
MODEL, NAME, paths, output = sys.argv[1:5]
{client}
import cv2
readings = [read(cv2.imread(path)) for path in json.load(open(paths, encoding="utf-8"))]
with open(output, "w", encoding="utf-8") as stream:
    json.dump([[text, float(score)] for text, score in readings], stream)
"""


def read_by_client(
    python: str, client: str, model: str, name: str, paths: Sequence[str], work: Path
) -> list[list]:
    """Return text and score of each image, as the client reads it in its own environment."""
    given, output = work / "paths.json", work / f"{client}.json"
    given.write_text(json.dumps(paths), encoding="utf-8")
    words = [python, "-c", LOOP.format(client=CLIENTS[client]), model, name, str(given), str(output)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return json.loads(output.read_text(encoding="utf-8"))


def compare(args: argparse.Namespace) -> str:
    """Return a row of the table, and a line for each text that differs."""
    recognizer = Recognizer(args.model, trust_model=args.trust_model)
    images = [str(image.place) for image in list_images(args.images).images]
    ours = recognizer.read(images)
    args.out.mkdir(parents=True, exist_ok=True)
    theirs = read_by_client(args.python, args.client, args.model, args.name, images, args.out)
    pairs = list(zip(ours, theirs, strict=True))
    other = [(mine, text, score) for mine, (text, score) in pairs if mine.text != text]
    score = max(
        (abs(mine.confidence - score) for mine, (text, score) in pairs if mine.text == text), default=0
    )
    lines = [
        f"  {mine.image}: {mine.text!r} {mine.confidence:.4f}, client {text!r} {score:.4f}"
        for mine, text, score in other
    ]
    equal = len(pairs) - len(other)
    row = f"| {args.name} | {recognizer.engine} | {args.client} | {equal:,} of {len(pairs):,} | {score:.1e} |"
    return "\n".join([recognizer.origin, row, *lines])


def main() -> None:
    """Compare, and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="folder or ONNX file that both read")
    parser.add_argument("images", nargs="+", metavar="IMAGES", help="as in `ppocr-ext predict`")
    parser.add_argument("--python", required=True, help="the interpreter of the client's environment")
    parser.add_argument("--client", required=True, choices=CLIENTS)
    parser.add_argument("--name", required=True, help="PaddleOCR's name of the model: PP-OCRv6_small_rec")
    parser.add_argument(
        "--out", type=Path, default=Path("output/released_models"), help="folder for what was read"
    )
    parser.add_argument("--trust-model", action="store_true", help="run files that are not in our table")
    print(compare(parser.parse_args()))


if __name__ == "__main__":
    main()
