"""Check the images of a config: colours, shapes, scales, and that Eval prepares them as Train does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ppocr_ext.base.parts import LOSSES, SCALE_SAMPLER, TRANSFORMS, Loss, kind_of
from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.config import named_items
from ppocr_ext.config.global_keys import shown
from ppocr_ext.config.node import dotted
from ppocr_ext.data.batches import kept_keys
from ppocr_ext.data.preprocessing import (
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

ALLOW = "allow_different_preprocessing"
_FIX = f"Fix: use the same in both, or allow it: -o Global.{ALLOW}=true."


def _are_scales(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(are_positive_numbers(each, 2) for each in value)


# What the sampler of scales needs: key, test of its value, and what is expected.
_OF_SAMPLER: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("scales", _are_scales, "a list of [width, height] in positive whole numbers, such as [[320, 48]]"),
    ("divided_factor", lambda value: are_positive_numbers(value, 2), "[width, height], such as [8, 16]"),
    ("max_w", is_positive_number, "a number of pixels above 0, such as 480"),
)


def check_images(check: ConfigCheck) -> None:
    """Check colours, shapes and scales of the images, and the width that padding takes of them."""
    for mode in check.modes:
        listed = list(named_items(check.config, mode, "dataset", "transforms"))
        names = [name for name, _ in listed]
        decoded = names.index("DecodeImage") if "DecodeImage" in names else 0
        for name, where in listed[:decoded]:
            # one that is left out at random would pass the dry step
            if kind_of(name) in ("random", "resize"):
                check.error(
                    where,
                    "image_not_decoded",
                    "it needs a decoded image, but DecodeImage comes after it. Fix: put DecodeImage before it.",
                )
        for name, where in listed:
            shape = check.at(*where, "image_shape")
            expected = TRANSFORMS[name].shape if name in TRANSFORMS else None
            if expected and shape is not None and not are_positive_numbers(shape, 3):
                form, example = expected
                check.error(
                    (*where, "image_shape"),
                    "bad_value",
                    f"found {shown(shape)}, expected {form} in positive whole numbers, such as {example}.",
                )
    if "Train" in check.modes:
        if check.at("Train", "sampler", "name") == SCALE_SAMPLER:
            _check_scales(check, ("Train", "sampler"))
        _check_padding(check)


def _check_scales(check: ConfigCheck, path: Path) -> None:
    """Check the sizes that a sampler of scales asks for."""
    for key, fits, expected in _OF_SAMPLER:
        value = check.at(*path, key)
        if value is not None and not fits(value):
            check.error((*path, key), "bad_value", f"found {shown(value)}, expected {expected}.")
    rounded = sampler_scales(check.config, "Train")
    small = [list(check.at(*path, "scales")[number]) for number, size in enumerate(rounded) if 0 in size]
    if small:
        multiple = list(sampler_factor(check.config, "Train"))
        check.error(
            (*path, "scales"),
            "bad_value",
            f"{small[0]} is rounded down to 0: sizes are multiples of divided_factor, {multiple}.",
        )


def _check_padding(check: ConfigCheck) -> None:
    """Warn if a loss of CTC frames counts padding, since ``valid_ratio`` is not where it reads it."""
    path = ("Train", "dataset", "transforms")
    keys = kept_keys(check.at(*path)) if isinstance(check.at(*path), tuple) else None
    for name, entry in named_items(check.config, "Loss", "loss_config_list") if keys else ():
        options = check.mapping(*entry)
        skips = LOSSES.get(name, Loss()).is_of_frames(options) and options.get("skip_padding") is not False
        place = 4 if options.get("multi_head") else 3
        if keys and skips and keys[place:][:1] != ("valid_ratio",):
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
