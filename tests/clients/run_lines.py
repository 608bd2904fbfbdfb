"""Run the lines of a model card over many images, in the environment of a client; needs no package.

    python run_lines.py JOB RESULT

`JOB` is a JSON file: `lines` (the code as in the card, with `"IMAGE"` in it), `images` (paths), and `batch_size`: null
to run the lines that name the image once for each image, or a number to run them once over all images. `RESULT` becomes
a JSON list, for each image `[text, confidence]`, or `[null, error]`.
"""

import ast
import json
import sys
from pathlib import Path


class ImageName(ast.NodeTransformer):
    """Put the variable IMAGE in place of the text "IMAGE", and another number of images in a batch."""

    def __init__(self, batch_size):
        self.batch_size = batch_size

    def visit_Constant(self, node):
        return ast.Name("IMAGE", ast.Load()) if node.value == "IMAGE" else node

    def visit_keyword(self, node):
        if node.arg == "batch_size" and self.batch_size:
            return ast.keyword(node.arg, ast.Constant(self.batch_size))
        return self.generic_visit(node)


def compiled(lines, batch_size):
    """Return the lines in two parts: what opens the model, and what reads an image."""
    body = ast.parse(lines).body
    first = next(
        number
        for number, statement in enumerate(body)
        if '"IMAGE"' in ast.unparse(statement).replace("'", '"')
    )
    parts = []
    for statements in (body[:first], body[first:]):
        tree = ImageName(batch_size).visit(ast.Module(statements, []))
        parts.append(compile(ast.fix_missing_locations(tree), "card", "exec"))
    return parts


def text_and_confidence(*printed):
    """Return text and confidence of what a client's lines print."""
    if isinstance(printed[0], list):  # PaddleOCR 2.10: [(text, confidence)]
        printed = printed[0][0]
    elif isinstance(printed[0], tuple):  # RapidOCR: (text,) (confidence,)
        printed = [each[0] for each in printed]
    text, confidence = printed
    return [text or "", float(confidence or 0)]


def main():
    job, result = map(Path, sys.argv[1:])
    job = json.loads(job.read_text(encoding="utf-8"))
    found = []
    names = {"print": lambda *printed: found.append(text_and_confidence(*printed))}
    open_model, read_image = compiled(job["lines"], job["batch_size"])
    exec(open_model, names)
    for image in [job["images"]] if job["batch_size"] else job["images"]:
        names["IMAGE"] = image
        try:
            exec(read_image, names)
        except Exception as error:
            found.append([None, f"{image}: {type(error).__name__}: {error}"])
    result.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


main()
