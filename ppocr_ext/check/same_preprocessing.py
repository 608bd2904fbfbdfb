"""Check that ``Eval`` prepares images as ``Train`` does: a network reads only what it was trained on."""

from __future__ import annotations

from collections.abc import Iterator

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.config.node import dotted
from ppocr_ext.data.preprocessing import PAD, WIDEN, Preprocessing, Size, read_preprocessing

ALLOW = "allow_different_preprocessing"
_FIX = f"Fix: use the same in both, or allow it: -o Global.{ALLOW}=true."


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
    path = found[0][0]
    lines = "".join(f"\n    {line}" for _, line in found)
    check.error(
        path,
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
        yield (
            evaluated.path,
            f"size: {_listed(evaluated.sizes)} in Eval, {_listed(trained.sizes)} in Train ({where})",
        )
    if evaluated.fit != trained.fit and {trained.fit, evaluated.fit} != {PAD, WIDEN}:
        key = "padding" if check.at(*resize, "padding") is not None else ""
        path = (*resize, key) if key else resize
        yield path, f"resizing: {evaluated.fit} in Eval, {trained.fit} in Train ({where})"
    if None not in (evaluated.color, trained.color) and evaluated.color != trained.color:
        path = ("Eval", "dataset", "transforms", "DecodeImage", "img_mode")
        yield path, f"order of channels: {evaluated.color} in Eval, {trained.color} in Train"
    if evaluated.normalisation != trained.normalisation:
        ours, theirs = (" then ".join(each.normalisation) for each in (evaluated, trained))
        yield resize, f"normalisation: {ours} in Eval, {theirs} in Train ({where})"


def _size_fits(trained: Preprocessing, evaluated: Preprocessing) -> bool:
    """Return True if each size of Eval is one of Train; heights alone count where images are widened."""
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
