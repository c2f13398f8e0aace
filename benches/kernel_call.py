#!/usr/bin/env python3
"""The cost of a call of a kernel from Python, beside `torch.mm`: CPU time of the calling thread, without waiting.

8x8 float32, chains of 400 calls, the least of all rounds. "decorator" is a `custom_jax_kernel`, "operator" a `jax_op`
called by `torch.ops`. `--gradients` takes tensors that require a gradient, so each call also builds a node of autograd.
"""

from __future__ import annotations

import argparse
import functools
import time

import jax
import torch
import torchtpu.pallas

CALLS = 400


@torchtpu.pallas.custom_jax_kernel
def product(x: jax.Array, y: jax.Array) -> jax.Array:
    return x @ y


@functools.partial(torchtpu.pallas.jax_op, "benches::product")
def product_operator(x: jax.Array, y: jax.Array) -> jax.Array:
    return x @ y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="rounds, alternating between forms (25)")
    parser.add_argument("--gradients", action="store_true", help="tensors that require a gradient")
    options = parser.parse_args()
    forms = {"mm": torch.mm, "decorator": product, "operator": torch.ops.benches.product}
    x, y = torch.rand(8, 8, device="tpu"), torch.rand(8, 8, device="tpu") / 8
    y.requires_grad_(options.gradients)
    for mode in ("strict", "fused"):
        least = dict.fromkeys(forms, float("inf"))
        with torch.tpu.set_eager_mode(mode):  # type: ignore[attr-defined]
            for _ in range(options.rounds):
                for name, call in forms.items():
                    value = x
                    torch.tpu.synchronize()  # type: ignore[attr-defined]
                    begin = time.thread_time()
                    for _ in range(CALLS):
                        value = call(value, y)
                    least[name] = min(least[name], time.thread_time() - begin)
        print(mode, *(f"{name} {each / CALLS * 1e6:.2f} us ({each / least['mm']:.2f})" for name, each in least.items()))


if __name__ == "__main__":
    main()
