"""The token audit: compares each turn's sampled tokens with the mask, the log-probs and a fresh rendering.

Three kinds of findings; the first two are errors:

- *mask*: the tokens with mask 1 are not the turn's;
- *log-probs*: values that are not log-probabilities, or that stand where nothing was sampled; with a model, values
  that fit the neighbouring tokens instead of their own;
- *drift*: what a server would show the policy, which renders the whole conversation for every turn, differs from
  what it has seen here, in tokens or even in text. Training is not affected (it appends to what was sampled), but an
  endpoint that renders again shows the policy something that it was not trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.policies.rendering_difference import difference
from agent_rl.agents.syntaxes.json_calls import without_channels
from agent_rl.trajectory import Trajectory

__all__ = ["TurnAudit", "audit_trajectory", "has_tokens"]

Drift = Literal["none", "tokens", "text"]
AROUND = 30
"""Characters that are shown on both sides of a difference."""
CLEARLY = 3.0
"""How many times nearer the tokens beside must fit before log-probs count as misaligned."""


@dataclass(slots=True)
class TurnAudit:
    """The findings at one turn; None and "none" where there are none."""

    turn: int
    """Counted from 0 within the trajectory."""
    tokens: int
    mask: str | None = None
    logprobs: str | None = None
    retokenized: bool = False
    """Whether the turn's text is tokenized otherwise than it was sampled."""
    drift: Drift = "none"
    """How the tokens before the turn differ from a fresh rendering of the conversation."""
    difference: str = ""
    """Around the first difference of a drift in text."""


@dataclass(slots=True)
class _Stretch:
    """The tokens of one sampled turn in one sequence."""

    sequence: Mapping[str, Any]
    start: int
    end: int
    before: int
    """Where the text between the turn before and this one begins."""

    @property
    def ids(self) -> list[int]:
        return list(self.sequence["response_ids"][self.start : self.end])


def has_tokens(trajectory: Trajectory) -> bool:
    """Whether it was read with its tokens, and the trace has kept them (`agent_rl.trace.tokens`)."""
    return "tokens" in trajectory.info


def audit_trajectory(
    trajectory: Trajectory, template: ChatTemplate, compute: Callable[[list[int]], list[float]] | None = None
) -> list[TurnAudit]:
    """What is found at each turn of a trajectory with tokens.

    Args:
        trajectory: from a trace with `agent_rl.trace.tokens`, read with its tokens.
        template: of the policy.
        compute: the model's own log-probability of every token of a sequence but the first; None: not compared.
    """
    kept = trajectory.info["tokens"]
    turns = list(_said(trajectory))
    stretches = [stretch for sequence in kept["sequences"] for stretch in _stretches(sequence)]
    audits = [TurnAudit(number, stretch.end - stretch.start) for number, stretch in enumerate(stretches)]
    if len(stretches) != len(turns):
        problem = f"{len(stretches)} stretches of sampled tokens for {len(turns)} turns"
        if not audits:
            return [TurnAudit(0, 0, mask=problem)]
        audits[-1].mask = problem
    for stretch, audit, (said, tokens) in zip(stretches, audits, turns, strict=False):
        audit.mask = audit.mask or _mask(stretch, said, tokens, template)
        audit.logprobs = _logprobs(stretch)
        text = template.decode(stretch.ids)
        audit.retokenized = template.encode(text) != stretch.ids
    if compute is not None:
        _compare(kept["sequences"], stretches, audits, compute)
    _drift(kept, stretches, audits, template)
    return audits


def _said(trajectory: Trajectory) -> Iterator[tuple[str, int]]:
    """Text and number of tokens of everything that was sampled: turns, and notes at a fold."""
    for turn in trajectory.turns:
        if turn.tokens:
            yield turn.text, turn.tokens
        if fold := turn.notes.get("fold"):
            yield fold["notes"], fold["tokens"]


def _stretches(sequence: Mapping[str, Any]) -> Iterator[_Stretch]:
    position = before = 0
    for sampled, group in groupby(sequence["mask"]):
        length = len(list(group))
        if sampled:
            yield _Stretch(sequence, position, position + length, before)
            before = position + length
        position += length


def _mask(stretch: _Stretch, said: str, tokens: int, template: ChatTemplate) -> str | None:
    sequence = stretch.sequence
    if len(sequence["mask"]) != len(sequence["response_ids"]):
        return f"{len(sequence['mask'])} entries for {len(sequence['response_ids'])} tokens"
    if stretch.end - stretch.start != tokens:
        return f"{stretch.end - stretch.start} tokens have mask 1, {tokens} were sampled"
    whole = template.decode(stretch.ids)
    texts = (template.decode(stretch.ids, special=False), whole, without_channels(whole))
    if not any(text.startswith(said) for text in texts):
        return f"mask 1 is on {_short(whole)}, but the turn is {_short(said)}"
    return None


def _logprobs(stretch: _Stretch) -> str | None:
    values = stretch.sequence["logprobs"]
    if values is None:
        return None
    if len(values) != len(stretch.sequence["response_ids"]):
        return f"{len(values)} values for {len(stretch.sequence['response_ids'])} tokens"
    own = values[stretch.start : stretch.end]
    if bad := [value for value in own if not math.isfinite(value) or value > 1e-6]:
        return f"{bad[0]} is not a log-probability"
    if any(values[stretch.before : stretch.start]):
        return "there are values where nothing was sampled"
    if len(own) > 1 and not any(own):
        return "all values are 0"
    return None


def _compare(
    sequences: Sequence[Mapping[str, Any]],
    stretches: Sequence[_Stretch],
    audits: Sequence[TurnAudit],
    compute: Callable[[list[int]], list[float]],
) -> None:
    """Compare recorded log-probs with the model's at their tokens, and at the tokens beside them."""
    for sequence in sequences:
        if sequence["logprobs"] is None:
            continue
        ids, first = [*sequence["prompt_ids"], *sequence["response_ids"]], len(sequence["prompt_ids"])
        own = [math.nan, *compute(ids)]  # nothing predicts the first token
        for stretch, audit in zip(stretches, audits, strict=True):
            if stretch.sequence is not sequence or audit.logprobs:
                continue
            found = sequence["logprobs"][stretch.start : stretch.end]
            errors = {}
            for shift in (-1, 0, 1):
                expected = own[first + stretch.start + shift : first + stretch.end + shift]
                pairs = [(a, b) for a, b in zip(found, expected, strict=False) if math.isfinite(b)]
                errors[shift] = sum(abs(a - b) for a, b in pairs) / len(pairs) if pairs else math.inf
            best = min(errors, key=lambda shift: (errors[shift], abs(shift)))
            if best and errors[0] > CLEARLY * errors[best] and len(found) > 2:
                side = "after" if best > 0 else "before"
                audit.logprobs = f"values fit the tokens one {side} theirs ({errors[best]:.3f} against {errors[0]:.3f})"


def _drift(
    kept: Mapping[str, Any], stretches: Sequence[_Stretch], audits: Sequence[TurnAudit], template: ChatTemplate
) -> None:
    """Compare what stood before each turn with rendering it; of an earlier sequence the messages are not known."""
    last, tools = kept["sequences"][-1], kept["tools"]
    messages = [] if last["images"] else kept["messages"]  # text alone does not give the tokens of an image
    pairs = [(s, a) for s, a in zip(stretches, audits, strict=True) if s.sequence is last]
    places = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    for (stretch, audit), place in zip(pairs, places[len(places) - len(pairs) :], strict=False):
        shown = [*last["prompt_ids"], *last["response_ids"][: stretch.start]]
        rendered = template.rendered(messages[:place], tools or None, prompt=True)
        if template.encode(rendered) == shown:
            continue
        text = template.decode(shown)
        audit.drift = "tokens" if text == rendered else "text"
        if text != rendered:
            how = difference(template, text, rendered)
            audit.difference = f"{how}{how and ': '}{_contrast(text, rendered)}"


def _contrast(shown: str, rendered: str) -> str:
    differing = (n for n, (a, b) in enumerate(zip(shown, rendered, strict=False)) if a != b)
    start = next(differing, min(len(shown), len(rendered)))
    around = slice(max(0, start - AROUND), start + AROUND)
    return f"shown {shown[around]!r}, rendered {rendered[around]!r}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 2 * AROUND else f"{text[: 2 * AROUND]}...")
