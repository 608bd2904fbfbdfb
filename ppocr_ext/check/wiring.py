"""Check what a batch would pass without an error: PaddleOCR's rules on the network's labels, decoder and images.

What a batch does show is found by the dry step (:mod:`ppocr_ext.run.dry_step`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ppocr_ext.base.parts import LOSSES, SCALE_SAMPLER, TAUGHT_ALGORITHMS, TRANSFORMS, Loss
from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.config import named_items
from ppocr_ext.config.node import dotted
from ppocr_ext.config.values import shown
from ppocr_ext.data.batch_layout import kept_keys
from ppocr_ext.data.preprocessing import (
    COLORS,
    PAD,
    WIDEN,
    Preprocessing,
    Size,
    are_positive_numbers,
    is_positive_number,
    read_preprocessing,
    sampler_factor,
    sampler_scales,
)

_NOT_OF_MULTI_HEAD = ("NRTRLabelDecode", "SARLabelDecode", "AttnLabelDecode")
_DEFAULT_LENGTH = 25  # PaddleOCR's, of Global and of an NRTRHead
_ON_PIXELS = ("ResizeImg", "Aug", "NormalizeImage", "ToCHWImage")  # ends of names of transforms of pixels
ALLOW = "allow_different_preprocessing"
_FIX = f"Fix: use the same in both, or allow it: -o Global.{ALLOW}=true."


def check_networks(check: ConfigCheck) -> None:
    """Check ``algorithm``, the decoder's name and the length of NRTR's output against the heads."""
    multi = {path: branches for path, branches in _heads(check) if branches}
    if not multi:
        return
    if check.role == "train":
        _check_algorithm(check, multi)
    decoder = str(check.at("PostProcess", "name") or "")
    if decoder.removeprefix("Distillation") in _NOT_OF_MULTI_HEAD:
        fitting = f"{'Distillation' if decoder.startswith('Distillation') else ''}CTCLabelDecode"
        check.error(
            ("PostProcess", "name"),
            "decoder_mismatch",
            f"a MultiHead gives its CTC output in evaluation, which {decoder} does not read. Fix: use {fitting}; "
            f"`eval --head gtc` evaluates the NRTR branch.",
        )
    for path, branches in multi.items():
        if "NRTRHead" not in branches:
            continue
        # NRTR has to decode the longest label: `max_text_length` symbols, of which `<s>` is one
        length = (*path, "Head", "head_list", "NRTRHead", "max_text_length")
        longest, decoded = check.at("Global", "max_text_length", default=_DEFAULT_LENGTH), check.at(*length)
        decoded = _DEFAULT_LENGTH if decoded is None else decoded
        if isinstance(longest, int) and isinstance(decoded, int) and decoded < longest - 1:
            check.error(
                length,
                "text_length_mismatch",
                f"the NRTR branch decodes up to {decoded - 1} characters (found {decoded}), but labels have up to "
                f"{longest - 2} (Global.max_text_length: {longest}). Fix: remove it, which makes it {longest}.",
            )


def _heads(check: ConfigCheck) -> Iterator[tuple[Path, set[str]]]:
    """Yield the config path of each network with the names in its ``head_list``."""
    models = check.at("Architecture", "Models")
    names = [("Models", str(name)) for name in models] if isinstance(models, Mapping) else [()]
    for name in names:
        path = ("Architecture", *name)
        yield path, {entry for entry, _ in named_items(check.config, *path, "Head", "head_list")}


def _check_algorithm(check: ConfigCheck, multi: Mapping[Path, set[str]]) -> None:
    """Check that PaddleOCR's loop hands the labels to networks with an NRTR or SAR branch."""
    taught = [path for path, branches in multi.items() if branches & {"NRTRHead", "SARHead"}]
    if not taught:
        return
    path = (*taught[0], "algorithm")
    if TAUGHT_ALGORITHMS & {str(check.at(*each, "algorithm")) for each, _ in _heads(check)}:
        several = check.at("Architecture", "Models") is not None
        if several and check.at("Architecture", "algorithm") not in (None, "Distillation"):
            said = "with Architecture.Models it must be Distillation."
            check.error(("Architecture", "algorithm"), "algorithm_mismatch", said)
    elif check.at(*path) is not None:  # a missing one is reported with the architecture
        check.error(
            path,
            "algorithm_mismatch",
            f"PaddleOCR's loop hands the network no labels for {check.at(*path)!r}, but NRTRHead and SARHead need "
            f"them. Fix: write SVTR_LCNet.",
        )


def check_images(check: ConfigCheck) -> None:
    """Check colours, shapes and scales of the images, and the width that padding takes of them."""
    for mode in check.modes:
        listed = list(named_items(check.config, mode, "dataset", "transforms"))
        names = [name for name, _ in listed]
        decoded = names.index("DecodeImage") if "DecodeImage" in names else 0
        for name, where in listed[:decoded]:
            if name.endswith(_ON_PIXELS):  # an augmentation that is left out at random would pass
                said = "it needs a decoded image, but DecodeImage comes after it. Fix: put DecodeImage before it."
                check.error(where, "image_not_decoded", said)
        for name, where in listed:
            color, shape = check.at(*where, "img_mode"), check.at(*where, "image_shape")
            if name == "DecodeImage" and color not in (None, *COLORS):
                why = " DecodeImage reads three channels and fails under GRAY." if color == "GRAY" else ""
                said = f"found {shown(color)}, expected one of {', '.join(COLORS)}.{why}"
                check.error((*where, "img_mode"), "bad_value", said)
            expected = TRANSFORMS[name].shape if name in TRANSFORMS else None
            if expected and shape is not None and not are_positive_numbers(shape, 3):
                form, example = expected
                said = f"found {shown(shape)}, expected {form} in positive whole numbers, such as {example}."
                check.error((*where, "image_shape"), "bad_value", said)
    if "Train" in check.modes:
        _check_scales(check, ("Train", "sampler"))
        _check_padding(check)


def _check_scales(check: ConfigCheck, path: Path) -> None:
    """Check the sizes that a MultiScaleSampler asks for."""
    scales, factor, widest = (check.at(*path, key) for key in ("scales", "divided_factor", "max_w"))
    if check.at(*path, "name") != SCALE_SAMPLER or scales is None:
        return
    if (
        not isinstance(scales, tuple)
        or not scales
        or not all(are_positive_numbers(each, 2) for each in scales)
    ):
        said = f"{shown(scales)} is not a list of [width, height] in positive whole numbers, such as [[320, 48]]."
        check.error((*path, "scales"), "bad_value", said)
        return
    if factor is not None and not are_positive_numbers(factor, 2):
        said = f"{shown(factor)} is not [width, height], such as [8, 16]."
        check.error((*path, "divided_factor"), "bad_value", said)
    if widest is not None and not is_positive_number(widest):
        said = f"{shown(widest)} is not a number of pixels above 0, such as 480."
        check.error((*path, "max_w"), "bad_value", said)
    for given, rounded in zip(scales, sampler_scales(check.config, "Train"), strict=True):
        if 0 in rounded:
            multiple = list(sampler_factor(check.config, "Train"))
            said = f"{list(given)} is rounded down to 0: sizes are multiples of divided_factor, {multiple}."
            check.error((*path, "scales"), "bad_value", said)
            return


def _check_padding(check: ConfigCheck) -> None:
    """Warn if a loss of CTC frames counts padding, since ``valid_ratio`` is not where it reads it."""
    path = ("Train", "dataset", "transforms")
    keys = kept_keys(check.at(*path)) if isinstance(check.at(*path), tuple) else None
    for name, entry in named_items(check.config, "Loss", "loss_config_list"):
        options = check.mapping(*entry)
        of_frames = LOSSES.get(name, Loss()).is_of_frames(options)
        place = 4 if options.get("multi_head") else 3
        if (
            keys
            and of_frames
            and options.get("skip_padding") is not False
            and keys[place:][:1] != ("valid_ratio",)
        ):
            check.warning(
                (*path, "KeepKeys", "keep_keys"),
                "no_valid_ratio",
                f"{name} finds padding by valid_ratio, which is not kept at place {place + 1}: all frames count. "
                f"Fix: keep it there.",
            )


def check_preprocessing(check: ConfigCheck) -> None:
    """Compare sizes, padding, channel order and normalisation of ``Train`` and ``Eval``.

    Only what the config says is compared: a section whose images a plugin resizes is skipped. An Eval size must be
    among the sizes that a MultiScaleSampler gives. ``eval_mode: true`` in Eval goes with padding in Train:
    both keep the aspect ratio.
    """
    trained, evaluated = read_preprocessing(check.config, "Train"), read_preprocessing(check.config, "Eval")
    if trained is None or evaluated is None or check.at("Global", ALLOW) is True:
        return
    found = list(_differences(check, trained, evaluated))
    if not found:
        return
    lines = "".join(f"\n    {line}" for _, line in found)
    check.error(
        found[0][0],
        "preprocessing_mismatch",
        f"Eval prepares images differently from Train, which spoils its accuracy. {_FIX}{lines}",
    )


def _differences(
    check: ConfigCheck, trained: Preprocessing, evaluated: Preprocessing
) -> Iterator[tuple[Path, str]]:
    """Yield config path in Eval and a line for each difference."""
    place = check.where(trained.path)
    where = f"{dotted(trained.path)}, {place}" if place else dotted(trained.path)
    resize = evaluated.path[:-1] if evaluated.path[-1] in ("image_shape", "scales") else evaluated.path
    if not _size_fits(trained, evaluated):
        sizes = f"size: {_listed(evaluated.sizes)} in Eval, {_listed(trained.sizes)} in Train ({where})"
        yield evaluated.path, sizes
    if evaluated.fit != trained.fit and {trained.fit, evaluated.fit} != {PAD, WIDEN}:
        path = resize if check.at(*resize, "padding") is None else (*resize, "padding")
        yield path, f"resizing: {evaluated.fit} in Eval, {trained.fit} in Train ({where})"
    if None not in (evaluated.color, trained.color) and evaluated.color != trained.color:
        path = ("Eval", "dataset", "transforms", "DecodeImage", "img_mode")
        yield path, f"order of channels: {evaluated.color} in Eval, {trained.color} in Train"
    if evaluated.normalisation != trained.normalisation:
        ours, theirs = (" then ".join(each.normalisation) for each in (evaluated, trained))
        yield resize, f"normalisation: {ours} in Eval, {theirs} in Train ({where})"


def _size_fits(trained: Preprocessing, evaluated: Preprocessing) -> bool:
    """Return True if each size of Eval is one of Train; only heights count where images are widened."""
    if not trained.sizes or not evaluated.sizes:
        return True
    if WIDEN in (trained.fit, evaluated.fit):
        heights = {size[:2] for size in trained.sizes}
        return all(size[:2] in heights for size in evaluated.sizes)
    return set(evaluated.sizes) <= set(trained.sizes)


def _listed(sizes: tuple[Size, ...]) -> str:
    shown = [
        f"{height}×{width}" + (f"×{channels}" if channels != 3 else "") for channels, height, width in sizes
    ]
    return ", ".join(shown)
