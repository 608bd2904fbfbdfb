"""Official weights: the table of names, and the download into the cache folder, once, checked, never executed.

official_weights.json has the entries; its `sources` say which file of which release states them. A broken download is
continued.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import own_file, write_text
from ppocr_ext.io.plain_pickle import PlainPickleError, load_plain_pickle
from ppocr_ext.io.resources import CACHE_VARIABLE, cache_folder, file_digest
from ppocr_ext.limits import read_at_most
from ppocr_ext.messages import LOG, did_you_mean, near_match

_SAFETENSORS = (
    "_safetensors",
    "-safetensors",
)  # how repositories with weights in the other format are called

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TIMEOUT = 30  # seconds without a byte
CHUNK = 1 << 20
DOWNLOAD_LIMIT = 4 << 30  # bytes
MEMBER_LIMIT = 2 << 30  # bytes of a file that is read from a tar
PICKLE_START = b"\x80"
PICKLE_END = b"."  # of every file that paddle.save writes
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class OfficialWeights:
    """One entry of the table.

    Attributes:
        name: as a config writes it, `PP-OCRv5_mobile_rec`.
        address: of the file, HTTPS.
        source: the file that states the address, with its version.
        kind: `"pdparams"`, or `"tar"`: then `member` is the one file that is read from it.
        config: the official config of the network.
        dictionary: its path in PaddleOCR; None: no published dictionary has that many classes.
        classes: CTC classes, the blank and the space included.
        config_dictionary: the dictionary of `config`, where the one of the weights is not known to be it.
        branches: heads that the file has weights of: `ctc`, `gtc`, `sar`.
        tried: False: the file was never opened by the authors of this table.
        member: path inside a tar.
        prefix: in front of the names of the recogniser, in a file that has several.
        sha256: published digest; None where none is published.
    """

    name: str
    address: str
    source: str
    kind: str
    config: str
    dictionary: str | None
    classes: int
    branches: tuple[str, ...]
    config_dictionary: str | None = None
    tried: bool = False
    member: str | None = None
    prefix: str = ""
    sha256: str | None = None

    @property
    def file(self) -> Path:
        """Return where the weights lie, or will lie, in the cache folder."""
        return cache_folder("weights") / f"{self.name}.pdparams"

    @property
    def its_dictionary(self) -> str:
        """Return which dictionary the weights have, for messages and lists."""
        return (
            self.dictionary
            or "not included. Take `PostProcess.character_dict` from the inference.yml of the released model "
            "(docs/weights.md)"
        )


@cache
def table() -> dict[str, OfficialWeights]:
    """Return all entries by name."""
    content = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {
        name: OfficialWeights(
            name,
            **{**entry, "source": content["sources"][entry["source"]], "branches": tuple(entry["branches"])},
        )
        for name, entry in content["weights"].items()
    }


def official(name: str) -> OfficialWeights:
    """Return the entry called `name`.

    Raises:
        WeightsError: there is none.
    """
    entry = table().get(name)
    if entry is None:
        hint = did_you_mean(near_match(name, table()))
        raise WeightsError(
            f"There are no official weights called {name!r}.{hint} Fix: give a name of `ppocr-ext weights list`.",
            code="unknown_weights",
        )
    return entry


def is_official(value: str) -> bool:
    """Return whether ``value`` names official weights, and no checkpoint here has that name.

    A folder without a ``.pdparams`` is none: PaddleX unpacks inference models to folders with these names.
    """
    here = Path(value)
    return (
        value in table()
        and not here.is_file()
        and not Path(f"{value}.pdparams").exists()
        and not any(here.glob("*.pdparams"))
    )


def pin_file(weights: OfficialWeights) -> Path:
    """Return the file that keeps the digest of the first file that was called `weights`."""
    return weights.file.with_suffix(".sha256")


def known_digest(weights: OfficialWeights) -> str | None:
    """Return the published digest, or else the one that was kept; None if there is neither."""
    if weights.sha256 is None and pin_file(weights).exists():
        return read_at_most(pin_file(weights), 100).decode("ascii", "replace").strip()
    return weights.sha256


def digest_of(weights: OfficialWeights) -> str:
    """Return the SHA-256 of the file of `weights`, which a download has compared with it."""
    return known_digest(weights) or file_digest(weights.file)


def digest_line(weights: OfficialWeights) -> str:
    """Return a line with the digest of the file of `weights`, and who says that it is the right one."""
    file = pin_file(weights) if pin_file(weights).exists() else weights.file
    since = datetime.date.fromtimestamp(file.stat().st_mtime)
    unpublished = f"none is published; kept since {since}, when a file of this name was first used here"
    return f"{weights.name}: sha256 {digest_of(weights)} ({'published' if weights.sha256 else unpublished})"


def about(value: str | Path) -> str:
    """Return a line with network and dictionary of the official weights called ``value``; empty for other values."""
    if not is_official(str(value)):
        return ""
    entry = table()[str(value)]
    return f"\n  {entry.name} is of {entry.config}: {entry.classes} CTC classes, dictionary: {entry.its_dictionary}"


def similar_name(value: str) -> str | None:
    """Return the official name that ``value`` is a misspelling of, or its file's path; None if it is near none."""
    name = Path(value).name.removesuffix(".pdparams").removesuffix("_pretrained")
    return near_match(name, table(), cutoff=0.85)


def other_format(path: str | Path) -> str | None:
    """Return why ``path`` cannot be loaded if it is in the safetensors format, or a folder of such files; else None.

    The message names the `.pdparams` to use instead.
    """
    place = Path(path)
    if place.is_dir() and (any(place.glob("*.pdparams")) or not any(place.glob("*.safetensors"))):
        return None
    if not place.is_dir() and place.suffix != ".safetensors" and not Path(f"{path}.safetensors").is_file():
        return None
    words = (place if place.is_dir() else place.parent).name, place.name.removesuffix(".safetensors")
    names = (word.removesuffix(end) for word in words for end in ("", *_SAFETENSORS))
    name = next((name for name in names if name in table()), None)
    remedy = (
        f"give {name}, whose .pdparams is downloaded"
        if name
        else "give the .pdparams of the same model; `ppocr-ext weights list` shows those that have a name"
    )
    return f"{path}: weights in the safetensors format cannot be loaded. Fix: {remedy}."


def official_file(value: str) -> Path | None:
    """Return the file of the official weights called ``value``, downloaded if needed; None if it is not a name.

    Raises:
        WeightsError: the weights cannot be downloaded.
    """
    if not is_official(value):
        return None
    if Path(value).is_dir():
        LOG.info(
            "the folder %s has no .pdparams and is not used: %s means the official weights", value, value
        )
    return fetch(table()[value])


def fetch(weights: OfficialWeights) -> Path:
    """Return the file of `weights`; download it if it is not in the cache folder.

    Processes that ask at the same time wait for the one that downloads (not on Windows, which lacks such locks).

    Raises:
        WeightsError: it cannot be downloaded, holds no weights, or differs from its digest. The message has the
            address and the folder.
    """
    file = weights.file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.fdopen(own_file(file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT), "w")
    except OSError as error:
        if file.is_file():  # in a folder that others fill, and this user may only read
            _check_digest(weights, file, store=False)
            return file
        raise WeightsError(
            f"{file.parent}: the cache folder cannot be written to ({error.strerror}). Fix: set {CACHE_VARIABLE} to a "
            f"folder that you may write to.",
            code="cache_folder",
        ) from error
    with lock:
        _wait_for(lock, weights)
        if not file.exists():
            part = file.with_suffix(f".{weights.kind}.part")
            _download(weights, part)
            whole = _unpack(weights, part)
            _check_download(weights, whole)
            whole.replace(file)
        _check_digest(weights, file)
    return file


def _wait_for(lock: IO[str], weights: OfficialWeights) -> None:
    """Take the lock, which the system frees at the end of a process, even of one that was killed."""
    if fcntl is None:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        LOG.info("waiting for another process, which downloads %s", weights.name)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _download(weights: OfficialWeights, part: Path) -> None:
    """Fetch the address into `part`; a broken transfer is continued if the server still has the same file."""
    version = part.with_name(f"{part.name}.version")  # ETag or date of the file that `part` begins
    known = read_at_most(version, CHUNK).decode("utf-8", "replace") if version.exists() else None
    done = part.stat().st_size if part.exists() and known else 0
    request = urllib.request.Request(_checked(weights.address), headers={"User-Agent": "ppocr-ext"})
    if done and known:
        request.add_header("Range", f"bytes={done}-")
        request.add_header("If-Range", known)
    try:
        with urllib.request.build_opener(_SafeRedirects).open(request, timeout=TIMEOUT) as answer:
            is_rest = answer.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            if answer.status != 206:
                done = 0  # the whole file, whatever was asked for
                _start_part(part, version, _version(answer.headers))
            elif not is_rest or _version(answer.headers) not in (known, None):
                part.unlink()
                raise OSError("the server sent another file or another range than was asked for")
            length = answer.headers.get("Content-Length")
            total = None if length is None else done + int(length)
            LOG.info("downloading %s to %s", weights.address, part.parent)
            _copy(answer, part, done, total, weights.name)
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:  # the part is whole already, or longer than the file
            part.unlink()
            _download(weights, part)
            return
        raise _not_downloaded(weights, f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise _not_downloaded(weights, str(reason)) from error
    size = part.stat().st_size
    if total is not None and size != total:
        raise _not_downloaded(weights, f"the transfer broke off after {size:,} of {total:,} bytes")
    version.unlink(missing_ok=True)


def _version(headers: HTTPMessage) -> str | None:
    """Return the ETag or the date of a file, for `If-Range`, which takes no weak ETag (RFC 9110, 13.1.5)."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _start_part(part: Path, version: Path, value: str | None) -> None:
    """Remove the old `part` before its version changes: a process killed here leaves no part of another file."""
    part.unlink(missing_ok=True)
    if value is None:
        version.unlink(missing_ok=True)
    else:
        write_text(version, value)


def _copy(answer: Any, part: Path, done: int, total: int | None, name: str) -> None:
    # sent in chunks, it may be longer than announced
    most = min(DOWNLOAD_LIMIT, 2 * (total or DOWNLOAD_LIMIT))
    bar = tqdm(total=total, initial=done, unit="B", unit_scale=True, desc=name, disable=None)
    with bar, open(part, "ab" if done else "wb", opener=own_file) as stream:
        while chunk := answer.read(CHUNK):
            if max(total or 0, stream.tell() + len(chunk)) > most:
                part.unlink()
                raise OSError(f"the file has more than {most:,} bytes")
            stream.write(chunk)
            bar.update(len(chunk))


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects only to HTTPS; from plain HTTP on this machine also to the same."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        target = _checked(newurl, loopback=req.type == "http")
        return super().redirect_request(req, fp, code, msg, headers, target)


def _checked(address: str, loopback: bool = True) -> str:
    """Return `address` if it is HTTPS, or (with `loopback`) HTTP on this machine, as in tests.

    Raises:
        WeightsError: it is neither.
    """
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "https" or (loopback and parts.scheme == "http" and parts.hostname in LOOPBACK):
        return address
    raise WeightsError(f"{address}: weights are downloaded over HTTPS only.", code="insecure_address")


def _not_downloaded(weights: OfficialWeights, reason: str) -> WeightsError:
    return WeightsError(
        f"{weights.name} cannot be downloaded: {reason}. A broken transfer is continued.\n{_by_hand(weights)}",
        code="download_failed",
    )


def _by_hand(weights: OfficialWeights) -> str:
    """Return what a user can do about a download that fails."""
    what = f"{weights.member} from {weights.address}" if weights.kind == "tar" else weights.address
    return (
        f"Fix: try again later, or get {what} in another way and put it into {weights.file.parent} as "
        f"{weights.file.name}."
    )


def _unpack(weights: OfficialWeights, part: Path) -> Path:
    """Return a file with the weights of a complete `part`; of a tar, one regular file is read and nothing unpacked.

    Raises:
        WeightsError: the tar has no such file, or it is larger than `MEMBER_LIMIT`.
    """
    whole = weights.file.with_suffix(".tmp")
    if weights.kind == "pdparams":
        return part.replace(whole)
    try:  # "r:": not compressed
        with tarfile.open(part, "r:") as archive, open(whole, "wb", opener=own_file) as target:
            member = next((each for each in archive if each.name.removeprefix("./") == weights.member), None)
            if member is None or not member.isreg() or member.size > MEMBER_LIMIT:
                raise tarfile.TarError(f"it is no regular file of at most {MEMBER_LIMIT:,} bytes there")
            source = archive.extractfile(member)
            assert source is not None  # of a regular file
            with source:
                shutil.copyfileobj(source, target, CHUNK)
    except (tarfile.TarError, EOFError) as error:
        whole.unlink(missing_ok=True)
        raise WeightsError(
            f"{weights.address}: {weights.member} cannot be read from this tar ({error}). {_by_hand(weights)}",
            code="bad_archive",
        ) from error
    finally:
        part.unlink()
    return whole


def _check_download(weights: OfficialWeights, whole: Path) -> None:
    """Check that `whole` is a `.pdparams` with the published digest, and no page of a login; delete it if it is not.

    Raises:
        WeightsError: it is not.
    """
    reason = _why_no_weights(whole)
    if reason is not None:
        whole.unlink()
        raise WeightsError(
            f"{weights.address}: what came is not a `.pdparams` ({reason}). {_by_hand(weights)}",
            code="not_weights",
        )
    if weights.sha256 is not None and (digest := file_digest(whole)) != weights.sha256:
        whole.unlink()
        raise WeightsError(
            f"{weights.address}: what came has the digest {digest}, but the published one is {weights.sha256}. "
            f"{_by_hand(weights)}",
            code="digest_mismatch",
        )


def _why_no_weights(file: Path) -> str | None:
    """Return why `file` is no `.pdparams`; None if it is one."""
    try:
        load_plain_pickle(file)
    except PlainPickleError as error:
        content = file.read_bytes()
        if content.startswith(PICKLE_START):
            return f"{error}" if content.endswith(PICKLE_END) else "it is truncated"
        return f"it starts with {content[:40].decode('ascii', 'replace')!r}" if content else "it is empty"
    return None


def _check_digest(weights: OfficialWeights, file: Path, store: bool = True) -> None:
    """Compare the file with the published digest, or else with the one of the first download, which is stored.

    Raises:
        WeightsError: they differ, or there is no digest yet and the file holds no weights.
    """
    pin = pin_file(weights)
    digest = file_digest(file)
    expected = known_digest(weights)
    if expected is None:
        reason = _why_no_weights(file)
        if reason is not None:  # a user put it there
            raise WeightsError(
                f"{file}: this is not a `.pdparams` ({reason}). Fix: delete {file} and {pin}, and start again to "
                f"download it, or put the right file there.",
                code="not_weights",
            )
        if store:
            write_text(pin, f"{digest}\n")
    elif digest != expected:
        origin = "the published one" if weights.sha256 else f"that of the first file ({pin.name})"
        forget = f"`ppocr-ext weights forget {weights.name}`"
        newer = "" if weights.sha256 else f" If this file is the right one: {forget}."
        raise WeightsError(
            f"{file}: the digest is {digest}, but {origin} is {expected}. Fix: delete the file, and start again to "
            f"download it.{newer}",
            code="digest_mismatch",
        )
