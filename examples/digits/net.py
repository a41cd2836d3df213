"""Small convolutional nets: one description serves training (JAX) and export (ONNX)."""

import os
from dataclasses import dataclass

# One thread, so that a run can be repeated to the bit on the same machine.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Conv:
    """A convolution padded to keep the size (divided by the stride)."""

    size: int
    channels: int
    stride: int = 1


@dataclass(frozen=True)
class Pool:
    """2x2 max-pooling."""


@dataclass(frozen=True)
class Dense:
    """A fully connected layer over everything that comes in."""

    units: int


@dataclass(frozen=True)
class Unfold:
    """Depth to space: turns block*block channels into a map `block` times finer."""

    block: int


def init(layers, side, rng, last_bias=0.0):
    """Returns one (weight, bias) pair for each Conv and Dense; ReLUs follow all but the last."""
    params, channels = [], 1
    for layer in layers:
        if isinstance(layer, Conv):
            shape = (layer.size, layer.size, channels, layer.channels)
            side, channels = side // layer.stride, layer.channels
        elif isinstance(layer, Dense):
            shape = (side * side * channels, layer.units)
            side, channels = 1, layer.units
        elif isinstance(layer, Pool):
            side //= 2
            continue
        else:
            continue
        weight = rng.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape)
        params.append((jnp.asarray(weight, jnp.float32), jnp.zeros(shape[-1])))
    weight, bias = params[-1]
    params[-1] = (weight, bias + last_bias)
    return params


def apply(layers, params, images):
    """Runs the net on uint8 images [n,side,side]; returns [n,units] or a map [n,rows,cols]."""
    x = images.astype(jnp.float32)[..., None] / 255
    params = list(params)
    for layer in layers:
        if isinstance(layer, Pool):
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            continue
        if isinstance(layer, Unfold):
            n, rows, cols, _ = x.shape
            x = x.reshape(n, rows, cols, layer.block, layer.block).transpose(0, 1, 3, 2, 4)
            x = x.reshape(n, rows * layer.block, cols * layer.block, 1)
            continue
        weight, bias = params.pop(0)
        if isinstance(layer, Conv):
            pad, stride = (layer.size // 2, layer.size // 2), (layer.stride, layer.stride)
            x = jax.lax.conv_general_dilated(
                x, weight, stride, (pad, pad), dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        else:
            x = x.reshape(len(x), -1) @ weight
        x = x + bias
        if params:
            x = jax.nn.relu(x)
    return x if x.ndim == 2 else x[..., 0]


def train(layers, params, loss, batches, steps, rate):
    """Minimises loss(output, target) with Adam and a cosine schedule over `batches`."""

    @jax.jit
    def step(params, mean, square, count, images, target):
        grads = jax.grad(lambda p: loss(apply(layers, p, images), target))(params)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, grads)
        warm = jnp.minimum(1.0, count / 50)
        now = rate * warm * 0.5 * (1 + jnp.cos(jnp.pi * count / steps))

        def move(p, m, s):
            return p - now * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-8)

        return jax.tree.map(move, params, mean, square), mean, square

    mean = square = jax.tree.map(jnp.zeros_like, params)
    for count, (images, target) in zip(range(1, steps + 1), batches):
        params, mean, square = step(params, mean, square, float(count), images, target)
    return jax.tree.map(np.asarray, params)
