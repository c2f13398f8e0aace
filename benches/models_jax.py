"""The same training steps in JAX, compiled whole: the limit of XLA itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shapes import GPTS, Shape

VOCABULARY = GPTS["gpt"].vocabulary
STAGES = ((16, 16, 1), (16, 32, 2), (32, 64, 2))
rng = np.random.default_rng(0)


def make_step(work: str) -> Callable[[], None]:
    """One AdamW step per call, on a fresh batch, with a wait."""
    if work == "chain":
        return make_chain()
    update, state = make_update(work, "bfloat16" if work == "gpt2" else "float32")
    compiled = jax.jit(update, donate_argnums=(0, 1, 2))

    def step() -> None:
        *state[:], value = compiled(*state, *make_batch(work))
        jax.block_until_ready((state, value))

    return step


def make_chain() -> Callable[[], None]:
    start = jnp.asarray(rng.random(4 << 20, dtype=np.float32))

    @jax.jit
    def chain(x: Any) -> Any:
        for _ in range(15):
            x = (x + 0.5) * 0.9
        return x

    return lambda: jax.block_until_ready(chain(start))


def lower_step(work: str, dtype: str) -> str:
    """The step as StableHLO for a TPU, with parameters and moments of a dtype, and the loss in float32."""
    update, state = make_update(work, dtype)
    traced = jax.jit(update, donate_argnums=(0, 1, 2)).trace(*state, *make_batch(work))
    return traced.lower(lowering_platforms=("tpu",)).as_text()


def make_update(work: str, dtype: str = "float32") -> tuple[Callable[..., Any], list[Any]]:
    """The step as a function of parameters, moments, count and batch, and the initial values of the first three."""
    parameters, forward = make_gpt(GPTS[work]) if work in GPTS else {"mlp": make_mlp, "resnet": make_resnet}[work]()
    parameters = jax.tree.map(lambda p: jnp.asarray(p, dtype), parameters)
    state = [parameters, jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters), 0.0]

    def loss(parameters: Any, inputs: Any, targets: Any) -> Any:
        logits = jax.nn.log_softmax(forward(parameters, inputs).astype(jnp.float32))
        return -jnp.take_along_axis(logits, targets[:, None], 1).mean()

    def update(parameters: Any, first: Any, second: Any, count: Any, inputs: Any, targets: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, inputs, targets)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

        def adamw(p: Any, m: Any, v: Any) -> Any:
            corrected = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
            return (p * (1 - 1e-3 * 1e-2) - 1e-3 * corrected).astype(p.dtype)

        return jax.tree.map(adamw, parameters, first, second), first, second, count, value

    return update, state


def make_batch(work: str) -> tuple[Any, Any]:
    if work in GPTS:
        gpt = GPTS[work]
        tokens = rng.integers(0, gpt.vocabulary, (gpt.batch, gpt.length + 1), dtype=np.int32)
        return jnp.asarray(tokens[:, :-1]), jnp.asarray(tokens[:, 1:].reshape(-1))
    shape = (64, 784) if work == "mlp" else (16, 3, 32, 32)
    inputs = rng.standard_normal(shape, dtype=np.float32)
    return jnp.asarray(inputs), jnp.asarray(rng.integers(0, 10, shape[0], dtype=np.int32))


def _linear(inputs: int, outputs: int) -> dict[str, Any]:
    bound = 1 / math.sqrt(inputs)
    return {
        "w": rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32),
        "b": np.zeros(outputs, np.float32),
    }


def _apply(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def make_mlp() -> tuple[Any, Callable[[Any, Any], Any]]:
    layers = [_linear(784, 256), _linear(256, 256), _linear(256, 10)]

    def forward(p: Any, x: Any) -> Any:
        return _apply(p[2], jax.nn.relu(_apply(p[1], jax.nn.relu(_apply(p[0], x)))))

    return layers, forward


def _scale(width: int) -> dict[str, Any]:
    return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}


def _layer_norm(p: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def make_gpt(shape: Shape) -> tuple[Any, Callable[[Any, Any], Any]]:
    width = shape.width
    block = lambda: {  # noqa: E731
        "norm1": _scale(width),
        "qkv": _linear(width, 3 * width),
        "out": _linear(width, width),
        "norm2": _scale(width),
        "up": _linear(width, 4 * width),
        "down": _linear(4 * width, width),
    }
    parameters = {
        "tokens": rng.standard_normal((shape.vocabulary, width), dtype=np.float32),
        "positions": rng.standard_normal((shape.positions, width), dtype=np.float32) * np.float32(0.02),
        "blocks": [block() for _ in range(shape.layers)],
        "norm": _scale(width),
        "head": _linear(width, shape.vocabulary),
    }

    def attention(p: Any, x: Any) -> Any:
        batch, length, _ = x.shape
        heads = [
            each.reshape(batch, length, shape.heads, width // shape.heads).transpose(0, 2, 1, 3)
            for each in jnp.split(_apply(p["qkv"], x), 3, axis=-1)
        ]
        scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) / math.sqrt(width // shape.heads)
        scores = jnp.where(jnp.triu(jnp.ones((length, length), bool), 1), -jnp.inf, scores)
        attended = jax.nn.softmax(scores, -1) @ heads[2]
        return _apply(p["out"], attended.transpose(0, 2, 1, 3).reshape(batch, length, width))

    def forward(p: Any, tokens: Any) -> Any:
        x = p["tokens"][tokens] + p["positions"][: tokens.shape[1]]
        for each in p["blocks"]:
            x = x + attention(each, _layer_norm(each["norm1"], x))
            hidden = jax.nn.gelu(_apply(each["up"], _layer_norm(each["norm2"], x)), approximate=False)
            x = x + _apply(each["down"], hidden)
        return _apply(p["head"], _layer_norm(p["norm"], x)).reshape(-1, shape.vocabulary)

    return parameters, forward


def _kernel(channels_out: int, channels_in: int, size: int) -> Any:
    bound = 1 / math.sqrt(channels_in * size * size)
    return rng.uniform(-bound, bound, (channels_out, channels_in, size, size)).astype(np.float32)


def _convolve(x: Any, kernel: Any, stride: int = 1) -> Any:
    pad = kernel.shape[-1] // 2
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), [(pad, pad)] * 2)


def _batch_norm(p: Any, x: Any) -> Any:
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"][:, None, None] + p["bias"][:, None, None]


def make_resnet() -> tuple[Any, Callable[[Any, Any], Any]]:
    parameters: dict[str, Any] = {"stem": _kernel(16, 3, 3), "norm": _scale(16), "stages": [], "head": _linear(64, 10)}
    for channels_in, channels_out, stride in STAGES:
        stage = {
            "conv1": _kernel(channels_out, channels_in, 3),
            "norm1": _scale(channels_out),
            "conv2": _kernel(channels_out, channels_out, 3),
            "norm2": _scale(channels_out),
        }
        if stride != 1 or channels_in != channels_out:
            stage["shortcut"] = _kernel(channels_out, channels_in, 1)
        parameters["stages"].append(stage)

    def forward(p: Any, x: Any) -> Any:
        x = jax.nn.relu(_batch_norm(p["norm"], _convolve(x, p["stem"])))
        for stage, (_, _, stride) in zip(p["stages"], STAGES, strict=True):
            body = jax.nn.relu(_batch_norm(stage["norm1"], _convolve(x, stage["conv1"], stride)))
            body = _batch_norm(stage["norm2"], _convolve(body, stage["conv2"]))
            x = jax.nn.relu(body + (_convolve(x, stage["shortcut"], stride) if "shortcut" in stage else x))
        return _apply(p["head"], x.mean((2, 3)))

    return parameters, forward
