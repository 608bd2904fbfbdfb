"""Read what ``ppocr-ext export`` wrote: its description, its dictionary, and the digests of its files; no Paddle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.io.file_names import file_digest
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most
from ppocr_ext.recognition.resize import WidthPolicy

MODEL_FILE, CHARSET_FILE = "model.json", "charset.txt"
FORMAT = 1  # of model.json
# keys of the metadata of an ONNX file: its dictionary, a character on each line, by RapidOCR's name for it; and ours,
# the JSON of the width policy
CHARACTERS, POLICY = "character", "width_policy"
_EXPORT = "Fix: give a folder or an ONNX file that `ppocr-ext export` wrote; export the model again if it is damaged."


@dataclass(frozen=True)
class Exported:
    """An exported recogniser, as its files describe it.

    Attributes:
        folder: with the files.
        policy: how images are prepared.
        charset: the dictionary.
        reorder: the text is turned, as PaddleOCR does for Arabic.
        files: SHA-256 of each file, by its name.
        width: the only width that the graph takes; None: every width.
        weights_digest: SHA-256 of the weights that were exported; None if it is not known.
        sub_model: that was taken from a distillation, if any.
    """

    folder: Path
    policy: WidthPolicy
    charset: Charset
    reorder: bool
    files: Mapping[str, str]
    width: int | None = None
    weights_digest: str | None = None
    sub_model: str | None = None

    def has(self, *names: str) -> bool:
        """Return True if the export has all these files."""
        return self.files.keys() >= set(names)

    def check(self, *names: str) -> None:
        """Compare files with the digests that were taken when they were exported.

        Raises:
            WeightsError: one is missing or is not as it was.
        """
        for name in names:
            file = self.folder / name
            if not file.is_file():
                raise WeightsError(f"there is no file {file}. {_EXPORT}", code="missing_file")
            if file_digest(file) != self.files.get(name):
                raise WeightsError(
                    f"{file} is not the file that was exported: its digest differs from {MODEL_FILE}, it is truncated "
                    f"or was replaced. Fix: copy the folder again, or export the model again; `verify --trust-model` "
                    f"runs it as it is.",
                    code="digest_mismatch",
                )


def read_exported(folder: Path) -> Exported:
    """Read ``model.json`` and ``charset.txt`` of a folder.

    Raises:
        DataError: a file is missing, damaged, or of another form.
        WeightsError: the dictionary is not the one that was exported.
    """
    file = folder / MODEL_FILE
    content = _json(file)
    try:
        form, classes = content["format"], content["classes"]
        digests = {str(name): str(entry["sha256"]) for name, entry in content["files"].items()}
        policy = content["width_policy"]
        width, source = content.get("width"), content.get("source") or {}
        origin = source.get("digest"), source.get("sub_model")
        dictionary = content.get("dictionary") or {}
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file}: not a description of an exported recogniser ({type(error).__name__}: {error}). {_EXPORT}",
            code="bad_content",
        ) from error
    if form != FORMAT:
        raise DataError(
            f"{file}: the format is {form!r}, but this version of ppocr-ext reads {FORMAT}. Fix: pip install -U "
            f"ppocr-ext, or export the model again.",
            code="unsupported_format",
        )
    policy = WidthPolicy.from_json(policy, str(file))
    reorder = content.get("reorder") is True
    width = width if isinstance(width, int) else None
    charset = _charset(folder / CHARSET_FILE).with_unknown_symbol(str(dictionary.get("unknown_symbol") or ""))
    exported = Exported(folder, policy, charset, reorder, digests, width, *origin)
    exported.check(CHARSET_FILE)
    if classes != exported.charset.ctc_classes:
        raise DataError(
            f"{folder / CHARSET_FILE} has {len(exported.charset.characters)} lines, but {MODEL_FILE} says {classes} "
            f"classes, the blank included. {_EXPORT}",
            code="class_count",
        )
    return exported


def described_by_metadata(file: Path, metadata: Mapping[str, str]) -> Exported:
    """Return what the metadata of an ONNX file says, for a file without its folder.

    Raises:
        WeightsError: it has no dictionary or no width policy.
        DataError: the width policy is damaged.
    """
    for key, what in ((CHARACTERS, "dictionary"), (POLICY, "width policy")):
        if key not in metadata:
            raise WeightsError(
                f"{file} has no {what} (no {key!r} in its metadata), so `ppocr-ext export` did not write it. Fix: give "
                f"a file that it wrote, with the {MODEL_FILE} beside it.",
                code="not_exported",
            )
    try:
        given = json.loads(metadata[POLICY])
    except ValueError:
        given = None
    policy = WidthPolicy.from_json(given, str(file))
    characters = tuple(metadata[CHARACTERS].split("\n"))
    return Exported(file.parent, policy, Charset(characters), given.get("reorder") is True, {})


def _charset(file: Path) -> Charset:
    """Return the dictionary of ``charset.txt``, which has a line for each class but the blank."""
    try:
        text = read_at_most(file, MAX_DICTIONARY_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}. {_EXPORT}",
            code="unreadable_file",
        ) from error
    return Charset(tuple(text.removesuffix("\n").split("\n")))


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_at_most(file, MAX_DICTIONARY_BYTES))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}. {_EXPORT}",
            code="unreadable_file",
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: not a description of an exported recogniser. {_EXPORT}", code="bad_content")
    return content
