"""Check ``Train`` and ``Eval``: dataset, transforms, sampler, loader, and that both prepare images alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ppocr_ext.synth.synthetic_dataset  # noqa: F401 - registers its datasets
from ppocr_ext.base.parts import (
    DATASET_ROWS,
    JOINING,
    LOSS_ROWS,
    SCALE_SAMPLER,
    TRANSFORM_ROWS,
    DatasetRow,
    LossRow,
    kind_of,
    row_of,
)
from ppocr_ext.check.config_check import DATA_KEYS, ConfigCheck
from ppocr_ext.check.findings import KeyPath
from ppocr_ext.config import ctc_heads, named_items
from ppocr_ext.config.global_keys import ValueRule, shown
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
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.registry import DATASETS, ComponentKeys

_SECTION = {
    "Train": ("dataset", "loader", "sampler", "teacher_cache", "mix"),
    "Eval": ("dataset", "loader", "sampler", "general"),
}
_OF_MIX = {
    "dataset": ValueRule(),
    "share": ValueRule("number", above=0),
    "labelled": ValueRule("truth"),
}
_LISTS = "lists with a share of the batch between 0 and 1: [{dataset: {…}, share: 0.3}]."
_LOADER_REQUIRED = frozenset({"batch_size_per_card", "drop_last", "shuffle", "num_workers"})
_LOADER = ComponentKeys(frozenset(DATA_KEYS["loader"]), _LOADER_REQUIRED, of_section=True)


def check_data(check: ConfigCheck) -> None:
    """Check everything below ``Train`` and ``Eval``."""
    for mode in check.modes:
        _check_section(check, mode)


def _check_section(check: ConfigCheck, mode: str) -> None:
    if not check.mapping(mode):
        return
    misplaced = [key for part in DATA_KEYS for key in _check_indentation(check, mode, part)]
    section = check.section((mode,), _SECTION[mode], misplaced)
    if section.get("general") is not None:
        _check_general(check)
    keys = _check_dataset(check, mode)
    if section.get("mix") is not None:
        _check_mix(check, keys)
    _check_transforms(check, mode)
    if loader := check.mapping(mode, "loader"):
        check.check_keys((mode, "loader"), _LOADER, loader)
    if loader.get("collate_fn") is not None:
        check.host_component("collate_fn", loader["collate_fn"], (mode, "loader", "collate_fn"))
    _check_sampler(check, mode, keys)


def _check_general(check: ConfigCheck) -> None:
    """Check ``Eval.general``: a dataset, whose other keys are those of ``Eval.dataset``, and a limit."""
    path = ("Eval", "general")
    _check_lines(check, path, ("dataset", "max_drop"))
    check.check_value((*path, "max_drop"), ValueRule("number", least=0, most=1))


def _check_lines(
    check: ConfigCheck, path: KeyPath, known: Sequence[str]
) -> tuple[Mapping[Any, Any], ComponentKeys | None]:
    """Check the keys and the dataset of lines beside those of ``path``'s first part.

    Returns:
        Their section, and the keys that their dataset reads; None if they are not known.
    """
    section = check.section(path, known)
    options = check.mapping(*path, "dataset")
    name = options.get("name") or check.at(path[0], "dataset", "name")
    keys = None
    if not options:
        check.missing((*path, "dataset"), "data_dir and label_file_list of these lines")
    elif name is not None and (dataset := check.component(DATASETS, name, (*path, "dataset", "name"))):
        keys = dataset_keys(dataset)
        if keys is not None:
            # without what names the samples, those of the section would be read
            own = replace(keys, required=keys.named & {"label_file_list"} or keys.named & {"data_dir"})
            check.check_keys((*path, "dataset"), own, options, extra=("name", "transforms"))
        _check_shares(check, (*path, "dataset"))
    return section, keys


def _check_mix(check: ConfigCheck, keys: ComponentKeys | None) -> None:
    """Check ``Train.mix``: lists with shares of a batch, and what a list without labels needs.

    Args:
        check: the check.
        keys: those that ``Train.dataset`` reads; None if they are not known.
    """
    path: KeyPath = ("Train", "mix")
    entries = check.at(*path)
    if not isinstance(entries, tuple):
        check.error(path, "bad_value", f"found {shown(entries)}, expected {_LISTS}")
        return
    total = Fraction(0)
    for number in range(len(entries)):
        own = (*path, str(number))
        section, keys_of_list = _check_lines(check, own, tuple(_OF_MIX))
        for key, rule in _OF_MIX.items():
            check.check_value((*own, key), rule)
        if section.get("share") is None:
            check.missing((*own, "share"), "the share of all samples of a batch, such as 0.3")
        elif _OF_MIX["share"].problem(section["share"]) is None:
            total += Fraction(str(section["share"]))
        if section.get("labelled") is False:
            _check_unlabelled(check, own)
        _check_beside(check, (*own, "dataset"), keys, keys_of_list)
    if total >= 1:
        check.error(
            path, "bad_value", f"the shares sum to {float(total):g}: nothing is left for Train.dataset."
        )


def _check_beside(
    check: ConfigCheck, path: KeyPath, keys: ComponentKeys | None, keys_of_list: ComponentKeys | None
) -> None:
    """Check that a list makes samples like those of ``Train.dataset``."""
    if check.at(*path, "transforms") is not None:
        check.error((*path, "transforms"), "conflicting_keys", "a list has the transforms of Train.dataset.")
    if keys and keys_of_list and ("ds_width" in keys.named) != ("ds_width" in keys_of_list.named):
        name = check.at("Train", "dataset", "name")
        what = f"{name} of Train.dataset gets its image sizes in another way. Fix: {name} here too"
        check.error((*path, "name"), "sampler_mismatch", f"{what}.")


def _check_unlabelled(check: ConfigCheck, path: KeyPath) -> None:
    """Check that the teacher, or the weights before the training, can teach the lines of ``path``."""
    is_alone = check.at("Architecture", "Models") is None  # else the teacher of the distillation teaches them
    for is_wrong, problem in (
        (is_alone and not list(ctc_heads(check.config)), "need a CTCHead. Fix: give them labels."),
        (
            is_alone and check.at("Eval", "general") is None,
            "need Eval.general, which shows whether they help, and keeps their teacher.",
        ),
        (
            check.config.settings.cal_metric_during_train,
            "have no text to compare with. Fix: -o Global.cal_metric_during_train=false",
        ),
    ):
        if is_wrong:
            check.error((*path, "labelled"), "conflicting_keys", f"lines with `labelled: false` {problem}")


def _check_indentation(check: ConfigCheck, mode: str, part: str) -> list[str]:
    """Report a ``part`` that is missing, or whose keys stand beside it in the section; return these keys."""
    is_empty = check.at(mode, part) is None
    beside = [key for key in DATA_KEYS[part] if key in check.at(mode) and check.at(mode, part, key) is None]
    above = [key for key in DATA_KEYS[part] if is_empty and key in check.config]
    if beside or above:
        check.error(
            (mode, beside[0]) if beside else (above[0],),
            "wrong_indentation",
            f"wrong indentation: {', '.join(beside or above)} must stand below `{part}:` of {mode}. Fix: indent more.",
        )
    elif is_empty:
        check.missing((mode, part))
    return beside


def _check_dataset(check: ConfigCheck, mode: str) -> ComponentKeys | None:
    """Check name and keys of the dataset; return the keys that it reads, None if they are not known."""
    path = (mode, "dataset")
    options = check.mapping(*path)
    if not options:
        return None
    if options.get("name") is None:
        check.missing((*path, "name"), f"SimpleDataSet or {', '.join(DATASETS.names())}")
        return None
    dataset = check.component(DATASETS, options["name"], (*path, "name"))
    keys = None if dataset is None else dataset_keys(dataset)
    if keys is not None:
        check.check_keys(path, keys, options, extra=("name", "transforms"))
    _check_shares(check, path)
    return keys


def reads_key(name: Any, key: str) -> bool:
    """Return True if the dataset ``name`` reads ``key`` of its section, or if that cannot be determined."""
    try:
        keys = dataset_keys(DATASETS.get(str(name)))
    except PPOCRExtError:  # there is no such dataset, which is reported with its name
        return True
    return keys is None or key in keys.named


def dataset_keys(dataset: Callable[..., Any]) -> ComponentKeys | None:
    """Return the keys that a dataset reads from its section, or None if that cannot be determined.

    A dataset of ours or of a plugin has a class method ``known_keys``. A dataset of PaddleOCR, and any class that a
    plugin derives from it, has a row in the table of parts.
    """
    row = row_of(dataset, DATASET_ROWS)
    if hasattr(dataset, "known_keys"):
        return ComponentKeys(frozenset(dataset.known_keys()), of_section=True)
    return (
        None
        if row is None
        else ComponentKeys(row.keys, row.needs, is_open=dataset.__name__ not in DATASET_ROWS, of_section=True)
    )


def _check_transforms(check: ConfigCheck, mode: str) -> None:
    """Check names and keys of the transforms; PaddleOCR gives each all keys of ``Global`` too."""
    of_global = [str(key) for key in check.mapping("Global")]
    names = []
    for name, path in check.items(mode, "dataset", "transforms"):
        names.append(name)
        if (operator := check.host_component("operator", name, path)) is not None:
            options = check.mapping(*path)
            check.check_keys(path, operator, options, injected=of_global, extra=of_global)
            if name == "MultiLabelEncode" and options.get("gtc_encode") is not None:
                check.host_component("operator", options["gtc_encode"], (*path, "gtc_encode"))
    dataset = DATASET_ROWS.get(str(check.at(mode, "dataset", "name")))
    if dataset is not None and JOINING in names:
        _check_joining(check, (mode, "dataset"), dataset, names.index(JOINING))
    # a transform without a row in the table of parts may resize
    unsized = bool(names) and all(kind_of(name) in ("plain", "random") for name in names)
    if unsized and dataset is not None and not dataset.of_one_size:
        other = read_preprocessing(check.config, "Eval" if mode == "Train" else "Train")
        size = list(other.sizes[0]) if other is not None and other.sizes else [3, 48, 320]
        check.error(
            (mode, "dataset", "transforms"),
            "missing_resize",
            f"no transform gives the images of a batch one size. Fix: add `- RecResizeImg: {{image_shape: {size}}}` "
            f"before KeepKeys.",
        )


def _check_joining(check: ConfigCheck, section: KeyPath, dataset: DatasetRow, place: int) -> None:
    """Check that the ``place`` transforms before the one that joins images load these."""
    path = (*section, "ext_op_transform_idx")
    given = check.at(*path)
    loading = dataset.loading if given is None else given
    if isinstance(loading, int) and loading > place:
        check.error(
            path,
            "missing_key" if given is None else "bad_value",
            f"{JOINING} joins images that the first {loading} transforms load, and is one of these itself. Fix: "
            f"`ext_op_transform_idx: {place}` below {dotted(section)}.",
        )


def _check_shares(check: ConfigCheck, section: KeyPath) -> None:
    """Check that ``ratio_list`` of a dataset has a share for each label file."""
    shares = check.at(*section, "ratio_list")
    files = check.at(*section, "label_file_list")
    count = len(files) if isinstance(files, tuple) else 1
    if isinstance(shares, tuple) and files and len(shares) != count:
        check.error(
            (*section, "ratio_list"),
            "length_mismatch",
            f"found {len(shares)} shares for {count} label files. Fix: a share for each, or one number for all.",
        )


def _check_sampler(check: ConfigCheck, mode: str, keys: ComponentKeys | None) -> None:
    """Check name and keys of the sampler, and that it gives image sizes if and only if the dataset needs them."""
    path = (mode, "sampler")
    options = check.mapping(*path)
    # a dataset of several scales gets its image sizes from a sampler, which asks it for `ds_width`
    several_scales = keys is not None and "ds_width" in keys.named
    dataset_name = check.at(mode, "dataset", "name")
    name = options.get("name") if mode == "Train" else None
    if several_scales and name is None:
        fix = "give `sampler: {name: MultiScaleSampler, …}`" if mode == "Train" else "use SimpleDataSet"
        check.error(
            (mode, "dataset", "name"),
            "sampler_mismatch",
            f"{dataset_name} gets its image sizes from a sampler, and {mode} has none. Fix: {fix}.",
        )
    if not options:
        return
    if mode != "Train":
        check.warning(path, "unused_key", "a sampler is used only in Train.")
        return
    if (sampler := check.host_component("sampler", name, (*path, "name"))) is not None:
        check.check_keys(path, sampler, options, injected=("data_source", "dataset"), extra=("name",))
    if sampler is not None and name == SCALE_SAMPLER and keys is not None and not several_scales:
        check.error(
            (*path, "name"),
            "sampler_mismatch",
            f"{name} gives image sizes, but {dataset_name} takes none. Fix: use MultiScaleDataSet, or remove the "
            f"sampler.",
        )


ALLOW = "allow_different_preprocessing"


# What the sampler of scales needs: key, test of its value, and what is expected.
_OF_SAMPLER: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "scales",
        lambda value: (
            isinstance(value, tuple) and value != () and all(are_positive_numbers(v, 2) for v in value)
        ),
        "a list of [width, height] in positive whole numbers, such as [[320, 48]]",
    ),
    ("divided_factor", lambda value: are_positive_numbers(value, 2), "[width, height], such as [8, 16]"),
    ("max_w", is_positive_number, "a number of pixels above 0, such as 480"),
)


def check_images(check: ConfigCheck) -> None:
    """Check shapes and scales of the images, and that losses find their padding."""
    for mode in check.modes:
        for name, where in named_items(check.config, mode, "dataset", "transforms"):
            shape = check.at(*where, "image_shape")
            expected = TRANSFORM_ROWS[name].shape if name in TRANSFORM_ROWS else None
            if expected and shape is not None and not are_positive_numbers(shape, 3):
                check.error(
                    (*where, "image_shape"),
                    "bad_value",
                    f"found {shown(shape)}, expected {expected[0]} in positive whole numbers, such as {expected[1]}.",
                )
    if "Train" in check.modes:
        if check.at("Train", "sampler", "name") == SCALE_SAMPLER:
            _check_scales(check, ("Train", "sampler"))
        _check_padding(check)


def _check_scales(check: ConfigCheck, path: KeyPath) -> None:
    """Check the image sizes of a sampler of scales."""
    for key, fits, expected in _OF_SAMPLER:
        value = check.at(*path, key)
        if value is not None and not fits(value):
            check.error((*path, key), "bad_value", f"found {shown(value)}, expected {expected}.")
    rounded = sampler_scales(check.config, "Train")
    small = [list(check.at(*path, "scales")[number]) for number, size in enumerate(rounded) if 0 in size]
    if small:
        check.error(
            (*path, "scales"),
            "bad_value",
            f"{small[0]} is rounded down to 0: sizes are multiples of divided_factor, "
            f"{list(sampler_factor(check.config, 'Train'))}.",
        )


def _check_padding(check: ConfigCheck) -> None:
    """Warn if a loss of CTC frames counts padding, since ``valid_ratio`` is not where the loss reads it."""
    path = ("Train", "dataset", "transforms")
    keys = kept_keys(check.at(*path)) if isinstance(check.at(*path), tuple) else None
    for name, entry in named_items(check.config, "Loss", "loss_config_list") if keys else ():
        options = check.mapping(*entry)
        skips = (
            LOSS_ROWS.get(name, LossRow()).is_of_frames(options) and options.get("skip_padding") is not False
        )
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

    A section whose images a plugin resizes is not compared. The size of Eval must be one of the sizes of a
    MultiScaleSampler. ``eval_mode: true`` in Eval fits padding in Train: both keep the aspect ratio.
    """
    trained, evaluated = (read_preprocessing(check.config, mode) for mode in ("Train", "Eval"))
    if trained is None or evaluated is None or check.at("Global", ALLOW) is True:
        return
    if differences := list(_differences(check, trained, evaluated)):
        lines = "".join(f"\n    {line}" for _, line in differences)
        check.warning(  # PaddleOCR trains so
            differences[0][0],
            "preprocessing_mismatch",
            f"Eval prepares images differently from Train, which spoils its accuracy. Fix: use the same in both, or "
            f"allow it: -o Global.{ALLOW}=true.{lines}",
        )


def _differences(
    check: ConfigCheck, trained: Preprocessing, evaluated: Preprocessing
) -> Iterator[tuple[KeyPath, str]]:
    """Yield a path in Eval and a line of the message for each difference."""
    where = ", ".join(filter(None, (dotted(trained.path), check.where(trained.path))))
    resize = evaluated.path[:-1] if evaluated.path[-1] in ("image_shape", "scales") else evaluated.path
    if not _size_fits(trained, evaluated):
        sizes = f"{_listed(evaluated.sizes)} in Eval, {_listed(trained.sizes)} in Train"
        yield evaluated.path, f"size: {sizes} ({where})"
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
    """Return True if each size of Eval is one of Train; widths are not compared if images are widened."""
    if not trained.sizes or not evaluated.sizes:
        return True
    compared = 2 if WIDEN in (trained.fit, evaluated.fit) else 3  # channels and height, or also width
    return {size[:compared] for size in evaluated.sizes} <= {size[:compared] for size in trained.sizes}


def _listed(sizes: tuple[Size, ...]) -> str:
    return ", ".join(
        f"{height}×{width}{'' if channels == 3 else f'×{channels}'}" for channels, height, width in sizes
    )
