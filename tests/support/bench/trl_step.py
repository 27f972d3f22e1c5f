"""Steps of TRL's GRPOTrainer with a calculator, on the rows and the model of a comparison; a program of its own.

The conversations are token for token those of agent_rl's `react_agent`: the chat template writes tool calls and results
as that agent does, and a response schema reads the calls. TRL gets the settings that are fastest on a CPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from agent_rl.errors import ToolError
from agent_rl.rewards.scorers.math.numeric import numeric_match
from agent_rl.tools.builtin.calculator import calculate

CHAT_TEMPLATE = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\nObservation: ' + message.content + '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- 'Action: ' + call.function.name + '\\nAction Input: ' + (call.function.arguments | tojson) }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

CALL = r"Action: \w+\nAction Input: \{[^\n]*\}"
RESPONSE_SCHEMA = {
    "type": "object",
    "x-regex": rf"^(?P<content>.*?)(?P<tool_calls>{CALL})?(?:<\|im_end\|>|$)",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": "string"},
        "tool_calls": {
            "type": "array",
            "x-regex-iterator": f"({CALL})",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "x-regex": r"Action: (?P<name>\w+)\nAction Input: (?P<arguments>.*)",
                        "properties": {
                            "name": {"type": "string"},
                            "arguments": {"type": "object", "x-parser": "json", "additionalProperties": {}},
                        },
                    },
                },
            },
        },
    },
}


FREE_CALLS = 3
"""A call beyond these costs 0.1, at most 0.5 together; a turn that is neither a call nor an answer costs 0.2 / 3."""


class StepLog(TrainerCallback):
    """Writes a line for each step when it has ended; `lengths` gets the mean response length of each batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lengths: list[float] = []

    def on_log(self, *args: Any, logs: dict[str, float], **kwargs: Any) -> None:
        if "reward" in logs:
            line = {
                "reward": logs["reward"],
                "tool_calls": logs["tools/call_frequency"],
                "response_tokens": self.lengths[-1],
            }
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def scored(talk: list[dict[str, Any]], ground_truth: str) -> float:
    """Return the reward of an episode: correctness, minus needless calls, minus a malformed turn, which ends it."""
    last = talk[-1]
    _, mark, answer = (last["content"] or "").rpartition("Final Answer:")
    calls = sum(len(message.get("tool_calls") or ()) for message in talk)
    is_malformed = not mark and not last.get("tool_calls")
    correctness = float(bool(mark) and numeric_match(answer, ground_truth))
    return correctness - min(0.5, 0.1 * max(0, calls - FREE_CALLS)) - 0.2 / 3 * is_malformed


def main(model: str, rows_path: str, tool_s: float, out: str, options: dict[str, Any]) -> None:
    """Train; write `steps.jsonl` and the trained model.

    Args:
        model: folder of the model.
        rows_path: JSON file of the rows, which have a `prompt` and a `ground_truth`.
        tool_s: seconds that a call takes.
        out: folder for all files.
        options: arguments of GRPOConfig that the comparisons do not share.
    """
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = json.loads(Path(rows_path).read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.save_pretrained(out)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_schema = RESPONSE_SCHEMA
    log = StepLog(Path(out) / "steps.jsonl")

    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression.

        Args:
            expression: For example 12+34.

        Returns:
            Its value.
        """
        if tool_s:
            time.sleep(tool_s)
        try:
            return calculate(expression)
        except ToolError as error:
            return f"Error: {error}"

    def reward(completions: list[Any], ground_truth: list[str], completion_ids: list[Any], **_: Any) -> list[float]:
        log.lengths.append(mean(map(len, completion_ids)))
        return [scored(talk, truth) for talk, truth in zip(completions, ground_truth, strict=True)]

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        tools=[calculator],
        train_dataset=Dataset.from_list(rows),
        callbacks=[log],
        args=GRPOConfig(
            output_dir=out,
            use_cpu=True,
            gradient_checkpointing=False,
            beta=0.0,
            shuffle_dataset=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **options,
        ),
    )
    trainer.train()
    trainer.model.save_pretrained(out)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
