"""Official weights by name, against a small server on this machine: what can go wrong with a download."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ppocr_ext.checkpoint import official_weights
from ppocr_ext.checkpoint.official_weights import OfficialWeights, fetch, official, official_file, table
from ppocr_ext.cli.main import main
from ppocr_ext.errors import WeightsError

CONTENT = bytes(range(256)) * 5000  # 1.28 MB: more than one chunk


class Server:
    """Serves `files`; breaks the next transfers off after `breaks` bytes each; counts requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.breaks: list[int] = []
        self.ranges: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
                server.ranges.append(self.headers.get("Range"))
                if self.path in server.redirects:
                    self.send_response(302)
                    self.send_header("Location", server.redirects[self.path])
                    self.end_headers()
                    return
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                start = int(
                    (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-")
                )
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                end = start + server.breaks.pop(0) if server.breaks else len(content)
                self.wfile.write(content[start:end])

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def entry(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OfficialWeights:
    """An entry whose file the server has; its cache folder is empty."""
    monkeypatch.setenv(official_weights.CACHE_VARIABLE, str(tmp_path / "cache"))
    server.files["/tiny.pdparams"] = CONTENT
    return replace(official("PP-OCRv6_tiny_rec"), address=f"{server.address}/tiny.pdparams")


def code_of(entry: OfficialWeights) -> str:
    with pytest.raises(WeightsError) as error:
        fetch(entry)
    assert not entry.file.exists() or error.value.code == "digest_mismatch"
    return error.value.code


def test_a_file_is_downloaded_once(entry: OfficialWeights, server: Server) -> None:
    assert fetch(entry).read_bytes() == CONTENT
    assert fetch(entry) == entry.file
    assert len(server.ranges) == 1
    stored = entry.file.with_suffix(".sha256").read_text().strip()
    assert stored == hashlib.sha256(CONTENT).hexdigest()
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".pdparams", ".sha256", ".lock"}


def test_a_missing_file(entry: OfficialWeights, server: Server) -> None:
    server.files.clear()
    assert code_of(entry) == "download_failed"


def test_a_broken_transfer_is_continued(entry: OfficialWeights, server: Server) -> None:
    server.breaks = [300_000]
    assert code_of(entry) == "download_failed"
    assert fetch(entry).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-"]


def test_a_part_that_is_longer_than_the_file_is_dropped(entry: OfficialWeights, server: Server) -> None:
    part = entry.file.with_suffix(".pdparams.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    assert code_of(entry) == "download_failed"
    part.unlink(missing_ok=True)
    assert fetch(entry).read_bytes() == CONTENT


def test_no_network_names_address_and_folder(entry: OfficialWeights, server: Server) -> None:
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(WeightsError) as error:
        fetch(entry)
    assert error.value.code == "download_failed"
    assert entry.address in str(error.value) and str(entry.file.parent) in str(error.value)


def test_a_file_that_differs_from_the_published_digest(entry: OfficialWeights) -> None:
    assert code_of(replace(entry, sha256="0" * 64)) == "digest_mismatch"


def test_a_file_that_changed_since_it_was_downloaded(entry: OfficialWeights) -> None:
    fetch(entry).write_bytes(b"something else")
    assert code_of(entry) == "digest_mismatch"


@pytest.mark.parametrize("target", ["http://example.org/x.pdparams", "ftp://127.0.0.1/x.pdparams"])
def test_only_https_is_followed(entry: OfficialWeights, server: Server, target: str) -> None:
    assert code_of(replace(entry, address=target)) == "insecure_address"
    server.redirects["/moved"] = target
    assert code_of(replace(entry, address=f"{server.address}/moved")) == "insecure_address"


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


def test_one_file_of_a_tar_is_read(entry: OfficialWeights, server: Server) -> None:
    tar_of(server, other=b"1", weights=CONTENT)
    archive = replace(entry, kind="tar", member="weights", address=f"{server.address}/x.tar")
    assert fetch(archive).read_bytes() == CONTENT
    assert {each.suffix for each in entry.file.parent.iterdir()} == {".pdparams", ".sha256", ".lock"}


@pytest.mark.parametrize("members", [{"weights": None}, {"other": b"1"}])
def test_a_tar_without_the_file(
    entry: OfficialWeights, server: Server, members: dict[str, bytes | None]
) -> None:
    tar_of(server, **members)
    assert (
        code_of(replace(entry, kind="tar", member="weights", address=f"{server.address}/x.tar"))
        == "bad_archive"
    )


def test_a_download_that_is_no_tar(entry: OfficialWeights) -> None:
    assert code_of(replace(entry, kind="tar", member="weights")) == "bad_archive"


def test_processes_that_ask_at_once_download_once(entry: OfficialWeights, server: Server) -> None:
    context = multiprocessing.get_context("spawn")  # a fork beside the server's threads may hang
    workers = [context.Process(target=fetch, args=(entry,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert server.ranges == [None]


def test_a_cache_folder_that_cannot_be_made(
    entry: OfficialWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(official_weights.CACHE_VARIABLE, str(tmp_path / "file"))
    assert code_of(entry) == "cache_folder"


def test_a_name_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(WeightsError) as error:
        official("PP-OCRv6_tinny_rec")
    assert error.value.code == "unknown_weights" and "'PP-OCRv6_tiny_rec'" in str(error.value)


def test_a_file_of_the_user_goes_first(
    entry: OfficialWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert official_file("my/best_accuracy") is None
    (tmp_path / "PP-OCRv6_tiny_rec.pdparams").write_bytes(b"mine")
    assert official_file("PP-OCRv6_tiny_rec") is None


def test_the_table_is_whole() -> None:
    source = json.loads(Path(official_weights.__file__).with_suffix(".json").read_text())["source"]
    assert "paddlex 3.7.2" in source
    assert len(table()) == 34
    for entry in table().values():
        assert entry.address.startswith("https://paddle-model-ecology.bj.bcebos.com/")
        assert entry.kind == "pdparams" and entry.classes > 90 and "ctc" in entry.branches


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(official_weights.CACHE_VARIABLE, str(tmp_path))
    assert main(["weights", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in table())
    assert main(["weights", "path", "PP-OCRv5_mobile_rec"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "weights" / "PP-OCRv5_mobile_rec.pdparams")
    assert main(["weights", "get", "PP-OCRv5_mobil_rec"]) == 2


def test_weights_are_loaded_by_name(
    entry: OfficialWeights, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkpoint of that name is the downloaded file; a misspelt name is answered with the right one."""
    import paddle

    from ppocr_ext.checkpoint.checkpoints import Checkpoint

    monkeypatch.chdir(tmp_path)
    paddle.save({"head.weight": paddle.ones([2])}, str(tmp_path / "served.pdparams"))
    server.files["/tiny.pdparams"] = (tmp_path / "served.pdparams").read_bytes()
    monkeypatch.setattr(official_weights, "table", lambda: {entry.name: entry})
    assert Checkpoint(entry.name).weights()["head.weight"].tolist() == [1.0, 1.0]
    with pytest.raises(WeightsError) as error:
        Checkpoint("PP-OCRv6_tinny_rec").weights()
    assert error.value.code == "missing_file" and f"'{entry.name}'" in str(error.value)
