"""Official weights by name: found in a cache folder, else downloaded once, checked, never executed.

official_weights.json says of each name where its file is, and which file of PaddleX states that address.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.file_names import file_digest
from ppocr_ext.messages import did_you_mean, near_match

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOG = logging.getLogger("ppocr_ext")
CACHE_VARIABLE = "PPOCR_EXT_CACHE"
TIMEOUT = 30  # seconds without a byte
CHUNK = 1 << 20
MEMBER_LIMIT = 2 << 30  # bytes of a file that is read from a tar
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class OfficialWeights:
    """One entry of the table.

    Attributes:
        name: as a config writes it, `PP-OCRv5_mobile_rec`.
        address: of the file, HTTPS.
        kind: `"pdparams"`, or `"tar"`: then `member` is the one file that is read from it.
        config: the official config of the network.
        dictionary: its path in PaddleOCR.
        classes: CTC classes of that dictionary, the blank and the space included.
        branches: heads that the file has weights of: `ctc`, `gtc`, `sar`.
        tried: False: the file was never opened by the authors of this table.
        member: path inside a tar.
        prefix: in front of every name in the file.
        sha256: published digest; None where none is published.
    """

    name: str
    address: str
    kind: str
    config: str
    dictionary: str
    classes: int
    branches: tuple[str, ...]
    tried: bool = False
    member: str | None = None
    prefix: str = ""
    sha256: str | None = None

    @property
    def file(self) -> Path:
        """Return where the weights lie, or will lie, in the cache folder."""
        return cache_folder() / f"{self.name}.pdparams"


def cache_folder() -> Path:
    """Return `$PPOCR_EXT_CACHE/weights`, by default `~/.cache/ppocr_ext/weights`."""
    root = os.environ.get(CACHE_VARIABLE)
    return (Path(root) if root else Path.home() / ".cache" / "ppocr_ext") / "weights"


@cache
def table() -> dict[str, OfficialWeights]:
    """Return all entries by name."""
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    return {
        name: OfficialWeights(name, **{**entry, "branches": tuple(entry["branches"])})
        for name, entry in json.loads(text)["weights"].items()
    }


def official(name: str) -> OfficialWeights:
    """Return the entry called `name`.

    Raises:
        WeightsError: there is none.
    """
    found = table().get(name)
    if found is None:
        hint = did_you_mean(near_match(name, table()))
        raise WeightsError(
            f"There are no official weights called {name!r}.{hint} `ppocr-ext weights list` shows all names.",
            code="unknown_weights",
        )
    return found


def fetch(weights: OfficialWeights) -> Path:
    """Return the file of `weights`; download it if it is not in the cache folder.

    Processes that ask at the same time wait for the one that downloads.

    Raises:
        WeightsError: it cannot be downloaded, or differs from its digest. The message has the address and the folder.
    """
    file = weights.file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeightsError(
            f"{file.parent}: the cache folder cannot be made ({error.strerror}). Fix: set {CACHE_VARIABLE} to a "
            f"folder that you may write to.",
            code="cache_folder",
        ) from error
    with _locked(file.with_suffix(".lock")):
        if not file.exists():
            part = file.with_suffix(f".{weights.kind}.part")
            _download(weights, part)
            _unpack(weights, part, file)
        _check_digest(weights, file)
    return file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_EX)  # freed by the system, also after kill -9
        yield


def _download(weights: OfficialWeights, part: Path) -> None:
    """Fetch the address into `part`; what an earlier, broken transfer left there is continued."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(_checked(weights.address), headers={"User-Agent": "ppocr-ext"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        with urllib.request.build_opener(_SafeRedirects).open(request, timeout=TIMEOUT) as answer:
            if answer.status != 206:  # the whole file, whatever was asked for
                done = 0
            length = answer.headers.get("Content-Length")
            total = None if length is None else done + int(length)
            _LOG.info("downloading %s to %s", weights.address, part.parent)
            _copy(answer, part, done, total, weights.name)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the part is whole already, or longer than the file
            part.unlink()
        raise _not_downloaded(weights, f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise _not_downloaded(weights, str(reason)) from error
    size = part.stat().st_size
    if total is not None and size != total:
        raise _not_downloaded(weights, f"the transfer broke off after {size:,} of {total:,} bytes")


def _copy(answer: Any, part: Path, done: int, total: int | None, name: str) -> None:
    bar = tqdm(total=total, initial=done, unit="B", unit_scale=True, desc=name, disable=None)
    with bar, part.open("ab" if done else "wb") as stream:
        while chunk := answer.read(CHUNK):
            stream.write(chunk)
            bar.update(len(chunk))


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to addresses that are allowed alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        return super().redirect_request(req, fp, code, msg, headers, _checked(newurl))


def _checked(address: str) -> str:
    """Return `address` if it is HTTPS, or HTTP on this machine.

    Raises:
        WeightsError: it is neither.
    """
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        return address
    raise WeightsError(f"{address}: weights are downloaded over HTTPS only.", code="insecure_address")


def _not_downloaded(weights: OfficialWeights, reason: str) -> WeightsError:
    return WeightsError(
        f"{weights.name} cannot be downloaded: {reason}.\n"
        f"Fix: try again (a broken transfer is continued), or download {weights.address} elsewhere and put it into "
        f"{weights.file.parent} as {weights.file.name}.",
        code="download_failed",
    )


def _unpack(weights: OfficialWeights, part: Path, file: Path) -> None:
    """Put the weights of a complete `part` in their place; of a tar, one regular file is read and nothing unpacked."""
    if weights.kind == "pdparams":
        part.replace(file)
        return
    whole = file.with_suffix(".tmp")
    try:
        with tarfile.open(part) as archive:
            member = archive.getmember(weights.member or "")
            if not member.isreg() or member.size > MEMBER_LIMIT:
                raise WeightsError(
                    f"{part}: {weights.member} is no regular file of at most {MEMBER_LIMIT:,} bytes.",
                    code="bad_archive",
                )
            source = archive.extractfile(member)
            assert source is not None  # of a regular file
            with source, whole.open("wb") as target:
                shutil.copyfileobj(source, target, CHUNK)
    except (tarfile.TarError, KeyError, EOFError) as error:
        part.unlink()
        raise WeightsError(
            f"{weights.address}: {weights.member} cannot be read ({error}).", code="bad_archive"
        ) from error
    whole.replace(file)
    part.unlink()


def _check_digest(weights: OfficialWeights, file: Path) -> None:
    """Compare the file with the published digest, or else with the one of the first download, which is stored.

    Raises:
        WeightsError: they differ.
    """
    stored = file.with_suffix(".sha256")
    found = file_digest(file)
    expected = weights.sha256 or (stored.read_text(encoding="ascii").strip() if stored.exists() else None)
    if expected is None:
        write_text(stored, f"{found}\n")
    elif found != expected:
        origin = "the published one" if weights.sha256 else f"that of the first download ({stored})"
        raise WeightsError(
            f"{file}: the digest is {found}, but {origin} is {expected}. Fix: delete the file, and start again to "
            f"download it.",
            code="digest_mismatch",
        )


def is_official(value: str) -> bool:
    """Return whether ``value`` names official weights, and no file or folder here has that name."""
    return value in table() and not Path(value).exists() and not Path(f"{value}.pdparams").exists()


def official_file(value: str) -> Path | None:
    """Return the file of the official weights called ``value``, downloaded if needed; None if it is not a name.

    Raises:
        WeightsError: the weights cannot be downloaded.
    """
    return fetch(table()[value]) if is_official(value) else None


def similar_name(value: str) -> str | None:
    """Return the official name that ``value`` is a misspelling of; None if it is near none."""
    return near_match(value, table(), cutoff=0.85)
