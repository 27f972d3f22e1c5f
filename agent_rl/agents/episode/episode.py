"""The core of an episode: one conversation between a policy and its tools, from the prompt to the stop reason.

The core does not depend on an engine or a text format. A `Policy` generates the turns, a `ToolSession` runs the calls,
and a `Format` describes tools, reads turns and renders results. A `Trajectory` records all events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agent_rl.agents.episode.budget import EpisodeBudget, FinalTurn, Repeats
from agent_rl.agents.episode.format import Format, Step
from agent_rl.agents.episode.hooks import Hooks
from agent_rl.agents.episode.policy import ChatMessage, Generation, Policy
from agent_rl.agents.users.user import User, opened
from agent_rl.errors import AgentRLError, EngineError, FatalError, MalformedActionError
from agent_rl.settings.user_code import BrokenCallError, is_outage
from agent_rl.tools import ToolSession
from agent_rl.trajectory import Message, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn, plain_reward
from agent_rl.work.concurrency import OutOfTime, uninterrupted, within

__all__ = ["EpisodeBudget", "FinalTurn", "Format", "Step", "recording", "run_episode"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_NOT_RUN = {
    StopReason.MAX_TURNS: "the number of turns is spent",
    StopReason.MAX_TOOL_CALLS: "the number of tool calls is spent",
    StopReason.MAX_TOKENS: "the number of tokens is spent",
    StopReason.MAX_SECONDS: "the time is up",
    StopReason.REPETITION: "you have asked for this before",
}
_NOT_SHOWN = "(not shown: too long for what is left of the conversation)"


async def run_episode(
    policy: Policy,
    format: Format,
    tools: ToolSession,
    messages: Sequence[ChatMessage],
    budget: EpisodeBudget,
    hooks: Hooks | None = None,
    user: User | None = None,
    trajectory: Trajectory | None = None,
) -> Trajectory:
    """Run one episode to its end.

    Args:
        policy: a fresh conversation with the model.
        format: the agent's format, which writes the prompt and observations, and reads turns.
        tools: an open tool session, which the caller closes.
        messages: the row's prompt.
        budget: the limits of the episode.
        hooks: your own code that runs before and after turns and calls.
        user: the user, who answers turns without tool calls until the dialogue is done; if None, the first turn
            without tool calls is the final answer.
        trajectory: the result of `agents.episode.loop.new_trajectory`, which the episode fills; None creates a new one.

    Returns:
        The trajectory, with exactly one stop reason. If the engine failed, a tool reported an outage or the prompt did
        not fit, the stop reason is `ENGINE_ERROR` or `ERROR`, `error` describes the cause, and the caller must not
        score the trajectory. A bug in a tool, a hook or the simulated user is handled in the same way, and its
        traceback is stored in `info["bug"]`.

    Raises:
        FatalError: a tool, a hook, the simulated user or the format raised this error.
    """
    format = format.fresh()
    if trajectory is None:
        trajectory = Trajectory([Message.from_chat(message) for message in messages], StopReason.ERROR)
    episode = _Episode(policy, format, tools, budget, hooks, user, trajectory)
    async with recording(trajectory, policy, user):
        prompt = format.prompt(await opened(messages, user), tools.specs)
        trajectory.prompt = [Message.from_chat(message) for message in prompt]
        await policy.begin(prompt, format.template_tools(tools.specs))
        while (reason := await episode.turn()) is None:
            pass
        trajectory.stop_reason = reason
        if user is not None:
            trajectory.verdict = plain_reward("the user's verdict", await user.score(trajectory))
    return trajectory


@asynccontextmanager
async def recording(trajectory: Trajectory, policy: Policy, user: User | None) -> AsyncIterator[None]:
    """When the `async with` block ends, call `user.finish`, and record the episode's tokens, time and error.

    Raises:
        FatalError: the block raised this error.
    """
    started = time.monotonic()
    try:
        yield
    except FatalError:
        raise
    except Exception as error:  # noqa: BLE001 - despite the error, the caller gets the earlier turns
        _explain(trajectory, error)
    finally:
        if user is not None:
            await _finish(user, trajectory)
    trajectory.prompt_tokens, trajectory.response_tokens = policy.prompt_tokens, policy.response_tokens
    trajectory.longest_tokens = policy.longest_tokens
    trajectory.seconds, trajectory.ended = time.monotonic() - started, time.time()


async def _finish(user: User, trajectory: Trajectory) -> None:
    try:
        await uninterrupted(asyncio.ensure_future(user.finish()))
    except FatalError:
        raise
    except Exception as error:  # noqa: BLE001 - like any other error of the user, it leaves the trajectory unscored
        if trajectory.error is None:
            _explain(trajectory, error)


def _check_rewards(turn: Turn) -> None:
    """Reject a turn if a hook or a user gave it a reward that JSON cannot represent."""
    for result in turn.results:
        result.reward = plain_reward(f"the reward of {result.name!r}", result.reward)
    if "reward" in turn.notes:
        turn.notes["reward"] = plain_reward("notes['reward'] of a turn", turn.notes["reward"])


def _skipped(call: ToolCall, reason: StopReason) -> ToolResult:
    return ToolResult(call.id, call.name, f"Skipped: {_NOT_RUN.get(reason, '')}.", ToolStatus.SKIPPED)


def _explain(trajectory: Trajectory, error: Exception) -> None:
    """Record in the trajectory why it cannot be scored."""
    trajectory.stop_reason = StopReason.ENGINE_ERROR if isinstance(error, EngineError) else StopReason.ERROR
    if not is_outage(error):
        error = BrokenCallError.of("the episode", bug := error)
        logger.error("%s", error, exc_info=bug)
    if isinstance(error, BrokenCallError):
        trajectory.info["bug"] = error.bug
    trajectory.error = str(error) if isinstance(error, AgentRLError) else f"{type(error).__name__}: {error}"


@dataclass
class _Episode:
    policy: Policy
    format: Format
    tools: ToolSession
    budget: EpisodeBudget
    hooks: Hooks | None
    user: User | None
    trajectory: Trajectory
    started: float = field(default_factory=time.monotonic)
    malformed_in_a_row: int = 0
    calls: int = 0
    repeats: Repeats = field(default_factory=Repeats)
    announced: StopReason | None = None
    """The budget that led to the announcement of a final turn; None before any announcement."""

    def __post_init__(self) -> None:
        self.policy.reserve = self.budget.final.reserve_tokens if self.budget.final else 0

    async def turn(self) -> StopReason | None:
        """Generate one assistant message and answer it; return the stop reason if this turn ends the episode."""
        if self._seconds_left() <= 0:
            return StopReason.MAX_SECONDS
        if self.hooks is not None:
            await self.hooks.before_turn(self.trajectory)
        try:
            work = self.policy.generate(self.format.stop, keep_stop=self.format.keep_stop)
            generated, seconds = await self._timed(work, self._seconds_left())
        except OutOfTime:
            return StopReason.MAX_SECONDS
        turn = Turn(text=generated.text, tokens=generated.tokens, generation_seconds=seconds)
        self.trajectory.turns.append(turn)
        reason = await self._act(turn, generated)
        if reason is None and self.hooks is not None and await self.hooks.after_turn(self.trajectory, turn):
            reason = StopReason.STOPPED
        _check_rewards(turn)
        return reason

    async def _act(self, turn: Turn, generated: Generation) -> StopReason | None:
        if generated.finish == "length":
            turn.notes["cut"] = True
            return await self._end(turn, StopReason.MAX_TOKENS)
        try:
            step = self.format.read(generated, self.tools.specs)
        except MalformedActionError as error:
            return await self._correct(turn, error)
        self.malformed_in_a_row = 0
        turn.notes = step.notes
        if not step.calls:
            return await self._say(turn, step.answer)
        turn.calls = step.calls = self.tools.ordered(step.calls)
        if (answer := self.tools.handed_over(step.calls)) is not None:
            self.trajectory.answer = answer
            return StopReason.ANSWERED
        if self.announced or self._turns_left() == 0:
            return await self._submit_answer(turn)
        if (reason := self._too_many(step.calls)) is not None:
            return await self._end(turn, reason)
        try:
            turn.results, turn.tool_seconds = await self._timed(self._run(step.calls), self._seconds_left(kept=True))
        except OutOfTime:
            return await self._end(turn, StopReason.MAX_SECONDS)
        return self._answered(turn) or await self._show(turn, self.format.observation(turn.results))

    async def _say(self, turn: Turn, text: str | None) -> StopReason | None:
        """Treat a turn without calls as the answer, unless a user continues the conversation."""
        if self.user is not None:
            try:
                work = self.user.respond(text or "", self.trajectory)
                reply, turn.tool_seconds = await self._timed(work, self._seconds_left())
            except OutOfTime:
                return StopReason.MAX_SECONDS
            if reply.reward is not None:
                turn.notes["reward"] = reply.reward
            last = self.announced or (StopReason.MAX_TURNS if self._turns_left() == 0 else None)
            if not reply.done and last is None:
                return await self._show(turn, reply.text)
            if reply.text:
                turn.notes["last_word"] = reply.text  # the episode ends here, so the policy never sees this text
            if not reply.done:
                return last
        self.trajectory.answer = text
        return StopReason.ANSWERED

    async def _correct(self, turn: Turn, error: MalformedActionError) -> StopReason | None:
        turn.malformed = str(error)
        self.malformed_in_a_row += 1
        if self.announced is None and self.malformed_in_a_row >= self.budget.max_malformed:
            return StopReason.MALFORMED
        if self.announced or self._turns_left() == 0:
            return self.announced or StopReason.MAX_TURNS
        return await self._show(turn, self.format.correction(error))

    async def _submit_answer(self, turn: Turn) -> StopReason:
        """Handle the calls of the last turn, and run only calls that submit the answer."""
        reason = self.announced or StopReason.MAX_TURNS
        calls = [call for call in turn.calls if self.tools.answers(call.name)]
        if calls:
            try:
                results, turn.tool_seconds = await self._timed(self._run(calls), self._seconds_left())
            except OutOfTime:
                return StopReason.MAX_SECONDS
            run = iter(results)
            turn.results = [next(run) if call in calls else _skipped(call, reason) for call in turn.calls]
        return self._answered(turn) or reason

    def _answered(self, turn: Turn) -> StopReason | None:
        for result in turn.results:
            if result.answer is not None:  # a tool such as submit_answer has ended the episode
                self.trajectory.answer = result.answer
                return StopReason.ANSWERED
        return StopReason.STOPPED if self.user is not None and self.user.done else None

    def _too_many(self, calls: Sequence[ToolCall]) -> StopReason | None:
        """Return the budget that these calls would exceed, or None; calls that exceed a budget are not run."""
        self.calls += sum(not self.tools.answers(call.name) for call in calls)
        if self.budget.max_tool_calls is not None and self.calls > self.budget.max_tool_calls:
            return StopReason.MAX_TOOL_CALLS
        if self.budget.max_repeats is not None:
            self.repeats.add(calls)
            if self.repeats.in_a_row >= self.budget.max_repeats:
                return StopReason.REPETITION
        return None

    async def _run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        if self.hooks is None:
            return await self.tools.run(calls)
        answered = [await self.hooks.before_tool(self.trajectory, call) for call in calls]
        rest = [call for call, result in zip(calls, answered, strict=True) if result is None]
        run = iter(await self.tools.run(rest) if rest else [])
        results = [result or next(run) for result in answered]
        for call, result in zip(calls, results, strict=True):
            await self.hooks.after_tool(self.trajectory, call, result)
        return results

    async def _show(self, turn: Turn, observation: str) -> StopReason | None:
        """Answer a turn; announce the final turn when only one more turn is left."""
        if self.budget.final is not None and (spent := self._nearly_spent()) is not None:
            return await self._announce(turn, spent, turn.results, observation)
        reason = await self._extend(turn, self.format.reply(observation, turn.results))
        if reason is None:
            turn.observation = observation
        if reason is not StopReason.MAX_TOKENS or self.budget.final is None or not self.budget.final.reserve_tokens:
            return reason
        return await self._announce(
            turn, StopReason.MAX_TOKENS, [replace(result, text=_NOT_SHOWN, images=[]) for result in turn.results]
        )

    async def _end(self, turn: Turn, reason: StopReason) -> StopReason | None:
        """End the episode, or start the final turn, when a budget is spent within a turn."""
        final = self.budget.final
        has_reserve = {StopReason.MAX_TOKENS: bool(final and final.reserve_tokens)}
        has_reserve[StopReason.MAX_SECONDS] = bool(final and final.reserve_seconds)
        if final is None or self.announced or self._turns_left() == 0 or not has_reserve.get(reason, True):
            return reason
        turn.results = [_skipped(call, reason) for call in turn.calls]
        return await self._announce(turn, reason, turn.results)

    async def _announce(
        self, turn: Turn, reason: StopReason, results: list[ToolResult], observation: str | None = None
    ) -> StopReason | None:
        """Tell the policy that its next turn is the last, because the budget `reason` is nearly spent."""
        assert self.budget.final is not None
        self.announced, self.policy.reserve = reason, 0
        text = self.budget.final.text
        if observation is None and results:
            observation = self.format.observation(results)
        messages = [] if observation is None else self.format.reply(observation, results)
        ended = await self._extend(turn, self.format.last_word(messages, text))
        if ended is None:
            turn.observation = text if observation is None else f"{observation}\n\n{text}"
        return ended

    async def _extend(self, turn: Turn, messages: list[ChatMessage]) -> StopReason | None:
        """Append the environment's answer to a turn; a policy that folds its history may generate notes first."""
        try:
            fits, _ = await self._timed(self.policy.extend(messages), self._seconds_left())
        except OutOfTime:
            return StopReason.MAX_SECONDS
        finally:
            turn.notes.update(self.policy.take_notes())
        return None if fits else StopReason.MAX_TOKENS

    def _nearly_spent(self) -> StopReason | None:
        """Return the budget, if any, that leaves room only for a final turn without calls."""
        if self._turns_left() == 1:
            return StopReason.MAX_TURNS
        if self.budget.max_tool_calls is not None and self.calls >= self.budget.max_tool_calls:
            return StopReason.MAX_TOOL_CALLS
        late = self.budget.final and self.budget.final.reserve_seconds and self._seconds_left(kept=True) <= 0
        return StopReason.MAX_SECONDS if late else None

    def _turns_left(self) -> int | None:
        return None if self.budget.max_turns is None else self.budget.max_turns - len(self.trajectory.turns)

    def _seconds_left(self, *, kept: bool = False) -> float:
        """Return the number of seconds left in the episode; `kept` subtracts the final turn's reserve."""
        if self.budget.max_seconds is None:
            return float("inf")
        reserve = self.budget.final.reserve_seconds if kept and self.budget.final else 0.0
        return self.started + self.budget.max_seconds - reserve - time.monotonic()

    async def _timed(self, work: Coroutine[Any, Any, T], limit_s: float) -> tuple[T, float]:
        start = time.monotonic()
        if limit_s == float("inf"):
            return await work, time.monotonic() - start
        return await within(max(0.0, limit_s), work), time.monotonic() - start
