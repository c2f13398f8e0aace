"""Each architecture of the installed transformers, with few and random weights: outputs and gradients beside the CPU's.

`make judge-architectures` runs this file. What the CPU cannot run at this size is skipped, with its words.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.models.auto import modeling_auto as auto

TASKS = {
    "causal": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "sequence": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "image": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "segmentation": auto.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES,
    "detection": auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES,
    "depth": auto.MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES,
    "audio": auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
}
WORDS, LENGTH, PIXELS, SAMPLES = 99, 16, 64, 4000
MOST_WEIGHTS = 30e6
SIZES: tuple[tuple[float, str], ...] = (
    (
        32,
        "hidden_size d_model n_embd dim embed_dim n_embed emb_dim word_embed_proj_dim embedding_size "
        "moe_intermediate_size",
    ),
    (64, "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner image_size"),
    (
        4,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
        "n_routed_experts num_local_experts linear_num_value_heads linear_num_heads rotary_dim",
    ),
    (
        2,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
        "num_encoder_layers num_key_value_heads num_experts_per_tok linear_num_key_heads eos_token_id",
    ),
    (
        8,
        "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim state_size mamba_d_state mamba_n_heads "
        "mamba_d_head linear_key_head_dim linear_value_head_dim",
    ),
    (16, "q_lora_rank kv_lora_rank qk_head_dim patch_size sliding_window"),
    (128, "max_position_embeddings n_positions n_ctx"),
    (WORDS, "vocab_size"),
    (1, "n_group topk_group bos_token_id decoder_start_token_id"),
    (0, "pad_token_id"),
    (
        0.0,
        "hidden_dropout_prob attention_probs_dropout_prob attention_dropout dropout hidden_dropout resid_pdrop "
        "embd_pdrop attn_pdrop classifier_dropout activation_dropout layerdrop encoder_layerdrop decoder_layerdrop "
        "dropout_rate drop_path_rate",
    ),
)
SETTINGS = {name: size for size, names in SIZES for name in names.split()}
# Where a config does not take all settings: what is left out, and what is set instead.
VARIANTS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((), {}),
    (("head_dim",), {}),
    ((), {"num_key_value_heads": 4}),
    # Every fourth or eighth layer is one of attention.
    ((), {"num_hidden_layers": 5}),
    (("image_size", "patch_size"), {}),
    (("patch_size",), {}),
)


def cases() -> Iterator[tuple[str, str]]:
    for task, names in TASKS.items():
        for kind in names:
            yield task, kind


def config(kind: str, left_out: tuple[str, ...], instead: dict[str, Any]) -> PretrainedConfig:
    """A small config of an architecture. Configs of its parts are small, too."""
    made: type[PretrainedConfig] = CONFIG_MAPPING[kind]
    usual = made()
    settings: dict[str, Any] = {}
    for name, value in vars(usual).items():
        if isinstance(value, PretrainedConfig) and value.model_type in CONFIG_MAPPING:
            settings[name] = config(value.model_type, left_out, instead).to_dict()
    for name, size in {**SETTINGS, **instead}.items():
        if name not in left_out and hasattr(usual, name) and isinstance(getattr(usual, name), int | float | None):
            settings[name] = size
    return made(**settings)


def inputs(task: str, config: PretrainedConfig) -> dict[str, Tensor]:
    words = torch.randint(3, WORDS, (2, LENGTH))
    if task in ("causal", "masked", "sequence"):
        mask = torch.ones_like(words)
        mask[1, LENGTH - 4 :] = 0
        given = {"input_ids": words, "attention_mask": mask}
        return given if task != "sequence" else {**given, "decoder_input_ids": words[:, : LENGTH // 2]}
    if task == "audio":
        return {"input_values": torch.randn(1, SAMPLES)}
    size = getattr(config, "image_size", None)
    pixels = size if isinstance(size, int) else PIXELS
    return {"pixel_values": torch.randn(1, getattr(config, "num_channels", 3), pixels, pixels)}


def tensors(outputs: Any) -> Iterator[Tensor]:
    """The tensors of a model's outputs. Caches are not compared."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, dict):
        for value in outputs.values():
            yield from tensors(value)
    elif isinstance(outputs, list | tuple):
        for value in outputs:
            yield from tensors(value)


def trained(model: nn.Module, given: dict[str, Tensor], device: str) -> tuple[list[Tensor], Tensor]:
    """The outputs that are numbers, and all gradients in a row."""
    model = copy.deepcopy(model).to(device)
    torch.manual_seed(0)
    outputs = [x for x in tensors(model(**{name: x.to(device) for name, x in given.items()})) if x.is_floating_point()]
    torch.stack([x.square().mean() for x in outputs if x.requires_grad]).sum().backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return [x.detach().cpu() for x in outputs], torch.cat([x.flatten().cpu() for x in gradients])


def small(task: str, kind: str) -> tuple[nn.Module, dict[str, Tensor], tuple[list[Tensor], Tensor]]:
    """A model, its inputs, and what the CPU makes of them.

    Raises:
        ValueError: no small model of this kind runs on the CPU.
    """
    name = TASKS[task][kind]
    made = getattr(transformers, name if isinstance(name, str) else name[0])
    problems = []
    for variant in VARIANTS:
        try:
            torch.manual_seed(0)
            chosen = config(kind, *variant)
            with torch.device("meta"):
                weights = sum(parameter.numel() for parameter in made(chosen).parameters())
            if weights > MOST_WEIGHTS:
                problems.append(f"{weights:,} weights")
                continue
            model = made(chosen).eval()
            for parameter in model.parameters():
                if parameter.dim() > 1:  # larger than usual, so that the tokens' experts differ in likelihood
                    nn.init.normal_(parameter, std=(parameter.numel() / parameter.shape[0]) ** -0.5)
            given = inputs(task, chosen)
            expected = trained(model, given, "cpu")
        except Exception as error:  # a config that is not small in this way
            problems.append(f"{type(error).__name__}: {error}"[:200])
            continue
        if expected[1].isfinite().all() and all(x.isfinite().all() for x in expected[0]):
            return model, given, expected
        problems.append("not finite")
    raise ValueError("; ".join(dict.fromkeys(problems)))


@pytest.mark.parametrize(("task", "kind"), cases())
def test_training(task: str, kind: str) -> None:
    try:
        model, given, (outputs, gradients) = small(task, kind)
    except ValueError as error:
        pytest.skip(f"on the CPU: {error}")
    others, other_gradients = trained(model, given, "tpu")
    assert len(others) == len(outputs)
    for other, output in zip(others, outputs, strict=True):
        torch.testing.assert_close(other, output, rtol=1e-3, atol=1e-3 * float(output.abs().max()))
    # Deep networks enlarge what rounding differs by: BiT's float32 gradients by up to 0.6 %.
    assert (other_gradients - gradients).norm() <= 1e-2 * gradients.norm()
