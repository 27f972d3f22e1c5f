"""A tiny model that was taught to play scripts: each of our loops needs turns that no untrained model would write."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.cpu.tiny_model import IM_END, IM_START, make_model, make_tokenizer
from agent_rl.data import arithmetic

STEPS, RATE = 250, 5e-3


class Recorder(ScriptedPolicy):
    """Keeps the conversations that were left behind."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conversations: list[list[dict[str, Any]]] = []

    async def begin(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> None:
        await super().begin(messages, tools)
        self.conversations.append(self.messages)


def teach(folder: Path, conversations: Sequence[list[dict[str, Any]]], steps: int = STEPS, **shape: int) -> float:
    """Make a model that says what the assistant says in the conversations; the last loss in nats a token."""
    texts = ["system", "user", "assistant", *(message["content"] for each in conversations for message in each)]
    tokenizer = make_tokenizer(texts, folder)
    model = make_model(folder, tokenizer, hidden=64, layers=2, heads=4, init_std=0.1, **shape)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.0)
    ids_BT, labels_BT = _encoded(tokenizer, conversations)
    loss, threads = torch.tensor(0.0), torch.get_num_threads()
    torch.set_num_threads(1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 30)
        optimizer.zero_grad()
        # Padding stands on the right, where causal attention never looks: no attention mask, hence the fast kernel.
        loss = model(input_ids=ids_BT, labels=labels_BT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    torch.set_num_threads(threads)
    model.save_pretrained(folder)
    return float(loss.detach())


def calls(wasteful: int, count: int = 24) -> list[list[dict[str, Any]]]:
    """Conversations with the calculator about as many problems, all with the same call, so that it is quick to learn.

    Args:
        wasteful: one in so many asks four times.
    """
    problems = arithmetic.generate(1_000_000, count)
    same = problems[0]
    ask = f"Thought: I compute.\nAction: calculator\nAction Input: {json.dumps({'expression': same.expression})}"
    asked = [("assistant", ask), ("user", f"Observation: {same.answer}")]
    answer = [("assistant", f"Thought: I have the result.\nFinal Answer: {same.answer}")]
    return [
        [
            {"role": role, "content": text}
            for role, text in [("user", each.question), *asked * (4 if number % wasteful == 0 else 1), *answer]
        ]
        for number, each in enumerate(problems)
    ]


def _encoded(tokenizer: Any, conversations: Sequence[list[dict[str, Any]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, padded on the right, and labels: what the assistant says, its end included."""
    header = tokenizer.encode(f"{IM_START}assistant\n", add_special_tokens=False)
    end, found = tokenizer.convert_tokens_to_ids(IM_END), []
    for text in tokenizer.apply_chat_template(conversations, tokenize=False):
        ids = tokenizer.encode(text, add_special_tokens=False)
        labels, at = [-100] * len(ids), 0
        while at < len(ids):
            if ids[at : at + len(header)] != header:
                at += 1
                continue
            start, at = at + len(header), ids.index(end, at) + 1
            labels[start:at] = ids[start:at]
        found.append((ids, labels))
    length = max(len(ids) for ids, _ in found)
    ids_BT = torch.tensor([ids + [tokenizer.pad_token_id] * (length - len(ids)) for ids, _ in found])
    return ids_BT, torch.tensor([labels + [-100] * (length - len(labels)) for _, labels in found])
