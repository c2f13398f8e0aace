"""Makes PyTorch know the device: its name, its module and its kernels."""

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
    """Registers the device with PyTorch; called once, when the package is first imported."""
    _refuse_company()
    extension = _load_extension()
    torch.utils.rename_privateuse1_backend(NAME)
    from torchtpu import distributed, operators, tpu
    from torchtpu.compile.registration import register_with_dynamo

    torch._register_device_module(NAME, tpu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    operators.register()
    tpu._lazy_call(_route)
    extension.initialize(_trace, _sparse)
    # What is still being written to the cache of compiled programs belongs to other processes too.
    atexit.register(extension.finish_cache)
    atexit.register(_let_go_of_autograd)
    atexit.register(_tell_what_nobody_read)
    register_with_dynamo()
    distributed.register()


def _route() -> None:
    """Has operators computed by a library's kernels where programs are made for a TPU."""
    from torchtpu import _C

    if "tpu" in (os.environ.get("TORCHTPU_TARGET"), _C.platform_info()["platform"]):
        from torchtpu.kernels import routing

        routing.register()


def _trace(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Traces an operator that has no row; the tracer itself is loaded when the first one comes by."""
    from torchtpu.graphs.decompose import trace

    return trace(operator, args, kwargs)


def _sparse(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator on sparse tensors; what it needs is loaded when the first one comes by."""
    from torchtpu.operators.sparse import call

    return call(operator, args, kwargs)


def _tell_what_nobody_read() -> None:
    """Prints an error such as an index out of range that no read and no `synchronize()` has raised."""
    from torchtpu import _C

    if _C.in_bad_fork():
        return
    try:
        _C.check_last_answers()
    except Exception as error:
        print(f"torchtpu: found when the process ended: {type(error).__name__}: {error}", file=sys.stderr)


def _let_go_of_autograd() -> None:
    """Makes sure that no thread of autograd still holds the last `backward()` when Python ends.

    The thread that runs a device's part of the graph lets go of it some time after `backward()` has returned. For the
    context variables that PyTorch hands to it, it takes the GIL then. Python ends threads that ask for the GIL too
    late, which a C++ thread does not survive: the process would abort. Another backward on the same thread, one that
    computes nothing and is given no such variables, cannot begin before the last one is gone.
    """
    from torchtpu import tpu

    if not tpu.is_initialized() or tpu._is_in_bad_fork():
        return
    engine = torch.autograd.Variable._execution_engine
    for index in range(tpu.device_count()):
        leaf = torch.empty(0, device=torch.device(NAME, index), requires_grad=True)
        with torch.enable_grad():
            root = leaf.view(0)
        with torch.no_grad():
            gradient = torch.empty_like(root)
        # Into `leaf.grad`: results would be held by the thread, as tensors that Python knows.
        engine.run_backward((root,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _refuse_company() -> None:
    """PyTorch has one slot for a new device (PrivateUse1): whoever came first keeps it."""
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
    """The native module, or an ImportError that says what to do about the torch it was built for."""
    try:
        from torchtpu import _C
    except ImportError as error:
        if importlib.util.find_spec("torchtpu._C") is None:
            raise ImportError(
                "torchtpu's extension is not built: run `make build` in the repository, or `pip install .`"
            ) from error
        # Most likely another torch, whose symbols are missing: the extension cannot say which it was built for.
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
