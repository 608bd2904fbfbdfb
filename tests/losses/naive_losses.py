"""The losses again, in plain loops over float64 numbers, as their papers and docstrings put them."""

import math
from collections.abc import Sequence

import numpy as np

Rows = Sequence[Sequence[float]]
EPSILON = 1e-10


def softmax(row: Sequence[float], temperature: float = 1.0) -> list[float]:
    scaled = [float(value) / temperature for value in row]
    highest = max(scaled)
    powers = [math.exp(value - highest) for value in scaled]
    return [power / sum(powers) for power in powers]


def log_softmax(row: Sequence[float], temperature: float = 1.0) -> list[float]:
    scaled = [float(value) / temperature for value in row]
    highest = max(scaled)
    normaliser = highest + math.log(sum(math.exp(value - highest) for value in scaled))
    return [value - normaliser for value in scaled]


def ctc_probability(frames: Rows, label: Sequence[int]) -> float:
    """p(label | frames): the sum over all paths, walked through one frame after the other."""
    symbols = [0]
    for character in label:
        symbols += [character, 0]
    paths = {-1: 1.0}  # position in `symbols` -> probability; -1: before the first
    for frame in frames:
        probabilities = softmax(frame)
        following = dict.fromkeys(range(len(symbols)), 0.0)
        for position, mass in paths.items():
            for step in (0, 1, 2):
                target = position + step
                if target < 0 or target >= len(symbols):
                    continue
                skips = step == 2
                if skips and position >= 0 and (symbols[target] == 0 or symbols[target] == symbols[position]):
                    continue
                if position == -1 and step == 0:
                    continue
                following[target] += mass * probabilities[symbols[target]]
        paths = following
    return sum(paths.get(position, 0.0) for position in {len(symbols) - 1, max(len(symbols) - 2, 0)})


def cross_entropy(row: Sequence[float], target: int, smoothing: float = 0.0) -> float:
    logs = log_softmax(row)
    loss = 0.0
    for index, value in enumerate(logs):
        share = 1.0 - smoothing if index == target else smoothing / (len(logs) - 1)
        loss -= share * value
    return loss


def kl(student: Sequence[float], teacher: Sequence[float], epsilon: float = EPSILON) -> float:
    q, log_p = softmax(teacher), log_softmax(student)
    return sum(share * (math.log(share + epsilon) - value) for share, value in zip(q, log_p, strict=True))


def dkd(
    student: Sequence[float],
    teacher: Sequence[float],
    target: int,
    temperature: float,
    alpha: float,
    beta: float,
) -> float:
    p, q = softmax(student, temperature), softmax(teacher, temperature)
    p_rest = sum(value for index, value in enumerate(p) if index != target)
    q_rest = sum(value for index, value in enumerate(q) if index != target)
    tckd = 0.0
    for mine, theirs in ((p[target], q[target]), (p_rest, q_rest)):
        tckd += theirs * (math.log(theirs + EPSILON) - math.log(mine))
    others_s = [value for index, value in enumerate(student) if index != target]
    others_t = [value for index, value in enumerate(teacher) if index != target]
    log_p = log_softmax(others_s, temperature)
    nckd = 0.0
    for share, value in zip(softmax(others_t, temperature), log_p, strict=True):
        nckd += share * (math.log(share + EPSILON) - value)
    return temperature**2 * (alpha * tckd + beta * nckd)


def interpolate(frames: Rows, count: int) -> list[list[float]]:
    """Each new frame: the mean of the two whose centres are nearest, by distance."""
    length = len(frames)
    if length == count:
        return [list(frame) for frame in frames]
    result = []
    for index in range(count):
        centre = (index + 0.5) / count * length - 0.5
        centre = min(max(centre, 0.0), length - 1.0)
        left = math.floor(centre)
        right = min(left + 1, length - 1)
        share = centre - left
        result.append([(1 - share) * a + share * b for a, b in zip(frames[left], frames[right], strict=True)])
    return result


def frame_weight(
    reading: int, frame: int, frames: int, blank_weight: float, valid_ratio: float | None
) -> float:
    if reading != 0:
        return 1.0
    if valid_ratio is not None and not frame < valid_ratio * frames:
        return 0.0
    return blank_weight


def teacher_reading(teacher: Rows, frames: int, temperature: float) -> list[list[float]]:
    return interpolate([softmax(frame, temperature) for frame in teacher], frames)


def ctc_frame_kd(
    student: Sequence[Rows],
    teacher: Sequence[Rows],
    temperature: float = 1.0,
    blank_weight: float = 1.0,
    valid_ratio: Sequence[float] | None = None,
) -> float:
    total = weights = 0.0
    for line, (mine, theirs) in enumerate(zip(student, teacher, strict=True)):
        frames = teacher_reading(theirs, len(mine), temperature)
        for index, (row, q) in enumerate(zip(mine, frames, strict=True)):
            log_p = log_softmax(row, temperature)
            divergence = sum(s * (math.log(s) - value) for s, value in zip(q, log_p, strict=True) if s > 0)
            ratio = None if valid_ratio is None else valid_ratio[line]
            weight = frame_weight(int(np.argmax(q)), index, len(mine), blank_weight, ratio)
            total += weight * divergence
            weights += weight
    return temperature**2 * total / weights if weights else 0.0


def masked_frame_dkd(
    student: Sequence[Rows],
    teacher: Sequence[Rows],
    temperature: float,
    alpha: float,
    beta: float,
    blank_weight: float,
    valid_ratio: Sequence[float],
) -> float:
    total = weights = 0.0
    for mine, theirs, ratio in zip(student, teacher, valid_ratio, strict=True):
        frames = teacher_reading(theirs, len(mine), temperature)
        for index, (row, q) in enumerate(zip(mine, frames, strict=True)):
            target = int(np.argmax(q))
            weight = frame_weight(target, index, len(mine), blank_weight, ratio)
            # softmax(τ · log q / τ) = q: the interpolated frame as logits
            as_logits = [temperature * math.log(share) for share in q]
            total += weight * dkd(row, as_logits, target, temperature, alpha, beta)
            weights += weight
    return total / weights if weights else 0.0
