"""The state of requests, and what a step uploads and reads."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, LogprobsLists, LogprobsTensors, ModelRunnerOutput

from torchtpu.vllm.adapters import Adapters
from torchtpu.vllm.programs import Run, Tighter
from torchtpu.vllm.sampling import FLOATS, MOST_BIASES, SETTINGS, needs_adjusting
from torchtpu.vllm.steps import Layout

FULL_WORD = -1
# Added to a logit, it is the largest.
LARGEST = 1e30


@dataclasses.dataclass
class Request:
    """A request that the scheduler has sent."""

    tokens: list[int]
    """The prompt and the output so far."""
    prompt: int
    """The length of the prompt."""
    pages: list[int]
    computed: int
    """The number of tokens whose keys are in the cache."""
    params: Any
    seed: int
    adapter: Any = None
    """vLLM's request of an adapter, or None."""
    scores: LogprobsTensors | None = None
    """Log-probabilities of the prompt's tokens but the first, if the request asks for them, until they are sent."""

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt


@dataclasses.dataclass(frozen=True)
class Limits:
    """The sizes that programs are made for."""

    sequences: int
    tokens: int
    length: int
    page: int
    vocabulary: int
    most_logprobs: int
    has_adapters: bool = False

    @property
    def places(self) -> int:
        return -(-self.length // self.page)

    def layout(self, tokens: int) -> Layout:
        return Layout(tokens, min(tokens, self.sequences), self.places, self.has_adapters)


class Runner:
    """Runs the steps of a scheduler.

    `programs` are the programs of a step by the number of tokens that they take; `adjusting` is that of
    `torchtpu.vllm.sampling.adjust`, and `scoring` the one for tokens of prompts. Those in `tighter` are made in the
    background, each when a step could have used it. `fixed` are the weights, the caches and what `adapters` hold. With
    a `seed`, requests without one draw the same in each process.
    """

    def __init__(
        self,
        limits: Limits,
        programs: dict[int, Run],
        adjusting: Run,
        scoring: Run,
        fixed: list[Tensor],
        device: torch.device,
        seed: int | None = None,
        adapters: Adapters | None = None,
        tighter: Sequence[Tighter] = (),
    ) -> None:
        self.limits = limits
        self.requests: dict[str, Request] = {}
        self._programs = dict(sorted(programs.items()))
        self._tighter = list(tighter)
        self._adjusting = adjusting
        self._scoring = scoring
        self._fixed = fixed
        self._adapters = adapters
        self._device = device
        # Of requests that have none.
        self._seeds = random.Random(seed)

    # ---- requests ----------------------------------------------------------------------------------------------

    def update(self, output: Any) -> None:
        """Takes over what the scheduler says of requests."""
        for name in output.finished_req_ids:
            self.requests.pop(name, None)
        for new in output.scheduled_new_reqs:
            seed = new.sampling_params.seed
            self.requests[new.req_id] = Request(
                tokens=list(new.prompt_token_ids),
                prompt=len(new.prompt_token_ids),
                pages=list(new.block_ids[0]),
                computed=new.num_computed_tokens,
                params=new.sampling_params,
                seed=self._seeds.getrandbits(63) if seed is None else seed & (2**64 - 1),
                adapter=new.lora_request,
                scores=self._empty_scores(new),
            )
        known = output.scheduled_cached_reqs
        for name, pages, computed in zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True):
            request = self.requests[name]
            request.computed = computed
            if name in known.resumed_req_ids:
                request.pages = []
            if pages is not None:
                request.pages.extend(pages[0])

    # ---- steps -------------------------------------------------------------------------------------------------

    def run(self, output: Any, grammar: Any = None) -> ModelRunnerOutput:
        """Runs a step: one upload, one program, one read. A second program if a request asks for more than `pick`, and
        more runs if one asks for log-probabilities of its prompt."""
        if not output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        names = list(output.num_scheduled_tokens)
        rows = [self.requests[name] for name in names]
        is_adjusted = grammar is not None or any(
            row.scores is not None or needs_adjusting(row.params, row.generated) for row in rows
        )
        capacity, program = self._program(output.total_num_scheduled_tokens, is_adjusted)
        vector, parts = self.limits.layout(capacity).empty()
        ready = self._fill(parts, names, output.num_scheduled_tokens)
        if self._adapters is not None:
            asked = {name: self.requests[name].adapter for name in names if self.requests[name].adapter is not None}
            places = self._adapters.places(list(asked.values()))
            row = [places[asked[name].lora_int_id] if name in asked else 0 for name in names]
            counts = [output.num_scheduled_tokens[name] for name in names]
            parts["adapters"][: sum(counts)] = numpy.repeat(row, counts)
        uploaded = self._upload(vector)
        tokens, logits = program([*self._fixed, uploaded])
        masked = (
            {}
            if grammar is None
            else dict(zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=False))
        )
        logprobs = None
        if is_adjusted:
            settings = self._upload(parts["settings"].copy())
            extras = [self._upload(each) for each in self._extras(names, masked)]
            read = self._adjusting([logits, settings, *extras])[0].cpu().numpy()
            chosen = read[:, 0]
            logprobs = self._logprobs(read[: len(names)], rows)
        else:
            chosen = tokens.cpu().numpy()
            self._prepare(output.total_num_scheduled_tokens, capacity)
        scores = self._score(program, vector, parts, names)
        sampled: list[list[int]] = []
        for name, is_ready, token in zip(names, ready, chosen.tolist(), strict=False):
            request = self.requests[name]
            request.computed += output.num_scheduled_tokens[name]
            sampled.append([token] if is_ready else [])
            if is_ready:
                request.tokens.append(token)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=logprobs,
            prompt_logprobs_dict=scores,
        )

    def _program(self, tokens: int, is_adjusted: bool) -> tuple[int, Run]:
        """The smallest program that is ready and takes so many tokens. The program that adjusts takes the logits of all
        rows, which the tighter ones do not return."""
        capacity, run = next((size, run) for size, run in self._programs.items() if size >= tokens)
        for each in self._tighter:
            if tokens <= each.size < capacity and not is_adjusted and each.is_ready():
                return each.size, each.run
        return capacity, run

    def _prepare(self, tokens: int, capacity: int) -> None:
        """Begins to make the tighter program that a step could have used."""
        for each in self._tighter:
            if tokens <= each.size < capacity and each.is_due():
                each.begin(self._empty(each.size))
                return

    def run_tighter(self) -> None:
        """Runs the tighter programs without a request. Each is made first."""
        for each in self._tighter:
            each.run(self._empty(each.size))

    def _empty(self, tokens: int) -> list[Tensor]:
        """The inputs of a step without requests."""
        return [*self._fixed, self._upload(self.limits.layout(tokens).empty()[0])]

    def _upload(self, numbers: numpy.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self._device)

    def _fill(self, parts: dict[str, numpy.ndarray], names: list[str], scheduled: dict[str, int]) -> list[bool]:
        """Fills in a step's numbers. Returns, for each request, whether all of its tokens will have been computed, so
        that the next one is drawn. What is not filled in is zero: page 0 belongs to no request, and takes the keys of
        tokens that are not there."""
        ready = []
        start, page = 0, self.limits.page
        for row, name in enumerate(names):
            request, count = self.requests[name], scheduled[name]
            first, end = request.computed, request.computed + count
            places = numpy.arange(first, end, dtype=numpy.int32)
            pages = numpy.asarray(request.pages, dtype=numpy.int32)
            span = slice(start, start + count)
            parts["ids"][span] = request.tokens[first:end]
            parts["positions"][span] = places
            parts["slots"][span] = pages[places // page] * page + places % page
            parts["tables"][row, : len(pages)] = pages[: self.limits.places]
            start += count
            parts["lengths"][row] = end
            parts["last"][row] = start - 1
            parts["starts"][row + 1] = start
            ready.append(end >= len(request.tokens))
            self._settings(parts["settings"][:, row], request)
        parts["count"][0] = len(names)
        return ready

    @staticmethod
    def _settings(column: numpy.ndarray, request: Request) -> None:
        params = request.params
        values = {
            "temperature": params.temperature,
            "top_k": max(params.top_k, 0),
            "top_p": params.top_p,
            "min_p": params.min_p,
            "seed_low": _signed(request.seed),
            "seed_high": _signed(request.seed >> 32),
            "position": request.generated,
        }
        for i, name in enumerate(SETTINGS):
            value = values[name]
            column[i] = numpy.float32(value).view(numpy.int32) if name in FLOATS else value

    def _extras(self, names: list[str], masked: dict[str, Any]) -> list[numpy.ndarray]:
        limits = self.limits
        rows, words = limits.sequences, -(-limits.vocabulary // 32)
        tokens = numpy.full((2, rows, limits.length), limits.vocabulary, dtype=numpy.int32)
        penalties = numpy.zeros((3, rows), dtype=numpy.float32)
        penalties[0] = 1.0
        biased = numpy.full((rows, MOST_BIASES), limits.vocabulary, dtype=numpy.int32)
        added = numpy.zeros((rows, MOST_BIASES), dtype=numpy.float32)
        allowed = numpy.full((rows, words), FULL_WORD, dtype=numpy.int32)
        for row, name in enumerate(names):
            request = self.requests[name]
            params, prompt = request.params, request.prompt
            tokens[0, row, :prompt] = request.tokens[:prompt]
            tokens[1, row, : request.generated] = request.tokens[prompt:]
            penalties[:, row] = params.repetition_penalty, params.frequency_penalty, params.presence_penalty
            for i, (token, bias) in enumerate((params.logit_bias or {}).items()):
                biased[row, i], added[row, i] = token, bias
            if name in masked:
                given = masked[name][:words]
                allowed[row, : len(given)] = given
            if params.allowed_token_ids is not None:
                kept = numpy.zeros(words, dtype=numpy.uint32)
                for token in params.allowed_token_ids:
                    kept[token // 32] |= numpy.uint32(1 << (token % 32))
                allowed[row] &= kept.view(numpy.int32)
            _forbid(allowed[row], _bad_words(request))
            if request.generated < params.min_tokens:
                longer = allowed[row].copy()
                _forbid(longer, params.all_stop_token_ids)
                # As vLLM's: where a grammar allows nothing but a stop token, the request stops before `min_tokens`.
                if longer.any() or params.structured_outputs is None:
                    allowed[row] = longer
        biases = numpy.stack([biased, added.view(numpy.int32)])
        return [tokens, penalties.view(numpy.int32), biases, allowed]

    # ---- log-probabilities of prompts --------------------------------------------------------------------------

    def _score(
        self, program: Run, vector: numpy.ndarray, parts: dict[str, numpy.ndarray], names: list[str]
    ) -> dict[str, LogprobsTensors | None]:
        """Fills in the scores of the prompts' tokens that follow those of a step. Returns the complete ones.

        A program returns the logits of few places, so the step runs again for more of them. It writes the same keys.
        """
        found: list[tuple[int, LogprobsTensors, int, int]] = []
        complete: dict[str, LogprobsTensors | None] = {}
        for row, name in enumerate(names):
            request = self.requests[name]
            if (scores := request.scores) is None:
                continue
            start, end = int(parts["starts"][row]), int(parts["lengths"][row])
            places = range(request.computed, min(end, request.prompt - 1))
            found += [(start + i, scores, place, request.tokens[place + 1]) for i, place in enumerate(places)]
            if end >= request.prompt:
                complete[name], request.scores = scores, None
        parts["settings"][:] = 0
        rows = self.limits.sequences
        for some in (found[first : first + rows] for first in range(0, len(found), rows)):
            parts["last"][: len(some)] = [place for place, _, _, _ in some]
            logits = program([*self._fixed, self._upload(vector)])[1]
            extras = [self._upload(each) for each in self._forced([target for _, _, _, target in some])]
            read = self._scoring([logits, self._upload(parts["settings"].copy()), *extras])[0].cpu().numpy()
            for values, (_, scores, place, _) in zip(read, some, strict=False):
                self._fill_scores(scores, place, values)
        return complete

    def _forced(self, targets: list[int]) -> list[numpy.ndarray]:
        """Inputs of `adjust` with which it takes these tokens."""
        tokens, penalties, biases, allowed = self._extras([], {})
        biases[0, : len(targets), 0] = targets
        biases[1, : len(targets), 0] = numpy.float32(LARGEST).view(numpy.int32)
        return [tokens, penalties, biases, allowed]

    def _fill_scores(self, scores: LogprobsTensors, place: int, values: numpy.ndarray) -> None:
        most, count = self.limits.most_logprobs, scores.logprobs.shape[1] - 1
        tokens = numpy.concatenate([values[:1], values[3 : 3 + count]])
        logs = numpy.concatenate([values[2:3], values[3 + most : 3 + most + count]]).view(numpy.float32)
        scores.logprob_token_ids[place] = torch.from_numpy(tokens)
        scores.logprobs[place] = torch.from_numpy(logs)
        scores.selected_token_ranks[place] = int(values[1])

    def _logprobs(self, read: numpy.ndarray, rows: list[Request]) -> LogprobsLists | None:
        asked = [self._number(row.params.logprobs) for row in rows if row.params.logprobs is not None]
        if not asked:
            return None
        most, count = self.limits.most_logprobs, max(asked)
        tops = read[:, 3 : 3 + most][:, :count]
        logs = read[:, 3 + most :][:, :count]
        tokens = numpy.concatenate([read[:, :1], tops], 1)
        values = numpy.ascontiguousarray(numpy.concatenate([read[:, 2:3], logs], 1)).view(numpy.float32)
        return LogprobsLists(tokens, values, read[:, 1])

    def _empty_scores(self, new: Any) -> LogprobsTensors | None:
        asked = new.sampling_params.prompt_logprobs
        if asked is None:
            return None
        return LogprobsTensors.empty_cpu(len(new.prompt_token_ids) - 1, self._number(asked) + 1)

    def _number(self, asked: int) -> int:
        """How many logprobs a request asks for; -1 asks for all."""
        return asked if asked >= 0 else self.limits.vocabulary


def _signed(number: int) -> int:
    """The low 32 bits as a signed number."""
    low = number & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


def _bad_words(request: Request) -> list[int]:
    """Tokens that would complete words that a request must not have."""
    output = request.tokens[request.prompt :]
    words = request.params.bad_words_token_ids or ()
    return [last for *before, last in words if not before or output[-len(before) :] == before]


def _forbid(allowed: numpy.ndarray, tokens: Iterable[int]) -> None:
    """Clears the bits of tokens."""
    for token in tokens:
        allowed.view(numpy.uint32)[token // 32] &= ~numpy.uint32(1 << (token % 32))
