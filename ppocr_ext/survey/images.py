"""Describe the images of a data set: sizes, unusable and doubtful ones, copies; no Paddle."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext.data.equal_images import equal_images
from ppocr_ext.data.image_check import ImageFolder, image_pixels, unseen_issue
from ppocr_ext.data.issue_rules import Tally, issues_of, shown
from ppocr_ext.data.lmdb_sets import open_set
from ppocr_ext.data.sample_rules import SampleIssue
from ppocr_ext.io.image_pixels import PNG
from ppocr_ext.issues import Issue
from ppocr_ext.sources.page_formats import crop
from ppocr_ext.sources.samples import Sample
from ppocr_ext.survey.texts import Spread, spread_of

MOST = 20_000  # images that are looked at
_STEP = 0.1  # of its contrast: a smaller difference of neighbours counts as none
_SHARED = 0.92  # of the edges of the image that has fewer, copies share at least this: a bright one loses some in white
_FEWER = 0.5  # and it has at least this share of the edges of the other
_NEAR_RATIO = 0.06  # relative difference of their aspect ratios
_NEIGHBOURS = 8  # images of the same text and band that are compared with each one
_KINDS = {"L": "grey", "LA": "grey with alpha", "1": "black and white", "P": "palette", "I;16": "16 bit"}
Reader = Callable[[Sample], bytes | SampleIssue]


class _Look(NamedTuple):
    """What remains of a usable image.

    Attributes:
        sample: the sample of the image.
        kind: how the image is stored.
        height, width: its size in pixels.
        digest: the hash of its pixels.
        signature: where the image becomes lighter and darker from left to right, uint8 [64].
    """

    sample: Sample
    kind: str
    height: int
    width: int
    digest: int
    signature: Any


@dataclass(frozen=True)
class ImageReport:
    """What the images of a data set are like.

    Attributes:
        looked_at: how many images were read, spread evenly over them.
        usable: how many of those can be used; the others are counted by reason in ``findings``.
        unusable: the names of the others.
        heights, widths: what 5, 50 and 95 % of the usable images have at most, in pixels.
        ratios: the same for width divided by height.
        stored: how many usable images there are by how they are stored, such as ``RGB``, ``grey`` or
            ``16 bit``.
        copies: by image, the earliest image that has the same pixels, or nearly so and the same text; these two
            belong in one split. Parts of pages are left out.
        findings: issues of unusable and doubtful images.
    """

    looked_at: int
    usable: int
    unusable: frozenset[str]
    heights: Spread
    widths: Spread
    ratios: Spread
    stored: dict[str, int]
    copies: dict[str, str]
    findings: tuple[Issue, ...]


class ImageReader:
    """Read the encoded image of a sample: a file, a record of an LMDB, or a part of a page, which becomes a PNG.

    It may be called by several threads. A page is decoded once for the samples on it that follow each other.

    Args:
        root: the data folder.
        kept: the samples whose images stay in memory when they have been read.

    Attributes:
        turned: how many parts of pages were turned, as PaddleOCR turns them.
    """

    def __init__(self, root: str | Path, kept: Collection[Sample] = ()) -> None:
        self.turned = 0
        self._images: dict[Sample, bytes | SampleIssue | None] = dict.fromkeys(kept)
        self._folder = ImageFolder(root, allow_outside=False)
        self._open_set = cache(lambda name: open_set(Path(root) / name))
        self._page = lru_cache(maxsize=8)(lambda name: image_pixels(self._folder.read(name), name))
        self._one_thread = Lock()  # a transaction serves one thread at a time, and a page is decoded by one

    def __call__(self, sample: Sample) -> bytes | SampleIssue:
        """Return the image; a :class:`SampleIssue` if it is missing, broken, too large or outside the data folder."""
        image = self._images.get(sample)
        if image is None:
            image = self._read(sample) if sample.box is None else self._cut(sample)
            if sample in self._images:
                self._images[sample] = image
        return image

    def _read(self, sample: Sample) -> bytes | SampleIssue:
        name, _, number = sample.image.rpartition("#")
        if sample.place != sample.image or not number.isdecimal():  # not in an LMDB
            return self._folder.read(sample.image)
        with self._one_thread:
            content = self._open_set(name).image(int(number))
        return content or SampleIssue("missing_image", f"{sample.image} is not there")

    def _cut(self, sample: Sample) -> bytes | SampleIssue:
        import cv2

        with self._one_thread:
            page = self._page(sample.image)
        if isinstance(page, SampleIssue) or sample.box is None:
            return page
        try:
            pixels, is_turned = crop(page, sample.box, may_turn=len(sample.text) > 1)
        except ValueError as error:
            return SampleIssue("page_size", f"{sample.image} {error}")
        with self._one_thread:
            self.turned += is_turned
        return bytes(cv2.imencode(".png", pixels)[1])


def survey_images(
    samples: Iterable[Sample],
    total: int,
    read: Reader,
    *,
    most: int = MOST,
    threads: int = 2,
) -> ImageReport:
    """Read and decode images once each, and describe them.

    Args:
        samples: all samples; they are read once, in their order.
        total: how many samples there are.
        read: returns the encoded image of a sample (if it has a box, of that alone), or why it cannot be used;
            an :class:`ImageReader`, for example. Threads call it.
        most: how many images are looked at, at most.
        threads: how many threads read and decode.
    """
    looks: list[_Look] = []
    unusable: set[str] = set()
    tally = Tally()
    # one of each part of the same length, at places that no fault in turns has
    numbers = {int((n + n * 0.618 % 1) * max(1.0, total / most)) for n in range(min(most, total))}
    chosen = [sample for number, sample in enumerate(samples) if number in numbers]
    bar = tqdm(chosen, "images", unit=" images", disable=None, leave=False)
    with ThreadPoolExecutor(threads) as pool:
        for sample, (look, issue) in zip(bar, pool.map(partial(_look, read), chosen), strict=True):
            if issue is not None:
                tally.count(issue.reason, sample.place, shown(issue.detail))
            if look is not None:
                looks.append(look)
            elif sample.box is None:  # of a page, the parts that fail are found when they are cut
                unusable.add(sample.image)
    return ImageReport(
        looked_at=len(chosen),
        usable=len(looks),
        unusable=frozenset(unusable),
        heights=spread_of(look.height for look in looks),
        widths=spread_of(look.width for look in looks),
        ratios=spread_of(look.width / look.height for look in looks),
        stored=dict(Counter(look.kind for look in looks).most_common()),
        copies=_compare(looks, tally),
        findings=issues_of(tally, len(chosen)),
    )


def _look(read: Reader, sample: Sample) -> tuple[_Look | None, SampleIssue | None]:
    """Read, decode and measure an image; return what is doubtful in it, too, and no measures if it is unusable."""
    pixels = image_pixels(content := read(sample), sample.image)
    if isinstance(content, SampleIssue) or isinstance(pixels, SampleIssue):
        return None, pixels
    height, width = pixels.shape[:2]
    digest = hash((width, pixels.tobytes()))
    look = _Look(sample, _stored(content), height, width, digest, _signature(pixels))
    return look, unseen_issue(pixels, content, sample.text)


def _stored(content: bytes) -> str:
    """Return how an image is stored, in words or as Pillow's mode."""
    from PIL import Image

    with suppress(Exception), Image.open(io.BytesIO(content)) as image:  # OpenCV reads more formats
        # of colours, Pillow does not tell the bits
        return (
            "16 bit" if content.startswith(PNG) and content[24] == 16 else _KINDS.get(image.mode, image.mode)
        )
    return "other"


def _signature(pixels: Any) -> Any:
    """Return what a copy keeps that is encoded again, resized, lighter or darker: uint8 [64].

    512 bits: the image is squeezed to 8 rows of 33 pixels; a bit says if a pixel is clearly lighter than its left
    neighbour, another one if it is clearly darker.
    """
    import cv2
    import numpy as np

    grey = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
    small = cv2.resize(grey, (33, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    step = max(2.0, _STEP * float(small.max() - small.min()))
    rise = np.diff(small, axis=1)
    return np.packbits(np.stack([rise > step, rise < -step]))


def _compare(looks: list[_Look], tally: Tally) -> dict[str, str]:
    """Count the copies among images; return image -> the earliest image that it is a copy of."""
    pairs = equal_images((look.digest, look.sample.text, at) for at, look in enumerate(looks))
    equal = {at: other for later, first, _ in pairs for at, other in zip(later, first, strict=True)}
    single = [at for at, look in enumerate(looks) if at not in equal and look.signature.any()]
    near = {single[b]: single[a] for a, b in reversed(_near_pairs([looks[at] for at in single]))}
    copies = {}
    for at, other in sorted((equal | near).items()):
        look, origin = looks[at].sample, looks[other].sample
        if (look.image, look.box, look.split) == (origin.image, origin.box, origin.split):
            continue
        code = "near_copy" if at in near else "copy"
        if look.text != origin.text:
            code = "copy_with_other_text"
        elif look.split != origin.split:
            code = f"{code}_in_other_split"
        pair = f"{look.image} and {origin.image} ({origin.place})"
        tally.count(code, look.place, shown(pair))
        if look.box is None and origin.box is None:  # pages of one form have the same words
            copies[look.image] = origin.image
    return copies


def _near_pairs(looks: list[_Look]) -> list[tuple[int, int]]:
    """Return pairs (earlier, later) of images of the same text with nearly the same signature, in order.

    A text that differs in one character may look more alike than a copy that is encoded again, so only images of the
    same text are compared: those of which one of 16 bands of the signature is equal, and few with each. So the time
    grows with the images, not with their pairs.
    """
    import numpy as np

    if len(looks) < 2:
        return []
    texts = np.array([hash(look.sample.text) for look in looks])
    ratios = np.array([look.width / look.height for look in looks])
    signatures = np.stack([look.signature for look in looks])
    weights = np.unpackbits(signatures, axis=1).sum(axis=1)
    pairs: set[tuple[int, int]] = set()
    for band in signatures.view(np.uint32).T:
        order = np.lexsort((band, texts))  # stable: the earlier image first
        for step in range(1, _NEIGHBOURS + 1):
            one, other = order[:-step], order[step:]
            same = (texts[one] == texts[other]) & (band[one] == band[other])
            one, other = one[same], other[same]
            shared = np.unpackbits(signatures[one] & signatures[other], axis=1).sum(axis=1)
            fewer, more = np.sort((weights[one], weights[other]), axis=0)
            close = (shared >= _SHARED * fewer) & (fewer >= _FEWER * more)
            close &= np.abs(ratios[one] / ratios[other] - 1) <= _NEAR_RATIO
            pairs.update(zip(one[close].tolist(), other[close].tolist(), strict=True))
    return sorted(pairs)
