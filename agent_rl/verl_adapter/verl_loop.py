"""Episodes inside verl: our loops behind its `AgentLoopBase`."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any, NamedTuple
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, ToolListWrap

from agent_rl import trace
from agent_rl.agents.episode.budget import Budget
from agent_rl.agents.episode.episode import run_episode
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.hooks import Hooks, load_hooks
from agent_rl.agents.episode.policy import ChatMessage, Policy
from agent_rl.agents.episode.setup import make_budget, open_tools
from agent_rl.agents.users.user import User
from agent_rl.errors import UnscoredError
from agent_rl.policies.media import Media, has_media
from agent_rl.policies.token_policy import Sample, TokenPolicy
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import ToolSession
from agent_rl.tools.truncation import TruncateSide
from agent_rl.trajectory import Message, StopReason, Trajectory
from agent_rl.verl_adapter.garbage import collected_in_pauses
from agent_rl.verl_adapter.rendering import remembering
from agent_rl.verl_adapter.verl_tools import to_specs

__all__ = ["EpisodeAgentLoop"]

logger = logging.getLogger(__name__)


class EpisodeAgentLoop(AgentLoopBase):
    """Base of our agent loops: an episode for each row, with the format that a subclass gives.

    A subclass sets `agent` and implements `format`; the row's columns `extra_info.tool_selection`, `tools_kwargs`,
    `data_source` and `reward_model` keep verl's meaning. The `Trajectory` reaches the reward manager as
    `extra_fields["trajectory"]`.
    """

    agent: str = ""

    def __init__(self, *args: Any, tools: ToolListWrap | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings, self.limits = _of_worker(self.config)
        remembering(self.continuous_token_builder)
        self.tools = to_specs(tools.tools if tools else [])

    @abstractmethod
    def format(self) -> Format:
        """How this agent's turns are written and read."""

    def budget(self) -> Budget:
        """What one episode may spend."""
        return make_budget(self.settings, self.limits, self.limits.response_length)

    def hooks(self) -> Hooks | None:
        """The user's own logic around turns and tools, new for every episode; None: none."""
        return load_hooks(self.settings.hooks)() if self.settings.hooks else None

    def session(self, row: dict[str, Any]) -> ToolSession:
        """The row's tools, to be opened."""
        return open_tools(self.tools, row, self.settings, self.limits, self.tokenizer)

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
        format = self.format()
        policy = await self._policy(format, sampling_params, list(row["raw_prompt"]))
        trajectory: Trajectory | None = None
        try:
            async with collected_in_pauses(), self.session(row) as session:
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

    async def _policy(
        self, format: Format, sampling_params: dict[str, Any], messages: list[ChatMessage]
    ) -> TokenPolicy:
        found = await self.process_multi_modal_info(messages) if has_media(messages) else {}
        media = Media(
            images=list(found.get("images") or ()),
            videos=found.get("videos"),
            audios=found.get("audios"),
            options=self._get_mm_processor_kwargs(found.get("audios")),
            video_payload=self.build_sglang_video_payload,
        )
        return TokenPolicy(
            self.server_manager,
            self.continuous_token_builder,
            self.tokenizer,
            sampling_params,
            prompt_length=self.limits.prompt_length,
            response_length=self.limits.response_length,
            engine_stops=not self.limits.skip_tokenizer_init,
            format=format,
            drop_thoughts=self.settings.thinking.history == "template",
            media=media,
        )

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
            multi_modal_data=policy.media.trained(sample.images),
            mm_processor_kwargs=policy.media.options,
            mm_processor_output=policy.media.payload(),
            extra_fields={
                **policy.extra_fields,
                "turn_scores": [turn.notes["reward"] for turn in trajectory.turns if "reward" in turn.notes],
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


class Limits(NamedTuple):
    """What our loops need of verl's rollout configuration, as plain values: omegaconf takes longer than an episode."""

    prompt_length: int
    response_length: int
    skip_tokenizer_init: bool
    max_assistant_turns: int | None
    max_parallel_calls: int
    max_tool_response_length: int
    tool_response_truncate_side: TruncateSide
    format: str
    """The syntax of native tool calls."""

    @classmethod
    def of(cls, rollout: Any) -> Limits:
        """Read them from `actor_rollout_ref.rollout`."""
        return cls(*(getattr(rollout if name in rollout else rollout.multi_turn, name) for name in cls._fields))


_known: dict[int, tuple[Any, AgentRLSettings, Limits]] = {}


def _of_worker(config: Any) -> tuple[AgentRLSettings, Limits]:
    """What a worker's configuration says, read once: verl makes a loop for every trajectory."""
    known = _known.get(id(config))
    if known is None or known[0] is not config:
        settings, limits = AgentRLSettings.from_config(config), Limits.of(config.actor_rollout_ref.rollout)
        known = _known[id(config)] = (config, settings, limits)
    return known[1:]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
