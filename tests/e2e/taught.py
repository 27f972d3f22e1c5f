"""A tiny model that was taught to play scripts: each of our loops needs turns that no untrained model would write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.cpu.tiny_model import make_model, make_tokenizer
from tests.warm_start import teaching

ROOT = Path(__file__).parents[2]
STEPS, RATE = 250, 5e-3


class Recorder(ScriptedPolicy):
    """Keeps the conversations that were left behind."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conversations: list[list[dict[str, Any]]] = []

    async def begin(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> None:
        await super().begin(messages, tools)
        self.conversations.append(self.messages)


def teach(folder: Path, conversations: Sequence[list[dict[str, Any]]]) -> float:
    """Make a model that says what the assistant says in the conversations; the last loss in nats a token."""
    texts = ["system", "user", "assistant", *(message["content"] for each in conversations for message in each)]
    tokenizer = make_tokenizer(texts, folder)
    model = make_model(folder, tokenizer, hidden=64, layers=2, heads=4, init_std=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    with teaching() as warm_start:
        rows, loss = warm_start.encode(tokenizer, conversations), 0.0
        for step in range(STEPS):
            rate = RATE * min(1.0, (step + 1) / 30)
            loss = warm_start._step(model, optimizer, rate, rows, tokenizer.pad_token_id)
    model.save_pretrained(folder)
    return loss
