"""Every key of ``Global`` that means something in a recognition config, and the sections of a config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["truth", "whole", "number", "text", "list", "any"]


@dataclass(frozen=True)
class GlobalKey:
    """A key of ``Global``.

    Attributes:
        meaning: in one line.
        kind: what its value is; ``null`` is always admitted.
        least: the least value of a whole number.
    """

    meaning: str
    kind: Kind = "any"
    least: int | None = None


def _truths(**meanings: str) -> dict[str, GlobalKey]:
    return {name: GlobalKey(meaning, "truth") for name, meaning in meanings.items()}


def _texts(**meanings: str) -> dict[str, GlobalKey]:
    return {name: GlobalKey(meaning, "text") for name, meaning in meanings.items()}


def _others(**meanings: str) -> dict[str, GlobalKey]:
    return {name: GlobalKey(meaning) for name, meaning in meanings.items()}


_OURS = {
    "seed": GlobalKey("of weights, shuffling, augmentation and drawn images", "whole", 0),
    "max_unusable": GlobalKey("the share of unusable lines that is admitted", "number"),
    "plugins": GlobalKey("Python modules to import, which register components of their own", "list"),
    **_truths(
        strict="an unusable line, or a warning of the config checks, ends the run",
        pretrained_partial="accept weights of which entries are missing or of another shape",
        save_teacher="put frozen sub-models into checkpoints too",
        allow_outside_data_dir="use images that lie outside dataset.data_dir",
        report="write report.html at the end of a run",
        return_feats="CTC heads of all models give their features too",
        allow_different_preprocessing="Eval may prepare images differently from Train",
    ),
    **_texts(unknown_char="what a character outside the dictionary costs: drop_line or drop_char"),
}

_RUN = {
    "epoch_num": GlobalKey("epochs of the run", "whole", 1),
    "print_batch_step": GlobalKey("steps between two lines on the screen and in metrics.jsonl", "whole", 1),
    "save_epoch_step": GlobalKey("epochs between two checkpoints iter_epoch_N", "whole", 1),
    "log_smooth_window": GlobalKey("steps that the host's log takes the median of", "whole", 1),
    "calc_epoch_interval": GlobalKey("epochs between two metrics on training batches", "whole", 1),
    "eval_batch_epoch": GlobalKey("epochs between two evaluations, in place of eval_batch_step", "whole", 1),
    "max_text_length": GlobalKey("the longest label, NRTR's two marks included", "whole", 1),
    **_others(
        eval_batch_step="steps between two evaluations, or [first, every]",
        training_step="stage of VisionLAN's training",
    ),
    **_texts(
        save_model_dir="the run folder",
        character_dict_path="the dictionary: one character a line",
        pretrained_model="weights to start from",
        checkpoints="checkpoint to go on from",
    ),
    **_truths(
        use_space_char="the space is a character too",
        cal_metric_during_train="compute the metric on training batches too",
        find_unused_parameters="of paddle.DataParallel, with several processes",
        use_sync_bn="BatchNorm over all processes",
        to_static="compile the network",
        distributed="set by the program: whether there are several processes",
        print_mem_info="write how much GPU memory is in use",
        uniform_output_enabled="export models during training",
        debug="not read by this program",
        log_grad_norm="log the norm of the gradients",
    ),
    **_others(
        d2s_train_image_shape="[C, H, W] of the images, for to_static",
        log_ranks="processes that write a log",
        profiler_options="not read here: profiler_options stands at the top of a config",
    ),
}

_PRECISION = {
    "scale_loss": GlobalKey("first factor of the loss under mixed precision", "number"),
    **_truths(
        use_amp="mixed precision",
        use_dynamic_loss_scaling="let the factor of the loss follow the gradients",
    ),
    **_texts(
        amp_level="O1 or O2",
        amp_dtype="float16 or bfloat16",
    ),
    **_others(
        amp_custom_black_list="operators that stay in float32",
        amp_custom_white_list="operators that are computed in 16 bits",
    ),
}

_DEVICES_AND_WRITERS = _truths(
    use_gpu="train on a GPU",
    use_xpu="train on a Kunlun XPU",
    use_npu="train on an Ascend NPU",
    use_mlu="train on a Cambricon MLU",
    use_gcu="train on an Enflame GCU",
    use_visualdl="write for VisualDL",
    use_tensorboard="write for TensorBoard",
    use_wandb="write for Weights & Biases",
)

# Read by transforms, decoders, foreign networks, or PaddleOCR's scripts for inference and export.
_ELSEWHERE = _others(
    infer_mode="read by inference",
    infer_img="read by inference",
    infer_list="read by inference",
    infer_visual_type="read by inference",
    save_res_path="read by inference",
    save_visual="read by inference",
    save_inference_dir="read by export",
    export_with_pir="read by export",
    model_name="read by export",
    hpi_config_path="read by export",
    character_type="not read any more",
    rec_char_dict_path="tokenizer of a formula recogniser",
    max_seq_len="longest formula",
    max_new_tokens="longest formula",
    input_size="image size of a formula recogniser",
    allow_resize_largeImg="of a formula recogniser",
    start_ema="of a formula recogniser",
    rm_symbol="decoders of SAR and SATRN leave punctuation out",
    lower="encoders put labels into lower case",
    num_heads="attention heads of SRN's transform",
    use_beam_search="of decoders that search",
    beam_width="of decoders that search",
    return_all_beams="of decoders that search",
    handle_mismatch="of a reader of formulas",
    class_path="classes of key information extraction",
    kie_rec_model_dir="of key information extraction",
    kie_det_model_dir="of key information extraction",
)

GLOBAL_KEYS: dict[str, GlobalKey] = {**_OURS, **_RUN, **_PRECISION, **_DEVICES_AND_WRITERS, **_ELSEWHERE}

SECTIONS: dict[str, str] = {
    "Global": "the run",
    "Architecture": "the network, or the networks of a distillation",
    "Loss": "what is minimised",
    "Optimizer": "how, and at which rate",
    "PostProcess": "the decoder",
    "Metric": "what is measured",
    "Train": "data to train on",
    "Eval": "data to judge by",
    "Quickstart": "of the command `quickstart`",
    "wandb": "options of the Weights & Biases writer",
    "profiler_options": "of PaddleOCR's profiler",
    "_BASE_": "files that a file builds on",
    "computed": "paths of values that the program filled in",
}
# Keys of the parts of `Train` and `Eval`: all of a loader, and those that every dataset of PaddleOCR has.
DATA_KEYS = {
    "dataset": ("data_dir", "label_file_list", "transforms"),
    "loader": (
        "batch_size_per_card",
        "shuffle",
        "drop_last",
        "num_workers",
        "use_shared_memory",
        "collate_fn",
    ),
}
# What a role cannot do without.
NEEDED = {
    "train": ("Architecture", "Loss", "Optimizer", "PostProcess", "Metric", "Train"),
    "eval": ("Architecture", "PostProcess", "Metric", "Eval"),
}
