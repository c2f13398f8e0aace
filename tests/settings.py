"""Settings of a test run."""

from __future__ import annotations

import os
from collections.abc import Mapping

MODES = ("debug", "strict", "fused")

# All random draws of tests depend on this number. `make test-nightly` uses the date.
SEED = int(os.environ.get("TORCHTPU_TEST_SEED", "0"))

# These flags halve the CPU time of a compile with XLA's CPU compiler. Most of a run's time is compiling, and most
# tests judge the lowerings, not LLVM's optimizations.
QUICK_COMPILES = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def skip_guard_timing() -> None:
    """Dynamo times the guards of each function that it compiles, with the processor's caches emptied before. Only its
    log has the time. Must be called before Dynamo is imported."""
    from torch._C._dynamo import guards

    guards.profile_guard_manager = lambda *_: 0.0


def with_quick_compiles(flags: str) -> str:
    """XLA's flags, after those for quick compiles. Plugins other than the CPU's end at flags that they do not know."""
    if os.environ.get("TORCHTPU_PLATFORM", "cpu") != "cpu":
        return flags
    return " ".join((*QUICK_COMPILES, flags)).strip()


def without_quick_compiles(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that loads libtpu: it ends at flags of XLA's CPU compiler."""
    flags = environment.get("XLA_FLAGS", "").split()
    return {**environment, "XLA_FLAGS": " ".join(flag for flag in flags if flag not in QUICK_COMPILES)}
