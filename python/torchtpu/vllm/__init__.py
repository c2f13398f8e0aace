"""vLLM on the device: a platform plugin, found through the entry point `vllm.platform_plugins`.

    platform.py      what vLLM asks of a platform; refuses what is not supported before a model is loaded
    worker.py        vLLM's worker: loads the model, sizes the cache, runs steps
    runner.py        the state of requests, and the inputs and results of a step
    steps.py         a step as a function of tensors
    programs.py      how functions become programs
    attention.py     the attention backend
    experts.py       mixtures of experts
    quantization.py  weights of 8 and 4 bits
    adapters.py      LoRA
    communicator.py  collectives of processes that share a model
    sampling.py      sampling as a function of tensors, and what requests ask of it

A step is one upload, one program and one read. There is a program for few tokens (decoding), one for many (prompts, or
both together), and one for what few requests ask of sampling. Everything that changes from step to step is data.
"""

from __future__ import annotations

import glob
import importlib.util
import os

PLATFORM = "torchtpu.vllm.platform.TpuPlatform"


def register() -> str | None:
    """The platform for vLLM where this machine has a TPU. `TORCHTPU_VLLM=1` chooses it on any machine, and
    `TORCHTPU_VLLM=0` on none."""
    chosen = os.environ.get("TORCHTPU_VLLM", "")
    if chosen not in ("", "0", "1"):
        raise ValueError(
            f"TORCHTPU_VLLM={chosen}: it is 1 (use torchtpu), 0 (do not) or not set (where there is a TPU)"
        )
    return PLATFORM if (_has_tpu() if chosen == "" else chosen == "1") else None


def _has_tpu() -> bool:
    """Whether libtpu and a chip are here. Does not open the chip, which only one process may hold."""
    devices = glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
    return bool(devices) and importlib.util.find_spec("libtpu") is not None
