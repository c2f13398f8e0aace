"""What vLLM asks of a platform."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import torch
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

import torchtpu  # noqa: F401 (the device)

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = init_logger(f"vllm.{__name__}")  # vLLM shows the loggers under its own

WORKER = "torchtpu.vllm.worker.Worker"
BACKEND = "torchtpu.vllm.attention.PagedBackend"
COMMUNICATOR = "torchtpu.vllm.communicator.Communicator"
PRODUCTS = "torchtpu.vllm.adapters.Products"

# Options that must have these values: the part of the configuration, the option, the value.
FIXED: tuple[tuple[str, str, Any], ...] = (
    ("", "speculative_config", None),
    ("", "kv_transfer_config", None),
    ("", "ec_transfer_config", None),
    ("", "weight_transfer_config", None),
    ("model_config", "enable_sleep_mode", False),
    ("model_config", "enable_prompt_embeds", False),
    ("cache_config", "kv_offloading_size", None),
    ("cache_config", "kv_sharing_fast_prefill", False),
    ("offload_config.uva", "cpu_offload_gb", 0),
    ("offload_config.prefetch", "offload_group_size", 0),
    ("aux_output_config", "enable_return_routed_experts", False),
)
# Options that choose among vLLM's kernels, none of which runs here: part of the configuration, member, option.
KERNELS = (
    ("attention_config", "backend", "attention_backend"),
    ("kernel_config", "moe_backend", "moe_backend"),
    ("kernel_config", "linear_backend", "linear_backend"),
)


class TpuPlatform(Platform):
    _enum = PlatformEnum.OOT
    device_name = "tpu"
    device_type = "tpu"
    dispatch_key = "PrivateUse1"
    dist_backend = "tpu"
    simple_compile_backend = "eager"
    device_control_env_var = "TPU_VISIBLE_CHIPS"

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float32, torch.float16]

    # ---- the device --------------------------------------------------------------------------------------------

    # vLLM asks for a name and a size in the process of its API server, too. Only one process may hold a TPU's chip, so
    # they do not open the device: that is left to the worker.

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """The name of a device; "tpu" where this process has not opened it."""
        if not torch.tpu.lazy.is_open():  # type: ignore[attr-defined]
            return cls.device_name
        return str(torch.tpu.get_device_name(device_id))  # type: ignore[attr-defined]

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """The bytes of a device; 0 where this process has not opened it, which stands for a small one in vLLM."""
        if not torch.tpu.lazy.is_open():  # type: ignore[attr-defined]
            return 0
        return int(torch.tpu.mem_get_info(device_id)[1])  # type: ignore[attr-defined]

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        return float(torch.tpu.max_memory_allocated(device))  # type: ignore[attr-defined]

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        torch.tpu.set_device(device)  # type: ignore[attr-defined]

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        torch.tpu.manual_seed_all(seed)  # type: ignore[attr-defined]

    @classmethod
    def inference_mode(cls) -> Any:
        return torch.no_grad()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def import_kernels(cls) -> None:
        """vLLM's compiled kernels are for other devices."""

    @classmethod
    def import_ir_kernels(cls) -> None:
        """The same: operators of vLLM's IR have forms in PyTorch."""

    # ---- what is computed --------------------------------------------------------------------------------------

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        if attn_selector_config.use_mla or attn_selector_config.use_sparse:
            raise NotImplementedError("torchtpu: multi-head latent attention and sparse attention are not supported")
        return BACKEND

    @classmethod
    def opaque_attention_op(cls) -> bool:
        return False

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        if dtype not in (torch.bfloat16, torch.float32, torch.float16):
            raise ValueError(f"torchtpu: dtype={dtype} is not supported: bfloat16, float32 and float16 are")

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """Each layer has a cache of its own."""

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return COMMUNICATOR

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return PRODUCTS

    @classmethod
    def can_update_inplace(cls) -> bool:
        """Layers with adapters take the result of a product, and write nothing."""
        return False

    # ---- configuration -----------------------------------------------------------------------------------------

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        """vLLM would choose between runners that the worker does not use, and warn that one of them needs Triton."""
        os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Refuses what is not supported, naming the option, and chooses the worker."""
        from vllm.config import CompilationMode, CUDAGraphMode

        if found := unsupported(vllm_config):
            raise ValueError(f"torchtpu: {'; '.join(found)}")
        for path, member, option in KERNELS:
            given = getattr(_part(vllm_config, path), member, None)
            name = getattr(given, "name", given)
            if name not in (None, "auto", "CUSTOM"):
                logger.warning("torchtpu: %s=%s has no effect", option, name)
        parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = WORKER
        parallel.disable_custom_all_reduce = True
        if parallel.world_size > 1 or torch.tpu.lazy.is_open():  # type: ignore[attr-defined]
            # A process that has used the device cannot be forked.
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        # Steps are traced by the worker, as one graph each.
        compilation.mode = CompilationMode.NONE
        compilation.cudagraph_mode = CUDAGraphMode.NONE
        compilation.cudagraph_capture_sizes = []
        compilation.ir_enable_torch_wrap = False
        vllm_config.scheduler_config.async_scheduling = False
        with contextlib.suppress(AttributeError):
            vllm_config.load_config.device = "cpu"

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        from vllm.exceptions import VLLMValidationError

        from torchtpu.vllm.sampling import refused

        if reason := refused(params):
            # The server answers it with status 400.
            raise VLLMValidationError(f"torchtpu: {reason}")


def _part(config: VllmConfig, path: str) -> Any:
    """A part of a configuration; None if this version of vLLM lacks it."""
    part: Any = config
    for name in filter(None, path.split(".")):
        part = getattr(part, name, None)
    return part


def unsupported(config: VllmConfig) -> list[str]:
    """The options of a configuration that the worker does not take, each with what may be done."""
    from vllm import envs

    from torchtpu.vllm import quantization

    parallel, model, cache = config.parallel_config, config.model_config, config.cache_config
    found = []
    for option in ("pipeline", "data", "prefill_context", "decode_context"):
        size = getattr(parallel, f"{option}_parallel_size", 1)
        if size > 1:
            found.append(f"{option}_parallel_size={size} is not supported: tensor_parallel_size is")
    shared = parallel.tensor_parallel_size
    if shared > 1 and parallel.nnodes > 1:
        found.append(f"nnodes={parallel.nnodes} is not supported: processes of one host share a model")
    if shared > 1 and config.lora_config is not None:
        found.append(f"enable_lora with tensor_parallel_size={shared} is not supported")
    if shared > 1 and parallel.enable_expert_parallel:
        found.append("enable_expert_parallel is not supported")
    for path, option, value in FIXED:
        given = getattr(_part(config, path), option, value)
        if given != value:
            found.append(f"{option}{f'={given}' if isinstance(given, (int, float)) else ''} is not supported")
    if cache.cache_dtype not in ("auto", "bfloat16", "float16"):
        found.append(f"kv_cache_dtype={cache.cache_dtype} is not supported: auto is")
    for name in ("VLLM_RAISE_ON_LOGIT_NANS", "VLLM_COMPUTE_NANS_IN_LOGITS"):
        if getattr(envs, name, False):
            found.append(f"{name}=1 is not supported: logits are not searched for NaN")
    if model is None:
        return found
    # vLLM takes an unknown name for "vllm".
    if model.model_impl not in (known := ("auto", "vllm", "transformers")):
        found.append(f"model_impl={model.model_impl} is not supported: {', '.join(known)} are")
    if reason := quantization.unsupported(model.quantization, model.quantization_config):
        found.append(reason)
    if model.runner_type != "generate":
        found.append(f"runner={model.runner_type} is not supported: models that generate text are")
    if model.is_multimodal_model:
        found.append(f"model={model.model} takes images or sound, which is not supported")
    if model.is_encoder_decoder or model.is_hybrid or model.is_attention_free:
        found.append(f"model={model.model} has no plain decoder, which is not supported")
    if model.logits_processors:
        found.append("logits_processors is not supported")
    return found
