"""Sizes that change."""

from __future__ import annotations

from torch import Tensor

from torchtpu import _C


def mark_dynamic(tensor: Tensor, dim: int, *, max: int | None = None) -> None:
    """Says that a dimension of a tensor changes, from the first time on.

    Eager programs over the tensor, and over what is computed from it, take the size of the dimension as an input. They
    serve all sizes up to `max`, or else up to the next power of two. Later tensors that the line of this one uploads
    are the same, without a mark. Otherwise sizes become inputs at the second or third size that a line uploads.

    `torch._dynamo.mark_dynamic`, which torch.compile needs, has this effect too where eager operators take the tensor.
    With `TORCHTPU_SIZES=static`, and in a process group, a mark has no effect.

    Args:
        tensor: a tensor on the device, of any dtype, that is dense and no view of a part of another one.
        dim: the dimension that changes. Its size is at least 2.
        max: the largest size.

    Raises:
        IndexError: if the tensor has no such dimension.
        ValueError: if the tensor is on another device, or its size is below 2 or above `max`.
        RuntimeError: if the tensor is a view of a part, not dense, or without a value.
    """
    if tensor.device.type != "tpu":
        raise ValueError(f"mark_dynamic needs a tensor on a tpu device, not on {tensor.device}")
    size = tensor.size(dim)
    if size < 2:
        raise ValueError(f"mark_dynamic needs a dimension of at least 2, not {size}: sizes 0 and 1 have own programs")
    if max is not None and size > max:
        raise ValueError(f"the size {size} is larger than max={max}")
    if _mark(tensor, dim, max) is None:
        raise RuntimeError("mark_dynamic needs a tensor that covers its storage densely and has a value")


def apply_marks(tensor: Tensor) -> bool:
    """Marks the dimensions that `torch._dynamo.mark_dynamic` has marked. Marks that have no meaning here are ignored.

    Called for an argument of an eager operator that carries such marks. Returns whether the tensor's value got padding.
    """
    ranges = {each.dim: each.max for each in getattr(tensor, "_dynamo_dynamic_range", ())}
    marked = [dim for dim in getattr(tensor, "_dynamo_dynamic_indices", ()) if -tensor.dim() <= dim < tensor.dim()]
    padded = [_mark(tensor, dim, ranges.get(dim)) for dim in marked if tensor.size(dim) > 1]
    return True in padded


def _mark(tensor: Tensor, dim: int, most: int | None) -> bool | None:
    """Returns whether the tensor's value got padding; None if the tensor does not cover its storage densely."""
    if tensor.storage_offset() != 0 or tensor.is_conj() or tensor.is_neg():
        return None
    return _C.mark_dynamic(tensor, list(tensor.shape), list(tensor.stride()), dim % tensor.dim(), most)
