"""Restores a recorded trajectory, token for token, up to a chosen turn, from which the policy continues.

The episode runs again from its prompt, but its first turns are the recorded ones. The agent therefore makes the
recorded calls again, and its tools, hooks and environment return to their recorded state. Before every turn the
restored episode is compared with the record; if they differ, the policy samples nothing.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

from agent_rl.agents.episode.budget import FinalTurn
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import ChatMessage, Policy
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.policies.tokens import Sampled
from agent_rl.agents.users.user import Reply, User
from agent_rl.environments.kind import row_values
from agent_rl.errors import ConfigError, FatalError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace import TokenSequence
from agent_rl.trajectory.trace.tokens import sampled_runs

Sample = tuple[list[int], list[int], list[float]]
"""A sample (a turn, or a fold's notes): all tokens before it, its own tokens, and the log-probs of its own tokens."""


class Recording:
    """A stored trajectory whose turns before `turn` are restored.

    Args:
        trajectory: the trajectory, with its tokens in `info["tokens"]`.
        turn: number of the first turn that the policy samples, counting from 1.

    Raises:
        ConfigError: the trajectory has no turn with this number, or its tokens do not match its turns.
    """

    def __init__(self, trajectory: Trajectory, turn: int) -> None:
        self.trajectory, self.turn, turns = trajectory, turn, trajectory.turns
        self.name = f"trajectory {trajectory.id}"
        if not 0 < turn <= len(turns):
            raise ConfigError("--turn", f"{self.name} has no turn {turn}", f"Choose a turn from 1 to {len(turns)}")
        self.prefix = turns[: turn - 1]
        self.samples = [each for own in trajectory.info["tokens"]["sequences"] for each in _samples(own)]
        self.sampled_turns = [own for each in turns for own in (each, None)[: 1 + ("fold" in each.notes)]]
        """The turn that each sample belongs to, or None if the sample is a fold's notes, which follow a turn."""
        if len(self.samples) != len(self.sampled_turns):
            problem = f"it has {len(turns)} turns, but {len(self.samples)} runs of sampled tokens"
            raise ConfigError(self.name, problem, "Choose another trajectory")

    def require_repeatable(self, specs: Sequence[ToolSpec]) -> None:
        """Raise a ConfigError if a recorded call must not be repeated: its tool may reach an external service."""
        refused = {spec.name for spec in specs if not spec.may_be_repeated}
        for number, turn in enumerate(self.prefix, 1):
            for name in refused & {result.name for result in turn.results}:
                problem = "the tool may reach an external service, so its calls are not repeated"
                remedy = "Write `reusable: true` in its entry if a repeated call is harmless"
                raise ConfigError(f"{self.name}, turn {number}, tool {name!r}", problem, remedy)

    def replies(self, final: FinalTurn | None) -> list[Reply]:
        """Return a simulated user's recorded replies, without the text that announces the final turn."""
        announced = f"\n\n{final.text}" if final else ""
        return [
            Reply(turn.observation.removesuffix(announced), reward=turn.notes.get("reward"))
            for turn in self.prefix
            if turn.observation is not None and not turn.calls and turn.malformed is None and "cut" not in turn.notes
        ]


class RecordedUser(User):
    """A simulated user who first repeats the recorded `replies`; then `user` continues the conversation."""

    def __init__(self, user: User, replies: Sequence[Reply]) -> None:
        super().__init__(user.config, user.row)
        self._user, self._replies = user, deque(replies)
        self._exchanges: list[tuple[str, Reply]] = []
        self.score, self.finish = user.score, user.finish  # type: ignore[method-assign]

    @property
    def done(self) -> bool:
        """Whether the user has ended the episode; recorded replies never end it."""
        return not self._replies and self._user.done

    async def start(self, opening: str) -> str:
        """Return the recorded opening unchanged."""
        self._opening = opening
        if not self._replies:
            await self._user.resume(opening, [])
        return opening

    async def respond(self, message: str, trajectory: Trajectory) -> Reply:
        """Return the next recorded reply, or the user's own reply after the last recorded one."""
        if not self._replies:
            return await self._user.respond(message, trajectory)
        self._exchanges.append((message, self._replies.popleft()))
        if not self._replies:
            await self._user.resume(self._opening, self._exchanges)
        return self._exchanges[-1][1]


class Restoration:
    """Restores one episode by acting as the token server of its policy.

    Args:
        recording: the recorded trajectory.
        policy: the episode's `TokenPolicy`, whose server samples the later turns.
        trajectory: the trajectory of the episode.
    """

    def __init__(self, recording: Recording, policy: Policy, trajectory: Trajectory) -> None:
        assert isinstance(policy, TokenPolicy)  # ForkEvaluation refuses chat endpoints
        self._recording, self._trajectory = recording, trajectory
        self._server, policy.server = policy.server, self
        self._next, self._is_complete = 0, False

    def format(self, format: Format) -> Format:
        """Return the episode's format, with the recorded prompt as its prompt."""
        recorded = self._recording.trajectory.prompt
        opening = row_values(self._recording.trajectory.row).get("prompt")  # None for a row without an environment
        opening = opening[-1]["content"] if isinstance(opening, list) else opening

        def prompt(messages: Sequence[ChatMessage], _: Any) -> list[ChatMessage]:
            # `messages` is the recorded prompt, followed by the text that the environment's `reset` returned
            text = str(messages[-1]["content"]).removeprefix(recorded[-1].content)
            is_lost = not text and recorded[-1].content.startswith(f"{opening}\n\n")
            if is_lost or not recorded[-1].content.endswith(text):
                self._refuse(0, "reset", recorded[-1].content, text.strip())
            return [{"role": message.role, "content": message.content} for message in recorded]

        fixed = copy.copy(format.fresh())
        vars(fixed).update(prompt=prompt, fresh=lambda: fixed)
        return fixed

    async def generate(self, *, prompt_ids: list[int], **request: Any) -> Any:
        """Return the next recorded sample, or sample a new turn once the episode is restored.

        Raises:
            FatalError: the episode differs from the record.
        """
        if not self._is_complete:
            context_ids, ids, logprobs = self._recording.samples[self._next]
            turn = self._recording.sampled_turns[self._next]
            if turn is not None:
                self._compare_turn()
            place = f"{self._recording.name}, turn {len(self._trajectory.turns) + 1}"
            if prompt_ids != context_ids:
                raise FatalError(f"{place}: the model's chat template or tokenizer encodes the context differently")
            if turn is not self._recording.trajectory.turns[self._recording.turn - 1]:
                if len(ids) > (left := request["sampling_params"]["max_new_tokens"]):
                    problem = f"the recorded turn has {len(ids)} tokens, but the limit leaves {left}"
                    raise FatalError(f"{place}: {problem}: raise sampling.max_response_tokens")
                self._next += 1
                return Sampled(ids, logprobs, "length" if turn is not None and "cut" in turn.notes else "stop")
            self._is_complete = True
        return await self._server.generate(prompt_ids=prompt_ids, **request)

    def require_complete(self) -> None:
        """Raise a FatalError if the episode ended before the turn to continue from, unless an outage ended it."""
        if not self._is_complete and self._trajectory.error is None:
            self._compare_turn()
            self._refuse(len(self._trajectory.turns), "the episode", "more turns", self._trajectory.stop_reason.value)

    def _compare_turn(self) -> None:
        """Compare the last turn of the episode with the record."""
        if not (number := len(self._trajectory.turns)):
            before, now = (each.info.get("state") for each in (self._recording.trajectory, self._trajectory))
            if before not in (None, now):
                self._refuse(0, "the state", before, now)
            return
        recorded, turn = self._recording.trajectory.turns[number - 1], self._trajectory.turns[-1]
        for before, now in zip_longest(recorded.results, turn.results):
            texts = [None if each is None else f"{each.status.value}: {each.text}" for each in (before, now)]
            if texts[0] != texts[1]:
                self._refuse(number, f"tool {(before or now).name!r}", *texts)
            if before.reward != now.reward:
                self._refuse(number, f"the reward of tool {before.name!r}", before.reward, now.reward)
        for what, before, now in (
            ("the observation", recorded.observation, turn.observation),
            *((f"the {name}", recorded.notes.get(name), turn.notes.get(name)) for name in ("state", "reward")),
        ):
            if before != now:
                self._refuse(number, what, before, now)

    def _refuse(self, number: int, what: str, recorded: Any, now: Any) -> NoReturn:
        place = f"{self._recording.name}, turn {number}, {what}"
        raise FatalError(f"{place}: the record has {recorded!r}, but the repeated episode has {now!r}")


def _samples(sequence: TokenSequence) -> Iterator[Sample]:
    ids, values = sequence["response_ids"], sequence["logprobs"]
    for start, end in sampled_runs(sequence["mask"]):
        logprobs = [0.0] * (end - start) if values is None else values[start:end]
        yield [*sequence["prompt_ids"], *ids[:start]], ids[start:end], logprobs
