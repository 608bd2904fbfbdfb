from ppocr_ext.loop.proxies import EvalListener


def test_only_evaluations_pass_the_log_writer():
    seen = []
    writer = EvalListener(seen.append)
    writer.log_metrics({"loss": 1.0}, prefix="TRAIN", step=1)
    writer.log_metrics({"acc": 0.5}, prefix="EVAL", step=1)
    writer.log_metrics({"best_acc": 0.5}, prefix="EVAL", step=1)
    assert seen == [{"acc": 0.5}]
