"""Class counts of every head and the padding id of every SAR loss, from the charset alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.base.parts import (
    BRANCH_OF_HEAD,
    BRANCHES,
    HEAD_DECODERS,
    LOSSES,
    MULTI_HEAD,
    SPECIALS,
)
from ppocr_ext.charset import Charset
from ppocr_ext.config.config_view import Config, named_items
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import CharsetError, ConfigError
from ppocr_ext.io.resources import is_shipped_dictionary, shipped_dictionaries
from ppocr_ext.messages import LOG, did_you_mean, near_match

_Path = tuple[str, ...]

_SAR_LOSSES = [name for name, row in LOSSES.items() if row.branch == "sar"]


def with_class_counts(config: Config, charset: Charset) -> Config:
    """Return ``config`` with the numbers that depend on the dictionary filled in.

    - ``Head.out_channels_list`` of each MultiHead of each sub-model: one entry for each of its heads,
      ``CTCLabelDecode`` n, ``SARLabelDecode`` n + 2, ``NRTRLabelDecode`` n + 3.
    - ``Head.out_channels`` of a single head: the length of its decoder's ``character`` in PaddleOCR.
      A head with an unknown name and an unknown decoder is not changed.
    - ``ignore_index`` of each SAR loss: n + 1, the padding.

    Here n is `Charset.ctc_classes`. The loss list, its order and the number of sub-models do not matter.
    PaddleOCR's own tools derive n from the decoder and look for the SAR loss at one position; they are
    wrong for the second MultiHead under ``DistillationSARLabelDecode``.

    Args:
        config: the configuration; not changed.
        charset: the dictionary that the config trains with.

    Raises:
        ConfigError: the config already has another number; the message names the path, both numbers and
            the dictionary. Or a MultiHead has no ``head_list``.
    """
    counts = class_counts(config, charset)
    for path, message in wrong_counts(counts, config, charset):
        raise ConfigError(f"{config.where(path)}: {dotted(path)} {message}", code="class_count")
    lacking = {path: value for path, value in counts.items() if config.at(path, None) is None}
    return config.with_computed(lacking, "Global.character_dict_path")


def wrong_counts(
    counts: Mapping[_Path, int], config: Config, charset: Charset
) -> Iterator[tuple[_Path, str]]:
    """Yield path and message of each number in the config that is not that of ``counts``."""
    for path, expected in counts.items():
        found = config.at(path, None)
        if found is not None and (found != expected or isinstance(found, bool)):
            removable = (
                path[:-1] if path[-2] == "out_channels_list" else path
            )  # of a MultiHead, the whole list
            yield (
                path,
                f"is {found!r}, but {expected} fits {charset.name} ({len(charset.characters)} characters). "
                f"Fix: `-o '{dotted(removable)}=!remove'`, or set Global.character_dict_path to its dictionary.",
            )


def class_counts(config: Config, charset: Charset) -> dict[_Path, int]:
    """Return every class count and padding id by its path.

    Raises:
        ConfigError: a MultiHead has no ``head_list``.
    """
    counts: dict[_Path, int] = {}
    decoder = str(config.at("PostProcess.name", "")).removeprefix("Distillation")
    for path in head_paths(config):
        head = config.at(path)
        if head.get("name") == MULTI_HEAD:
            counts.update(_branch_counts(head, path, charset))
        else:
            count = _single_count(str(head.get("name")), decoder, charset)
            if count is not None:
                counts[(*path, "out_channels")] = count
    return counts | dict.fromkeys(_ignore_index_paths(config), charset.sar_padding_id)


def model_paths(config: Config) -> list[_Path]:
    """Return the path of the model, or of each sub-model."""
    models = config.at("Architecture.Models", None)
    names = [("Models", str(name)) for name in models] if isinstance(models, Mapping) else [()]
    return [("Architecture", *name) for name in names]


def head_paths(config: Config) -> list[_Path]:
    """Return the path of the head of the model, or of each sub-model."""
    paths = [(*path, "Head") for path in model_paths(config)]
    return [path for path in paths if isinstance(config.at(path, None), Mapping)]


def _branch_counts(head: Config, path: _Path, charset: Charset) -> Iterator[tuple[_Path, int]]:
    heads = head.get("head_list")
    if not isinstance(heads, tuple) or not all(
        isinstance(item, Mapping) and len(item) == 1 for item in heads
    ):
        raise ConfigError(
            f"{dotted((*path, 'head_list'))}: a MultiHead needs a list of heads (found {heads!r}, expected "
            f"`- CTCHead: {{...}}` and `- NRTRHead: {{...}}`).",
            code="bad_head_list",
        )
    counts = {"ctc": charset.ctc_classes, "sar": charset.sar_classes, "gtc": charset.nrtr_classes}
    wanted = {BRANCH_OF_HEAD.get(str(name)) for item in heads for name in item}
    for branch, count in counts.items():
        decoder = BRANCHES[branch].decoder
        if branch in wanted or decoder in (head.get("out_channels_list") or {}):
            yield (*path, "out_channels_list", decoder), count


def _single_count(head: str, decoder: str, charset: Charset) -> int | None:
    # ViTSTR's classifier is a CTCHead that is trained on attention labels
    own = (
        decoder if decoder == "ViTSTRLabelDecode" and head == "CTCHead" else HEAD_DECODERS.get(head, decoder)
    )
    specials = SPECIALS.get(own)
    if specials is None:
        LOG.info("out_channels of %s is not computed: the symbols of decoder %r are unknown.", head, decoder)
        return None
    return len(charset.characters) + specials


def _ignore_index_paths(config: Config) -> Iterator[_Path]:
    if config.at("Loss.name", None) in _SAR_LOSSES:
        yield "Loss", "ignore_index"
    for name, path in named_items(config, "Loss", "loss_config_list"):
        if name in _SAR_LOSSES:
            yield *path, "ignore_index"


def resolve_charset(config: Config, find_file: Callable[[str], Path | None]) -> Charset:
    """Return the charset of ``Global.character_dict_path`` and ``Global.use_space_char``.

    Args:
        config: the configuration.
        find_file: returns the file for a path of a config, or None; the host looks in the current
            folder, then in PaddleOCR's own.

    Raises:
        CharsetError: the dictionary is not found or cannot be used.
        ConfigError: ``use_space_char`` is neither true nor false.
    """
    name: Any = config.at("Global.character_dict_path", None)
    use_space = config.settings.use_space_char
    if not name:
        LOG.warning(
            "Global.character_dict_path is not set: the default characters 0-9 and a-z are used, without the space."
        )
        return Charset.default()
    path = _dictionary_file(str(name), find_file, config.where("Global.character_dict_path"))
    # Some of PaddleOCR's own dictionaries repeat characters; official weights have a class for each of their lines.
    is_own = path != Path(str(name)).resolve() or is_shipped_dictionary(path)
    charset = Charset.from_file(path, use_space, lenient=is_own)
    symbol = config.settings.unknown_symbol
    maps = config.settings.unknown_char == "map"
    return charset.with_unknown_symbol(symbol) if maps and symbol else charset


def read_old_charset(
    path: str | None, config: Config, find_file: Callable[[str], Path | None], where: str
) -> Charset | None:
    """Return the dictionary that weights were trained with; None without a path.

    Args:
        path: as given at ``where``.
        config: the configuration.
        find_file: see :func:`resolve_charset`.
        where: the place of the path, for messages.

    Raises:
        CharsetError: it is not found, empty, or not UTF-8.
    """
    if path is None:
        return None
    space = config.settings.use_space_char
    # its flaws are in the weights already
    return Charset.from_file(_dictionary_file(str(path), find_file, where), space, lenient=True)


def _dictionary_file(name: str, find_file: Callable[[str], Path | None], where: str) -> Path:
    """Return the file of the dictionary ``name``, which is given at ``where``.

    Raises:
        CharsetError: it is not found.
    """
    path = find_file(name)
    if path is None:
        given = Path(name)
        others = "in PaddleOCR's own folder and in the dictionaries of ppocr-ext"
        places = "" if given.is_absolute() else f" (searched in {Path.cwd()}, {others})"
        found = "is a folder" if given.is_dir() else f"is missing{places}"
        shipped = shipped_dictionaries()
        hint = did_you_mean(shipped.get(near_match(given.name, shipped, cutoff=0.85) or ""))
        raise CharsetError(
            f"{where}: the dictionary {name} {found}.{hint} Fix: give a text file with one character per line.",
            code="missing_file",
        )
    return path
