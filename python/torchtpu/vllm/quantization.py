"""Weights of 8 and 4 bits. They stay so in memory, and a program widens them where it multiplies.

Weights have a scale for each row of outputs and each group of inputs: w[o, i] = (q[o, i] - z[o, g]) * s[o, g].

    int8 [.., o, i]        a number in a byte
    uint8 [.., o, i / 2]   two numbers of 4 bits in a byte: the low ones are of the first half of the inputs
    s [.., o, groups]      z [o, groups], int8, if there are zero points

Where activations are of 8 bits too, the product is of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from torch import Tensor, nn
from vllm.config.quantization import QuantizationConfigArgs, QuantSpec
from vllm.model_executor.kernels.linear import (
    Int8ScaledMMLinearKernel,
    Int8ScaledMMLinearLayerConfig,
    MPLinearKernel,
    MPLinearLayerConfig,
    register_linear_kernel,
)
from vllm.model_executor.layers.quantization.online import base as online
from vllm.model_executor.layers.quantization.online.fp8 import OnlineLinearBase
from vllm.model_executor.layers.quantization.utils.quant_utils import amax_for_tp_weight_quant, kInt8StaticChannelSym
from vllm.model_executor.layers.quantization.utils.w8a8_utils import convert_to_channelwise
from vllm.platforms import PlatformEnum

# What a byte of a signed number reaches on both sides.
LARGEST = 127
# Names of `quantization`. "online" means that `quantization_config` says what is quantized.
SUPPORTED = ("compressed-tensors", "int8_per_channel_weight_only", "online")
ONLINE = "int8_per_channel_static"


def unsupported(quantization: str | None, config: Any) -> str | None:
    """Why the options `quantization` and `quantization_config` are not supported; None if they are."""
    if config is not None and not isinstance(config, QuantizationConfigArgs):
        config = QuantizationConfigArgs(**config)
    if quantization is None:
        # vLLM would serve the weights as they are.
        return None if config is None else "quantization_config has no meaning without quantization=online: give both"
    if quantization not in SUPPORTED:
        return f"quantization={quantization} is not supported: {', '.join(SUPPORTED)} are"
    if config is None:
        return None
    for kind in ("linear", "moe"):
        spec: QuantSpec | None = getattr(config, kind)
        if spec is not None and (spec.weight != kInt8StaticChannelSym or spec.activation is not None):
            return f"quantization_config: {kind}={spec} is not supported: {ONLINE}, without activation, is"
    for pattern, name in (config.targets or {}).items():
        if name not in SUPPORTED:
            return f"quantization_config: targets {pattern}={name} is not supported: int8_per_channel_weight_only is"
    return None


def register() -> None:
    """Has vLLM find the layers and kernels of this module."""
    if online._ONLINE_LINEAR_METHODS.get(kInt8StaticChannelSym) is Int8Linear:
        return
    from torchtpu.vllm.experts import Int8Experts

    online._ONLINE_LINEAR_METHODS[kInt8StaticChannelSym] = Int8Linear
    online._ONLINE_MOE_METHODS[kInt8StaticChannelSym] = Int8Experts
    register_linear_kernel(NarrowWeights, PlatformEnum.OOT, "mp")
    register_linear_kernel(Int8Product, PlatformEnum.OOT, "int8")


# ---- numbers ---------------------------------------------------------------------------------------------------


def narrowed(weight: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """A weight [.., o, i] in int8, and the scale [.., o, 1] in float32, for `largest`, the largest |w| of each row
    [.., o, 1]. A row of zeros has the scale 1."""
    scale = largest.to(torch.float32) / LARGEST
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (weight / scale).round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scale


def largest_of_rows(weight: Tensor) -> Tensor:
    """The largest |w| of each row of outputs, [.., o, 1]. Copies no weight."""
    low, high = weight.aminmax(dim=-1, keepdim=True)
    return torch.maximum(low.abs(), high.abs())


def widened(weight: Tensor, scale: Tensor, dtype: torch.dtype, zero: Tensor | None = None) -> Tensor:
    """The weight [.., o, i] in a floating type."""
    if weight.dtype == torch.uint8:
        both = weight.view(torch.int8)
        weight = torch.cat([(both << 4) >> 4, both >> 4], -1)
    numbers = weight.unflatten(-1, (scale.shape[-1], -1)).to(torch.float32)
    if zero is not None:
        numbers = numbers - zero.to(torch.float32)[..., None]
    return (numbers * scale.to(torch.float32)[..., None]).flatten(-2).to(dtype)


def paired(weight: Tensor) -> Tensor:
    """Numbers of 4 bits [o, i], int8, two in a byte [o, i / 2], uint8."""
    low, high = weight.view(torch.uint8).chunk(2, -1)
    return (low & 15) | (high << 4)


def widened_bytes(weights: Sequence[Tensor]) -> int:
    """An upper bound of the bytes of the largest weight of a model while it is widened: float32 and the result."""
    sizes = [(2 if each.dtype == torch.uint8 else 1) * each.numel() for each in weights if not each.is_floating_point()]
    return 6 * max(sizes, default=0)


# ---- layers ----------------------------------------------------------------------------------------------------


class Int8Linear(OnlineLinearBase):
    """Weights that are made int8 as they are loaded."""

    activation_quant_key = None

    def process_weights_after_loading(self, layer: Any) -> None:
        if "weight_scale" in layer._parameters:
            return
        largest = largest_of_rows(layer.weight)
        largest = amax_for_tp_weight_quant(largest, layer.input_size != layer.input_size_per_partition)
        weight, scale = narrowed(layer.weight, largest)
        layer.weight = _parameter(weight)
        layer.weight_scale = _parameter(scale)

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x: (.., i). bias: (o,)."""
        return nn.functional.linear(x, widened(layer.weight, layer.weight_scale, x.dtype), bias)


class NarrowWeights(MPLinearKernel):
    """Checkpoints whose weights have 8 or 4 bits and whose activations are floating (compressed-tensors)."""

    @classmethod
    def get_min_capability(cls) -> int:
        return -1

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        bits = c.weight_type.size_bits
        if bits not in (4, 8):
            return False, f"torchtpu: weights of {bits} bits are not supported: 4 and 8 are"
        if not c.act_type.is_floating_point or c.act_type.itemsize == 1:
            return False, f"torchtpu: {c.act_type} beside weights of {bits} bits is not supported"
        return True, None

    def process_weights_after_loading(self, layer: Any) -> None:
        bits = self.config.weight_type.size_bits
        inputs, outputs = self.config.partition_weight_shape
        packed, scale, zero = self._get_weight_params(layer)
        weight = unpack_from_int32(packed.data, bits, torch.Size((outputs, inputs)))
        setattr(layer, self.w_q_name, _parameter(paired(weight) if bits == 4 and inputs % 2 == 0 else weight))
        setattr(layer, self.w_s_name, _parameter(scale.data))
        if self.config.zero_points:
            assert zero is not None
            assert self.w_zp_name is not None
            shape = torch.Size((outputs, scale.shape[1]))
            setattr(layer, self.w_zp_name, _parameter(unpack_from_int32(zero.data, bits, shape, packed_dim=0)))

    def apply_weights(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x: (.., i). bias: (o,)."""
        weight, scale, zero = self._get_weight_params(layer)
        return nn.functional.linear(x, widened(weight, scale, x.dtype, zero), bias)


class Int8Product(Int8ScaledMMLinearKernel):
    """Weights and activations of 8 bits, multiplied as integers (compressed-tensors)."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, c: Int8ScaledMMLinearLayerConfig) -> tuple[bool, str | None]:
        if not c.input_symmetric:
            return False, "torchtpu: activations with zero points are not supported: symmetric ones are"
        return True, None

    def process_weights_after_loading(self, layer: Any) -> None:
        weight, scale, of_input, _, _ = self._get_layer_params(layer)
        if not self.config.is_channelwise:
            scale = convert_to_channelwise(scale, layer.logical_widths)
        layer.weight = _parameter(weight.data)
        layer.weight_scale = _parameter(scale.data.reshape(-1))
        if self.config.is_static_input_scheme:
            assert of_input is not None
            layer.input_scale = _parameter(of_input.data.max())

    def apply_weights(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x: (.., i). bias: (o,). Each token has a scale, unless the checkpoint has one for all."""
        numbers = x.flatten(0, -2).to(torch.float32)
        if self.config.is_static_input_scheme:
            scale = layer.input_scale
        else:
            scale = numbers.abs().amax(-1, keepdim=True) / LARGEST
            scale = torch.where(scale > 0, scale, 1.0)
        quantized = (numbers / scale).round().clamp(-LARGEST - 1, LARGEST).to(torch.int8)
        product = torch._int_mm(quantized, layer.weight.t()).to(torch.float32) * scale * layer.weight_scale
        if bias is not None:
            product = product + bias.to(torch.float32)
        return product.to(x.dtype).unflatten(0, x.shape[:-1])


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.contiguous(), requires_grad=False)
