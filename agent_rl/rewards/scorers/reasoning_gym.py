r"""Scores an answer with the verifier of the problem's reasoning-gym generator, which recognizes all right answers.

The answer is the last `<answer>` tag or `\boxed{}`, else the whole text if it is short. The ground truth or
`extra_info["entry"]` is the problem's entry (`agent_rl.data.reasoning_gym`). The scorer needs the reasoning-gym
package.

Verifiers are third-party code, and some of them evaluate the answer, so they run in the sandbox. The sandbox does not
prevent an answer that takes over its verifier from writing its own score.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.rewards.scorers.extraction import marked_part
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable
from agent_rl.sandbox import ExecutionStatus, raise_if_not_run, repeated_if_busy, shared_sandbox

_PROGRAM = """\
import json, sys
from reasoning_gym import get_score_answer_fn
task = json.load(sys.stdin)
print(float(get_score_answer_fn(task["entry"]["metadata"]["source_dataset"])(task["answer"], task["entry"])))
"""
_TIMEOUT_S = 10.0
_MAX_TEXT = 50_000
_MAX_ANSWER = 5_000


@built_in("reasoning_gym", "reasoning_gym/*", inline=True)
async def score_reasoning_gym(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Return the verifier's score: 1.0 for a right answer; some verifiers give partial credit to similar answers.

    Raises:
        UnscoredError: the row contains no entry from a generator, or the sandbox failed.
        ConfigError: the reasoning-gym package is not installed.
    """
    entry = as_data(ground_truth) if isinstance(ground_truth, Mapping) else extra_info.get("entry")
    metadata = entry.get("metadata") if isinstance(entry, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("source_dataset"), str):
        raise unusable(ground_truth, "a reasoning-gym entry, and extra_info contains no entry")
    text = solution[-_MAX_TEXT:]
    answer = marked_part(text) or text.strip()
    if not answer or len(answer) > _MAX_ANSWER:
        return 0.0
    try:
        sandbox = await shared_sandbox(packages=("reasoning-gym",))
    except ConfigError as error:
        problem = "the reasoning-gym package is not installed"
        raise ConfigError("scorer reasoning_gym", problem, "Run pip install reasoning-gym") from error
    task = json.dumps({"entry": entry, "answer": answer})
    execution = await repeated_if_busy(lambda: sandbox.run(_PROGRAM, task, _TIMEOUT_S), _TIMEOUT_S)
    raise_if_not_run(execution, "agent_rl.reward.correctness.scorer")
    lines = execution.stdout.splitlines()
    try:
        score = float(lines[-1]) if execution.status is ExecutionStatus.OK and lines else 0.0
    except ValueError:
        return 0.0
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0
