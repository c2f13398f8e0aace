"""Mixtures of experts: tokens are sorted by expert, and grouped products compute all experts at once.

rows of one expert [t, h]   gate and up [2 * i, h]   down [h, i]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.router.fused_topk_router import FusedTopKRouter
from vllm.model_executor.layers.fused_moe.runner import moe_runner
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.online.moe_base import OnlineMoEMethodBase
from vllm.model_executor.layers.quantization.utils.quant_utils import amax_for_moe_weight_quant

from torchtpu.vllm import quantization


@UnquantizedFusedMoEMethod.register_oot
class Experts(UnquantizedFusedMoEMethod):
    """vLLM's experts without quantization."""

    is_monolithic = False

    def forward_oot(self, layer: Any, x: Tensor, topk_weights: Tensor, topk_ids: Tensor, **shared: Any) -> Tensor:
        return mixed(x, topk_weights, topk_ids, layer.w13_weight, layer.w2_weight)


class Int8Experts(OnlineMoEMethodBase):
    """Experts whose weights are made int8 as they are loaded."""

    def process_weights_after_loading(self, layer: Any) -> None:
        if "w13_scale" in layer._parameters:
            return
        for name in ("w13", "w2"):
            weight = getattr(layer, f"{name}_weight")
            largest = quantization.largest_of_rows(weight)
            if name == "w2":
                largest = amax_for_moe_weight_quant(largest, self.moe.tp_size)
            narrow, scale = quantization.narrowed(weight, largest)
            setattr(layer, f"{name}_weight", nn.Parameter(narrow, requires_grad=False))
            setattr(layer, f"{name}_scale", nn.Parameter(scale, requires_grad=False))

    def get_fused_moe_quant_config(self, layer: nn.Module) -> None:
        """vLLM's kernels are not used."""

    def apply(self, layer: Any, x: Tensor, topk_weights: Tensor, topk_ids: Tensor, **shared: Any) -> Tensor:
        gate_up, down = (
            quantization.widened(getattr(layer, f"{name}_weight"), getattr(layer, f"{name}_scale"), x.dtype)
            for name in ("w13", "w2")
        )
        return mixed(x, topk_weights, topk_ids, gate_up, down)


def mixed(x: Tensor, topk_weights: Tensor, topk_ids: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """x: (tokens, h). topk_weights, topk_ids: (tokens, experts of a token). gate_up: (experts, 2 * i, h).
    down: (experts, h, i)."""
    count = topk_ids.shape[1]
    order = topk_ids.flatten().argsort(stable=True)
    experts = torch.arange(gate_up.shape[0], device=x.device)
    ends = (topk_ids.flatten()[None] <= experts[:, None]).sum(1).to(torch.int32)
    rows = x[order // count]
    gate, up = torch._grouped_mm(rows, gate_up.transpose(1, 2), ends).chunk(2, -1)
    results = torch._grouped_mm(nn.functional.silu(gate) * up, down.transpose(1, 2), ends)
    weighted = results.to(torch.float32) * topk_weights.flatten()[order, None]
    return torch.zeros_like(x, dtype=torch.float32).index_add(0, order // count, weighted).to(x.dtype)


class TopKRouter(FusedTopKRouter):
    """The choice of experts by operators of PyTorch's. vLLM's calls a kernel of CUDA's."""

    def _compute_routing(
        self, hidden_states: Tensor, router_logits: Tensor, indices_type: torch.dtype | None, **others: Any
    ) -> tuple[Tensor, Tensor]:
        logits = router_logits.to(torch.float32)
        scores = logits.softmax(-1) if self.scoring_func == "softmax" else logits.sigmoid()
        weights, ids = scores.topk(self.top_k, -1)
        if self.renormalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, ids.to(indices_type or torch.int32)


def prepare(model: nn.Module) -> None:
    """Has the mixtures of a loaded model computed by this module.

    Raises NotImplementedError for mixtures of another kind.
    """
    for name, module in model.named_modules():
        if not isinstance(module, moe_runner.MoERunner):
            continue
        experts, router = module.routed_experts, module.router
        wrong = {
            "a router of another kind": type(router) is not FusedTopKRouter,
            "shared experts": module.shared_experts is not None,
            f"the activation {experts.activation}": experts.activation != MoEActivation.SILU,
            "weights on the input": experts.apply_router_weight_on_input,
            "quantized weights of another kind": type(experts.quant_method) not in (Experts, Int8Experts),
        }
        if found := [reason for reason, is_so in wrong.items() if is_so]:
            raise NotImplementedError(f"torchtpu: {name} is a mixture of experts with {found[0]}: not supported")
        router.__class__ = TopKRouter
        # As vLLM does on a CPU: the operator that it calls otherwise hides the layer from the program.
        module._forward_entry = moe_runner._moe_forward
