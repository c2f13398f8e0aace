"""Does a server of vLLM's on the device stand 32 clients at once for five minutes?

    make test-serving     # installs vLLM into build/serving
    PYTHONPATH=build/serving python benches/serving_load.py

Each client asks one request after another: prompts and answers of different lengths, chat and completions, streamed or
not, greedy or drawn, several answers at once, answers by a JSON schema, logprobs, requests that are too long, and
streams that are left after a few tokens. It prints the number of requests and of errors, the tokens per second, and the
memory of the server's processes as time goes on. In the end no request runs and no page is held.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "serving"))

from demo import served
from small_model import write

LENGTH = 512
SCHEMA = {"type": "object", "properties": {"full": {"type": "boolean"}}, "required": ["full"]}
KINDS = ("plain", "stream", "left", "chat", "several", "schema", "logprobs", "too long")


def ask(client: Any, model: str, kind: str, drawn: random.Random) -> int:
    """One request of a kind. Returns the number of tokens that came. What the server should refuse, it must refuse."""
    from openai import BadRequestError

    prompt = "".join(drawn.choices("abcdefgh ", k=drawn.randrange(1, 200)))
    asked: dict[str, Any] = {"model": model, "max_tokens": drawn.randrange(1, 100)}
    asked["temperature"] = drawn.choice([0.0, 0.7, 1.0])
    messages = [{"role": "user", "content": prompt}]
    completions, chat = client.completions, client.chat.completions
    match kind:
        case "stream":
            return sum(1 for _ in completions.create(**asked, prompt=prompt, stream=True))
        case "left":
            with completions.create(**asked | {"max_tokens": 200}, prompt=prompt, stream=True) as parts:
                return sum(1 for _, _ in zip(range(3), parts, strict=False))
        case "too long":
            try:
                completions.create(**asked, prompt="x" * (LENGTH + 1))
            except BadRequestError:
                return 0
            raise AssertionError("a request that is too long was not refused")
        case "schema":
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
            answer = chat.create(**asked, messages=messages, response_format=form)
        case "chat":
            answer = chat.create(**asked, messages=messages)
        case "several":
            # vLLM refuses several greedy answers.
            answer = completions.create(**asked | {"temperature": 1.0}, prompt=prompt, n=3, seed=drawn.randrange(100))
        case "logprobs":
            answer = completions.create(**asked, prompt=prompt, logprobs=3)
        case _:
            answer = completions.create(**asked, prompt=prompt)
    return int(answer.usage.completion_tokens)


def gauge(address: str, name: str) -> float:
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def resident(port: int) -> float:
    """Megabytes of the processes of the server at a port."""
    for process in psutil.Process().children():
        if str(port) in process.cmdline():
            return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) / 1e6
    raise RuntimeError("the server is gone")


def load(address: str, model: str, clients: int, seconds: float) -> bool:
    """Whether all went well."""
    from openai import OpenAI

    port, start = int(address.rpartition(":")[2]), time.monotonic()
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def a_client(number: int) -> None:
        drawn = random.Random(number)
        client = OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300)
        while time.monotonic() - start < seconds:
            kind = drawn.choice(KINDS)
            try:
                found = Counter({"requests": 1, "tokens": ask(client, model, kind, drawn)})
            except Exception as error:
                found = Counter({"requests": 1, "errors": 1, f"{kind}: {error!r}"[:300]: 1})
            with lock:
                counts.update(found)

    with ThreadPoolExecutor(clients) as pool:
        jobs = [pool.submit(a_client, number) for number in range(clients)]
        marks = []
        while not all(job.done() for job in jobs):
            time.sleep(min(seconds / 10, 30))
            marks.append(resident(port))
            passed = time.monotonic() - start
            done = f"{counts['requests']} requests, {counts['errors']} errors"
            print(f"{passed:6.0f} s: {done}, {marks[-1]:.0f} MB", flush=True)
    passed = time.monotonic() - start
    end = time.monotonic() + 60
    while gauge(address, "num_requests_running") and time.monotonic() < end:
        time.sleep(0.1)
    running, held = gauge(address, "num_requests_running"), gauge(address, "kv_cache_usage_perc")
    rates = [counts[name] / passed for name in ("requests", "tokens")]
    print(f"{clients} clients: {rates[0]:.1f} requests and {rates[1]:.0f} tokens per second")
    print(f"memory: {marks[len(marks) // 5]:.0f} MB after a fifth of the time, {marks[-1]:.0f} MB in the end")
    print(f"then {running:.0f} requests run, and {held:.1%} of the pages are held")
    for text, count in counts.items():
        if text not in ("requests", "tokens", "errors"):
            print(f"{count} times {text}")
    return not (counts["errors"] or running or held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torchtpu-load-") as own:
        folder = Path(own) / "model"
        write(folder)
        limits = ("--max-num-seqs", "32", "--max-num-batched-tokens", "256", "--max-model-len", str(LENGTH))
        log = Path(own) / "server.log"
        with served(folder, log, "--dtype", "float32", *limits) as address:
            went_well = load(address, str(folder), options.clients, options.seconds)
        print(*(line for line in log.read_text().splitlines() if "ERROR" in line), sep="\n")
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    main()
