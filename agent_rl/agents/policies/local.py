"""Runs a transformers model in this process, for small models, tests, or a quick look at a checkpoint.

Waiting requests are processed as one batch. The model is not served by an inference engine, so a batch is as slow as
its longest turn, and every turn recomputes the whole conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from agent_rl.agents.policies.source import Sampling
from agent_rl.agents.policies.tokens import ChatTokenizer, Sampled, TokenSource
from agent_rl.errors import ConfigError

Pending = tuple[list[int], dict[str, Any], "asyncio.Future[Sampled]"]


class LocalModel(TokenSource):
    """A transformers model from a folder or from the Hub.

    Args:
        model: the model's folder or name.
        chat: the model's tokenizer.
        sampling: the sampling parameters; seeds are ignored.
        batch: maximum number of conversations in one batch.
        dtype: the dtype of the weights, as transformers names it.

    Raises:
        ConfigError: transformers cannot load the model.
    """

    def __init__(
        self, model: str, chat: ChatTokenizer, sampling: Sampling, *, batch: int = 16, dtype: str = "auto"
    ) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        super().__init__(chat, sampling)
        try:
            loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        except (OSError, ValueError) as error:
            problem = f"transformers cannot load {model!r} ({str(error).splitlines()[0]})"
            raise ConfigError("model", problem, "Use a model's folder, or its name on the Hub") from None
        self.model = loaded.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        self._batch = batch

    async def __aenter__(self) -> LocalModel:
        self._waiting: asyncio.Queue[Pending] = asyncio.Queue()
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._worker

    async def sample(self, prompt_ids: list[int], params: dict[str, Any]) -> Sampled:
        """Sample tokens after the prompt; see `TokenSource.sample`."""
        answer: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((list(prompt_ids), params, answer))
        return await answer

    async def _work(self) -> None:
        while True:
            requests = [await self._waiting.get()]
            while len(requests) < self._batch and not self._waiting.empty():
                requests.append(self._waiting.get_nowait())
            try:
                sampled = await asyncio.to_thread(self._generate, requests)
            except Exception as error:  # noqa: BLE001 - all conversations in the batch get the error and stay unscored
                for *_, answer in requests:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for answer, one in sampled:
                if not answer.done():
                    answer.set_result(one)

    def _generate(self, requests: list[Pending]) -> list[tuple[asyncio.Future[Sampled], Sampled]]:
        """Generate one batch for each set of stop strings and stop tokens, which differ between agents."""
        kinds: dict[str, list[Pending]] = {}
        for request in requests:
            kinds.setdefault(repr((request[1].get("stop"), request[1].get("stop_token_ids"))), []).append(request)
        pairs = ((batch, self._together(batch)) for batch in kinds.values())
        return [(answer, one) for batch, done in pairs for (*_, answer), one in zip(batch, done, strict=True)]

    def _together(self, requests: list[Pending]) -> list[Sampled]:
        """Generate turns, without gradients, for requests whose parameters differ only in `max_new_tokens`."""
        import torch

        params = requests[0][1]
        limits = [request[1]["max_new_tokens"] for request in requests]
        longest = max(len(ids) for ids, *_ in requests)
        pad = self.tokenizer.pad_token_id
        rows = [[pad] * (longest - len(ids)) + ids for ids, *_ in requests]
        mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids, *_ in requests]
        device = self.model.device
        greedy = params["temperature"] == 0
        chosen = {} if greedy else {"temperature": params["temperature"], "top_p": params["top_p"]}
        ends = self.model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        ends |= set(params.get("stop_token_ids") or ())
        done = self.model.generate(
            input_ids=torch.tensor(rows, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=max(limits),
            do_sample=not greedy,
            top_k=params.get("top_k", 0) if not greedy else None,
            pad_token_id=pad,
            eos_token_id=sorted(ends) or None,
            stop_strings=params.get("stop"),
            tokenizer=self.tokenizer,
            output_scores=bool(params.get("logprobs")),
            return_dict_in_generate=True,
            **chosen,
        )
        scores = torch.stack(done.scores, 1).log_softmax(-1) if done.scores else None
        return [
            _row(done.sequences[i, longest:].tolist(), limits[i], ends, pad, None if scores is None else scores[i])
            for i in range(len(requests))
        ]


def _row(ids: list[int], limit: int, ends: set[int], pad: int, scores_TV: Any) -> Sampled:
    """Cut one row of a batch at the end of its turn, and remove the padding."""
    ids = ids[:limit]
    while ids and ids[-1] == pad and pad not in ends:
        ids.pop()
    end = next((n for n, token in enumerate(ids, start=1) if token in ends), None)
    ids = ids[:end]
    logprobs = None if scores_TV is None else [float(scores_TV[n, token]) for n, token in enumerate(ids)]
    return Sampled(ids, logprobs, "stop" if end is not None else "length")
