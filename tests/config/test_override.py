import pytest

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError

TEXT = """
Global: {epoch_num: 10, eval_batch_step: [0, 2000], use_gpu: true, save_model_dir: out, scales: [[320, 32], [320, 48]]}
Optimizer: {name: Adam, lr: {name: Cosine, learning_rate: 0.1}}
Architecture:
  Models:
    Student:
      Head:
        head_list:
          - CTCHead: {Head: null}
          - NRTRHead: {nrtr_dim: 384}
Loss:
  loss_config_list:
    - CTCLoss:
    - DML: {weight: 1.0}
    - DML: {weight: 0.5}
Train: {dataset: {transforms: [DecodeImage: {img_mode: BGR}, RecAug: ]}}
Heads: {1: one}
"""
HEADS = "Architecture.Models.Student.Head.head_list"


@pytest.fixture
def override(tmp_path):
    (tmp_path / "a.yml").write_text(TEXT)
    return lambda *options: load(tmp_path / "a.yml", list(options))


@pytest.mark.parametrize(
    ("option", "path", "value"),
    [
        ("Global.epoch_num=20", "Global.epoch_num", 20),
        ("Global.save_model_dir=a=b=c", "Global.save_model_dir", "a=b=c"),
        ("Global.save_model_dir=", "Global.save_model_dir", None),
        (" Global.use_gpu=false ", "Global.use_gpu", False),
        ("Optimizer.lr.learning_rate=1e-3", "Optimizer.lr.learning_rate", 1e-3),
        ("Global.eval_batch_step=[0, 10]", "Global.eval_batch_step", (0, 10)),
        ("Global.eval_batch_step.1=10", "Global.eval_batch_step", (0, 10)),
        ("Global.new.deep.key=1", "Global.new", {"deep": {"key": 1}}),
        ("Global.max_text_length='25'", "Global.max_text_length", "25"),
        (
            f"{HEADS}.CTCHead.Head.return_feats=true",
            f"{HEADS}.0",
            {"CTCHead": {"Head": {"return_feats": True}}},
        ),
        (f"{HEADS}.1.NRTRHead.nrtr_dim=256", f"{HEADS}.NRTRHead", {"nrtr_dim": 256}),
        (f"{HEADS}.NRTRHead=!remove", HEADS, ({"CTCHead": {"Head": None}},)),
        (f"{HEADS}.0=!remove", HEADS, ({"NRTRHead": {"nrtr_dim": 384}},)),
        ("Loss.loss_config_list.CTCLoss.weight=2.0", "Loss.loss_config_list.0", {"CTCLoss": {"weight": 2.0}}),
        ("Loss.loss_config_list.2.DML.weight=2.0", "Loss.loss_config_list.2", {"DML": {"weight": 2.0}}),
        ("Train.dataset.transforms.RecAug.p=0.1", "Train.dataset.transforms.1", {"RecAug": {"p": 0.1}}),
        ("Heads.1=uno", "Heads", {1: "uno"}),
        ("+Extra.a.b=1", "Extra", {"a": {"b": 1}}),
        (f"+{HEADS}.SARHead.enc_dim=512", f"{HEADS}.2", {"SARHead": {"enc_dim": 512}}),
    ],
)
def test_options(override, option, path, value):
    config = override(option)
    assert config.at(path) == value
    if "!remove" not in option:
        assert config != override()


def test_a_mapping_updates_a_section_as_in_paddleocr(override):
    config = override("Optimizer={lr: {name: Const}, beta1: 0.9, name: !remove }")
    assert config["Optimizer"] == {"lr": {"name": "Const"}, "beta1": 0.9}
    assert override("+Optimizer=!replace {name: SGD}")["Optimizer"] == {"name": "SGD"}


@pytest.mark.parametrize(
    ("option", "code", "facts"),
    [
        ("Global.epoch_num", "bad_option", ("path=value",)),
        ("=3", "bad_path", ()),
        ("Global..epoch_num=3", "bad_path", ("'Global..epoch_num'",)),
        ("Gobal.epoch_num=3", "unknown_section", ("Did you mean 'Global'?", "`+Gobal.epoch_num=…`")),
        ("epoch_num=3", "unknown_section", ("Did you mean 'Global.epoch_num'?",)),
        ("Global.epoch_num.x=3", "not_a_mapping", ("Global.epoch_num is 10", "a.yml:2")),
        ("Global.eval_batch_step.x=3", "missing_item", ("'x'", "0, 1.")),
        (f"{HEADS}.CTCHed.x=3", "missing_item", ("Did you mean 'CTCHead'?",)),
        ("Loss.loss_config_list.DML.weight=2", "duplicate_key", ("'DML'", "list.1 or ", "list.2.")),
        ("Train.dataset.transforms.Extra.p=1", "missing_item", ("'Extra'",)),
        ("+Train.dataset.transforms.Extra.p=1", "ordered_list", ("'Extra'", "!replace")),
        ("Global.nothing=!remove", "nothing_to_remove", ("Global.nothing",)),
        (f"+{HEADS}.SARHead=!remove", "missing_item", ("'SARHead'",)),
        ("Global.x=!!python/name:os.system", "bad_tag", ()),
    ],
)
def test_options_that_cannot_be_followed(override, option, code, facts):
    with pytest.raises(ConfigError) as caught:
        override(option)
    message = str(caught.value)
    assert caught.value.code == code
    assert all(fact in message for fact in facts), message
    assert message.startswith(f"-o {option}") and message.count(f"-o {option}: ") == 1


@pytest.mark.parametrize(
    ("option", "warns"),
    [
        ("Optimizer.lr={learning_rate: 0.2}", True),
        ("Optimizer={lr: {learning_rate: 0.2}}", True),
        ("Optimizer.lr=!replace {learning_rate: 0.2}", False),
        ("Optimizer.lr={name: Const, learning_rate: 0.2}", False),
        ("Optimizer.lr=0.2", False),
        ("Optimizer={beta1: 0.8}", False),
        (f"{HEADS}.NRTRHead={{nrtr_dim: 8}}", False),
    ],
)
def test_a_mapping_that_drops_a_name_says_so(override, caplog, option, warns):
    """A schedule without its name is another schedule."""
    with caplog.at_level("WARNING", "ppocr_ext"):
        override(option)
    messages = [record.getMessage() for record in caplog.records]
    assert bool(messages) == warns
    assert all("Cosine" in message and "Optimizer.lr.KEY" in message for message in messages)
