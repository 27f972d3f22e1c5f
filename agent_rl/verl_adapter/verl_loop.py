"""The base class of agent loops in verl, which combines `EpisodeLoop` with verl's `AgentLoopBase`."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, ToolListWrap

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.loop import EpisodeLoop, EpisodeSetup, new_trajectory
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.policies.chat_template import with_syntax
from agent_rl.agents.policies.left_out import masked_sequences
from agent_rl.agents.policies.media import Media, has_media
from agent_rl.agents.policies.token_policy import TokenPolicy, TrainingSequence
from agent_rl.data import unpacked
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.user_code import BrokenCallError
from agent_rl.trajectory import LEFT_OUT, Trajectory
from agent_rl.trajectory.trace import TraceWriter
from agent_rl.trajectory.trace.images import drop_images
from agent_rl.verl_adapter.algorithms.turns import credit_fields, turn_states
from agent_rl.verl_adapter.failures import measure, report_bug
from agent_rl.verl_adapter.manager import TRAJECTORY
from agent_rl.verl_adapter.recorded import RecordedEpisode, run_at
from agent_rl.verl_adapter.token_builder import template_builder
from agent_rl.verl_adapter.verl_tools import to_specs
from agent_rl.work.memory import return_memory

logger = logging.getLogger(__name__)

NEW_OBJECTS = 20_000
"""Number of new objects after which garbage is collected. A collection pauses all episodes of a worker, or the trainer
while the GPUs wait. Only a few objects need a collection, such as three classes that verl and torch define per step."""


class EpisodeOutput(AgentLoopOutput):
    """verl's output, with the reward on the last trained token, the only position that some estimators read."""

    def as_dict(self) -> dict[str, Any]:
        """Return verl's dict, with the reward moved to the last trained token."""
        fields: dict[str, Any] = super().as_dict()
        if "rm_scores" in fields and any(self.response_mask):
            fields["rm_scores"] = fields["rm_scores"].roll(-self.response_mask[::-1].index(1))
        return fields


def whole_row(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row in its original form, even if verl's data set passes the stored form."""
    row = unpacked(columns)
    info = row.get("extra_info") or {}
    return row | {name: info[name] for name in ("index", "tools_kwargs") if info.get(name) is not None}


class EpisodeAgentLoop(EpisodeLoop, AgentLoopBase):
    """Base class of agent loops: runs an episode for each row, in the format of the subclass.

    A subclass implements `format`, and may override the other methods of `EpisodeLoop`. The row's columns
    `extra_info.tool_selection`, `tools_kwargs`, `data_source` and `reward_model` keep verl's meaning. The `Trajectory`
    reaches the reward manager as `extra_fields["trajectory"]`.

    Args:
        setup: the setup that an evaluation passes instead of verl's arguments.

    Raises:
        ConfigError: an evaluation uses a class that overrides `run`.
    """

    def __init__(
        self, *args: Any, tools: ToolListWrap | None = None, setup: EpisodeSetup | None = None, **kwargs: Any
    ) -> None:
        if setup is not None:
            if type(self).run is not EpisodeAgentLoop.run:
                problem = f"{type(self).__name__} overrides run(), which only verl's worker calls"
                raise ConfigError("loop", problem, "Override format(), hooks(), user(), session() or run_row() instead")
            EpisodeLoop.__init__(self, setup)
            return
        AgentLoopBase.__init__(self, *args, **kwargs)
        settings, limits, self._engine_stops, self._trace = _worker_setup(self.config)
        self.builder = template_builder(self.continuous_token_builder)
        limits = with_syntax(limits, self.tokenizer, self.builder.chat_template_kwargs)
        EpisodeLoop.__init__(
            self, EpisodeSetup(settings, limits, to_specs(tools.tools if tools else []), self.tokenizer)
        )

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:  # type: ignore[override]
        """Run one episode for one row, or take it from the recorded run in `agent_rl.policy.trace`.

        Returns:
            The training sequence, or a list of several sequences, the last of which contains the trajectory.

        Raises:
            UnscoredError: the infrastructure failed; verl drops this trajectory from its group. The trace keeps
                the trajectory.
        """
        row = whole_row(row)
        format, recorded = self.format(), None
        if place := self.settings.policy.trace:
            recorded = run_at(place).episode(f"{row['uid']}_{row['session_id']}")
        policy: Any = recorded or await self._policy(format, sampling_params, list(row["raw_prompt"]))
        row["raw_prompt"] = policy.media.shown(row["raw_prompt"])
        trajectory: Trajectory | None = None
        try:
            trajectory = recorded.trajectory if recorded else await self.run_row(row, policy, format)
            measure(policy.response_tokens, len(trajectory.turns))
            if self._trace is not None:
                trajectory = await self._trace.images(trajectory)
            bug = trajectory.info.get("bug")
            if trajectory.error is not None:
                failure = recorded.error() if recorded else UnscoredError(trajectory.error)
                raise BrokenCallError(trajectory.error, bug) if bug else failure
            if bug:
                await report_bug(trajectory.id, BrokenCallError(trajectory.info["program"], bug))
            if self._trace is not None and self.settings.trace.tokens:
                self._trace.tokens(trajectory.id, policy.record())
            outputs = self._outputs(policy, trajectory)
            if recorded is not None:
                recorded.score(outputs[-1])
                if self._trace is not None:
                    await self._trace.trajectory(trajectory)
            return outputs if len(outputs) > 1 else outputs[0]
        except (Exception, asyncio.CancelledError) as error:  # verl fails this session; the trace keeps the trajectory
            if trajectory is None:
                measure(policy.response_tokens, None)
                trajectory = new_trajectory(row, self.agent)
            trajectory.error = trajectory.error or f"{type(error).__name__}: {error}"
            logger.error("unscored trajectory %s: %s", trajectory.id, trajectory.error)
            if self._trace is not None:
                await self._trace.trajectory(trajectory)
            raise

    async def _policy(
        self, format: Format, sampling_params: dict[str, Any], messages: list[ChatMessage]
    ) -> TokenPolicy:
        media_data = await self.process_multi_modal_info(messages) if has_media(messages) else {}
        media = Media(
            images=list(media_data.get("images") or ()),
            videos=media_data.get("videos"),
            audios=media_data.get("audios"),
            options=self._get_mm_processor_kwargs(media_data.get("audios")),
            video_payload=self.build_sglang_video_payload,
        )
        return TokenPolicy(
            self.server_manager,
            self.builder,
            self.tokenizer,
            sampling_params,
            prompt_length=self.limits.prompt_length,
            response_length=self.limits.response_length,
            engine_stops=self._engine_stops,
            format=format,
            drop_thoughts=self.settings.thinking.history == "template",
            media=media,
        )

    def _outputs(self, policy: TokenPolicy | RecordedEpisode, trajectory: Trajectory) -> list[AgentLoopOutput]:
        settings = self.settings
        sequences = masked_sequences(policy.sequences(), trajectory, settings.mask_void, settings.mask_overlong)
        if not any(any(sequence.mask) for sequence in sequences):
            trajectory.info[LEFT_OUT] = True
        states = turn_states(trajectory, settings.gigpo.history)
        outputs = [self._output(policy, trajectory, sequence, states) for sequence in sequences]
        drop_images(trajectory)  # the reward manager and the trainer only count images
        outputs[-1].extra_fields[TRAJECTORY] = trajectory
        return outputs

    def _output(
        self,
        policy: TokenPolicy | RecordedEpisode,
        trajectory: Trajectory,
        sequence: TrainingSequence,
        states: list[str],
    ) -> AgentLoopOutput:
        return EpisodeOutput(
            prompt_ids=list(sequence.prompt_ids),
            response_ids=list(sequence.response_ids),
            response_mask=list(sequence.mask),
            response_logprobs=None if sequence.logprobs is None else list(sequence.logprobs),
            num_turns=1 + len(trajectory.turns) + sum(turn.observation is not None for turn in trajectory.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=trajectory.generation_seconds,
                tool_calls=trajectory.tool_seconds,
                num_preempted=policy.preempted,
            ),
            multi_modal_data=policy.media.trained(sequence.images),
            mm_processor_kwargs=policy.media.options,
            mm_processor_output=policy.media.payload(),
            extra_fields={
                **policy.extra_fields,
                "turn_scores": [turn.notes["reward"] for turn in trajectory.turns if "reward" in turn.notes],
                "tool_rewards": [result.reward for result in trajectory.results if result.reward is not None],
                **credit_fields(sequence, trajectory, states),
            },
        )


def collect_rarely() -> None:
    """Collect this process's garbage rarely, never scan the objects already loaded, and return freed memory."""
    gc.freeze()
    gc.collect()  # otherwise, a full collection waits for a quarter as many new objects as are already loaded
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    if _return_memory not in gc.callbacks:
        gc.callbacks.append(_return_memory)


def _return_memory(phase: str, _: dict[str, int]) -> None:
    if phase == "stop":
        return_memory()


_known: dict[int, tuple[Any, AgentRLSettings, EpisodeLimits, bool, TraceWriter | None]] = {}


def _worker_setup(config: Any) -> tuple[AgentRLSettings, EpisodeLimits, bool, TraceWriter | None]:
    """Return a worker's settings, limits, whether its engine supports stop strings, and trace; all are cached."""
    cached = _known.get(id(config))
    if cached is None or cached[0] is not config:
        rollout = config.actor_rollout_ref.rollout
        fields = EpisodeLimits._fields
        limits = EpisodeLimits(*(getattr(rollout if name in rollout else rollout.multi_turn, name) for name in fields))
        stops = not rollout.skip_tokenizer_init
        settings = AgentRLSettings.from_config(config)
        trace = settings.trace
        collect_rarely()
        writer = TraceWriter.shared(trace.path, trace.part_mib << 20, trace.image_mib << 20) if trace.path else None
        cached = _known[id(config)] = (config, settings, limits, stops, writer)
    return cached[1:]
