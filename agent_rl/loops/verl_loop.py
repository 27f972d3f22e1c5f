"""Episodes inside verl: our loops behind its `AgentLoopBase`."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, ToolListWrap

from agent_rl import trace
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.loops.budget import FINAL_TURN, Budget, FinalTurn
from agent_rl.loops.episode import run_episode
from agent_rl.loops.format import Format
from agent_rl.loops.hooks import Hooks, load_hooks
from agent_rl.loops.policy import Policy
from agent_rl.loops.token_policy import Sample, TokenPolicy
from agent_rl.loops.user import User
from agent_rl.loops.verl_tools import to_specs
from agent_rl.settings import AgentRLSettings, CassetteSettings
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.cassette import Cassette
from agent_rl.tools.truncation import ResultLimit
from agent_rl.trajectory import Message, StopReason, Trajectory

__all__ = ["EpisodeAgentLoop"]

logger = logging.getLogger(__name__)

DEFAULT_MAX_TURNS = 16
"""When `multi_turn.max_assistant_turns` is null."""


class EpisodeAgentLoop(AgentLoopBase):
    """Base of our agent loops: an episode for each row, with the format that a subclass gives.

    A subclass sets `agent` and implements `format`; the row's columns `extra_info.tool_selection`, `tools_kwargs`,
    `data_source` and `reward_model` keep verl's meaning. The `Trajectory` reaches the reward manager as
    `extra_fields["trajectory"]`.
    """

    agent: str = ""

    def __init__(self, *args: Any, tools: ToolListWrap | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = _settings(self.config)
        self.tools = to_specs(tools.tools if tools else [])

    @abstractmethod
    def format(self) -> Format:
        """How this agent's turns are written and read."""

    def budget(self) -> Budget:
        """What one episode may spend."""
        return Budget(
            max_turns=self.rollout_config.multi_turn.max_assistant_turns or DEFAULT_MAX_TURNS,
            max_tool_calls=self.settings.budget.max_tool_calls,
            max_seconds=self.settings.budget.max_seconds,
            max_malformed=self.settings.budget.max_malformed,
            max_repeats=self.settings.budget.max_repeats,
            final=self._final_turn(),
        )

    def hooks(self) -> Hooks | None:
        """The user's own logic around turns and tools, new for every episode; None: none."""
        return load_hooks(self.settings.hooks)() if self.settings.hooks else None

    def user(self, row: dict[str, Any]) -> User | None:
        """Who the agent talks with, new for every episode; None: nobody."""
        return None

    def conversation(self, policy: TokenPolicy) -> Policy:
        """What the episode talks to: verl's server, or something around it."""
        return policy

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Run one episode for one row.

        Returns:
            What is trained on; a list where the episode became several training sequences, of which the last carries
            the trajectory.

        Raises:
            UnscoredError: when the infrastructure failed; verl drops this trajectory from its group. It is kept in the
                trace.
        """
        rollout, format = self.rollout_config, self.format()
        policy = TokenPolicy(
            self.server_manager,
            self.continuous_token_builder,
            self.tokenizer,
            sampling_params,
            prompt_length=rollout.prompt_length,
            response_length=rollout.response_length,
            engine_stops=not rollout.skip_tokenizer_init,
            stop_tokens=format.stop_tokens,
            special_tokens=format.special_tokens,
            drop_thoughts=self.settings.thinking.history == "template",
        )
        trajectory: Trajectory | None = None
        try:
            async with self._session(row) as session:
                trajectory = await run_episode(
                    self.conversation(policy),
                    format,
                    session,
                    list(row["raw_prompt"]),
                    self.budget(),
                    self.hooks(),
                    self.user(row),
                )
            self._describe(trajectory, row)
            if trajectory.error is not None:
                raise UnscoredError(trajectory.error)
            return self._outputs(policy, trajectory)
        except Exception as error:  # goes on to verl, which fails this session; the trace keeps what happened
            prompt = [Message.from_chat(message) for message in row["raw_prompt"]]
            failed = trajectory or Trajectory(prompt=prompt, stop_reason=StopReason.ERROR)
            self._describe(failed, row)
            failed.error = failed.error or f"{type(error).__name__}: {error}"
            self._keep(failed)
            raise

    def _session(self, row: dict[str, Any]) -> ToolSession:
        multi_turn, settings = self.rollout_config.multi_turn, self.settings.tools
        tokens = settings.max_result_tokens
        cassette = _cassette(settings.cassette)
        return ToolSession(
            _selected(self.tools, (row.get("extra_info") or {}).get("tool_selection")),
            tools_kwargs=row.get("tools_kwargs") or {},
            default_timeout_s=self.settings.budget.tool_timeout_s,
            max_parallel_calls=multi_turn.max_parallel_calls,
            result_limit=ResultLimit(
                chars=multi_turn.max_tool_response_length if tokens is None else None,
                tokens=tokens,
                tokenizer=self.tokenizer,
                side=multi_turn.tool_response_truncate_side,
            ),
            cassette=cassette and cassette.scoped(_label(row)),
            cache_path=settings.cache_path,
            reuse_results=settings.reuse_results,
        )

    def _final_turn(self) -> FinalTurn | None:
        """Raises ConfigError where what is kept for the final turn leaves nothing for those before it."""
        final, length = self.settings.final_turn, self.rollout_config.response_length
        if not final.enabled:
            return None
        if final.reserve_tokens >= length:
            problem = f"{final.reserve_tokens} is not less than data.max_response_length={length}"
            raise ConfigError("agent_rl.final_turn.reserve_tokens", problem, "Lower it")
        if final.reserve_seconds >= (self.settings.budget.max_seconds or float("inf")):
            problem = f"{final.reserve_seconds:g} is not less than agent_rl.budget.max_seconds"
            raise ConfigError("agent_rl.final_turn.reserve_seconds", problem, "Lower it")
        text = FINAL_TURN if final.text is None else final.text
        return FinalTurn(text, final.reserve_tokens, final.reserve_seconds)

    def _describe(self, trajectory: Trajectory, row: dict[str, Any]) -> None:
        extra_info = row.get("extra_info") or {}
        trajectory.id = f"{row.get('uid', uuid4().hex)}_{row.get('session_id', 0)}"
        trajectory.agent = self.agent
        trajectory.data_source = str(row.get("data_source", ""))
        trajectory.ground_truth = (row.get("reward_model") or {}).get("ground_truth")
        trajectory.info = {
            "step": _plain(row.get("global_steps")),
            "split": _plain(extra_info.get("split")),
            "index": _plain(row.get("index")),
        }

    def _outputs(self, policy: TokenPolicy, trajectory: Trajectory) -> AgentLoopOutput | list[AgentLoopOutput]:
        samples = policy.samples()
        if self.settings.trace.tokens:
            trajectory.info["tokens"] = policy.record()
        outputs = [self._output(policy, trajectory, sample) for sample in samples]
        outputs[-1].extra_fields["trajectory"] = trajectory.to_dict()
        return outputs if len(outputs) > 1 else outputs[0]

    def _output(self, policy: TokenPolicy, trajectory: Trajectory, sample: Sample) -> AgentLoopOutput:
        return _Output(
            prompt_ids=sample.prompt_ids,
            response_ids=sample.response_ids,
            response_mask=sample.mask,
            response_logprobs=sample.logprobs,
            num_turns=1 + len(trajectory.turns) + sum(turn.observation is not None for turn in trajectory.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=trajectory.generation_seconds,
                tool_calls=trajectory.tool_seconds,
                num_preempted=policy.preempted,
            ),
            multi_modal_data={},
            extra_fields={
                **policy.extra_fields,
                "turn_scores": [],
                "tool_rewards": [result.reward for result in trajectory.results if result.reward is not None],
            },
        )

    def _keep(self, trajectory: Trajectory) -> None:
        logger.error("unscored trajectory %s: %s", trajectory.id, trajectory.error)
        if self.settings.trace.path:
            trace.append(self.settings.trace.path, trajectory)


class _Output(AgentLoopOutput):
    """verl's output, which stores the trajectory for the trainer only when nobody has scored it yet.

    The trainer fetches `extra_fields` of every sample at each step, and has no use for the text of the conversation.
    """

    def as_dict(self) -> dict[str, Any]:
        if self.reward_score is not None:
            self.extra_fields.pop("trajectory", None)
        fields: dict[str, Any] = super().as_dict()
        return fields


_settings_of: dict[int, tuple[Any, AgentRLSettings]] = {}


def _settings(config: Any) -> AgentRLSettings:
    """The settings of a worker's configuration, read once: verl makes a loop for every trajectory."""
    known = _settings_of.get(id(config))
    if known is None or known[0] is not config:
        known = _settings_of[id(config)] = (config, AgentRLSettings.from_config(config))
    return known[1]


@cache
def _cassette(settings: CassetteSettings) -> Cassette | None:
    """The one cassette of a worker: its trajectories share what has been replayed."""
    if settings.mode is None or settings.path is None:
        return None
    return Cassette.record(settings.path) if settings.mode == "record" else Cassette.replay(settings.path)


def _label(row: dict[str, Any]) -> str:
    """What a trajectory is called in every run over the same rows."""
    split = (row.get("extra_info") or {}).get("split")
    return "/".join(str(part) for part in (row.get("global_steps"), split, row.get("index"), row.get("session_id", 0)))


def _selected(tools: list[ToolSpec], selection: Sequence[str] | None) -> list[ToolSpec]:
    """The row's subset of the tools.

    Raises:
        UnscoredError: for a name that is not configured.
    """
    if not selection:
        return tools
    known = {tool.name: tool for tool in tools}
    if missing := [name for name in selection if name not in known]:
        raise UnscoredError(
            f"extra_info.tool_selection names {missing}, but multi_turn.tool_config_path has only {sorted(known)}: "
            "mend the row or add the tools"
        )
    return [known[name] for name in selection]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
