"""What is wrong with a config, found before anything heavy and said all at once."""

from ppocr_ext.check.check import check_config
from ppocr_ext.check.fault import Fault, report

__all__ = ["Fault", "check_config", "report"]
