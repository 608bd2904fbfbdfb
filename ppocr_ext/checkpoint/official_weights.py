"""Official weights: a table of names, and the download of weights into the cache folder. Files are checked, not run.

official_weights.json has the table; its `sources` name the file and the release that each entry was taken from.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import re
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
from ppocr_ext.io.resources import CACHE_VARIABLE, cache_folder, config_root, file_digest
from ppocr_ext.limits import read_at_most
from ppocr_ext.messages import LOG, did_you_mean, near_match

# endings of the names of repositories that have weights in the other format
_SAFETENSORS = ("_safetensors", "-safetensors")

_OTHER_CONFIGS = {"ch_SVTRv2_rec": "svtrv2/teacher.yml", "ch_RepSVTR_rec": "svtrv2/student.yml"}
TIMEOUT = 30  # seconds without a byte
CHUNK = 1 << 20
DOWNLOAD_LIMIT = 4 << 30  # bytes
MEMBER_LIMIT = 2 << 30  # bytes of a file that is read from a tar
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class OfficialWeights:
    """One entry of the table.

    Attributes:
        name: as a config writes it, `PP-OCRv5_mobile_rec`.
        address: the address of the file, HTTPS.
        source: the file that the address was taken from, with its version.
        kind: `"pdparams"`, or `"tar"` (only `member` is read from the tar).
        config: the official config of the network.
        dictionary: the path of the dictionary in PaddleOCR; None if no published dictionary has that many classes.
        classes: CTC classes, with the blank and the space.
        config_dictionary: the dictionary of `config`, if the weights may have another one.
        branches: heads in the file: `ctc`, `gtc`, `sar`.
        tried: False if the authors of this table never opened the file.
        member: path inside the tar.
        prefix: the prefix of the names of the recogniser, in a file of several networks.
        sha256: published digest; None if none is published.
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
        """The path of the weights in the cache folder, here or not; a user may have put the published file there."""
        folder = cache_folder("weights")
        published = folder / f"{self.name}_pretrained.pdparams"
        file = folder / f"{self.name}.pdparams"
        return published if published.is_file() and not file.is_file() else file

    @property
    def is_here(self) -> bool:
        """True if the file is in the cache folder."""
        return self.file.is_file()

    @property
    def its_dictionary(self) -> str:
        """The dictionary of the weights, for messages and lists."""
        return (
            self.dictionary
            or "not included. Take `PostProcess.character_dict` from the inference.yml of the released model "
            "(docs/weights.md)"
        )

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return str(self.file) if self.is_here else self.address

    @property
    def digest(self) -> str:
        """SHA-256 of the file, which was checked when the file was fetched."""
        return known_digest(self) or file_digest(self.file)

    @property
    def line(self) -> str:
        """A line with the digest of the file, and the origin of this digest."""
        file = pin_file(self) if pin_file(self).exists() else self.file
        since = datetime.date.fromtimestamp(file.stat().st_mtime)
        unpublished = f"none is published; kept since {since}, when a file of this name was first used here"
        return f"{self.name}: sha256 {self.digest} ({'published' if self.sha256 else unpublished})"

    @property
    def record(self) -> dict[str, str]:
        """Digest and origin, which a run stores."""
        return {"sha256": self.digest, "address": self.address, "source": self.source}

    @property
    def about(self) -> str:
        """Network and dictionary, for a message."""
        return (
            f"{self.name} is of {self.config}: {self.classes} CTC classes, dictionary: {self.its_dictionary}"
        )

    def fetch(self) -> Path:
        """Return the file; download it if it is not in the cache folder.

        If several processes ask at once, one downloads and the others wait.

        Raises:
            WeightsError: the file cannot be downloaded, holds no weights, or differs from its digest. The message has
                the address and the folder.
        """
        file = self.file
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = os.fdopen(own_file(file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT), "w")
        except OSError as error:
            if file.is_file():  # in a shared cache that this user may only read
                _check_digest(self, file, store=False)
                return file
            raise not_writable(file.parent, error) from error
        with lock:
            _wait_for(lock, self)
            if not file.exists():
                part = file.with_suffix(f".{self.kind}.part")
                _download(self, part)
                whole = _unpack(self, part)
                _check_download(self, whole)
                whole.replace(file)
            _check_digest(self, file)
        return file


class LinkedWeights(OfficialWeights):
    """Weights that a config names by their address."""

    @property
    def about(self) -> str:
        """What is known of them, for a message."""
        return f"{self.address}: the network and the dictionary of these weights are not known"


def linked(value: str) -> OfficialWeights | None:
    """Return the weights at the address ``value``, or those of the table if it is theirs; None if it is no address.

    In the path of a checkpoint, an address has one slash and no ending.
    """
    found = re.fullmatch(r"(https?):/+(.+?)(\.pdparams)?", value)
    if found is None:
        return None
    place = found[2] if found[2].endswith(".tar") or ".pdparams" in found[2] else f"{found[2]}.pdparams"
    address = f"{found[1]}://{place}"
    stem = re.sub(r"[^\w.-]|\.pdparams|\.tar$", "_", Path(place).name).rstrip("_")
    return next(
        (entry for entry in table().values() if entry.address == address),
        LinkedWeights(
            name=f"{stem}-{hashlib.sha256(address.encode()).hexdigest()[:8]}",
            address=address,
            source="an address in the config",
            kind="tar" if place.endswith(".tar") else "pdparams",
            config="",
            dictionary=None,
            classes=0,
            branches=(),
            member=f"{stem}/best_accuracy.pdparams",
        ),
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


def config_of(name: str) -> str | None:
    """Return the shipped config of the network of an official model, as a path in ``configs/``; None without one."""
    network = name.partition("PP-OCR")[2].removesuffix("_rec")
    file = _OTHER_CONFIGS.get(name, f"pp-ocr/{network}.yml")
    return file if (config_root() / file).is_file() else None


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


def pin_file(weights: OfficialWeights) -> Path:
    """Return the file that stores the digest of the first file that was downloaded under this name."""
    return weights.file.with_suffix(".sha256")


def known_digest(weights: OfficialWeights) -> str | None:
    """Return the published digest, or the stored one if none is published; None if there is neither."""
    if weights.sha256 is None and pin_file(weights).exists():
        return read_at_most(pin_file(weights), 100).decode("ascii", "replace").strip()
    return weights.sha256


def not_writable(folder: Path, error: OSError) -> WeightsError:
    """Return the error of a folder in the cache that cannot be written to."""
    return WeightsError(
        f"{folder}: the cache folder cannot be written to ({error.strerror}). Fix: set {CACHE_VARIABLE} to a folder "
        f"that you may write to.",
        code="cache_folder",
    )


def similar_name(value: str) -> str | None:
    """Return the official name that ``value`` misspells, or that its file name contains; None if there is none."""
    name = Path(value).name.removesuffix(".pdparams").removesuffix("_pretrained")
    return near_match(name, table(), cutoff=0.85)


def other_format(path: str | Path) -> str | None:
    """Return an error message if ``path`` is a safetensors file or a folder of such files; None for other paths.

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


def _wait_for(lock: IO[str], weights: OfficialWeights) -> None:
    """Take the lock; the system frees it when the process ends, even if it is killed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        LOG.info("waiting for another process, which downloads %s", weights.name)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _download(weights: OfficialWeights, part: Path) -> None:
    """Write what the address has to `part`; `part` is removed if the download fails.

    Raises:
        WeightsError: the download failed.
    """
    request = urllib.request.Request(_checked(weights.address), headers={"User-Agent": "ppocr-ext"})
    try:
        with urllib.request.build_opener(_SafeRedirects).open(request, timeout=TIMEOUT) as answer:
            LOG.info("downloading %s to %s", weights.address, part.parent)
            length = int(answer.headers.get("Content-Length") or 0)
            _copy(answer, part, length, weights.name)
    except urllib.error.HTTPError as error:
        raise _not_downloaded(weights, f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        part.unlink(missing_ok=True)
        raise _not_downloaded(weights, str(getattr(error, "reason", None) or error)) from error


def _copy(answer: Any, part: Path, length: int, name: str) -> None:
    """Write the answer to `part`; `length` is what the server announced, or 0.

    Raises:
        OSError: the answer is longer than allowed, or shorter than announced.
    """
    # an answer in chunks may be longer than announced
    limit = min(DOWNLOAD_LIMIT, 2 * (length or DOWNLOAD_LIMIT))
    bar = tqdm(total=length or None, unit="B", unit_scale=True, desc=name, disable=None)
    with bar, open(part, "wb", opener=own_file) as stream:
        while chunk := answer.read(CHUNK):
            if max(length, stream.tell() + len(chunk)) > limit:
                raise OSError(f"the file has more than {limit:,} bytes")
            stream.write(chunk)
            bar.update(len(chunk))
        if stream.tell() < length:
            raise OSError(f"the transfer broke off after {stream.tell():,} of {length:,} bytes")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to HTTPS only; plain HTTP on this machine may redirect to itself."""

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
        f"{weights.name} cannot be downloaded: {reason}.\n{_by_hand(weights)}",
        code="download_failed",
    )


def _by_hand(weights: OfficialWeights) -> str:
    """Return what a user can do about a download that fails."""
    what = f"{weights.member} from {weights.address}" if weights.kind == "tar" else weights.address
    name = similar_name(weights.address) if isinstance(weights, LinkedWeights) else None
    return (
        f"Fix: try again later, or get {what} in another way and put it into {weights.file.parent} as "
        f"{weights.file.name}.{f' Or give the official name {name}.' if name else ''}"
    )


def _unpack(weights: OfficialWeights, part: Path) -> Path:
    """Turn a complete `part` into a file of weights, and return it. From a tar, only one regular file is read.

    Raises:
        WeightsError: the tar does not have this file, or it is larger than `MEMBER_LIMIT`.
    """
    whole = weights.file.with_suffix(".tmp")
    if weights.kind == "pdparams":
        return part.replace(whole)
    try:  # "r:": not compressed
        with tarfile.open(part, "r:") as archive, open(whole, "wb", opener=own_file) as target:
            member = next((each for each in archive if each.name.removeprefix("./") == weights.member), None)
            if member is None or not member.isreg() or member.size > MEMBER_LIMIT:
                raise tarfile.TarError(f"expected a regular file of at most {MEMBER_LIMIT:,} bytes")
            source = archive.extractfile(member)
            assert source is not None  # it is a regular file
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
    """Check that `whole` is a `.pdparams` with the published digest, and not a login page; otherwise delete it.

    Raises:
        WeightsError: the check failed.
    """
    reason = _why_no_weights(whole)
    if reason is not None:
        whole.unlink()
        raise WeightsError(
            f"{weights.address}: the downloaded file is not a `.pdparams` ({reason}). {_by_hand(weights)}",
            code="not_weights",
        )
    if weights.sha256 is not None and (digest := file_digest(whole)) != weights.sha256:
        whole.unlink()
        raise WeightsError(
            f"{weights.address}: the downloaded file has the digest {digest} (published: {weights.sha256}). "
            f"{_by_hand(weights)}",
            code="digest_mismatch",
        )


def _why_no_weights(file: Path) -> str | None:
    """Return the reason why `file` is not a `.pdparams`; None if it is one."""
    try:
        load_plain_pickle(file)
    except PlainPickleError as error:
        content = file.read_bytes()
        if content.startswith(b"\x80"):  # a pickle, which ends with a dot
            return str(error) if content.endswith(b".") else "it is truncated"
        return f"it starts with {content[:40].decode('ascii', 'replace')!r}" if content else "it is empty"
    return None


def _check_digest(weights: OfficialWeights, file: Path, store: bool = True) -> None:
    """Compare the file with the published digest, or with the digest of the first download if none is published.

    If there is neither, the digest of this file is stored (unless ``store`` is False).

    Raises:
        WeightsError: the digests differ, or there is no digest yet and the file holds no weights.
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
        is_named = weights.name in table()
        forget = f"`ppocr-ext weights forget {weights.name}`" if is_named else f"delete {pin}"
        newer = "" if weights.sha256 else f" If this file is the right one: {forget}."
        raise WeightsError(
            f"{file}: the digest is {digest}, but {origin} is {expected}. Fix: delete the file, and start again to "
            f"download it.{newer}",
            code="digest_mismatch",
        )
