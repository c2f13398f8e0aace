"""What serving computes besides the model, and when vLLM finds the device. vLLM itself is not needed here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torchtpu import vllm
from torchtpu.vllm.programs import compiled
from torchtpu.vllm.sampling import SETTINGS, _noise, adjust, needs_adjusting, pick, refused

PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0, "position": 0}


def settings_of(*rows: dict[str, float]) -> Tensor:
    """The numbers that requests with these settings upload."""
    columns = []
    for row in rows:
        given = PLAIN | row
        floats = torch.tensor([given[name] for name in ("temperature", "top_p", "min_p")]).view(torch.int32)
        named = dict(zip(("temperature", "top_p", "min_p"), floats.tolist(), strict=True))
        named |= {"top_k": given["top_k"], "seed_low": given["seed"], "seed_high": 0, "position": given["position"]}
        columns.append([int(named[name]) for name in SETTINGS])
    return torch.tensor(columns, dtype=torch.int32).t().contiguous()


@pytest.fixture(scope="module")
def run_pick() -> Callable[[Tensor, Tensor], Tensor]:
    """`pick` as a program for 64 rows of 50 tokens."""
    device = torch.device("tpu")
    shapes = [torch.zeros(64, 50).to(device), torch.zeros(len(SETTINGS), 64, dtype=torch.int32).to(device)]
    program = compiled(lambda *given: [pick(*given)], shapes, "sampling")
    return lambda logits, settings: program([logits.to(device), settings.to(device)])[0].cpu()


def test_no_temperature_takes_the_largest(run_pick: Callable[..., Tensor]) -> None:
    logits = torch.randn(64, 50)
    assert run_pick(logits, settings_of(*[{"temperature": 0.0}] * 64)).tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 3}, {0, 1, 2}),
        ({"top_p": 0.7}, {0, 1}),
        ({"min_p": 0.3}, {0, 1}),
        ({"top_k": 1}, {0}),
        ({"top_p": 1e-6}, {0}),
        ({"top_k": 3, "top_p": 0.95, "temperature": 0.8}, {0, 1, 2}),
    ],
)
def test_only_kept_tokens_are_drawn(options: dict[str, float], kept: set[int], run_pick: Callable[..., Tensor]) -> None:
    chances = torch.full((50,), 0.05 / 46)
    chances[:4] = torch.tensor([0.5, 0.25, 0.125, 0.075])
    drawn = run_pick(chances.log().repeat(64, 1), settings_of(*({**options, "seed": i} for i in range(64))))
    assert set(drawn.tolist()) == kept


def test_draws_follow_their_chances(run_pick: Callable[..., Tensor]) -> None:
    chances = torch.tensor([0.4, 0.3, 0.2, 0.1] + [0.0] * 46)
    counts = torch.zeros(50)
    for position in range(32):
        rows = ({"seed": seed, "position": position} for seed in range(64))
        counts += run_pick(chances.log().repeat(64, 1), settings_of(*rows)).bincount(minlength=50)
    # Four standard deviations.
    assert bool(((counts / 2048 - chances).abs() <= 4 * (chances * (1 - chances) / 2048).sqrt()).all())


def test_noise_is_finite(device: torch.device) -> None:
    """An infinite one would draw a token whatever its likelihood, even one that is not allowed."""
    bits = torch.tensor([0, 511, 512, 2**31 - 1, -(2**31), -513, -1], dtype=torch.int32).to(device)
    noise = compiled(lambda each: [_noise(each)], [bits], "noise")([bits])[0].cpu()
    assert bool(noise.isfinite().all())
    assert noise.tolist() == sorted(noise.tolist())


def test_a_draw_depends_on_seed_and_position_only(run_pick: Callable[..., Tensor]) -> None:
    row = torch.randn(50)
    first = run_pick(row.repeat(64, 1), settings_of(*({"seed": i % 8, "position": i // 8} for i in range(64))))
    others = torch.randn(64, 50)
    others[5] = row
    settings = [{"temperature": 0.5, "top_k": 2}] * 64
    settings[5] = {"seed": 3, "position": 4}
    assert run_pick(others, settings_of(*settings))[5] == first[3 + 8 * 4]
    assert len(set(first.tolist())) > 8


def test_all_settings_share_a_program(run_pick: Callable[..., Tensor]) -> None:
    before = torch.tpu.cache_stats()["compiles"]
    run_pick(torch.randn(64, 50), settings_of(*({"temperature": i / 9, "top_k": i, "seed": i} for i in range(64))))
    assert torch.tpu.cache_stats()["compiles"] == before


def neutral(rows: int, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, penalties, biases and masks that change no logit."""
    penalties = torch.zeros(3, rows)
    penalties[0] = 1.0
    biases = torch.full((2, rows, 2), size, dtype=torch.int32)
    biases[1] = 0
    allowed = torch.full((rows, 2), -1, dtype=torch.int32)
    return torch.full((2, rows, 8), size, dtype=torch.int32), penalties, biases, allowed


def test_adjusted_sampling(device: torch.device) -> None:
    rows, size, most = 6, 40, 3
    logits = torch.randn(rows, size)
    tokens, penalties, biases, allowed = neutral(rows, size)
    tokens[0, 1, :3] = torch.tensor([4, 5, 5])
    tokens[1, 1, :4] = torch.tensor([7, 7, 5, 9])
    penalties[:, 1] = torch.tensor([1.5, 0.7, 0.4])
    biases[0, 2, 0], biases[1, 2, 0] = 11, torch.tensor(100.0).view(torch.int32)
    allowed[3] = torch.tensor([1 << 6, 1])  # tokens 6 and 32
    given = [logits, settings_of(*[{"temperature": 0.0}] * rows), tokens, penalties.view(torch.int32), biases, allowed]
    on_device = [each.to(device) for each in given]
    read = compiled(lambda *each: [adjust(*each, most)], on_device, "adjusted")(on_device)[0].cpu()

    expected = logits.clone()
    for token in (4, 5, 7, 9):
        factor = 1.5 if expected[1, token] < 0 else 1 / 1.5
        expected[1, token] *= factor
    for token, count in ((7, 2), (5, 1), (9, 1)):
        expected[1, token] -= 0.7 * count + 0.4
    expected[2, 11] += 100
    expected[3, [i for i in range(size) if i not in (6, 32)]] = float("-inf")
    assert read[:, 0].tolist() == expected.argmax(-1).tolist()
    logs = logits.log_softmax(-1)
    own = logs.gather(1, read[:, :1].long())
    assert read[:, 1].tolist() == (logs >= own).sum(1).tolist()
    torch.testing.assert_close(read[:, 2:3].contiguous().view(torch.float32), own, atol=1e-5, rtol=1e-5)
    values, places = logs.topk(most)
    assert read[:, 3 : 3 + most].tolist() == places.tolist()
    torch.testing.assert_close(read[:, 3 + most :].contiguous().view(torch.float32), values, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logits", "processed_logprobs"])
def test_modes_of_logprobs(mode: str, device: torch.device) -> None:
    rows, size, most = 4, 40, 12
    logits = torch.randn(rows, size) * 2
    tokens, penalties, biases, allowed = neutral(rows, size)
    biases[0, 1, 0], biases[1, 1, 0] = 11, torch.tensor(9.0).view(torch.int32)
    settings = [
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"temperature": 1.5, "top_k": 5},
        {"temperature": 0.9, "top_p": 0.6},
    ]
    given = [logits, settings_of(*settings), tokens, penalties.view(torch.int32), biases, allowed]
    on_device = [each.to(device) for each in given]
    read = compiled(lambda *each: [adjust(*each, most, mode)], on_device, mode)(on_device)[0].cpu()

    expected = logits.clone()
    if mode.startswith("processed"):
        expected[1, 11] += 9.0
        expected /= torch.tensor([each["temperature"] or 1.0 for each in settings])[:, None]
        expected[2][expected[2] < expected[2].sort().values[-5]] = float("-inf")
        chances, together = expected[3].softmax(0), 0.0
        for token in chances.argsort(descending=True).tolist():
            if together >= 0.6:
                expected[3, token] = float("-inf")
            together += chances[token].item()
    if mode.endswith("logprobs"):
        expected = expected.log_softmax(-1)
    own = expected.gather(1, read[:, :1].long())
    torch.testing.assert_close(read[:, 2:3].contiguous().view(torch.float32), own, atol=1e-5, rtol=1e-5)
    values = expected.topk(most).values
    torch.testing.assert_close(read[:, 3 + most :].contiguous().view(torch.float32), values, atol=1e-5, rtol=1e-5)


def test_what_a_request_asks_for() -> None:
    plain: dict[str, Any] = {
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "logit_bias": None,
        "allowed_token_ids": None,
        "bad_words_token_ids": None,
        "logprobs": None,
        "min_tokens": 2,
    }
    assert not needs_adjusting(SimpleNamespace(**plain), 2)
    assert needs_adjusting(SimpleNamespace(**plain), 1)
    assert needs_adjusting(SimpleNamespace(**plain | {"logprobs": 0}), 2)
    assert refused(SimpleNamespace(**plain)) is None
    assert refused(SimpleNamespace(**plain | {"logprob_token_ids": [1]})) == "logprob_token_ids is not supported"


def test_vllm_finds_the_device_only_if_asked_or_on_a_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "_has_tpu", lambda: False)
    monkeypatch.delenv("TORCHTPU_VLLM", raising=False)
    assert vllm.register() is None
    monkeypatch.setenv("TORCHTPU_VLLM", "1")
    assert vllm.register() == vllm.PLATFORM
    monkeypatch.setattr(vllm, "_has_tpu", lambda: True)
    monkeypatch.setenv("TORCHTPU_VLLM", "0")
    assert vllm.register() is None
    monkeypatch.delenv("TORCHTPU_VLLM")
    assert vllm.register() == vllm.PLATFORM
    monkeypatch.setenv("TORCHTPU_VLLM", "yes")
    with pytest.raises(ValueError, match="TORCHTPU_VLLM=yes"):
        vllm.register()


def test_registering_imports_neither_vllm_nor_a_plugin() -> None:
    code = "import sys, torchtpu.vllm; torchtpu.vllm.register(); print('vllm' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False"]
