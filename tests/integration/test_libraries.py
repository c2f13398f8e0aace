"""Unmodified models and trainers of well-known libraries. `make test-libraries` installs the libraries and runs
this.

Every model is small and has random weights. Nothing is downloaded.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
VOCABULARY = 100


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: make test-libraries")


def llama() -> nn.Module:
    transformers = library("transformers")
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=VOCABULARY)
    )


def gpt2() -> nn.Module:
    transformers = library("transformers")
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def mixtral() -> nn.Module:
    transformers = library("transformers")
    config = transformers.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4, vocab_size=VOCABULARY)
    return transformers.MixtralForCausalLM(config)


# Layers of experts: (the model's name, its settings).
EXPERTS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}),
    "deepseek_v3": (
        "DeepseekV3",
        {
            "num_key_value_heads": 4,
            "n_routed_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "first_k_dense_replace": 1,
        },
    ),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 8}),
    "jamba": (
        "Jamba",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
    ),
    "qwen3_next": (
        "Qwen3Next",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "head_dim": 8,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
}


def with_experts(name: str) -> nn.Module:
    transformers = library("transformers")
    family, settings = EXPERTS[name]
    common = {**SMALL, "num_key_value_heads": 2, "vocab_size": VOCABULARY, "pad_token_id": None, "eos_token_id": 1}
    config = getattr(transformers, f"{family}Config")(**{**common, **settings})
    return getattr(transformers, f"{family}ForCausalLM")(config)


def mamba() -> nn.Module:
    transformers = library("transformers")
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=VOCABULARY, state_size=4)
    return transformers.MambaForCausalLM(config)


def vit() -> nn.Module:
    transformers = library("transformers")
    return transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, image_size=32, patch_size=8))


def wav2vec2() -> nn.Module:
    """Its convolution for positions has a weight norm."""
    transformers = library("transformers")
    layers = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2)}
    positions = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    return transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**SMALL, **layers, **positions))


def unet() -> nn.Module:
    return library("diffusers").UNet2DConditionModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(32, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, VOCABULARY, (2, 9))}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "gpt2": (gpt2, tokens),
    "llama": (llama, tokens),
    "mixtral": (mixtral, tokens),
    "mamba": (mamba, tokens),
    **{name: (functools.partial(with_experts, name), tokens) for name in EXPERTS},
    "vit": (vit, lambda: {"pixel_values": torch.randn(2, 3, 32, 32)}),
    "wav2vec2": (wav2vec2, lambda: {"input_values": torch.randn(2, 800)}),
    "unet": (
        unet,
        lambda: {
            "sample": torch.randn(2, 4, 16, 16),
            "timestep": torch.tensor([3, 7]),
            "encoder_hidden_states": torch.randn(2, 5, 32),
        },
    ),
    "convnext": (lambda: library("timm").create_model("convnext_atto"), lambda: {"x": torch.randn(2, 3, 64, 64)}),
    "resnet": (lambda: library("torchvision").models.resnet18(), lambda: {"x": torch.randn(2, 3, 64, 64)}),
}


def result_of(output: Any) -> Tensor:
    for name in ("logits", "sample"):
        if hasattr(output, name):
            output = getattr(output, name)
    assert isinstance(output, Tensor)
    return output


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str, mode: str, device: torch.device) -> None:
    """Forward and backward, compared with the CPU."""
    make, inputs_of = MODELS[name]
    model, inputs = make().eval(), inputs_of()
    moved = copy.deepcopy(model).to(device)
    with torch.tpu.set_eager_mode(mode):
        expected = result_of(model(**inputs))
        actual = result_of(moved(**{key: value.to(device) for key, value in inputs.items()}))
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-3, atol=1e-4)
        expected.square().mean().backward()
        actual.square().mean().backward()
        largest = max(float(each.grad.abs().max()) for each in model.parameters() if each.grad is not None)
        for one, other in zip(model.parameters(), moved.parameters(), strict=True):
            if one.grad is not None and other.grad is not None:
                torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-3, atol=1e-4 * largest)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
@pytest.mark.parametrize("make", [gpt2, llama, mixtral])
def test_generation(make: Callable[[], nn.Module], options: dict[str, Any], device: torch.device) -> None:
    """The same tokens as on the CPU. A row of the batch is padded on the left."""
    model: Any = make().eval()
    ids = torch.randint(3, VOCABULARY, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, **options}
    expected = model.generate(ids, attention_mask=mask, **options)
    actual = model.to(device).generate(ids.to(device), attention_mask=mask.to(device), **options)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("name", EXPERTS)
def test_generation_with_experts(name: str, device: torch.device) -> None:
    model: Any = with_experts(name).eval()
    ids = torch.randint(3, VOCABULARY, (2, 9))
    expected = model.generate(ids, max_new_tokens=4, do_sample=False)
    actual = model.to(device).generate(ids.to(device), max_new_tokens=4, do_sample=False)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("name", ["mixtral", *EXPERTS])
def test_compiled_with_experts(name: str, device: torch.device, fresh_dynamo: None) -> None:
    model = (mixtral() if name == "mixtral" else with_experts(name)).eval()
    ids = tokens()["input_ids"]
    expected = model(input_ids=ids, labels=ids)
    moved = copy.deepcopy(model).to(device)
    actual = torch.compile(moved)(input_ids=ids.to(device), labels=ids.to(device))
    torch.testing.assert_close(actual.logits.detach().cpu(), expected.logits.detach(), rtol=1e-3, atol=1e-4)
    expected.loss.backward()
    actual.loss.backward()
    for one, other in zip(model.parameters(), moved.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("arguments", [{}, {"bf16": True}, {"torch_compile": True}], ids=["plain", "bf16", "compile"])
def test_trainer(
    arguments: dict[str, Any], device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer gets its device from accelerate, which reads this variable before it looks for known devices."""
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "tpu")
    transformers = library("transformers")
    library("accelerate")
    ids = torch.randint(3, VOCABULARY, (16, 12))
    examples = [{"input_ids": each, "labels": each} for each in ids]
    options = {"per_device_train_batch_size": 8, "num_train_epochs": 8, "learning_rate": 1e-2, "report_to": []}
    chosen = transformers.TrainingArguments(str(tmp_path), **options, **arguments, disable_tqdm=True)
    trainer = transformers.Trainer(llama(), chosen, train_dataset=examples, eval_dataset=examples)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert next(trainer.model.parameters()).device.type == device.type
    assert trainer.evaluate()["eval_loss"] < 0.9 * before


def test_low_rank_adapters(device: torch.device) -> None:
    """With mixed precision, checkpointing and a fused optimizer."""
    peft: Any = library("peft")
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])).to(device)
    model.base_model.model.lm_head.weight.requires_grad_()
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2, fused=True)
    ids = torch.randint(3, VOCABULARY, (4, 12), device=device)
    losses = []
    for _ in range(10):
        with torch.autocast("tpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


# Activations that are quantized too may be rounded to the other of two neighbours.
@pytest.mark.parametrize(
    ("config", "tolerance"), [("Int8WeightOnlyConfig", 1e-4), ("Int8DynamicActivationInt8WeightConfig", 1e-2)]
)
@pytest.mark.parametrize("quantized_on", ["cpu", "tpu"])
def test_weights_of_8_bits(config: str, tolerance: float, quantized_on: str, device: torch.device, mode: str) -> None:
    """torchao: the logits beside the CPU's, for weights that are quantized before or after they are moved."""
    quantization: Any = library("torchao.quantization")
    torch.manual_seed(0)
    model = llama().eval()
    expected_model, actual_model = copy.deepcopy(model), copy.deepcopy(model).to(quantized_on)
    for each in (expected_model, actual_model):
        quantization.quantize_(each, getattr(quantization, config)())
    actual_model.to(device)
    weight = actual_model.model.layers[0].mlp.up_proj.weight
    assert weight.qdata.device.type == device.type
    assert weight.qdata.dtype is torch.int8
    ids = torch.arange(3, 27).reshape(2, 12) % VOCABULARY
    with torch.no_grad():
        expected, actual = expected_model(ids).logits, actual_model(ids.to(device)).logits
        assert not torch.equal(expected, model(ids).logits), "the weights are not quantized"
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=tolerance)


def test_compiled_weights_of_8_bits(device: torch.device, fresh_dynamo: None) -> None:
    quantization: Any = library("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).eval()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    x = torch.randn(8, 64)
    with torch.no_grad():
        compiled = torch.compile(copy.deepcopy(model).to(device), fullgraph=True)
        torch.testing.assert_close(compiled(x.to(device)).cpu(), model(x))
