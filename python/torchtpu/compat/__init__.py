"""Modules with the names of Google's torch_tpu, for other libraries that run kernels on a TPU.

helion's Pallas backend and inductor's `tpu_backend="pallas"` import `torch_tpu._internal.pallas` and call its
functions. `install()` registers modules of that name that use `torchtpu.pallas`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

ALIASES = {
    "torch_tpu._internal.pallas.tpu_torch_pallas": "torchtpu.compat.custom_kernels",
    "torch_tpu._internal.pallas.pallas": "torchtpu.compat.callables",
    "torch_tpu._internal.utils.hardware": "torchtpu.compat.hardware",
}


def install() -> None:
    """Registers the modules. If programs are not for a TPU, JAX is set to interpret Pallas kernels.

    Raises ImportError if Google's package is installed, or if JAX is not.
    """
    if "torch_tpu" in sys.modules and hasattr(sys.modules["torch_tpu"], "__torchtpu__"):
        return
    if "torch_tpu" in sys.modules or importlib.util.find_spec("torch_tpu") is not None:
        raise ImportError("torch_tpu is installed and has modules of the same names: only one package can be used")
    from torchtpu.kernels.imports import import_jax
    from torchtpu.kernels.store import target

    import_jax("torchtpu.compat")
    if target()[0] != "tpu":
        from jax._src import config

        # Clients export functions themselves: this makes Pallas kernels in them plain StableHLO.
        config.pallas_tpu_interpret_mode_context_manager.set_global(True)
    for alias, name in ALIASES.items():
        _place(alias, importlib.import_module(name))
    from torchtpu.pallas import jax_op

    sys.modules["torch_tpu._internal.pallas"].jax_op = jax_op  # type: ignore[attr-defined]


def _place(alias: str, module: ModuleType) -> None:
    """Registers a module under another name, and creates the packages that contain it."""
    sys.modules[alias] = module
    parent, _, name = alias.rpartition(".")
    if parent not in sys.modules:
        package = ModuleType(parent, "Registered by torchtpu.compat.install().")
        package.__path__ = []
        package.__torchtpu__ = True  # type: ignore[attr-defined]
        if "." in parent:
            _place(parent, package)
        else:
            sys.modules[parent] = package
    setattr(sys.modules[parent], name, module)
