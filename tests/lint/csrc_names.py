"""Fails if the C++ shim names an ATen operator without a reason in the list below.

What an operator computes, and its special cases, belong into its row (`crates/aten`). The shim only names an
operator that PyTorch requires backends to implement in C++. `make lint` runs this.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch

CSRC = Path(__file__).parents[2] / "csrc"

# For each file, the reason why it names the operators.
REASONS = {
    "autocast.cpp": {
        "it is refused where PyTorch's macros list the others": ["binary_cross_entropy"],
    },
    "collectives.cpp": {"names of reductions": ["max", "min", "sum"]},
    "copy.cpp": {
        "copies cross devices, which no program does": [
            "_copy_from",
            "_copy_from_and_resize",
            "_local_scalar_dense",
            "copy_",
        ],
        "the host's side of a copy": ["_conj_physical", "empty", "neg"],
    },
    "define.cpp": {"results without elements, which no program computes": ["empty_strided"]},
    "composites.cpp": {
        "what PyTorch composes of others, and differentiates through them, arrives at no row": ["_pad_circular", "cat"],
        "they read and write memory by strides, which no row sees": ["as_strided_copy", "as_strided_scatter"],
        "it adds to out=, which rows replace": ["_compute_linear_combination", "_compute_linear_combination.out"],
    },
    "fourier.cpp": {"PyTorch's composites refuse 16-bit floats before a kernel is asked": ["empty"]},
    "gloo.h": {"tensors of the CPU, which Gloo works on": ["empty", "trunc", "view_as_real", "zeros"]},
    "indices.cpp": {
        "PyTorch's kernels warn of these in their own words": [
            "_index_put_impl_",
            "index_fill_",
            "index_put_",
            "masked_fill_",
        ],
    },
    "kernels.cpp": {
        "PyTorch's kernel warns in its own words of a resize of out=": ["arange.start_out"],
        "torch.jit.trace records what PyTorch's kernel calls, not the operator": ["_convolution", "convolution"],
    },
    "layouts.cpp": {"a function of each device, which is no operator, is made of operators": ["zeros"]},
    "operators.cpp": {"an argument's name": ["pin_memory"]},
    "process_group.cpp": {
        "tensors of the CPU, which Gloo works on": ["cat", "empty", "view_as_complex"],
        "names of collectives": ["gather", "scatter"],
        "parts of different sizes as rows of one size": ["cat", "empty"],
    },
    "views.cpp": {
        "new tensors": ["_efficientzerotensor", "empty.memory_format", "empty_strided"],
        "views, which change no value": [
            "_reshape_alias",
            "_unsafe_view",
            "as_strided",
            "unfold",
            "view",
            "view_as_complex",
            "view_as_real",
        ],
        "storages": [
            "is_set_to",
            "resize_",
            "set",
            "set_",
            "set_.source_Storage",
            "set_.source_Storage_storage_offset",
            "set_.source_Tensor",
        ],
        "its result is no tensor": ["_has_compatible_shallow_copy_type", "equal", "record_stream"],
    },
}

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# In a string, in an included header, and in a call.
NAMES = [
    re.compile(r'"(?:aten::)?([\w.]+)"'),
    re.compile(r"<ATen/ops/(\w+?)(?:_native|_ops)?\.h>"),
    re.compile(r"\bat::(?:native::|redispatch::)?(\w+)\("),
]


def operators() -> set[str]:
    """All names, with and without the overload."""
    names = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    return names | {name.partition(".")[0] for name in names}


def complaints() -> list[str]:
    known = operators()
    found: list[str] = []
    for path in sorted(path for path in CSRC.rglob("*") if path.is_file()):
        allowed = {name for names in REASONS.get(path.name, {}).values() for name in names}
        text = COMMENT.sub("", path.read_text())
        named = {name for pattern in NAMES for name in pattern.findall(text)} & known
        found += [f"csrc/{path.name} names {name}" for name in sorted(named - allowed)]
        found += [f"csrc/{path.name} does not name {name} any more" for name in sorted(allowed - named)]
    return found


if __name__ == "__main__":
    if found := complaints():
        print(*found, f"See {Path(__file__).name} for what may be named, and why.", sep="\n", file=sys.stderr)
        sys.exit(1)
