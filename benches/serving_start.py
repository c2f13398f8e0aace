"""How many programs does a server of vLLM's have before its first token, and how soon does a second start answer?

    make test-serving     # installs vLLM into build/serving
    PYTHONPATH=build/serving python benches/serving_start.py

Processes start one after another with a common folder of programs, which is empty for the first one. Each imports vLLM
and torchtpu, makes an engine of a small Llama and asks for a token. It prints the programs that were compiled and those
that were read from the disk until then, and the time since the imports: by the clock, and of the processor, which
depends less on what else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from serving import ANSWER, MODELS, ROOT, write_model


def start(folder: str) -> None:
    """Prints the figures of a start in this process."""
    import torch
    import torchtpu.vllm.worker  # noqa: F401
    import vllm
    import vllm.model_executor.models.llama
    import vllm.v1.engine.llm_engine

    seconds, processor = time.perf_counter(), time.process_time()
    options = {"dtype": "float32", "max_num_seqs": 8, "max_num_batched_tokens": 256, "max_model_len": 256, "seed": 0}
    llm = vllm.LLM(model=folder, skip_tokenizer_init=True, **options)
    settings = vllm.SamplingParams(temperature=0, max_tokens=1, detokenize=False)
    llm.generate([{"prompt_token_ids": [5, 6, 7]}], settings, use_tqdm=False)
    counts = torch.tpu.cache_stats()  # type: ignore[attr-defined]
    found = {"seconds": time.perf_counter() - seconds, "processor": time.process_time() - processor}
    print(ANSWER + json.dumps(found | {name: counts[name] for name in ("compiles", "disk_hits")}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        start(options.start)
        return
    with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as own:
        folder = Path(own) / "model"
        write_model(options.model, folder)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
            "TORCHTPU_CACHE_DIR": str(Path(own) / "programs"),
            "TORCHTPU_VLLM": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
        }
        for number in range(1, options.starts + 1):
            command = [sys.executable, __file__, "--start", str(folder)]
            finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            lines = [line for line in finished.stdout.splitlines() if line.startswith(ANSWER)]
            if not lines:
                sys.exit(finished.stderr[-2000:])
            found = json.loads(lines[0].removeprefix(ANSWER))
            print(
                f"start {number}: {found['compiles']} programs compiled, {found['disk_hits']} from the disk; the first "
                f"token {found['seconds']:.1f} s after the imports ({found['processor']:.1f} s of the processor)"
            )


if __name__ == "__main__":
    main()
