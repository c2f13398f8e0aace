"""vLLM's worker: loads the model, sizes the cache, and runs steps."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod
from vllm.model_executor.model_loader import get_model
from vllm.v1.worker.gpu_worker import init_worker_distributed_environment
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from torchtpu import _C
from torchtpu.vllm import experts, quantization
from torchtpu.vllm.adapters import Adapters, Loader
from torchtpu.vllm.programs import Run, Tighter, compiled, tighter_sizes
from torchtpu.vllm.runner import Limits, Runner
from torchtpu.vllm.sampling import MOST_BIASES, adjust
from torchtpu.vllm.steps import Step, step_programs

logger = init_logger(f"vllm.{__name__}")  # vLLM shows the loggers under its own


def _floating_layers(model: nn.Module) -> list[str]:
    """The names of the weights [o, i] that layers multiply by as they are."""
    kinds, methods = (LinearBase, ParallelLMHead), (UnquantizedLinearMethod, UnquantizedEmbeddingMethod)
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]
    return [f"{name}.weight" for name, layer in layers if isinstance(layer.quant_method, methods)]


class Worker(WorkerBase):
    """Serves a model on one device."""

    model: nn.Module
    runner: Runner
    weights: dict[str, Tensor]
    adapters: Adapters | None = None

    def init_device(self) -> None:
        if self.parallel_config.world_size > 1:
            # As torchrun does: each process takes a device.
            ranks = {"RANK": self.rank, "LOCAL_RANK": self.local_rank}
            sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), self.parallel_config.world_size)
            os.environ.update({name: str(value) for name, value in (ranks | sizes).items()})
        self.device = torch.device("tpu", self.local_rank)
        torch.tpu.set_device(self.device)  # type: ignore[attr-defined]
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, "tpu"
        )
        # vLLM collects garbage several times in a start. What exists already is most of it, and takes 0.4 s each time.
        # vLLM itself freezes all objects at the end of the start, and releases them when the engine ends.
        gc.freeze()
        self._waiting: Any = None
        self._caches: list[Tensor] = []

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Loads the weights on the host, so that no program is needed to lay them out, and uploads them."""
        if load_dummy_weights:
            self.load_config.load_format = "dummy"
        with set_current_vllm_config(self.vllm_config):
            quantization.register()
            self.model = self._loaded()
            experts.prepare(self.model)
            if self.lora_config:
                self.adapters = Adapters(self.model, self.vllm_config)
        self._of_adapters = [self._uploaded(each) for each in self.adapters.on_host] if self.adapters else []
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        # XLA's programs for a CPU would transpose the weight of a layer, [o, i], in each step.
        self._transposed = {f"model.{name}" for name in _floating_layers(self.model)}
        self.weights = {f"model.{name}": tensor.detach() for name, tensor in named}
        for name, tensor in self.weights.items():
            self.weights[name] = self._uploaded(tensor.t().contiguous() if name in self._transposed else tensor)
        # The host's copies are not needed any more: programs are traced from shapes. Modules with buffers may
        # be shared with other models of the process.
        for parameter in self.model.parameters():
            parameter.data = parameter.data.new_empty(0)
        torch.tpu.synchronize()  # type: ignore[attr-defined]

    def _loaded(self) -> nn.Module:
        """The model, with its weights on the host."""
        return get_model(vllm_config=self.vllm_config, model_config=self.model_config)

    def _uploaded(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)

    def get_model(self) -> nn.Module:
        return self.model

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    # ---- the cache ---------------------------------------------------------------------------------------------

    @functools.cached_property
    def layers(self) -> dict[str, Any]:
        """The layers that have a cache, by name."""
        return dict(get_layers_from_vllm_config(self.vllm_config, AttentionLayerBase))

    def get_kv_cache_spec(self) -> dict[str, Any]:
        specs = {name: layer.get_kv_cache_spec(self.vllm_config) for name, layer in self.layers.items()}
        if wrong := [name for name, spec in specs.items() if spec is None]:
            raise ValueError(f"torchtpu: {self.model_config.model}: {wrong[0]} has no cache, which is not supported")
        if _C.platform_info()["platform"] == "cpu":
            # XLA's programs for a CPU would convert a whole cache of bfloat16 to float32 and back at each write.
            return {
                name: dataclasses.replace(spec, dtype=torch.float32) if spec.dtype == torch.bfloat16 else spec
                for name, spec in specs.items()
            }
        return specs

    def determine_available_memory(self) -> int:
        """What is left for the cache: no program runs to find out. Where the device's memory is the host's, at most
        what the largest number of requests of the largest length can use."""
        asked = self.cache_config.kv_cache_memory_bytes
        free, total = torch.tpu.mem_get_info(self.device)  # type: ignore[attr-defined]
        held = torch.tpu.memory_allocated(self.device)  # type: ignore[attr-defined]
        room = int(total * self.cache_config.gpu_memory_utilization) - held - self._temporaries()
        room = min(room, free - self._temporaries())
        if asked is not None:
            if asked > room:
                raise ValueError(
                    f"torchtpu: kv_cache_memory_bytes={asked}, but {max(room, 0)} bytes are left beside the weights"
                )
            return int(asked)
        if _C.platform_info()["platform"] == "tpu":
            return max(room, 0)
        specs = self.get_kv_cache_spec().values()
        pages = self.scheduler_config.max_num_seqs * -(-self.model_config.max_model_len // self.cache_config.block_size)
        useful = (pages + 1) * sum(spec.page_size_bytes for spec in specs)
        return max(min(room, useful), 0)

    def _temporaries(self) -> int:
        """Bytes that the largest program holds besides weights and caches: logits some times over, the widest
        activations of all tokens, and a quantized weight that is widened."""
        rows, tokens = self.scheduler_config.max_num_seqs, self.scheduler_config.max_num_batched_tokens
        widest = max(max(tensor.shape) for tensor in self.weights.values() if tensor.dim() == 2)
        hidden = self.model_config.get_hidden_size()
        logits, activations = 6 * rows * self.model_config.get_vocab_size(), 4 * hidden + 2 * min(widest, 8 * hidden)
        return 4 * (logits + tokens * activations) + quantization.widened_bytes([*self.weights.values()])

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        if len(kv_cache_config.kv_cache_groups) != 1:
            raise ValueError(
                "torchtpu: layers with caches of different kinds are not supported: disable_hybrid_kv_cache_manager"
            )
        for spec in self.get_kv_cache_spec().values():
            shape = (kv_cache_config.num_blocks, spec.block_size, 2 * spec.num_kv_heads, spec.head_size)
            self._caches.append(torch.zeros(shape, dtype=spec.dtype, device=self.device))
        torch.tpu.synchronize()  # type: ignore[attr-defined]

    def update_max_model_len(self, max_model_len: int) -> None:
        self.model_config.max_model_len = max_model_len

    # ---- programs ----------------------------------------------------------------------------------------------

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Compiles or loads the programs: they serve all mixes of lengths and settings."""
        start = time.perf_counter()
        scheduler = self.scheduler_config
        limits = Limits(
            sequences=scheduler.max_num_seqs,
            tokens=scheduler.max_num_batched_tokens,
            length=self.model_config.max_model_len,
            page=self.cache_config.block_size,
            vocabulary=self.model_config.get_vocab_size(),
            most_logprobs=self._most_logprobs(),
            has_adapters=self.adapters is not None,
        )
        steps = self._steps(limits)
        programs = {size: steps(size) for size in {limits.sequences, limits.tokens}}
        fixed = [*self.weights.values(), *self._caches, *self._of_adapters]
        for size, program in programs.items():
            program([*fixed, self._zeros(limits, size)])
        # Processes that share a model must run the same program at a step.
        sizes = tighter_sizes(limits.sequences, limits.tokens) if self.parallel_config.world_size == 1 else []
        tighter = [Tighter(size, steps(size)) for size in sizes]
        if self.adapters is not None:
            self.adapters.compile(self._of_adapters, self.device)
        mode, seed = self.model_config.logprobs_mode, self.model_config.seed
        adjusting = self._adjusting(limits, mode)
        # Processed logits are those that tokens are drawn from. The tokens of a prompt are not drawn.
        # They have raw logits.
        of_prompts = mode.replace("processed", "raw")
        scoring = adjusting if of_prompts == mode else self._adjusting(limits, of_prompts)
        self.runner = Runner(limits, programs, adjusting, scoring, fixed, self.device, seed, self.adapters, tighter)
        torch.tpu.synchronize()  # type: ignore[attr-defined]
        seconds = time.perf_counter() - start
        stats = torch.tpu.cache_stats()  # type: ignore[attr-defined]
        logger.info(
            "torchtpu: %d programs after %.1f s: %d compiled, %d from the disk",
            len(programs) + (1 if self.adapters is None else 2), seconds, stats["compiles"], stats["disk_hits"],
        )  # fmt: skip
        return CompilationTimes(seconds, 0.0)

    def _steps(self, limits: Limits) -> Callable[[int], Run]:
        """The programs of steps by the number of tokens that they take."""
        step = Step(self.model, self.vllm_config, self.layers, self.adapters).eval()
        held = [*self._caches, *self._of_adapters]
        # The sizes of the example are not those of one token, which broadcasts.
        example = dataclasses.replace(limits, sequences=max(limits.sequences, 2)).layout(max(limits.tokens, 2))

        def program(tokens: int) -> Run:
            with set_current_vllm_config(self.vllm_config):
                return traced.at(tokens, limits.layout(tokens).sequences)

        with set_current_vllm_config(self.vllm_config):
            traced = step_programs(step, self.weights, self._transposed, held, example)
        return program

    def _zeros(self, limits: Limits, tokens: int) -> Tensor:
        return torch.from_numpy(limits.layout(tokens).empty()[0]).to(self.device)

    def _most_logprobs(self) -> int:
        most = self.model_config.max_logprobs
        return most if most >= 0 else self.model_config.get_vocab_size()

    def _adjusting(self, limits: Limits, mode: str) -> Run:
        rows, words = limits.sequences, -(-limits.vocabulary // 32)
        shapes = [(7, rows), (2, rows, limits.length), (3, rows), (2, rows, MOST_BIASES), (rows, words)]
        logits = torch.zeros(rows, limits.vocabulary).to(self.device)
        given = [logits, *(torch.zeros(shape, dtype=torch.int32).to(self.device) for shape in shapes)]

        def function(*tensors: Tensor) -> list[Tensor]:
            logits, settings, tokens, penalties, biases, allowed = tensors
            return [adjust(logits, settings, tokens, penalties, biases, allowed, limits.most_logprobs, mode)]

        return compiled(function, given, "adjusted sampling")

    # ---- adapters ----------------------------------------------------------------------------------------------

    def add_lora(self, lora_request: Any) -> bool:
        return bool(self._adapters().add_adapter(lora_request))

    def remove_lora(self, lora_id: int) -> bool:
        return bool(self._adapters().remove_adapter(lora_id))

    def pin_lora(self, lora_id: int) -> bool:
        return bool(self._adapters().pin_adapter(lora_id))

    def list_loras(self) -> set[int]:
        return set(self._adapters().list_adapters())

    def _adapters(self) -> Loader:
        if self.adapters is None:
            raise RuntimeError("torchtpu: the server has no adapters: give enable_lora")
        return self.adapters.loader

    # ---- steps -------------------------------------------------------------------------------------------------

    def execute_model(self, scheduler_output: Any) -> Any:
        """Runs a step at once, unless the masks of structured output are still to come (`sample_tokens`)."""
        self.runner.update(scheduler_output)
        if scheduler_output.has_structured_output_requests and scheduler_output.total_num_scheduled_tokens:
            self._waiting = scheduler_output
            return None
        return self.runner.run(scheduler_output)

    def sample_tokens(self, grammar_output: Any) -> Any:
        waiting, self._waiting = self._waiting, None
        return self.runner.run(waiting, grammar_output)

    def execute_dummy_batch(self) -> None:
        """One chip serves a model, so no other worker waits for this one."""

    def take_draft_token_ids(self) -> None:
        return None

    def synchronize_device(self) -> None:
        torch.tpu.synchronize()  # type: ignore[attr-defined]
