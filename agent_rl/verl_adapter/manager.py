"""A reward manager for verl that scores trajectories (`reward.reward_manager.name=trajectory`).

The manager takes the agent loop's `Trajectory`, scores it with `agent_rl.rewards.compose`, and appends it to the trace.
For an unscored trajectory, the manager raises an error, so that verl drops only this session of the group. A validation
counts an unscored trajectory as missing (`trained_samples.fill_missing_samples`).

The `code` scorer runs programs on the `reward.sandbox_fusion` server. With `reward.reward_model.enable`, the model's
score is the `reward_model` component, or part of the component that uses the model (`reward_loop`).
"""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from agent_rl.errors import ConfigError
from agent_rl.rewards import groups
from agent_rl.rewards.components.terms import require_scorable
from agent_rl.rewards.compose import Reward, extra_info
from agent_rl.rewards.repeating import repeatable
from agent_rl.sandbox.fusion import FusionServer
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import Score, Trajectory
from agent_rl.trajectory.trace import TraceWriter
from agent_rl.verl_adapter import custom_function
from agent_rl.verl_adapter.algorithms.turns import REWARDS

logger = logging.getLogger(__name__)

TRAJECTORY = "trajectory"
"""Key of the `Trajectory` in an agent loop's `extra_fields`."""
CUSTOM = "custom_reward_function"
FAILED = "failed_rewards"
"""Folder in `trainer.default_local_dir` for trajectories whose scoring raised an exception in the user's code."""
_CUSTOM_KEY = f"reward.{CUSTOM}.path"
_WORKERS = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"


@register("trajectory")
class TrajectoryRewardManager(RewardManagerBase):
    """Scores the `Trajectory` that the agent-loop worker put into `extra_fields["trajectory"]`.

    If `reward.custom_reward_function.path` is set, the function's result is the `correctness` component. The function
    may have any form that `agent_rl.rewards.user_function` accepts. The function gets verl's arguments, with the
    trajectory as a dict at `extra_info["trajectory"]`, and returns a number or a dict with a `score`; other numbers in
    the dict are logged.

    Raises:
        ConfigError: a key under `agent_rl:` is wrong.
    """

    def __init__(
        self,
        config: DictConfig,
        tokenizer: Any,
        compute_score: Callable[..., Any] | None = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        self.settings = AgentRLSettings.from_config(config)
        is_custom = bool(OmegaConf.select(config, _CUSTOM_KEY))
        self.reward = Reward(
            self.settings.reward,
            max_response_tokens=config.data.max_response_length,
            judged=is_custom,
            fusion=_fusion(OmegaConf.select(config, "reward.sandbox_fusion")),
        )
        trace = self.settings.trace
        self._trace = (
            TraceWriter.shared(trace.path, trace.part_mib << 20, trace.image_mib << 20) if trace.path else None
        )
        of_model = {"reward_router_address": reward_router_address, "reward_model_tokenizer": reward_model_tokenizer}
        self._router_kwargs = of_model if reward_router_address is not None else {}
        # If the user has configured no function, verl passes its default function, which is not used.
        self._custom = custom_function.user_function(compute_score, self._router_kwargs) if is_custom else None

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last item of `data`.

        Returns:
            `{"reward_score": float, "reward_extra_info": dict[str, float]}`, and `Score.turn_rewards` under
            `turn_rewards` if turns have rewards.

        Raises:
            UnscoredError: the trajectory has no verdict; it is written to the trace first, with its `error`.
            UserCodeError: the user's code raised an exception; the message contains the command that repeats the call.
            ConfigError: the custom reward function returns no number, or a value whose name is already logged.
        """
        columns = {name: values[-1] for name, values in data.non_tensor_batch.items()}
        trajectory = columns["tool_extra_fields"].get(TRAJECTORY)
        if not isinstance(trajectory, Trajectory):
            problem = f"the agent-loop worker passed {reprlib.repr(trajectory)} instead of a trajectory"
            raise ConfigError(
                _WORKERS, problem, "Derive its workers from agent_rl.verl_adapter.rollout.AgentLoopWorker"
            )
        text = self._response(data, columns) if self._custom else ""
        try:
            verdict, logged = await self._judge(trajectory, text, columns)
            result = await self._score(trajectory, verdict)
            info = _merged(extra_info(trajectory, result), logged)
            if self.reward.answers(trajectory.data_source) is None:  # although those of other sources are scored
                info.pop("acc", None)
        except UserCodeError as error:
            repeated = self._with_command(error, trajectory, text)
            await self._keep(trajectory, repeated)
            raise repeated from error.__cause__
        except Exception as error:  # verl gets the error and fails the session; the trace also keeps the error
            await self._keep(trajectory, error)
            raise
        trajectory.score = result
        await self._keep(trajectory)
        turns = {REWARDS: result.turn_rewards} if any(result.turn_rewards) else {}
        return {"reward_score": result.total, "reward_extra_info": info, **turns}

    async def _score(self, trajectory: Trajectory, verdict: float | None) -> Score:
        group = groups.current() if self.reward.needs_groups else None
        if group is None:
            return await self.reward.score(trajectory, verdict=verdict)
        return await group.score(self.reward, trajectory, verdict)

    async def _judge(
        self, trajectory: Trajectory, text: str, columns: dict[str, Any]
    ) -> tuple[float | None, dict[str, float]]:
        """Return the custom function's verdict and its values to log, or (None, {}) if there is no function."""
        require_scorable(trajectory)
        if self._custom is None:
            return None, {}
        info = {
            **columns["tool_extra_fields"],
            "rollout_reward_scores": columns.get("reward_scores", {}),
            "num_turns": int(columns["__num_turns__"]),  # the trajectory of a verl loop has only one turn
        }
        stops = self.settings.reward.on_error == "stop"
        return await self._custom.judge(trajectory, text, info, stops=stops, **self._router_kwargs)

    def _with_command(self, error: UserCodeError, trajectory: Trajectory, text: str) -> UserCodeError:
        """Log the error, and return it with the command that repeats the call."""
        logger.error("%s\n%s", error, error.trace)
        config = {
            SECTION: OmegaConf.to_container(self.config.get(SECTION) or OmegaConf.create(), resolve=True),
            "data": {"max_response_length": self.config.data.max_response_length},
            "reward": {CUSTOM: OmegaConf.to_container(self.config.reward[CUSTOM], resolve=True)},
        }
        if self._custom is not None:
            trajectory.info["solution_str"] = text
        return repeatable(error, trajectory, Path(self.config.trainer.default_local_dir).resolve() / FAILED, config)

    def _response(self, data: DataProto, columns: dict[str, Any]) -> str:
        tokens = data.batch["responses"][-1][: int(columns["response_len"])]
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    async def _keep(self, trajectory: Trajectory, error: Exception | None = None) -> None:
        if error is not None:
            trajectory.error = trajectory.error or f"{type(error).__name__}: {error}"
        if self._trace is not None:
            await self._trace.trajectory(trajectory)


def _fusion(keys: Any) -> FusionServer | None:
    """Return the SandboxFusion server that verl's keys configure."""
    if not keys or not keys.get("url"):
        return None
    return FusionServer(keys.url, keys.get("memory_limit_mb", 1024), max_concurrent=keys.get("max_concurrent", 64))


def _merged(own: dict[str, float], logged: dict[str, float]) -> dict[str, float]:
    """Merge the two sets of logged numbers; the custom function may replace `acc`, but all other names must differ."""
    # verl fills a list named `reward` itself, so another value with this name would misalign the list.
    taken = sorted((own.keys() - {"acc"} | {"reward"}) & logged.keys())
    if taken:
        problem = f"the function returned {', '.join(taken)}, which is already logged"
        raise ConfigError(_CUSTOM_KEY, problem, "Rename these values")
    return {**own, **logged}
