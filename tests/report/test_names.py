import pytest

from ppocr_ext.report.names import short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("CTCLoss", "ctc"),
        ("NRTRLoss", "nrtr"),
        ("loss_ctc_Student_0", "ctc"),
        ("loss_nrtr_Student_0", "nrtr"),
        ("loss_ctc_Teacher_1", "ctc_Teacher"),
        ("dkd_0", "dkd"),
        ("ctc_frame_kd_0", "ctc_frame_kd"),
        ("loss", "loss"),
    ],
)
def test_the_same_loss_has_the_same_name_alone_and_in_a_distillation(name, short):
    assert short_name(name) == short
