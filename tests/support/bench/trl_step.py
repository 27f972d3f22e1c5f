"""Steps of TRL's GRPOTrainer with a tool, on the rows and the model of the comparison; a program of its own.

The conversations are token for token those of agent_rl's `react_agent`: the chat template writes tool calls and results
as that agent does, and a response schema reads the calls. TRL gets the settings that are fastest on a CPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

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


class Clock(TrainerCallback):
    """When each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.times.append(time.perf_counter())


def main(
    model: str, rows_path: str, prompts: int, samples: int, steps: int, tool_s: float, seed: int, out: str
) -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = json.loads(Path(rows_path).read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_schema = RESPONSE_SCHEMA
    lengths: list[float] = []

    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression.

        Args:
            expression: For example 12+34.

        Returns:
            Its value.
        """
        if tool_s:
            time.sleep(tool_s)
        return calculate(expression)

    def reward(completions: list[Any], ground_truth: list[str], completion_ids: list[Any], **_: Any) -> list[float]:
        lengths.append(mean(map(len, completion_ids)))
        answers = [talk[-1]["content"].rpartition("Final Answer:")[2] for talk in completions]
        return [float(numeric_match(answer, truth)) for answer, truth in zip(answers, ground_truth, strict=True)]

    clock = Clock()
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        tools=[calculator],
        train_dataset=Dataset.from_list(rows),
        callbacks=[clock],
        args=GRPOConfig(
            output_dir=out,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=prompts * samples,
            num_generations=samples,
            max_completion_length=448,
            max_tool_calling_iterations=9,
            learning_rate=1e-6,
            beta=0.0,
            max_steps=steps,
            seed=seed,
            shuffle_dataset=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "tools/call_frequency" in entry]
    times = clock.times
    result = {
        "seconds": [after - before for before, after in pairwise(times)],
        "response_tokens": lengths[1:],
        "tool_calls": [entry["tools/call_frequency"] for entry in logged][1:],
        "reward": [entry["reward"] for entry in logged][1:],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
