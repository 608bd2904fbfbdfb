"""Let a recogniser read only some of its characters: its classifier keeps their rows alone, and nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.config import Config, read_old_charset, resolve_charset
from ppocr_ext.errors import CharsetError
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import scratch_folder, write_text
from ppocr_ext.messages import shortened
from ppocr_ext.recognition.images import list_images
from ppocr_ext.recognition.recognizer import Recognizer

_SHOWN = 20


def with_characters(
    config: Config, characters: Sequence[str], host_path: str | None, old_dictionary: str | None
) -> tuple[Config, str]:
    """Return a config with a dictionary of these characters alone, and the dictionary of the weights.

    Args:
        config: of a recogniser with its weights.
        characters: those to read, in any order; the order of the dictionary stays.
        host_path: a PaddleOCR checkout; None searches for a host.
        old_dictionary: of the weights, if it is not that of the config.

    Raises:
        CharsetError: the recogniser does not know one of them, or its dictionary has no file.
    """
    find_file = open_host(host_path).find_file
    known = read_old_charset(old_dictionary, config, find_file, "--old-dict") or resolve_charset(
        config, find_file
    )
    unknown = known.unknown("".join(characters))
    if unknown or known.path is None:
        what = f"does not know {shortened(unknown, _SHOWN, ' ')}" if unknown else "has no dictionary file"
        raise CharsetError(
            f"--characters: the recogniser {what}, and no row can be made without a training. Fix: name characters of "
            f"{known.name}.",
            code="unknown_char",
        )
    chosen = set(characters)
    lines = [each for each in dict.fromkeys(known.characters) if each in chosen and each != " "]
    file = scratch_folder() / "dict.txt"
    write_text(file, "".join(f"{each}\n" for each in lines))
    values = {
        "Global.character_dict_path": str(file),
        "Global.use_space_char": " " in chosen,
        "Global.text_direction": resolve_charset(config, find_file).direction,
    }
    if (
        config.settings.unknown_char == "drop_char"
    ):  # a label with another character is not read rightly without it
        values["Global.unknown_char"] = "drop_line"
    return config.with_values(values), str(known.path)


def compare_readings(
    whole: Config,
    fewer: Config,
    old_dictionary: str | None,
    old_of_fewer: str,
    label_file: Path,
    data_dir: Path | None,
    options: Mapping[str, Any],
) -> Iterator[str]:
    """Yield what changes on a list, a line each: readings with another character, and the accuracy.

    Args:
        whole: the config before.
        fewer: that of :func:`with_characters`.
        old_dictionary: of the weights of ``whole``, if it differs.
        old_of_fewer: the dictionary of the weights.
        label_file: ``image<TAB>label`` lines.
        data_dir: start of image paths; None: the folder of the file.
        options: other arguments of :class:`Recognizer`.
    """
    listed = list_images([str(label_file)], data_dir)
    chosen = set(resolve_charset(fewer, open_host().find_file).characters)
    labels: list[str] = []  # those of the whole dictionary
    for title, config, old in (("before", whole, old_dictionary), ("after", fewer, old_of_fewer)):
        recognizer = Recognizer(config, old_dictionary=old, **options)
        labels = labels or [image.label or "" for image in listed.with_labels(recognizer.charset).images]
        readings = recognizer.stream(image.source() for image in listed.images)
        bar = tqdm(
            readings, f"readings {title}", len(listed.images), unit=" images", disable=None, leave=False
        )
        texts = [reading.text for reading in bar]
        other = sum(not chosen.issuperset(text) for text in texts)
        right = sum(map(str.__eq__, texts, labels))
        yield (
            f"{title}: {other:,} of {len(texts):,} readings have another character, {right / max(1, len(texts)):.2%} "
            "are right"
        )
