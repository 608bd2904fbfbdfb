"""PaddleOCR, the host: found, completed, imported, and spoken to in one place.

Nothing outside this folder imports ``ppocr`` or ``tools``. Importing this package imports
neither the host nor Paddle; :func:`open_host` does.
"""

from ppocr_ext.host.facade import Host, open_host
from ppocr_ext.host.locate import Location, locate_host

__all__ = ["Host", "Location", "locate_host", "open_host"]
