"""`vllm serve` on the device, asked over HTTP as its users do. `make test-serving` installs vLLM and runs this."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "serving"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LENGTH = 256
LIMITS = ("--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--max-model-len", str(LENGTH), "--dtype", "float32")
SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "full": {"type": "boolean"}},
    "required": ["size", "full"],
    "additionalProperties": False,
}
# A client that asks for more than it waits for.
IMPATIENT = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
parts = client.completions.create(model=sys.argv[2], prompt="on and on", max_tokens=200, stream=True,
                                  n=3, extra_body={"ignore_eos": True})
for number, part in enumerate(parts):
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-serving")
    from small_model import write

    folder = tmp_path_factory.mktemp("model")
    write(folder)
    return str(folder)


@pytest.fixture(scope="module")
def address(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from demo import served

    with served(Path(model), tmp_path_factory.mktemp("log") / "server.log", *LIMITS) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def gauge(address: str, name: str) -> float:
    """A number of the server's `/metrics`."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def becomes_idle(address: str) -> bool:
    """Waits until no request runs or waits and none holds a page. The limit only ends a hang."""
    end = time.monotonic() + 120
    while any(gauge(address, name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_only_the_engine_opens_the_device(address: str) -> None:
    """A TPU's chip is held by one process, so the one that answers over HTTP must leave it to the engine's."""
    import psutil  # type: ignore[import-untyped]

    port = address.rpartition(":")[2]
    (server,) = (each for each in psutil.Process().children() if port in each.cmdline())
    is_open = [
        any("xla_cpu_pjrt" in each.path for each in process.memory_maps())
        for process in (server, *server.children(recursive=True))
    ]
    assert not is_open[0]
    assert is_open.count(True) == 1


def test_chat_and_its_stream_say_the_same(client: Any, model: str) -> None:
    asked = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    parts = list(client.chat.completions.create(**asked, stream=True))
    assert whole.choices[0].finish_reason in ("length", "stop")
    assert "".join(each.choices[0].delta.content or "" for each in parts) == whole.choices[0].message.content
    assert len(parts) > 2


def test_n_answers_follow_from_a_seed(client: Any, model: str) -> None:
    asked = {"model": model, "prompt": "once", "max_tokens": 16, "n": 3, "seed": 11, "temperature": 1.0}
    first, second = ([each.text for each in client.completions.create(**asked).choices] for _ in range(2))
    assert first == second
    assert len(set(first)) == 3
    other = client.completions.create(**asked | {"seed": 12})
    assert [each.text for each in other.choices] != first


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_follows_a_json_schema(temperature: float, client: Any, model: str) -> None:
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "a thing"}],
        # Random weights may put many spaces between the parts.
        max_tokens=200,
        temperature=temperature,
        seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}},
    )
    assert answer.choices[0].finish_reason == "stop"
    found = json.loads(answer.choices[0].message.content)
    assert found["size"] in ("small", "large")
    assert isinstance(found["full"], bool)
    assert len(found) == 2


def test_logprobs_of_the_most_likely(client: Any, model: str) -> None:
    # By number: several bytes have the same text.
    by_number = {"return_tokens_as_token_ids": True}
    asked = {"model": model, "prompt": "likely", "max_tokens": 3, "temperature": 0, "logprobs": 2}
    answer = client.completions.create(**asked, extra_body=by_number)
    logprobs = answer.choices[0].logprobs
    assert [max(each.values()) for each in logprobs.top_logprobs] == logprobs.token_logprobs


def test_a_killed_client_frees_its_pages_and_others_go_on(address: str, client: Any, model: str) -> None:
    after = {"model": model, "prompt": "after", "max_tokens": 8, "temperature": 0}
    expected = client.completions.create(**after).choices[0].text
    longer: dict[str, Any] = {**after, "max_tokens": 150, "stream": True, "extra_body": {"ignore_eos": True}}
    undisturbed = [each.choices[0].text for each in client.completions.create(**longer)]
    running = client.completions.create(**longer)
    parts = [next(running)]
    impatient = subprocess.Popen([sys.executable, "-c", IMPATIENT, address, model], stdout=subprocess.PIPE)
    try:
        assert impatient.stdout is not None
        assert impatient.stdout.readline()
    finally:
        impatient.send_signal(signal.SIGKILL)
        impatient.wait()
    parts += running
    assert "".join(each.choices[0].text for each in parts) == "".join(undisturbed)
    assert becomes_idle(address)
    assert client.completions.create(**after).choices[0].text == expected


def test_a_request_that_is_too_long_is_refused_and_others_go_on(client: Any, model: str) -> None:
    from openai import BadRequestError

    asked = {"model": model, "max_tokens": 100, "temperature": 0, "stream": True}
    running = client.completions.create(**asked, prompt="the other", extra_body={"ignore_eos": True})
    next(running)
    with pytest.raises(BadRequestError, match=f"maximum context length is {LENGTH}"):
        client.completions.create(model=model, prompt="x" * 300, max_tokens=1)
    assert len(list(running)) >= 50


def test_unsupported_settings_of_a_request_are_refused(client: Any, model: str) -> None:
    from openai import BadRequestError

    asked: dict[str, Any] = {"logprobs": 1, "extra_body": {"logprob_token_ids": [1]}}
    with pytest.raises(BadRequestError, match="logprob_token_ids is not supported"):
        client.completions.create(model=model, prompt="x", max_tokens=1, **asked)
    assert client.completions.create(model=model, prompt="x", max_tokens=1).choices[0].text is not None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--quantization", "fp8", "--dtype", "bfloat16"), "quantization=fp8 is not supported"),
        (("--quantization", "no-such-one"), "quantization"),
        (("--max-model-len", "1024", "--kv-cache-memory-bytes", "100000"), "max_model_len"),
        (
            ("--quantization-config", '{"linear": "int8_per_channel_static"}'),
            "quantization_config has no meaning without",
        ),
        (("--enable-lora", "--tensor-parallel-size", "2"), "enable_lora with tensor_parallel_size=2 is not supported"),
    ],
)
def test_what_cannot_be_served_is_named_before_the_server_is_ready(
    options: tuple[str, ...], named: str, model: str
) -> None:
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--port", "0", *LIMITS, *options]
    environment = os.environ | {"TORCHTPU_VLLM": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    finished = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False
    )
    assert finished.returncode != 0
    assert named in finished.stdout
    assert "Application startup complete" not in finished.stdout
