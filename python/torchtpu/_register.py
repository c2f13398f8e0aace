"""Registers the device with PyTorch: its name, its module and its kernels."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import torch

NAME = "tpu"


def register() -> None:
    """Registers the device with PyTorch. Called once, at the first import of the package."""
    _check_no_other_backend()
    extension = _load_extension()
    torch.utils.rename_privateuse1_backend(NAME)
    from torchtpu import accelerate, distributed, dlpack, multiprocessing, operators, safetensors, tpu
    from torchtpu.compile.registration import register_with_dynamo
    from torchtpu.operators import opcheck, references

    torch._register_device_module(NAME, tpu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.add_tensor_method(NAME)
    accelerate.take_device(NAME)
    multiprocessing.take_device(NAME)
    safetensors.take_device(NAME)
    opcheck.take_device(NAME)
    operators.register()
    tpu._lazy_call(references.call_directly)
    tpu._lazy_call(_route)
    extension.initialize(_trace, _call_layout)
    # Programs that are still being written to the cache are needed by other processes too.
    atexit.register(extension.finish_cache)
    atexit.register(_wait_for_autograd_threads)
    atexit.register(_print_unread_errors)
    register_with_dynamo()
    distributed.register()


def _route() -> None:
    """Has operators computed by a library's kernels where programs are made for a TPU."""
    from torchtpu import _C
    from torchtpu.distributed import processes

    if not _C.is_initialized():
        processes.after_meeting(_route)
    elif "tpu" in (os.environ.get("TORCHTPU_TARGET"), _C.platform_info()["platform"]):
        from torchtpu.kernels import routing

        routing.register()


def _trace(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Traces an operator without a row. The tracer is imported at the first such call."""
    from torchtpu.graphs.decompose import trace

    return trace(operator, args, kwargs)


def _call_layout(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator on sparse or nested tensors. Its kernels are imported at the first such call."""
    from torchtpu.operators.layouts import call

    return call(operator, args, kwargs)


def _print_unread_errors() -> None:
    """Prints the error of a failed check, such as an index out of range, that no read and no `synchronize()` has
    raised."""
    from torchtpu import _C

    if _C.in_bad_fork():
        return
    try:
        _C.check_last_answers()
    except Exception as error:
        print(f"torchtpu: found when the process ended: {type(error).__name__}: {error}", file=sys.stderr)


def _wait_for_autograd_threads() -> None:
    """Waits until autograd's threads have released the last `backward()`, before Python ends.

    The thread of a device releases its graph some time after `backward()` has returned. It then takes the GIL, to
    drop the context variables that PyTorch has passed to it. Python ends threads that request the GIL too late,
    and a C++ thread does not survive this: the process would abort. Another backward on the same thread, without a
    computation and without context variables, cannot begin before the last one is released.
    """
    from torchtpu import _C, tpu

    if not tpu.lazy.is_open():
        return
    engine = torch.autograd.Variable._execution_engine
    for index in _C.own_devices():
        leaf = torch.empty(0, device=torch.device(NAME, index), requires_grad=True)
        with torch.enable_grad():
            root = leaf.view(0)
        with torch.no_grad():
            gradient = torch.empty_like(root)
        # Accumulate into `leaf.grad`: the thread would hold results as Python tensors.
        engine.run_backward((root,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _check_no_other_backend() -> None:
    """PyTorch has one slot for a new device (PrivateUse1). The package that was imported first keeps it."""
    taken = torch._C._get_privateuse1_backend_name()
    if "torchax" in sys.modules:
        owner = "torchax"
    elif taken not in ("privateuseone", NAME):
        owner = f'the package behind torch.device("{taken}")'
    elif hasattr(torch, NAME):
        owner = f"the package behind torch.{NAME}, {getattr(torch, NAME).__name__},"
    else:
        return
    raise ImportError(
        f"{owner} is already imported: it takes PyTorch's one slot for a new device (PrivateUse1), which torchtpu "
        f"needs too. Use one of them per process"
    )


def _load_extension() -> ModuleType:
    """The native module, or an ImportError that says what to do about the torch that it was built for."""
    try:
        from torchtpu import _C
    except ImportError as error:
        if importlib.util.find_spec("torchtpu._C") is None:
            raise ImportError(
                "torchtpu's extension is not built: run `make build` in the repository, or `pip install .`"
            ) from error
        # Most likely another torch, whose symbols are missing. The extension cannot tell which torch it was built
        # for.
        raise ImportError(_other_torch("another torch", f" ({error})")) from error
    built_for = _C.torch_version()
    if _minor(built_for) != _minor(torch.__version__):
        raise ImportError(_other_torch(f"torch {built_for}"))
    return _C


def _other_torch(built_for: str, cause: str = "") -> str:
    return (
        f"torchtpu was built for {built_for} and finds torch {torch.__version__}{cause}. Install the torch that it "
        f"was built for, or build it for this one: `pip install --force-reinstall --no-deps .` in the repository"
    )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])
