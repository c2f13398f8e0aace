"""Serves a small random Llama with `vllm serve` on the device, and asks it as OpenAI's client does.

    make demo-serve

It prints the time until the server is ready, the time to the first token, the tokens per second of one client and of
eight, and the programs that were compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from small_model import write

PROMPT = "What is the capital of a small, random model?"


@contextlib.contextmanager
def served(folder: Path, log: Path, *options: str, limit: float = 600) -> Iterator[str]:
    """The address of a server of the model in a folder, as long as the context lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder), "--port", str(port)]
    environment = os.environ | {"TORCHTPU_VLLM": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w") as out:
        # In a session of its own, so that the processes of the engine end with the server.
        server = subprocess.Popen(
            [*command, *options], env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + limit
        while not _is_ready(address):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {log}\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def asked(client: Any, model: str, tokens: int) -> tuple[float, float]:
    """Seconds to the first token and to the last one."""
    start = time.perf_counter()
    first = 0.0
    parts = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=tokens, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    for _ in parts:
        first = first or time.perf_counter() - start
    return first, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64, help="how many tokens each request asks for")
    parser.add_argument("--clients", type=int, default=8, help="how many requests run at once")
    options = parser.parse_args()
    from openai import OpenAI

    folder = Path(tempfile.mkdtemp(prefix="torchtpu-demo-"))
    try:
        write(folder)
        log = folder / "server.log"
        start = time.perf_counter()
        limits = ("--max-num-seqs", str(options.clients), "--max-num-batched-tokens", "256", "--max-model-len", "512")
        with served(folder, log, "--dtype", "float32", *limits) as address:
            print(f"ready after {time.perf_counter() - start:.1f} s")
            client, model = OpenAI(base_url=f"{address}/v1", api_key="none"), str(folder)
            first, _ = asked(client, model, options.tokens)
            print(f"first request: {1000 * first:.0f} ms to the first token")
            first, last = asked(client, model, options.tokens)
            print(
                f"one client: {1000 * first:.1f} ms to the first token, {options.tokens / last:.0f} tokens per second"
            )
            with ThreadPoolExecutor(options.clients) as pool:
                start = time.perf_counter()
                list(pool.map(lambda _: asked(client, model, options.tokens), range(4 * options.clients)))
                seconds = time.perf_counter() - start
            rate = 4 * options.clients * options.tokens / seconds
            print(f"{options.clients} clients: {rate:.0f} tokens per second")
            answer = client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": PROMPT}], max_tokens=16, seed=1
            )
            print(f"an answer (the weights are random): {answer.choices[0].message.content!r}")
        programs = re.findall(r"torchtpu: (\d+ programs.*)", log.read_text())
        print(programs[0] if programs else "the server did not say what it compiled")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
