"""PaddleOCR, the host: this package finds, completes, imports and calls it.

No other code imports ``ppocr`` or ``tools``. Importing this package imports neither the host nor Paddle;
:func:`open_host` does.
"""

from ppocr_ext.host.facade import Host, open_host
from ppocr_ext.host.locate import Location, locate_host

__all__ = ["Host", "Location", "locate_host", "open_host"]
