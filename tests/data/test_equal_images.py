"""Equal images, compared with a plain loop, in more rows than are compared at a time; and the memory of a row."""

from __future__ import annotations

import random
import tracemalloc

from ppocr_ext.data.equal_images import equal_images


def test_pairs_are_those_of_a_loop_also_across_blocks() -> None:
    draw = random.Random(0)
    # one image with many samples, some with a few, and most with one
    images = [draw.choice(("often", draw.randrange(2_000), b"%d" % number)) for number in range(20_000)]
    samples = [(image, draw.choice("ab"), number) for number, image in enumerate(images)]
    first: dict[object, tuple[str, int]] = {}
    expected = []
    for image, label, number in samples:
        earlier, at = first.setdefault(image, (label, number))
        if at != number:
            expected.append((number, at, earlier == label))
    draw.shuffle(samples)
    found = [
        row for block in equal_images(samples) for row in zip(*(each.tolist() for each in block), strict=True)
    ]
    assert sorted(found) == expected
    assert list(equal_images([])) == list(equal_images(samples[:1])) == []


def test_a_row_takes_few_bytes() -> None:
    count = 200_000
    tracemalloc.start()
    shared = sum(len(later) for later, _, _ in equal_images((at // 2, "", at) for at in range(count)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shared == count // 2 and peak < 24 * count
