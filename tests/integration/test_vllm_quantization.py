"""vLLM on the device with weights of 8 and 4 bits, beside transformers with the same weights in float32."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import programs_made
from tests.integration.engines import engine, generated, model_of, prompts_of, shut_down, vllm

__all__ = ["model_of", "vllm"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROMPTS = prompts_of([1, 2, 100, 17, 64, 33, 7])
ONLINE = {"quantization": "online", "dtype": "float16"}
LINEAR = {"linear": "int8_per_channel_static"}
EXPERTS = {"moe": "int8_per_channel_static"}


def loaded(folder: Path, dtype: torch.dtype) -> Any:
    """The model with weights rounded to a type, computing in float32."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval().float()


def quantized_linears(model: nn.Module) -> dict[str, nn.Linear]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    return {name: module for name, module in layers.items() if name != "lm_head"}


def rounded(weight: Tensor, scale: Tensor, bits: int, zero: Tensor | int = 0) -> Tensor:
    """The integers of a weight [.., o, i] for scales [.., o, groups]."""
    groups = weight.double().unflatten(-1, (scale.shape[-1], -1)) / scale.double()[..., None]
    moved = groups.round() + (zero[..., None] if isinstance(zero, Tensor) else zero)
    return moved.clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).flatten(-2)


def per_row(weight: Tensor) -> Tensor:
    """The weight after it was int8 with a scale for each row."""
    scale = weight.abs().amax(-1, keepdim=True) / 127
    return (rounded(weight, scale, 8).float() * scale).to(weight.dtype)


def assert_same_answers(llm: Any, vllm: Any, model: nn.Module, tolerance: float) -> None:
    """Greedy answers of an engine have the probabilities that a model computes, and are its most likely tokens. The
    second run comes from cached prefixes. Nothing is compiled."""
    settings = vllm.SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, detokenize=False, logprobs=4)
    before = programs_made()
    for _ in range(2):
        for prompt, answer in zip(PROMPTS, generated(llm, PROMPTS, settings), strict=True):
            tokens = list(answer.outputs[0].token_ids)
            with torch.no_grad():
                logits = model(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
            expected = logits.float().log_softmax(-1)
            for row, token, found in zip(expected, tokens, answer.outputs[0].logprobs, strict=True):
                assert row[token] >= row.max() - 2 * tolerance
                for other, value in found.items():
                    assert abs(row[other].item() - value.logprob) < tolerance
    assert programs_made() == before


def test_weights_made_int8_at_loading(vllm: Any, model_of: Callable[[str], Path]) -> None:
    folder = model_of("Llama")
    llm = engine(vllm, folder, **ONLINE, quantization_config=LINEAR)
    reference = loaded(folder, torch.float16)
    for layer in quantized_linears(reference).values():
        layer.weight.data = per_row(layer.weight.data)
    try:
        worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
        held = {name: each.dtype for name, each in worker.weights.items() if each.dtype == torch.int8}
        assert len(held) == 4 * 2  # qkv, o, gate and up, down, in two layers
        torch.tpu.synchronize()
        torch.tpu.reset_peak_memory_stats()
        before = torch.tpu.memory_allocated()
        assert_same_answers(llm, vllm, reference, 0.02)
        assert torch.tpu.max_memory_allocated() - before <= worker._temporaries()
    finally:
        shut_down(llm)


@pytest.mark.parametrize("kinds", [EXPERTS, EXPERTS | LINEAR], ids=["experts", "all"])
def test_experts_made_int8_at_loading(kinds: dict[str, str], vllm: Any, model_of: Callable[[str], Path]) -> None:
    folder = model_of("a mixture of experts")
    llm = engine(vllm, folder, **ONLINE, quantization_config=kinds)
    reference = loaded(folder, torch.float16)
    for name, parameter in reference.named_parameters():
        if "experts" in name:
            parameter.data = per_row(parameter.data)
    if "linear" in kinds:
        routers = [module for name, module in reference.named_modules() if name.endswith("mlp.gate")]
        for layer in {*quantized_linears(reference).values(), *routers}:
            layer.weight.data = per_row(layer.weight.data)
    try:
        assert_same_answers(llm, vllm, reference, 0.03)
    finally:
        shut_down(llm)


def test_the_short_name_quantizes_experts(vllm: Any, model_of: Callable[[str], Path]) -> None:
    options = {"quantization": "int8_per_channel_weight_only", "dtype": "bfloat16"}
    llm = engine(vllm, model_of("a mixture of experts"), **options)
    try:
        worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
        assert {"w13_weight", "w2_weight"} == {
            name.rpartition(".")[2] for name, each in worker.weights.items() if each.dtype == torch.int8
        }
        assert generated(llm, PROMPTS[:2], vllm.SamplingParams(max_tokens=2, detokenize=False))
    finally:
        shut_down(llm)


# ---- checkpoints of compressed-tensors ---------------------------------------------------------------------------


def write_packed(folder: Path, target: Path, bits: int, group: int | None, symmetric: bool) -> Any:
    """Writes a checkpoint with packed weights. Returns the model whose weights are those of the checkpoint."""
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    model = loaded(folder, torch.float32)
    tensors = dict(model.state_dict())
    for name, layer in quantized_linears(model).items():
        weight = layer.weight.data
        outputs, inputs = weight.shape
        groups = weight.unflatten(-1, (1 if group is None else inputs // group, -1))
        zero: Tensor | int = 0
        if symmetric:
            scale = groups.abs().amax(-1) / (2 ** (bits - 1) - 1)
        else:
            scale = (groups.amax(-1) - groups.amin(-1)) / (2**bits - 1)
            zero = (-(2 ** (bits - 1)) - groups.amin(-1) / scale).round()
        numbers = rounded(weight, scale, bits, zero)
        of_group = zero[..., None] if isinstance(zero, Tensor) else zero
        layer.weight.data = (
            ((numbers.unflatten(-1, (scale.shape[1], -1)) - of_group) * scale[..., None]).flatten(-2).float()
        )
        del tensors[f"{name}.weight"]
        tensors[f"{name}.weight_packed"] = pack_to_int32(numbers.to(torch.int8), bits)
        tensors[f"{name}.weight_scale"] = scale
        tensors[f"{name}.weight_shape"] = torch.tensor([outputs, inputs])
        if isinstance(zero, Tensor):
            packed = pack_to_int32(zero.to(torch.int8), bits, packed_dim=0)
            tensors[f"{name}.weight_zero_point"] = packed.contiguous()
    strategy = {"strategy": "channel"} if group is None else {"strategy": "group", "group_size": group}
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, **strategy}
    write_checkpoint(folder, target, tensors, {"weights": weights}, "pack-quantized")
    return model


def write_checkpoint(folder: Path, target: Path, tensors: Any, scheme: dict[str, Any], form: str) -> None:
    from safetensors.torch import save_file

    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    save_file({name: each.contiguous() for name, each in tensors.items()}, target / "model.safetensors")
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], **scheme}},
    }
    (target / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("bits", "group", "symmetric"), [(8, None, True), (8, 32, False), (4, 32, True), (4, 16, False), (4, None, True)]
)
def test_packed_checkpoints(
    bits: int, group: int | None, symmetric: bool, vllm: Any, model_of: Callable[[str], Path], tmp_path: Path
) -> None:
    reference = write_packed(model_of("Llama"), tmp_path, bits, group, symmetric)
    llm = engine(vllm, tmp_path)
    try:
        worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
        held = [each.numel() for name, each in worker.weights.items() if name.endswith("weight_packed")]
        numbers = sum(layer.weight.numel() for layer in quantized_linears(reference).values())
        assert sum(held) == numbers * bits // 8
        assert_same_answers(llm, vllm, reference, 1e-3)
    finally:
        shut_down(llm)


def test_two_processes_share_a_packed_checkpoint(vllm: Any, model_of: Callable[[str], Path], tmp_path: Path) -> None:
    reference = write_packed(model_of("Llama"), tmp_path, 4, 16, symmetric=False)
    llm = engine(vllm, tmp_path, tensor_parallel_size=2)
    try:
        assert_same_answers(llm, vllm, reference, 1e-3)
    finally:
        shut_down(llm)


class Int8Activations(nn.Module):
    """A layer that multiplies integers: inputs have a scale for each token, or one for all."""

    def __init__(self, weight: Tensor, scale: Tensor, of_input: Tensor | None) -> None:
        super().__init__()
        self.weight, self.scale, self.of_input = weight.double(), scale.double(), of_input

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127 if self.of_input is None else self.of_input
        numbers = (x / scale).round().clamp(-128, 127).double()
        return ((numbers @ self.weight.t()) * scale.double() * self.scale.t()).float()


@pytest.mark.parametrize("is_dynamic", [True, False], ids=["dynamic", "static"])
@pytest.mark.parametrize("strategy", ["channel", "tensor"])
def test_checkpoints_with_int8_activations(
    strategy: str, is_dynamic: bool, vllm: Any, model_of: Callable[[str], Path], tmp_path: Path
) -> None:
    model = loaded(model_of("Llama"), torch.float32)
    tensors = dict(model.state_dict())
    for name, layer in quantized_linears(model).items():
        weight = layer.weight.data
        largest = weight.abs().amax(-1, keepdim=True) if strategy == "channel" else weight.abs().amax().reshape(1)
        scale = largest / 127
        numbers = rounded(weight, scale.reshape(-1, 1).expand(weight.shape[0], 1), 8)
        of_input = None if is_dynamic else torch.tensor([0.03])
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"] = numbers.to(torch.int8), scale
        if of_input is not None:
            tensors[f"{name}.input_scale"] = of_input
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, Int8Activations(numbers, scale.reshape(-1, 1), of_input))
    whole = {"num_bits": 8, "type": "int", "symmetric": True}
    inputs = {"strategy": "token" if is_dynamic else "tensor", "dynamic": is_dynamic}
    scheme = {"weights": whole | {"strategy": strategy}, "input_activations": whole | inputs}
    write_checkpoint(model_of("Llama"), tmp_path, tensors, scheme, "int-quantized")
    llm = engine(vllm, tmp_path)
    try:
        # A number between two integers is rounded to either, after other roundings before it.
        assert_same_answers(llm, vllm, model, 0.1)
    finally:
        shut_down(llm)


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantization_config": LINEAR}, "quantization_config has no meaning without quantization=online"),
        ({"quantization": "fp8_per_tensor", "dtype": "bfloat16"}, "quantization=fp8_per_tensor is not supported"),
        ({**ONLINE, "quantization_config": {"linear": "fp8_per_channel_static"}}, "linear=fp8_per_channel_static"),
        ({"quantization": "unheard_of"}, "unheard_of"),
    ],
)
def test_other_quantizations_are_refused(
    options: dict[str, Any], message: str, vllm: Any, model_of: Callable[[str], Path]
) -> None:
    with pytest.raises(Exception, match=message):
        engine(vllm, model_of("Llama"), **options)


def test_weights_of_other_widths_are_refused(vllm: Any, model_of: Callable[[str], Path], tmp_path: Path) -> None:
    write_packed(model_of("Llama"), tmp_path, 3, None, symmetric=True)
    with pytest.raises(Exception, match="weights of 3 bits are not supported"):
        engine(vllm, tmp_path)
