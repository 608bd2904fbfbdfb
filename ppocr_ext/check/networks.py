"""Agreement of the networks with the losses, the decoder and the metric that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.check.signatures import component_keys
from ppocr_ext.config import named_items
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.losses.combined_losses import BRANCH_OF
from ppocr_ext.messages import did_you_mean
from ppocr_ext.registry import LOSSES, near_match

_BRANCH_HEAD = {"gtc": "NRTRHead", "sar": "SARHead", "ctc": "CTCHead"}
_HEAD_OF_LOSS = {"DistillationCTCLoss": "ctc", "DistillationNRTRLoss": "gtc", "DistillationSARLoss": "sar"}
_NAMING = ("model_name_list", "model_name_pairs")
# Algorithms whose model PaddleOCR's loop hands the labels to; a branch that is taught by them needs that.
_TAUGHT = frozenset(
    ("SRN", "NRTR", "SAR", "SEED", "SVTR", "SVTR_LCNet", "SVTR_HGNet", "SPIN", "VisionLAN", "RobustScanner")
    + ("RFL", "SATRN", "ParseQ", "CPPD")
)
_NOT_OF_MULTI_HEAD = ("NRTRLabelDecode", "SARLabelDecode", "AttnLabelDecode")
_DEFAULT_LENGTH = 25  # PaddleOCR's, of Global and of an NRTRHead


@dataclass(frozen=True)
class Network:
    """One recogniser of the config: the only one (``name`` None), or a sub-model."""

    name: str | None
    path: Path
    head: str
    branches: tuple[str, ...]
    all_features: bool

    @property
    def multi(self) -> bool:
        """Whether it has a MultiHead."""
        return self.head == "MultiHead"


def check_networks(check: ConfigCheck) -> None:
    """Sub-models, their heads, and who reads them."""
    networks = {network.name: network for network in _networks(check)}
    if not networks:
        return
    if check.role == "train":
        for entry, path in _loss_entries(check):
            _check_reader(check, entry, path, networks)
        _check_taught(check, networks)
    _check_decoder(check, networks)
    for network in networks.values():
        _check_length(check, network)


def _networks(check: ConfigCheck) -> Iterator[Network]:
    models = check.at("Architecture", "Models")
    paths: dict[str | None, Path] = {None: ("Architecture",)}
    if isinstance(models, Mapping):
        paths = {str(name): ("Architecture", "Models", str(name)) for name in models}
    for name, path in paths.items():
        head = check.at(*path, "Head", "name")
        if isinstance(head, str):
            branches = [entry for entry, _ in named_items(check.config, *path, "Head", "head_list")]
            features = check.at(*path, "return_all_feats")
            yield Network(name, path, head, tuple(branches), bool(features))


def _loss_entries(check: ConfigCheck) -> Iterator[tuple[str, Path]]:
    """Each loss that is called with the outputs and the batch: the only one, or those of a CombinedLoss."""
    name = check.at("Loss", "name")
    if name == "CombinedLoss":
        yield from named_items(check.config, "Loss", "loss_config_list")
    elif isinstance(name, str):
        yield name, ("Loss",)


def _check_reader(check: ConfigCheck, name: str, path: Path, networks: Mapping[str | None, Network]) -> None:
    try:
        component = LOSSES.get(name)
    except PPOCRExtError:
        return  # said of its name
    several = None not in networks
    naming = [key for key in _NAMING if key in component_keys(component).named]
    if several and not naming and component.__module__.startswith("ppocr_ext."):
        check.error(
            path,
            "sub_model_mismatch",
            f"{name} is for one model, but Architecture.Models has {_names(networks)}. {_FOR_SEVERAL}",
        )
    elif not several and naming:
        check.error(
            path,
            "sub_model_mismatch",
            f"{name} is for sub-models, but Architecture has no Models. {_FOR_ONE}",
        )
    elif several:
        for model, where in _models_named(check, path, naming):
            if model in networks:
                _check_output(check, name, path, networks[model])
            else:
                _no_such_model(check, where, model)
    elif name == "MultiLoss":
        _check_branches(check, networks[None])


_FOR_SEVERAL = "Use the loss of that name with Distillation before it, in a CombinedLoss."
_FOR_ONE = "Use the loss of that name without Distillation, or a DistillationModel."


def _models_named(check: ConfigCheck, path: Path, naming: list[str]) -> Iterator[tuple[str, Path]]:
    """Each sub-model that a loss names, once."""
    seen = set()
    for key in naming:
        value = check.at(*path, key)
        if isinstance(value, tuple):
            flat = [n for item in value for n in (item if isinstance(item, tuple) else (item,))]
            for model in flat:
                if isinstance(model, str) and model not in seen:
                    seen.add(model)
                    yield model, (*path, key)


def _check_output(check: ConfigCheck, loss: str, path: Path, network: Network) -> None:
    """Where in a sub-model's output the loss looks, against what is there."""
    options = check.at(*path)
    options = options if isinstance(options, Mapping) else {}
    key = options.get("key")
    if key is not None and not network.all_features:
        check.error(
            (*path, "key"),
            "missing_output",
            f"{network.name} gives no {key!r}: set `return_all_feats: true` in Architecture.Models.{network.name}.",
        )
    elif key is None and network.all_features:
        check.error(
            path,
            "missing_key",
            f"`key` is missing: {network.name} has return_all_feats. Give `key: head_out`.",
        )
    if key not in (None, "head_out") or "multi_head" not in component_keys(LOSSES.get(loss)).named:
        return
    multi = bool(options.get("multi_head"))
    if multi != network.multi:
        wanted = "true" if network.multi else "false"
        where = (*path, "multi_head") if "multi_head" in options else path
        check.error(
            where,
            "multi_head_mismatch",
            f"{network.name} has the head {network.head}, so it must be `multi_head: {wanted}`.",
        )
        return
    branch = _HEAD_OF_LOSS.get(loss) or str(options.get("dis_head"))
    if multi and network.branches and branch in _BRANCH_HEAD and _BRANCH_HEAD[branch] not in network.branches:
        check.error(
            path,
            "missing_branch",
            f"{loss} reads the {branch} branch, but the head_list of {network.name} has no {_BRANCH_HEAD[branch]}.",
        )


def _check_branches(check: ConfigCheck, network: Network) -> None:
    """The branches that a MultiLoss reads are those of a MultiHead that has them."""
    if not network.multi:
        check.error(
            ("Loss", "name"),
            "multi_head_mismatch",
            f"a MultiLoss reads a MultiHead, but Architecture.Head.name is {network.head}.",
        )
        return
    if not network.branches:
        return  # said of the head_list
    for loss, path in named_items(check.config, "Loss", "loss_config_list"):
        head = _BRANCH_HEAD.get(BRANCH_OF.get(loss, ""))
        if head is not None and head not in network.branches:
            check.error(
                path, "missing_branch", f"{loss} needs a {head}, which Architecture.Head.head_list has not."
            )


def _check_taught(check: ConfigCheck, networks: Mapping[str | None, Network]) -> None:
    """A branch that is taught with the labels gets them only under some names of ``algorithm``."""
    taught = [n for n in networks.values() if n.multi and {"NRTRHead", "SARHead"} & set(n.branches)]
    named = [check.at(*n.path, "algorithm") for n in networks.values()]
    if not taught or _TAUGHT & {str(name) for name in named}:
        if (
            taught
            and None not in networks
            and check.at("Architecture", "algorithm") not in (None, "Distillation")
        ):
            check.error(
                ("Architecture", "algorithm"),
                "algorithm_mismatch",
                "with Architecture.Models it must be Distillation.",
            )
        return
    path = (*taught[0].path, "algorithm")
    if check.at(*path) is not None:  # that it is missing is said elsewhere
        check.error(
            path,
            "algorithm_mismatch",
            f"for {check.at(*path)!r} PaddleOCR's loop hands the network no labels, which a head_list with "
            f"NRTRHead or SARHead needs. Write SVTR_LCNet.",
        )


def _check_decoder(check: ConfigCheck, networks: Mapping[str | None, Network]) -> None:
    """The decoder and the metric are for one model or for sub-models, as the architecture is."""
    several = None not in networks
    decoder, metric = check.at("PostProcess", "name"), check.at("Metric", "name")
    for section, name in (("PostProcess", decoder), ("Metric", metric)):
        if isinstance(name, str) and name.startswith("Distillation") != several:
            fitting = f"Distillation{name}" if several else name.removeprefix("Distillation")
            fitting = {"DistillationRecMetric": "DistillationMetric", "Metric": "RecMetric"}.get(
                fitting, fitting
            )
            what = f"Architecture.Models has {_names(networks)}" if several else "Architecture has no Models"
            check.error(
                (section, "name"), "sub_model_mismatch", f"{what}, which {name} is not for. Use {fitting}."
            )
            return
    if str(decoder or "").removeprefix("Distillation") in _NOT_OF_MULTI_HEAD and any(
        n.multi for n in networks.values()
    ):
        check.error(
            ("PostProcess", "name"),
            "decoder_mismatch",
            f"a MultiHead gives its CTC output in evaluation, which {decoder} does not read. Use "
            f"{'DistillationCTCLabelDecode' if several else 'CTCLabelDecode'}; "
            f"`eval --head gtc` judges the NRTR branch.",
        )
    if several and isinstance(decoder, str):
        _check_decoded_models(check, networks)


def _check_decoded_models(check: ConfigCheck, networks: Mapping[str | None, Network]) -> None:
    given = check.at("PostProcess", "model_name")
    path = ("PostProcess", "model_name")
    names = ("Student",) if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
        check.error(path, "bad_value", "it is a sub-model or a list of them, such as [Student].")
        return
    unknown = [name for name in names if name not in networks]
    for name in unknown:
        _no_such_model(check, path, name)
    key = check.at("Metric", "key")
    if key is not None and key not in names and not unknown:
        indicator = check.at("Metric", "main_indicator", default="acc")
        check.error(
            ("Metric", "key"),
            "unknown_sub_model",
            f"{key} is not among the sub-models that PostProcess.model_name decodes ({', '.join(names)}), "
            f"so there would be no {indicator}.{_meant(str(key), names)}",
        )
    for network in (networks[name] for name in names if name in networks):
        _check_decoded_output(check, network)


def _check_decoded_output(check: ConfigCheck, network: Network) -> None:
    """The decoder finds the output of a sub-model: its ``multi_head`` and ``key`` fit."""
    multi = check.at("PostProcess", "multi_head")
    if isinstance(multi, bool) and multi and not network.multi:
        check.error(
            ("PostProcess", "multi_head"),
            "multi_head_mismatch",
            f"{network.name} has the head {network.head}, so it must be false.",
        )
    key = check.at("PostProcess", "key")
    if key is not None and not network.all_features:
        check.error(
            ("PostProcess", "key"),
            "missing_output",
            f"{network.name} gives no {key!r}: set `return_all_feats: true` in Architecture.Models.{network.name}.",
        )


def _check_length(check: ConfigCheck, network: Network) -> None:
    """An NRTR branch decodes ``max_text_length`` symbols, ``<s>`` among them, and labels have two marks."""
    if "NRTRHead" not in network.branches:
        return
    path = (*network.path, "Head", "head_list", "NRTRHead", "max_text_length")
    longest, decoded = check.at("Global", "max_text_length", default=_DEFAULT_LENGTH), check.at(*path)
    decoded = _DEFAULT_LENGTH if decoded is None else decoded
    if not isinstance(longest, int) or not isinstance(decoded, int) or decoded >= longest - 1:
        return
    check.error(
        path,
        "text_length_mismatch",
        f"{decoded} cuts lines off that Global.max_text_length: {longest} admits: the NRTR branch decodes <s> and up "
        f"to {decoded - 1} characters, labels have up to {longest - 2}. Fix: remove it, which makes it {longest}.",
    )


def _no_such_model(check: ConfigCheck, path: Path, name: str) -> None:
    """Say it where ``Models`` has no such key; of one that has no head it is said there."""
    models = [str(each) for each in check.mapping("Architecture", "Models")]
    if name not in models:
        there = f"Architecture.Models has {', '.join(models)}.{_meant(name, models)}"
        check.error(path, "unknown_sub_model", f"there is no sub-model {name!r}; {there}")


def _meant(name: str, known: Iterable[str]) -> str:
    return did_you_mean(near_match(name, known))


def _names(networks: Mapping[Any, Network]) -> str:
    return ", ".join(str(name) for name in networks)
