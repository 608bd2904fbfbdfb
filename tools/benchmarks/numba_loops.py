"""Define the loops that Numba compiles; arrays are float32 and C-contiguous.

Each function computes a part of its result, from ``begin`` to ``end`` of the channels, rows or values, so that threads
can share the work. An inner loop has one stride and few arrays, which is what LLVM turns into vector instructions.
"""

from __future__ import annotations

import numpy as np
from numba import float32 as f32
from numba import njit
from numpy import ndarray

# Sums may be reordered; a NaN or an infinity stays one.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_part = njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
_inline = njit(inline="always", fastmath=_FAST, error_model="numpy")
_ONE, _TWO = np.uint64(1), np.uint64(2)  # an index that cannot be negative needs no check


# Least-squares fits of x P(x²) / Q(x²) on [0, 5.6], error 2e-7; beyond it both functions are constant to 1e-7.
@_inline
def _normal_cdf(x: float) -> float:
    """Return the probability that a standard normal number is below ``x``."""
    x = min(max(x, f32(-5.6)), f32(5.6))
    s = x * x
    p = f32(2.21453024e-08) * s + f32(6.35644087e-06)
    p = ((p * s + f32(0.000173845886)) * s + f32(0.00470723034)) * s + f32(0.034375694)
    q = f32(1.18020477e-06) * s + f32(7.51000478e-05)
    q = ((q * s + f32(0.00191295161)) * s + f32(0.0289398413)) * s + f32(0.252832801)
    return f32(0.5) + x * (p * s + f32(0.398942222)) / (q * s + f32(1.0))


@_inline
def _gelu_slope(x: float) -> float:
    """Return the derivative of x times the normal CDF of x."""
    x = min(max(x, f32(-5.6)), f32(5.6))
    s = x * x
    p = f32(1.9216578e-07) * s + f32(3.58992114e-05)
    p = ((p * s + f32(1.97558988e-05)) * s + f32(0.014226051)) * s - f32(0.0309751223)
    q = f32(8.92812165e-06) * s + f32(0.000192053173)
    q = ((q * s + f32(0.00352264434)) * s + f32(0.0409838216)) * s + f32(0.294519872)
    return f32(0.5) + x * (p * s + f32(0.797885345)) / (q * s + f32(1.0))


@_part
def gelu(begin: int, end: int, x: ndarray, y: ndarray) -> None:
    """Write the GELU of ``x`` [N] into ``y``."""
    source, target = x[begin:end], y[begin:end]
    for i in range(source.size):
        target[i] = source[i] * _normal_cdf(source[i])


@_part
def gelu_gradient(begin: int, end: int, x: ndarray, dy: ndarray, dx: ndarray) -> None:
    """Write ``dy`` times the slope of GELU at ``x`` [N] into ``dx``."""
    source, above, target = x[begin:end], dy[begin:end], dx[begin:end]
    for i in range(source.size):
        target[i] = above[i] * _gelu_slope(source[i])


@_part
def batch_norm_gelu(
    begin: int, end: int, x: ndarray, scale: ndarray, shift: ndarray, eps: float, y: ndarray, moments: ndarray
) -> None:
    """Normalise channels of ``x`` [B, C, N] over batch and places, and apply GELU.

    ``moments`` [3, C] becomes mean, variance and 1 / deviation.
    """
    count = f32(x.shape[0] * x.shape[2])
    for c in range(begin, end):
        total = f32(0.0)
        for b in range(x.shape[0]):
            row = x[b, c]
            for i in range(row.size):
                total += row[i]
        mean = total / count
        total = f32(0.0)
        for b in range(x.shape[0]):
            row = x[b, c]
            for i in range(row.size):
                total += (row[i] - mean) * (row[i] - mean)
        inverse = f32(1.0) / np.sqrt(total / count + f32(eps))
        moments[0, c], moments[1, c], moments[2, c] = mean, total / count, inverse
        factor = scale[c] * inverse
        offset = shift[c] - mean * factor
        for b in range(x.shape[0]):
            row, out = x[b, c], y[b, c]
            for i in range(row.size):
                value = factor * row[i] + offset
                out[i] = value * _normal_cdf(value)


@_part
def batch_norm_gelu_gradient(
    begin: int,
    end: int,
    x: ndarray,
    scale: ndarray,
    shift: ndarray,
    moments: ndarray,
    dy: ndarray,
    dx: ndarray,
    dparams: ndarray,
) -> None:
    """Write the gradients of :func:`batch_norm_gelu`: ``dx`` [B, C, N], and ``dparams`` [2, C] of scale and shift."""
    count = f32(x.shape[0] * x.shape[2])
    for c in range(begin, end):
        mean, inverse = moments[0, c], moments[2, c]
        factor = scale[c] * inverse
        offset = shift[c] - mean * factor
        plain, by_x = f32(0.0), f32(0.0)
        for b in range(x.shape[0]):
            row, above, out = x[b, c], dy[b, c], dx[b, c]
            for i in range(row.size):
                value = above[i] * _gelu_slope(factor * row[i] + offset)
                out[i] = value
                plain += value
                by_x += value * (row[i] - mean)
        dparams[0, c], dparams[1, c] = by_x * inverse, plain
        slope = factor * by_x * inverse * inverse / count
        constant = slope * mean - factor * plain / count
        for b in range(x.shape[0]):
            row, out = x[b, c], dx[b, c]
            for i in range(row.size):
                out[i] = factor * out[i] - slope * row[i] + constant


@_inline
def _correlate(flat: ndarray, kernel: ndarray, flip: bool, width: int, out: ndarray) -> None:
    """Write the correlation of a plane with a kernel into ``out``; both are flat, with rows of ``width``.

    Rows are as wide as the padded plane, so all of it is one loop; what wraps around lies outside the result.
    """
    rows, columns = kernel.shape
    if rows == 3 and columns == 3:
        for p in range(3):
            line = flat[p * width :]
            k0, k1, k2 = (
                (kernel[2 - p, 2], kernel[2 - p, 1], kernel[2 - p, 0])
                if flip
                else (kernel[p, 0], kernel[p, 1], kernel[p, 2])
            )
            if p == 0:
                for i in range(np.uint64(out.size)):
                    out[i] = k0 * line[i] + k1 * line[i + _ONE] + k2 * line[i + _TWO]
            else:
                for i in range(np.uint64(out.size)):
                    out[i] += k0 * line[i] + k1 * line[i + _ONE] + k2 * line[i + _TWO]
        return
    out[:] = f32(0.0)
    for p in range(rows):
        for q in range(columns):
            factor = kernel[rows - 1 - p, columns - 1 - q] if flip else kernel[p, q]
            line = flat[p * width + q :]
            for i in range(out.size):
                out[i] += factor * line[i]


@_inline
def _copy(small: ndarray, large: ndarray, top: int, left: int, step: tuple[int, int], back: bool) -> None:
    """Copy a plane into a larger one, from (top, left) on with steps between rows and columns; or from it, ``back``."""
    for i in range(small.shape[0]):
        line, other = small[i], large[top + i * step[0]][left:]
        if back and step[1] == 1:
            for j in range(line.size):
                line[j] = other[j]
        elif back:
            for j in range(line.size):
                line[j] = other[j * step[1]]
        elif step[1] == 1:
            for j in range(line.size):
                other[j] = line[j]
        else:
            for j in range(line.size):
                other[j * step[1]] = line[j]


@_part
def depthwise(
    begin: int,
    end: int,
    x: ndarray,
    kernels: ndarray,
    step: tuple[int, int],
    pad: tuple[int, int],
    y: ndarray,
) -> None:
    """Convolve each channel of ``x`` [B, C, H, W] with its own kernel of ``kernels`` [C, h, w]."""
    height, width = x.shape[2] + 2 * pad[0], x.shape[3] + 2 * pad[1]
    rows = (y.shape[2] - 1) * step[0] + 1
    flat = np.zeros(height * width + kernels.shape[2], np.float32)
    padded = flat[: height * width].reshape((height, width))
    dense = np.empty(rows * width, np.float32)
    plane = dense.reshape((rows, width))
    for b in range(x.shape[0]):
        for c in range(begin, end):
            _copy(x[b, c], padded, pad[0], pad[1], (1, 1), False)
            _correlate(flat, kernels[c], False, width, dense)
            _copy(y[b, c], plane, 0, 0, step, True)


@_part
def depthwise_gradient(
    begin: int,
    end: int,
    x: ndarray,
    kernels: ndarray,
    step: tuple[int, int],
    pad: tuple[int, int],
    dy: ndarray,
    dx: ndarray,
    dkernels: ndarray,
) -> None:
    """Write the gradients of :func:`depthwise`: ``dx`` as ``x``, ``dkernels`` [C, h, w]."""
    height, width = x.shape[2] + 2 * pad[0], x.shape[3] + 2 * pad[1]
    size_h, size_w = kernels.shape[1:]
    margin = (size_h - 1) * width + size_w - 1
    flat = np.zeros(height * width + size_w, np.float32)
    padded = flat[: height * width].reshape((height, width))
    above = np.zeros(margin + height * width + size_w, np.float32)
    spread = above[margin : margin + height * width]
    dense = np.empty(height * width, np.float32)
    used = ((dy.shape[2] - 1) * step[0] + 1) * width
    dkernels[begin:end] = f32(0.0)
    for b in range(x.shape[0]):
        for c in range(begin, end):
            _copy(x[b, c], padded, pad[0], pad[1], (1, 1), False)
            _copy(dy[b, c], spread.reshape((height, width)), 0, 0, step, False)
            for p in range(size_h):
                for q in range(size_w):
                    line = flat[p * width + q :]
                    total = f32(0.0)
                    for i in range(used):
                        total += spread[i] * line[i]
                    dkernels[c, p, q] += total
            _correlate(above, kernels[c], True, width, dense)
            _copy(dx[b, c], dense.reshape((height, width)), pad[0], pad[1], (1, 1), True)
