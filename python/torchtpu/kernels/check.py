"""Checks whether a TPU's compiler accepts a kernel. libtpu compiles without a TPU.

    trace for a TPU ─ Pallas and Mosaic refuse blocks and primitives here
    compile in a separate process ─ libtpu refuses kernels that need too much memory, which may take minutes

A refusal becomes an error with the kernel, its blocks and the cause.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from torchtpu.kernels.calls import Call, Spec

SECONDS = 120.0

_VMEM = (
    re.compile(r"Scoped allocation with size (\S+) and limit (\S+) exceeded"),
    re.compile(r"Ran out of memory in memory space vmem.*?Used (\S+) of (\S+) vmem", re.DOTALL),
)
_BLOCK = re.compile(r"Block spec for (\S+) in pallas_call (\S+).*? has block shape (\(.*?\)), array shape (\(.*?\)),")
_PRIMITIVE = re.compile(r"Unimplemented primitive in Pallas TPU lowering[^:]*: (\w+)")


class KernelError(RuntimeError):
    """A TPU's compiler does not accept a kernel."""


class Report(NamedTuple):
    """The report of libtpu on a kernel that it accepts."""

    kernel: str
    chip: str
    # How long compiling took.
    seconds: float
    # The bytes of the chip's memory that a run needs, including arguments and results.
    peak_bytes: int

    def __str__(self) -> str:
        return f"{self.kernel} for {self.chip}: compiles in {self.seconds:.1f} s; {self.peak_bytes:,} bytes of memory"


class Compiler:
    """libtpu's compiler in a separate process, because a program that is too large ends the process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self) -> None:
        """Starts the process if there is none, and waits until its imports are done."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from torchtpu.kernels.check import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                # libtpu ends a process with flags that it does not know, such as the CPU's.
                env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
            )
            self._answer(None)

    def compile(self, text: str, topology: str, seconds: float) -> dict[str, Any]:
        """The result of `_C.compile_ahead`.

        Raises RuntimeError with the compiler's message, and TimeoutError after `seconds`.
        """
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([text, topology]) + "\n")
        self._process.stdin.flush()
        answer = self._answer(seconds)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _answer(self, seconds: float | None) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            self._end()
            raise TimeoutError
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._process = None
            raise RuntimeError(f"libtpu's compiler died with status {status}")
        return dict(json.loads(line))

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve() -> None:
    """The process of a [`Compiler`]. Each line of input is a text and a topology; each line of output an answer."""
    os.environ.setdefault("TPU_LOG_DIR", "disabled")
    from torchtpu import _C

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libtpu prints to stdout
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        text, topology = json.loads(line)
        try:
            answer = _C.compile_ahead(text, topology)
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


def check(call: Call, specs: Sequence[Spec], chip: str, seconds: float, compiler: Compiler) -> Report:
    """Compiles a call for a chip of `torchtpu.preflight.chips`.

    Raises KernelError with the cause if the compiler refuses it or takes longer than `seconds`, and ValueError for
    another chip.
    """
    from torchtpu.preflight.chips import topology_of

    topology = topology_of(chip)
    name = str(call)
    what = f"{name} for {chip}, with {', '.join(map(str, specs)) or 'no tensors'}"
    try:
        program = module_for(call, specs, chip)
    except Exception as error:
        raise KernelError(f"{what}: {_cause_of_trace(call, specs, error)}") from error
    compiler.start()
    begin = time.monotonic()
    try:
        answer = compiler.compile(program, topology, seconds)
    except TimeoutError:
        raise KernelError(
            f"{what}: libtpu has not compiled {_kernels(call, specs)} within {seconds:g} s; smaller blocks take less"
        ) from None
    except RuntimeError as error:
        raise KernelError(f"{what}: {_cause_of_compiler(call, specs, str(error))}") from error
    return Report(name, chip, time.monotonic() - begin, int(answer.get("peak_bytes") or 0))


def module_for(call: Call, specs: Sequence[Spec], chip: str) -> str:
    """The program of a call for a chip, as a whole module."""
    from torchtpu.kernels.imports import import_jax

    import_jax(str(call))
    from torchtpu.kernels.chips import tracing_for
    from torchtpu.kernels.tracing import trace

    with tracing_for(chip):
        text = trace(call, specs, "tpu")
    functions = text.functions.replace(f"func.func private @{text.entry}(", "func.func public @main(")
    return f"module @torchtpu {{\n{functions}}}\n"


def _cause_of_trace(call: Call, specs: Sequence[Spec], error: Exception) -> str:
    message = str(error)
    if found := _BLOCK.search(message):
        which, kernel, block, array = found.groups()
        block = re.sub(r"Blocked\(block_size=(\d+)\)", r"\1", block)
        return (
            f"the block {block} of {which} in the kernel {kernel} does not fit a TPU: its last two dimensions must be "
            f"multiples of 8 and 128, or those of the array, {array}"
        )
    if found := _PRIMITIVE.search(message):
        return f"{_kernels(call, specs)} uses {found[1]}, which Pallas has no form of for TPUs"
    return f"{type(error).__name__}: {message.partition(chr(10))[0]}"


def _cause_of_compiler(call: Call, specs: Sequence[Spec], message: str) -> str:
    if asked := too_much_vmem(message):
        return f"{_kernels(call, specs)} {asked}"
    return message.partition("\n")[0]


def too_much_vmem(message: str) -> str:
    """What a kernel does that the compiler refuses for its VMEM, and what helps; empty for another refusal."""
    found = next(filter(None, (pattern.search(message) for pattern in _VMEM)), None)
    if found is None:
        return ""
    return (
        f"asks for {found[1]} of VMEM, and there are {found[2]}: make the blocks smaller, "
        f"or raise vmem_limit_bytes in its compiler_params"
    )


def _kernels(call: Call, specs: Sequence[Spec]) -> str:
    """Text that lists the Pallas kernels of a call, each with its blocks."""
    from torchtpu.kernels.tracing import kernels_in

    named = [f"the kernel {name} (blocks {', '.join(blocks)})" for name, blocks in kernels_in(call, specs)]
    return " and ".join(named) or "the function"
