import pytest

from ppocr_ext.inference import released


@pytest.fixture(autouse=True)
def no_released_models(tmp_path_factory, monkeypatch):
    """A first run offers what is on the machine; a test has only what it puts there."""
    monkeypatch.setattr(released, "released_packages", lambda: ())
    monkeypatch.setenv(released.CLIENT_CACHE, str(tmp_path_factory.mktemp("paddlex")))
