r"""The verifier of a reasoning-gym generator, which knows all right answers of its problems.

The answer is the last `<answer>` tag or `\boxed{}`, else the whole text if it is short. The entry as the package made
it (`agent_rl.data.reasoning_gym`) is the row's `extra_info.entry`, or the ground truth. Needs the package
reasoning-gym.

Verifiers are other people's code, and some evaluate the answer: each runs in the sandbox. What this does not promise:
that an answer which takes over its verifier there cannot write its own score.
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

__all__ = ["score_reasoning_gym"]

_PROGRAM = """\
import json, sys
from reasoning_gym import get_score_answer_fn
given = json.load(sys.stdin)
print(float(get_score_answer_fn(given["entry"]["metadata"]["source_dataset"])(given["answer"], given["entry"])))
"""
_TIMEOUT_S = 10.0
_MAX_TEXT = 50_000
_MAX_ANSWER = 5_000


@built_in("reasoning_gym", "reasoning_gym/*", inline=True)
async def score_reasoning_gym(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The verifier's score: 1.0 for a right answer; some verifiers give a part of it to answers that are close.

    Raises:
        UnscoredError: the row has no entry of a generator, or the sandbox failed.
        ConfigError: the package is not installed.
    """
    entry = as_data(ground_truth) if isinstance(ground_truth, Mapping) else extra_info.get("entry")
    metadata = entry.get("metadata") if isinstance(entry, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("source_dataset"), str):
        raise unusable(ground_truth, "of a reasoning-gym entry, which extra_info.entry has")
    text = solution[-_MAX_TEXT:]
    answer = marked_part(text) or text.strip()
    if not answer or len(answer) > _MAX_ANSWER:
        return 0.0
    try:
        sandbox = await shared_sandbox(packages=("reasoning-gym",))
    except ConfigError as error:
        problem = "the package reasoning-gym is not installed"
        raise ConfigError("scorer reasoning_gym", problem, "pip install reasoning-gym") from error
    given = json.dumps({"entry": entry, "answer": answer})
    done = await repeated_if_busy(lambda: sandbox.run(_PROGRAM, given, _TIMEOUT_S), _TIMEOUT_S)
    raise_if_not_run(done, "agent_rl.reward.correctness.scorer")
    lines = done.stdout.splitlines()
    try:
        score = float(lines[-1]) if done.status is ExecutionStatus.OK and lines else 0.0
    except ValueError:
        return 0.0
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0
