"""Sampling as a function of tensors. Settings are data: one program serves all of them.

Random numbers are a function of a request's seed, the number of the token in its output, and the vocabulary's index.
They do not depend on the other requests of a step, nor on how often a request was preempted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchtpu.vllm.programs import Inlined

# Entries of `logit_bias` that a request may have.
MOST_BIASES = 512
# A request's numbers for `pick`, each a column of int32. Floats are given by their bits.
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed_low", "seed_high", "position")
FLOATS = frozenset({"temperature", "top_p", "min_p"})
_TEMPERATURE, _TOP_K, _TOP_P, _MIN_P, _, _SEED_HIGH, _ = range(len(SETTINGS))


def refused(params: Any) -> str | None:
    """Why the settings of a request are not supported; None if they are."""
    for name in ("logprob_token_ids", "prompt_logprob_token_ids", "thinking_token_budget", "trace_decode_token_ids"):
        if getattr(params, name, None) is not None:
            return f"{name} is not supported"
    if len(getattr(params, "logit_bias", None) or ()) > MOST_BIASES:
        return f"logit_bias has more than {MOST_BIASES} entries"
    return None


def needs_adjusting(params: Any, generated: int) -> bool:
    """Whether a request's next token needs `adjust`, the program of what few requests ask."""
    return bool(
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
        or params.logit_bias
        or params.allowed_token_ids is not None
        or params.bad_words_token_ids
        or params.logprobs is not None
        or params.min_tokens > generated
    )


def _pick(logits: Tensor, settings: Tensor) -> Tensor:
    # Operands of cond must own their memory. One cond in another would be traced many times.
    given = (logits.clone(), settings.clone())
    draws, cuts = _asked(settings)
    lowest = torch.ops.higher_order.cond(cuts.any(), _lowest_kept, _all_kept, given)[0]
    # A branch is traced several times, so what is cheap in each step is not a part of it.
    result: Tensor = torch.ops.higher_order.cond(draws.any(), _drawn, _greedy, (*given, lowest, _key(settings)))[0]
    return result


# The operator `torchtpu::pick`. AOTAutograd would trace each branch of a cond many times.
_operator = Inlined("pick(Tensor logits, Tensor settings) -> Tensor", _pick, lambda logits, _: logits[:, 0].int())


def pick(logits: Tensor, settings: Tensor) -> Tensor:
    """The next token of each row, (rows,) int32.

    logits: (rows, vocabulary), float32. settings: (7, rows), int32: the columns of `SETTINGS`. A row with temperature 0
    takes the largest logit. Rows that draw are only computed where there are any, and sorted only where top_k, top_p
    or min_p ask for it.
    """
    result: Tensor = _operator(logits, settings)
    return result


def _asked(settings: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each row draws, and whether from a part of the vocabulary."""
    draws = _float(settings[_TEMPERATURE]) > 0
    top_k, top_p, min_p = settings[_TOP_K], _float(settings[_TOP_P]), _float(settings[_MIN_P])
    return draws, draws & ((top_k > 0) | (top_p < 1) | (min_p > 0))


def _scaled(logits: Tensor, settings: Tensor) -> Tensor:
    temperature = _float(settings[_TEMPERATURE])
    return logits / torch.where(temperature > 0, temperature, 1.0)[:, None]


def _greedy(logits: Tensor, settings: Tensor, lowest: Tensor, key: Tensor) -> tuple[Tensor]:
    return (logits.argmax(-1).to(torch.int32),)


def _drawn(logits: Tensor, settings: Tensor, lowest: Tensor, key: Tensor) -> tuple[Tensor]:
    draws, scaled = _asked(settings)[0], _scaled(logits, settings)
    noise = _gumbel(key, settings[_SEED_HIGH], logits.shape[1])
    chosen = torch.where(scaled >= lowest[:, None], scaled + noise, float("-inf")).argmax(-1)
    return (torch.where(draws, chosen, logits.argmax(-1)).to(torch.int32),)


def _all_kept(logits: Tensor, settings: Tensor) -> tuple[Tensor]:
    return (torch.full_like(logits[:, 0], float("-inf")),)


def _lowest_kept(logits: Tensor, settings: Tensor) -> tuple[Tensor]:
    """The lowest scaled logit of each row that top_k, top_p and min_p all keep, (rows,)."""
    top_k, top_p, min_p = settings[_TOP_K], _float(settings[_TOP_P]), _float(settings[_MIN_P])
    size = logits.shape[1]
    ordered = _scaled(logits, settings).sort(-1, descending=True).values
    rank = torch.arange(size, device=logits.device, dtype=torch.int32)[None]
    kept = rank < torch.where(top_k > 0, top_k, size)[:, None]
    chances = torch.where(kept, ordered, float("-inf")).softmax(-1)
    # A token is kept if those before it have less than top_p together. The first is always kept.
    kept = kept & ((chances.cumsum(-1) - chances < top_p[:, None]) | (rank == 0))
    kept = kept & (chances >= min_p[:, None] * chances[:, :1])
    return (torch.where(kept, ordered, float("inf")).amin(-1),)


def _kept(logits: Tensor, settings: Tensor) -> Tensor:
    """The scaled logits, with -inf where top_k, top_p and min_p keep no token."""
    cuts, scaled = _asked(settings)[1], _scaled(logits, settings)
    is_kept = scaled >= _lowest_kept(logits, settings)[0][:, None]
    return torch.where(is_kept | ~cuts[:, None], scaled, float("-inf"))


def _key(settings: Tensor) -> Tensor:
    """A number for each row, (rows,) int32, which depends on its seed and its position."""
    low, high, position = settings[-3:].unbind()
    return _mixed(low ^ _mixed(high ^ _mixed(position)))


def _gumbel(key: Tensor, high: Tensor, size: int) -> Tensor:
    """(rows, size) of the standard Gumbel distribution: adding them to logits makes argmax a draw."""
    places = torch.arange(size, device=key.device, dtype=torch.int32)
    return _noise(_mixed(_mixed(places[None] ^ key[:, None]) + high[:, None]))


def _noise(bits: Tensor) -> Tensor:
    """Finite numbers of the standard Gumbel distribution from random int32."""
    # With one bit more, the largest number plus a half would be rounded, and the noise infinite.
    uniform = ((bits >> 9) & 0x7FFFFF).to(torch.float32)
    return -torch.log(-torch.log((uniform + 0.5) * 2.0**-23))


def _mixed(bits: Tensor) -> Tensor:
    """A bijection of int32 in which each bit of the result depends on all bits (lowbias32)."""
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * 0x7FEB352D
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    return bits ^ ((bits >> 16) & 0xFFFF)


def _float(bits: Tensor) -> Tensor:
    return bits.view(torch.float32)


def adjust(
    logits: Tensor,
    settings: Tensor,
    tokens: Tensor,
    penalties: Tensor,
    biases: Tensor,
    allowed: Tensor,
    most: int,
    mode: str = "raw_logprobs",
) -> Tensor:
    """The next token of each row with penalties, biases and masks, and logarithms of probabilities.

    Args:
        logits, settings: As for `pick`.
        tokens: (2, rows, positions), int32. The prompt's and the output's tokens; the vocabulary's size where there is
            none.
        penalties: (3, rows), the bits of float32: repetition, frequency, presence.
        biases: (2, rows, biases), int32: tokens, and the bits of what is added to their logits.
        allowed: (rows, words), int32: bit i % 32 of word i // 32 is set if token i is allowed.
        most: How many of the most likely tokens to return.
        mode: vLLM's `logprobs_mode`. "raw_logits" and "raw_logprobs" are of the logits as the model gave them,
            "processed_logits" and "processed_logprobs" of those that tokens are drawn from.

    Returns:
        (rows, 3 + 2 * most), int32: the token, its rank, the bits of its log-probability (or logit), the most likely
        tokens, and the bits of theirs.
    """
    rows, size = logits.shape
    index = torch.arange(rows, device=logits.device)[:, None]
    counts = torch.zeros(2, rows, size + 1, dtype=torch.float32, device=logits.device)
    # Places by index: prompt and output are separate counts.
    one = torch.ones((), device=logits.device)
    in_prompt, in_output = (
        counts[part].index_put((index, tokens[part].long()), one, accumulate=True)[:, :size] for part in range(2)
    )
    repetition, frequency, presence = (_float(each)[:, None] for each in penalties)
    changed = logits
    extended = torch.zeros(rows, size + 1, device=logits.device)
    changed = changed + extended.index_put((index, biases[0].long()), _float(biases[1]), accumulate=True)[:, :size]
    seen = (in_prompt + in_output) > 0
    changed = torch.where(seen, torch.where(changed > 0, changed / repetition, changed * repetition), changed)
    changed = changed - frequency * in_output - presence * (in_output > 0).to(torch.float32)
    place = torch.arange(size, device=logits.device)
    is_allowed = ((allowed[:, place // 32] >> (place % 32).to(torch.int32)) & 1) != 0
    changed = torch.where(is_allowed, changed, float("-inf"))
    chosen = pick(changed, settings)

    shown = _kept(changed, settings) if mode.startswith("processed") else logits
    logs = shown.log_softmax(-1) if mode.endswith("logprobs") else shown
    own = logs.gather(1, chosen.long()[:, None])
    rank = (logs >= own).sum(1, keepdim=True).to(torch.int32)
    top = logs.topk(most, -1) if most else (logs[:, :0], place[:0].expand(rows, 0))
    return torch.cat(
        [chosen[:, None], rank, own.view(torch.int32), top[1].to(torch.int32), top[0].contiguous().view(torch.int32)], 1
    )
