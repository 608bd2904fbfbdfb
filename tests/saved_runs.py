"""Run folders without a training: a config, and checkpoints of random weights that read many texts."""

import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import TrainState, write_checkpoint
from ppocr_ext.config import with_class_counts
from ppocr_ext.modeling import build_model
from ppocr_ext.run.host_config import complete


class NoState:
    """An optimizer that has nothing to save."""

    def state_dict(self):
        return {}


def network_of(config, seed=0):
    """The network of ``config`` and its dictionary; its classifier is so sharp that it is sure of what it reads."""
    paddle.seed(seed)
    charset = Charset.from_file(
        config.at("Global.character_dict_path"), config.at("Global.use_space_char", default=False)
    )
    whole = with_class_counts(complete(config, charset), charset)
    network = build_model(whole.at("Architecture").thaw())
    for name, value in network.state_dict().items():
        if name.endswith("ctc_head.fc.weight"):
            value.set_value(value * 60)
    return network, charset


def save_checkpoint(network, charset, prefix, names=""):
    """Write a checkpoint; ``names`` goes before the name of each entry."""
    weights = {f"{names}{name}": value for name, value in network.state_dict().items()}
    write_checkpoint(prefix, weights, NoState(), TrainState(charset_digest=charset.digest))


def save_run(config, folder, seed=0):
    """Write a run folder with a best checkpoint; return the network and the dictionary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yml").write_text(config.to_yaml(), encoding="utf-8")
    network, charset = network_of(config, seed)
    save_checkpoint(network, charset, folder / "best_accuracy")
    return network, charset
