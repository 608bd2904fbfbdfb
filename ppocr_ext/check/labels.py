"""Agreement of the labels in a batch with the losses and the decoder that read them by position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.check.samples import KEEP, Sample, follow
from ppocr_ext.config import named_items

# Losses that read the label of one head, and which.
_HEAD_OF = {
    "CTCLoss": "ctc",
    "NRTRLoss": "gtc",
    "SARLoss": "sar",
    "DistillationCTCLoss": "ctc",
    "DistillationNRTRLoss": "gtc",
    "DistillationSARLoss": "sar",
}
_READ_BOTH_BY_HEAD = ("DistillationDKDLoss", "MaskedDKDLoss")  # `dis_head` says which; of `ctc` no label
_OF_FRAMES = ("CTCFrameKDLoss", "MaskedDKDLoss")
_ENCODER_OF = {"ctc": "CTCLabelEncode", "gtc": "NRTRLabelEncode", "sar": "SARLabelEncode"}
_ENCODER_FOR_DECODER = {
    "CTCLabelDecode": "CTCLabelEncode",
    "NRTRLabelDecode": "NRTRLabelEncode",
    "SARLabelDecode": "SARLabelEncode",
    "AttnLabelDecode": "AttnLabelEncode",
}
_KNOWN_ENCODERS = frozenset(_ENCODER_FOR_DECODER.values())
_TWO_LABELS = ("label_ctc", "label_gtc or label_sar", "length")


def check_labels(check: ConfigCheck) -> None:
    """Transforms, losses and decoder of the sections that the role needs."""
    for mode in check.modes:
        sample = follow(check, mode)
        if sample is None or sample.kept is None:
            continue
        path = (mode, "dataset", "transforms", KEEP, "keep_keys")
        if mode == "Train":
            _check_padding(check, path, sample)
            for name, head, multi_head in _label_readers(check):
                _check_layout(check, path, sample, name, head, multi_head)
        _check_decoded(check, path, sample)


def _check_padding(check: ConfigCheck, path: Path, sample: Sample) -> None:
    """Losses of CTC frames tell padding by ``valid_ratio``, the last entry of a batch; else all count."""
    for name, entry in named_items(check.config, "Loss", "loss_config_list"):
        options = check.at(*entry)
        if name not in _OF_FRAMES or not isinstance(options, Mapping) or options.get("skip_padding") is False:
            continue
        if name in _READ_BOTH_BY_HEAD and options.get("dis_head", "gtc") != "ctc":
            continue
        place = 4 if options.get("multi_head") else 3
        if len(sample.kept or ()) <= place or (sample.kept or ())[place] != "valid_ratio":
            check.warning(
                path,
                "no_valid_ratio",
                f"{name} tells padding by valid_ratio, which is not kept at place {place + 1}: all frames count.",
            )


def _label_readers(check: ConfigCheck) -> Iterator[tuple[str, str, bool]]:
    """(loss, head, whether the batch is a MultiHead's) of each loss that reads a label."""
    name = check.at("Loss", "name")
    if name in ("MultiLoss", "CombinedLoss"):
        for entry, path in named_items(check.config, "Loss", "loss_config_list"):
            options = check.at(*path)
            options = options if isinstance(options, Mapping) else {}
            head = _head_read(entry, options)
            if head is not None:
                yield entry, head, name == "MultiLoss" or bool(options.get("multi_head"))
    elif isinstance(name, str) and name in _HEAD_OF:
        yield name, _HEAD_OF[name], bool(check.at("Loss", "multi_head"))


def _head_read(name: str, options: Mapping[Any, Any]) -> str | None:
    if name in _READ_BOTH_BY_HEAD:
        return "gtc" if options.get("dis_head", "gtc") == "gtc" else None
    return _HEAD_OF.get(name)


def _check_layout(
    check: ConfigCheck, path: Path, sample: Sample, loss: str, head: str, multi_head: bool
) -> None:
    """The label that ``loss`` reads stands where it looks for it, and is of its alphabet."""
    kept = sample.kept or ()
    shown = f"[{', '.join(kept)}]"
    if multi_head:
        fits = (
            len(kept) >= 4
            and kept[1] == "label_ctc"
            and kept[2] in ("label_gtc", "label_sar")
            and kept[3] == "length"
        )
        if not fits:
            check.error(
                path,
                "label_mismatch",
                f"{loss} reads [image, {', '.join(_TWO_LABELS)}, valid_ratio] by position, but {shown} is kept. "
                f"MultiLabelEncode makes these labels.",
            )
        elif head != "ctc" and sample.gtc is not None and sample.gtc != _ENCODER_OF[head]:
            wanted = f"`gtc_encode: {_ENCODER_OF[head]}`" if head == "gtc" else "no `gtc_encode`"
            check.error(
                path,
                "label_mismatch",
                f"{loss} needs the labels of {_ENCODER_OF[head]}, but MultiLabelEncode makes those of "
                f"{sample.gtc}. Give it {wanted}.",
            )
        return
    # SARLoss alone does without the length
    fits = len(kept) >= 3 and kept[1] in ("label", f"label_{head}") and (kept[2] == "length" or head == "sar")
    if not fits:
        check.error(
            path, "label_mismatch", f"{loss} reads [image, label, length] by position, but {shown} is kept."
        )
        return
    encoder = sample.made_by.get(kept[1])
    if encoder in _KNOWN_ENCODERS and encoder != _ENCODER_OF[head]:
        check.error(
            path,
            "label_mismatch",
            f"{loss} needs the labels of {_ENCODER_OF[head]}, but {encoder} makes them.",
        )


def _check_decoded(check: ConfigCheck, path: Path, sample: Sample) -> None:
    """The metric compares with what the decoder makes of the second entry of a batch."""
    decoder = str(check.at("PostProcess", "name") or "").removeprefix("Distillation")
    wanted = _ENCODER_FOR_DECODER.get(decoder)
    kept = sample.kept or ()
    if wanted is None or len(kept) < 2:
        return
    label = kept[1]
    maker = sample.made_by.get(label)
    by_both = {"label_ctc": "CTCLabelEncode", "label_sar": "SARLabelEncode", "label_gtc": sample.gtc}
    encoder = by_both.get(label) if maker == "MultiLabelEncode" else maker
    if maker is not None and encoder is None and label != "label":
        check.error(
            path, "label_mismatch", f"{decoder} reads the label at the second place, where {label!r} is kept."
        )
    elif encoder in _KNOWN_ENCODERS and encoder != wanted:
        check.error(
            path,
            "label_mismatch",
            f"{decoder} reads the label at the second place, but {label!r} is made by {encoder}, not {wanted}.",
        )
