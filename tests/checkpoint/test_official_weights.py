"""Official weights by name, against a small server on this machine: what can go wrong with a download."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import io
import logging
import multiprocessing
import pickle
import re
import tarfile
import threading
import urllib.parse
import urllib.request
from contextlib import nullcontext
from dataclasses import replace
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code
from waiting import HANG

from ppocr_ext.checkpoint import official_weights
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.official_weights import OfficialWeights, official, table
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.cli.main import main
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.resources import CACHE_VARIABLE

CONTENT = pickle.dumps(
    {"w": np.tile(np.arange(256, dtype=np.uint8), 5000)}, protocol=2
)  # 1.28 MB or more: more than one chunk
OTHER = pickle.dumps({"w": np.tile(np.arange(1, 257).astype(np.uint8), 5000)}, protocol=2)  # as long


class Server:
    """Serves `files`; breaks the next transfers off after `breaks` bytes each; counts the requests.

    It answers once `open` is set. With `announced` it sends chunks after it has announced that length.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.breaks: list[int] = []
        self.requests = 0
        self.with_length = True
        self.announced: int | None = None
        self.open = threading.Event()
        self.open.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
                server.requests += 1
                server.open.wait(HANG)
                if self.path in server.redirects:
                    self.send_response(302)
                    self.send_header("Location", server.redirects[self.path])
                    self.end_headers()
                    return
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                if server.with_length:
                    self.send_header("Content-Length", str(len(content)))
                if server.announced is not None:
                    self.send_header("Content-Length", str(server.announced))
                    self.send_header("Transfer-Encoding", "chunked")
                    content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
                self.end_headers()
                self.wfile.write(content[: server.breaks.pop(0) if server.breaks else len(content)])

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def entry(server, tmp_path, monkeypatch):
    """An entry whose file the server has; its cache folder is empty."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    server.files["/tiny.pdparams"] = CONTENT
    return replace(official("PP-OCRv6_tiny_rec"), address=f"{server.address}/tiny.pdparams")


def code_of(entry: OfficialWeights) -> str:
    with pytest.raises(WeightsError) as error:
        entry.fetch()
    assert not entry.file.exists() or error.value.code == "digest_mismatch"
    return error.value.code


def test_a_file_is_downloaded_once(entry, server):
    assert entry.fetch().read_bytes() == CONTENT
    assert entry.fetch() == entry.file
    assert server.requests == 1
    stored = entry.file.with_suffix(".sha256").read_text().strip()
    assert stored == hashlib.sha256(CONTENT).hexdigest()
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".pdparams", ".sha256", ".lock"}


def test_a_transfer_that_broke_begins_anew(entry, server):
    server.breaks = [300_000]
    assert code_of(entry) == "download_failed"
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".lock"}
    assert entry.fetch().read_bytes() == CONTENT
    assert server.requests == 2


@pytest.mark.parametrize(
    ("came", "fact"),
    [
        (b"<html>Please log in</html>", "<html>"),
        (b"", "empty"),
        (CONTENT[:-1], "truncated"),
        (CONTENT[:700_000] + b".", ""),
    ],
    ids=["page", "empty", "truncated", "a dot at its end"],
)
def test_what_is_no_weights_is_not_kept(entry, server, came, fact):
    """The server tells no length, so that a truncated file looks whole."""
    server.files["/tiny.pdparams"], server.with_length = came, False
    with raises_code(WeightsError, "not_weights", entry.address, str(entry.file.parent), fact):
        entry.fetch()
    assert [each.suffix for each in entry.file.parent.iterdir()] == [".lock"]
    server.files["/tiny.pdparams"] = CONTENT
    assert entry.fetch().read_bytes() == CONTENT


def test_a_file_put_there_by_hand_is_checked(entry):
    entry.file.parent.mkdir(parents=True)
    entry.file.write_bytes(b"<html>Please log in</html>")
    with raises_code(WeightsError, "not_weights", str(entry.file), "<html>"):
        entry.fetch()
    entry.file.write_bytes(OTHER)
    assert entry.fetch().read_bytes() == OTHER


def test_a_missing_file_and_no_network_name_address_and_folder(entry, server):
    server.files.clear()
    with raises_code(WeightsError, "download_failed", entry.address, entry.file.parent):
        entry.fetch()
    server.http.shutdown()
    server.http.server_close()
    with raises_code(WeightsError, "download_failed", entry.address, entry.file.parent):
        entry.fetch()


def test_a_file_that_differs_from_the_published_digest(entry):
    """It is not put into the cache folder: a later version that knows no digest would take it."""
    assert code_of(replace(entry, sha256="0" * 64)) == "digest_mismatch"
    assert not [*entry.file.parent.glob("*.pdparams*"), *entry.file.parent.glob("*.tmp")]
    assert replace(entry, sha256=hashlib.sha256(CONTENT).hexdigest()).fetch() == entry.file
    assert code_of(replace(entry, sha256="0" * 64)) == "digest_mismatch"  # of a file that lies there already


def test_the_first_file_of_a_name_is_the_right_one_until_it_is_forgotten(entry, monkeypatch, capsys):
    monkeypatch.setitem(table(), entry.name, entry)
    assert main(["weights", "list"]) == 0
    listed = capsys.readouterr().out
    assert (
        all(name in listed for name in table()) and "here:       no" in listed and "inference.yml" in listed
    )
    assert main(["weights", "path", entry.name]) == 0
    assert capsys.readouterr().out.strip() == str(entry.file)
    assert main(["weights", "get", "PP-OCRv5_mobil_rec"]) == 2
    assert main(["weights", "get", entry.name]) == 0
    today = f"{datetime.date.fromtimestamp(entry.file.with_suffix('.sha256').stat().st_mtime)}"
    said = capsys.readouterr().out
    assert hashlib.sha256(CONTENT).hexdigest() in said and today in said
    entry.file.write_bytes(OTHER)
    with raises_code(WeightsError, "digest_mismatch", f"ppocr-ext weights forget {entry.name}"):
        entry.fetch()
    assert main(["weights", "forget", entry.name]) == main(["weights", "get", entry.name]) == 0
    assert hashlib.sha256(OTHER).hexdigest() in capsys.readouterr().out


@pytest.mark.parametrize("with_length", [True, False])
def test_a_download_has_an_end(entry, server, monkeypatch, with_length):
    server.with_length = with_length
    monkeypatch.setattr(official_weights, "DOWNLOAD_LIMIT", len(CONTENT) - 1, raising=False)
    with raises_code(WeightsError, "download_failed", f"{len(CONTENT) - 1:,} bytes"):
        entry.fetch()
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".lock"}
    monkeypatch.setattr(official_weights, "DOWNLOAD_LIMIT", len(CONTENT))
    assert entry.fetch().read_bytes() == CONTENT


def test_a_download_is_at_most_twice_as_long_as_announced(entry, server):
    server.with_length, server.announced = False, len(CONTENT) // 3
    with raises_code(WeightsError, "download_failed", f"{2 * (len(CONTENT) // 3):,} bytes"):
        entry.fetch()


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch, capsys):
    def nobody(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", CACHE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert main(["weights", "list"]) == 2
    said = capsys.readouterr().err
    assert "[cache_folder]" in said and CACHE_VARIABLE in said


@pytest.mark.parametrize("target", ["http://example.org/x.pdparams", "ftp://127.0.0.1/x.pdparams"])
def test_only_https_is_followed(entry, server, target):
    assert code_of(replace(entry, address=target)) == "insecure_address"
    server.redirects["/moved"] = target
    assert code_of(replace(entry, address=f"{server.address}/moved")) == "insecure_address"


@pytest.mark.parametrize(
    ("start", "target", "allowed"),
    [
        ("https://example.org/a", "https://example.org/b", True),
        ("https://example.org/a", "http://example.org/b", False),
        ("https://example.org/a", "http://127.0.0.1/b", False),
        ("http://127.0.0.1/a", "http://127.0.0.1/b", True),
        ("http://127.0.0.1/a", "http://127.0.0.1@example.org/b", False),
    ],
)
def test_a_redirect_never_leaves_https(start, target, allowed):
    handler, request = official_weights._SafeRedirects(), urllib.request.Request(start)
    with nullcontext() if allowed else raises_code(WeightsError, "insecure_address", target):
        followed = handler.redirect_request(request, io.BytesIO(), 302, "Found", HTTPMessage(), target)
        assert followed is not None and followed.full_url == target


def tar_of(server: Server, **members: bytes | None) -> None:
    """Serve `/x.tar` of these members; None makes a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    server.files["/x.tar"] = stream.getvalue()


def archive_of(entry: OfficialWeights, server: Server) -> OfficialWeights:
    return replace(entry, kind="tar", member="weights", address=f"{server.address}/x.tar")


@pytest.mark.parametrize("name", ["weights", "./weights"])
def test_a_file_of_a_tar_is_found_by_its_path(entry, server, name):
    tar_of(server, **{"folder/weights": b"1", name: CONTENT})
    assert archive_of(entry, server).fetch().read_bytes() == CONTENT
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".pdparams", ".sha256", ".lock"}


@pytest.mark.parametrize(
    "members", [{"weights": None}, {"other": b"1"}, {"weights": CONTENT}], ids=["link", "missing", "large"]
)
def test_a_tar_without_the_file(entry, server, members, monkeypatch):
    monkeypatch.setattr(official_weights, "MEMBER_LIMIT", len(CONTENT) - 1)
    tar_of(server, **members)
    assert code_of(archive_of(entry, server)) == "bad_archive"
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".lock"}


@pytest.mark.parametrize(
    "pack",
    [lambda tar: CONTENT, gzip.compress, lambda tar: tar[:700_000]],
    ids=["no tar", "compressed", "cut off at its source"],
)
def test_a_download_that_is_no_plain_tar(entry, server, pack):
    """A compressed one could unpack to any size."""
    tar_of(server, weights=CONTENT)
    server.files["/x.tar"] = pack(server.files["/x.tar"])
    assert code_of(archive_of(entry, server)) == "bad_archive"


def test_processes_that_ask_at_once_download_once(entry, server):
    """The first one downloads while the other is there already, and the other one then finds the file."""
    context = multiprocessing.get_context("spawn")  # a fork beside the server's threads may hang
    waits = context.Queue()
    server.open.clear()
    workers = [context.Process(target=fetch_and_tell, args=(entry, waits)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert waits.get(timeout=HANG) == "waiting for another process, which downloads PP-OCRv6_tiny_rec"
    assert not entry.file.exists()
    server.open.set()
    for worker in workers:
        worker.join(HANG)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert server.requests == 1
    assert [waits.get(timeout=HANG) for _ in workers] == [hashlib.sha256(CONTENT).hexdigest()] * 2


def fetch_and_tell(entry: OfficialWeights, said: multiprocessing.Queue[str]) -> None:
    """Tell the message of a process that waits, and the digest of the file that it gets."""

    class Tell(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "waiting" in record.getMessage():
                said.put(record.getMessage())

    logger = logging.getLogger("ppocr_ext")
    logger.setLevel(logging.INFO)
    logger.addHandler(Tell())
    said.put(hashlib.sha256(entry.fetch().read_bytes()).hexdigest())


def test_a_folder_that_others_fill(entry):
    """Whoever may only read the cache folder still gets the weights, and their digest is checked."""
    entry.fetch()
    lock = entry.file.with_suffix(".lock")
    lock.unlink()
    lock.mkdir()  # cannot be opened, also by root
    assert entry.fetch().read_bytes() == CONTENT
    entry.file.write_bytes(b"something else")
    assert code_of(entry) == "digest_mismatch"


def test_a_cache_folder_that_cannot_be_made(entry, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    assert code_of(entry) == "cache_folder"


def test_a_file_of_the_user_goes_first(entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_source("my/best_accuracy") is None
    monkeypatch.setitem(table(), entry.name, entry)
    folder = tmp_path / entry.name
    folder.mkdir()
    assert find_source(entry.name) == entry and entry.fetch() == entry.file
    (folder / "latest.pdparams").write_bytes(b"mine")
    assert find_source(entry.name) is None
    (tmp_path / "PP-OCRv6_tiny_rec.pdparams").write_bytes(b"mine")
    assert find_source("PP-OCRv6_tiny_rec") is None
    published = entry.file.with_name(f"{entry.name}_pretrained.pdparams")  # put there by hand
    entry.file.rename(published)
    assert entry.file == published and entry.is_here


def test_the_table_is_whole():
    assert len(table()) == 35
    for entry in table().values():
        assert urllib.parse.urlsplit(entry.address).scheme == "https" and entry.address.endswith(entry.kind)
        assert re.search(r"paddlex 3\.7\.2|PaddleOCR 8853b21", entry.source)
        assert (entry.kind == "tar") == (entry.member is not None)
        assert entry.classes > 90 and "ctc" in entry.branches
    unknown = {name: entry.classes for name, entry in table().items() if entry.dictionary is None}
    assert unknown == {"PP-OCRv6_medium_rec": 18714, "PP-OCRv6_small_rec": 18714, "PP-OCRv6_tiny_rec": 7180}


def served(
    entry: OfficialWeights, server: Server, monkeypatch: pytest.MonkeyPatch, **weights: object
) -> None:
    """Serve these weights as those of `entry`."""
    import paddle

    stream = io.BytesIO()
    paddle.save({name.replace("__", "."): value for name, value in weights.items()}, stream)
    server.files["/tiny.pdparams"] = stream.getvalue()
    monkeypatch.setitem(table(), entry.name, entry)


def test_weights_are_loaded_by_name(entry, server, monkeypatch, tmp_path):
    """A checkpoint of that name is the downloaded file; a misspelt name is answered with the right one."""
    import paddle

    monkeypatch.chdir(tmp_path)
    served(entry, server, monkeypatch, head__weight=paddle.ones([2]))
    assert Checkpoint(entry.name).weights()["head.weight"].tolist() == [1.0, 1.0]
    with raises_code(WeightsError, "missing_file", f"'{entry.name}'"):
        Checkpoint("PP-OCRv6_tinny_rec").weights()


def test_weights_are_loaded_by_address(entry, server, tmp_path):
    """The check of a config downloads nothing, and a run downloads once; the path of a checkpoint loses a slash."""
    address = f"{server.address}/PP-OCRv6_tiny_rec_pretrained.pdparams"
    source = find_source(address)
    assert source.place == address and not source.is_here and server.requests == 0
    with raises_code(
        WeightsError, "download_failed", address, source.file.name, "official name PP-OCRv6_tiny_rec"
    ):
        source.fetch()
    server.files["/PP-OCRv6_tiny_rec_pretrained.pdparams"] = CONTENT
    for path in (address, Path(address)):
        assert Checkpoint(path).weights_file().read_bytes() == CONTENT
    assert server.requests == 2 and source.is_here and len(source.record["sha256"]) == 64
    tar_of(server, **{"x/best_accuracy.pdparams": OTHER})
    assert find_source(f"{server.address}/x.tar").fetch().read_bytes() == OTHER
    official_address = official("PP-OCRv4_mobile_rec").address
    assert find_source(official_address).name == "PP-OCRv4_mobile_rec"


def test_weights_of_another_size_or_dictionary_say_what_they_are(entry, server, monkeypatch, tmp_path):
    import paddle

    from ppocr_ext.checkpoint.weights import load_weights

    monkeypatch.chdir(tmp_path)
    served(entry, server, monkeypatch, fc__weight=paddle.ones([4, 9]), fc__bias=paddle.ones([5]))
    model = paddle.nn.Layer()
    model.fc = paddle.nn.Linear(4, 5)
    with raises_code(WeightsError, "weights_mismatch", entry.config, "7180", "inference.yml"):
        load_weights(model, entry.name)
    model.fc = paddle.nn.Layer()
    model.fc.other = paddle.nn.Linear(4, 5)
    with raises_code(WeightsError, "architecture_mismatch", entry.config):
        load_weights(model, entry.name)


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("PP-OCRv5_mobile_rec_safetensors/model.safetensors", "PP-OCRv5_mobile_rec, whose .pdparams"),
        ("PP-OCRv5_mobile_rec_safetensors", "PP-OCRv5_mobile_rec, whose .pdparams"),
        ("mine/model.safetensors", "give the .pdparams"),
    ],
)
def test_safetensors_are_refused(path, fact, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Path(path.partition("/")[0], "model.safetensors")
    file.parent.mkdir()
    file.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with raises_code(WeightsError, "missing_file", "safetensors", fact):
        Checkpoint(path).weights()
