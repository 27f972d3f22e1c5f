"""The token audit: compares each turn's sampled tokens with the mask, the log-probs and a fresh rendering.

There are three kinds of findings; the first two are errors:

- *mask*: the tokens with mask 1 are not the tokens of the turn;
- *log-probs*: some values are not log-probabilities, or belong to tokens that were not sampled; if the audit has a
  model, also values that fit the neighboring tokens better than their own tokens;
- *drift*: a server that renders the whole conversation for every turn would show the policy different tokens, or even
  different text, than it saw in this trajectory. Drift does not affect training, which appends to the sampled tokens,
  but on such a server, the policy sees text that it did not see in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.policies.rendering_difference import difference
from agent_rl.agents.syntaxes.json_calls import without_channels
from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.trace.tokens import sampled_runs

Drift = Literal["none", "tokens", "text"]
AROUND = 30
"""Number of characters shown on each side of a difference."""
MISALIGNED = 3.0
"""Log-probs count as misaligned if their error is smaller at the neighboring tokens, by more than this factor."""


@dataclass(slots=True)
class TurnAudit:
    """The findings about one turn; None or "none" means that the check passed."""

    turn: int
    """Index of the turn within the trajectory, from 0."""
    tokens: int
    mask: str | None = None
    logprobs: str | None = None
    retokenized: bool = False
    """Whether tokenizing the turn's text yields tokens that differ from the sampled tokens."""
    drift: Drift = "none"
    """How the context before the turn differs from a fresh rendering: not at all, only in tokens, or also in text."""
    difference: str = ""
    """Excerpts of the context and of its fresh rendering around the first difference, if their texts differ."""


@dataclass(slots=True)
class Stretch:
    """The tokens of one sampled turn in one sequence."""

    sequence: Mapping[str, Any]
    start: int
    end: int
    before: int
    """Index of the first token after the previous turn."""

    @property
    def ids(self) -> list[int]:
        """The sampled tokens."""
        return list(self.sequence["response_ids"][self.start : self.end])


def audit_trajectory(
    trajectory: Trajectory, template: ChatTemplate, compute: Callable[[list[int]], list[float]] | None = None
) -> list[TurnAudit]:
    """Return the findings about each turn of a trajectory whose tokens are stored.

    Args:
        trajectory: a trajectory with its tokens, from a trace that was written with `agent_rl.trace.tokens=true`.
        template: the policy's chat template.
        compute: returns the model's log-probs for all tokens of a sequence but the first; None skips the comparison.
    """
    record = trajectory.info["tokens"]
    turns = list(sampled_texts(trajectory))
    stretches = [stretch for sequence in record["sequences"] for stretch in stretches_of(sequence)]
    audits = [TurnAudit(number, stretch.end - stretch.start) for number, stretch in enumerate(stretches)]
    if len(stretches) != len(turns):
        problem = f"there are {len(stretches)} stretches of sampled tokens, but {len(turns)} turns"
        if not audits:
            return [TurnAudit(0, 0, mask=problem)]
        audits[-1].mask = problem
    for stretch, audit, (sampled_text, tokens) in zip(stretches, audits, turns, strict=False):
        audit.mask = audit.mask or _mask_problem(stretch, sampled_text, tokens, template)
        audit.logprobs = _logprobs_problem(stretch)
        text = template.decode(stretch.ids)
        audit.retokenized = template.encode(text) != stretch.ids
    if compute is not None:
        _compare(record["sequences"], stretches, audits, compute)
    _find_drift(record, stretches, audits, template)
    return audits


def sampled_texts(trajectory: Trajectory) -> Iterator[tuple[str, int]]:
    """Yield the text and the token count of every turn, and of the policy's own notes where it folded its context.

    Turns that no client of the gateway received are skipped, because training excludes them.
    """
    for turn in trajectory.turns:
        if turn.tokens and not turn.notes.get("unfetched"):
            yield turn.text, turn.tokens
        if fold := turn.notes.get("fold"):
            yield fold["notes"], fold["tokens"]


def stretches_of(sequence: Mapping[str, Any]) -> Iterator[Stretch]:
    """Yield the sampled turns of one training sequence, in order."""
    before = 0
    for start, end in sampled_runs(sequence["mask"]):
        yield Stretch(sequence, start, end, before)
        before = end


def _mask_problem(stretch: Stretch, sampled_text: str, tokens: int, template: ChatTemplate) -> str | None:
    sequence = stretch.sequence
    if len(sequence["mask"]) != len(sequence["response_ids"]):
        return f"{len(sequence['mask'])} entries for {len(sequence['response_ids'])} tokens"
    if stretch.end - stretch.start != tokens:
        return f"{stretch.end - stretch.start} tokens have mask 1, but {tokens} were sampled"
    whole = template.decode(stretch.ids)
    texts = (template.decode(stretch.ids, special=False), whole, without_channels(whole))
    if not any(text.startswith(sampled_text) for text in texts):
        return f"the tokens with mask 1 are {_short(whole)}, but the turn is {_short(sampled_text)}"
    return None


def _logprobs_problem(stretch: Stretch) -> str | None:
    values = stretch.sequence["logprobs"]
    if values is None:
        return None
    if len(values) != len(stretch.sequence["response_ids"]):
        return f"{len(values)} values for {len(stretch.sequence['response_ids'])} tokens"
    own = values[stretch.start : stretch.end]
    if bad := [value for value in own if not math.isfinite(value) or value > 1e-6]:
        return f"{bad[0]} is not a log-probability"
    if any(values[stretch.before : stretch.start]):
        return "tokens that were not sampled have log-probs"
    if len(own) > 1 and not any(own):
        return "all values are 0"
    return None


def _compare(
    sequences: Sequence[Mapping[str, Any]],
    stretches: Sequence[Stretch],
    audits: Sequence[TurnAudit],
    compute: Callable[[list[int]], list[float]],
) -> None:
    """Compare recorded log-probs with the model's log-probs at the same tokens and at the neighboring tokens."""
    for sequence in sequences:
        if sequence["logprobs"] is None:
            continue
        ids, first = [*sequence["prompt_ids"], *sequence["response_ids"]], len(sequence["prompt_ids"])
        own = [math.nan, *compute(ids)]  # the first token has no probability, because no token precedes it
        for stretch, audit in zip(stretches, audits, strict=True):
            if stretch.sequence is not sequence or audit.logprobs:
                continue
            recorded = sequence["logprobs"][stretch.start : stretch.end]
            errors = {}
            for shift in (-1, 0, 1):
                expected = own[first + stretch.start + shift : first + stretch.end + shift]
                pairs = [(a, b) for a, b in zip(recorded, expected, strict=False) if math.isfinite(b)]
                errors[shift] = sum(abs(a - b) for a, b in pairs) / len(pairs) if pairs else math.inf
            best = min(errors, key=lambda shift: (errors[shift], abs(shift)))
            if best and errors[0] > MISALIGNED * errors[best] and len(recorded) > 2:
                side = "later" if best > 0 else "earlier"
                audit.logprobs = f"values fit better one place {side} (error {errors[best]:.3f}, not {errors[0]:.3f})"


def _find_drift(
    record: Mapping[str, Any], stretches: Sequence[Stretch], audits: Sequence[TurnAudit], template: ChatTemplate
) -> None:
    """Compare each turn's context with a fresh rendering, but only in the last sequence, whose messages are known."""
    last, tools = record["sequences"][-1], record["tools"]
    messages = [] if last["images"] else record["messages"]  # the tokens of an image cannot be derived from text
    pairs = [(s, a) for s, a in zip(stretches, audits, strict=True) if s.sequence is last]
    places = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    for (stretch, audit), place in zip(pairs, places[len(places) - len(pairs) :], strict=False):
        context = [*last["prompt_ids"], *last["response_ids"][: stretch.start]]
        rendered = template.rendered(messages[:place], tools or None, prompt=True)
        if template.encode(rendered) == context:
            continue
        text = template.decode(context)
        audit.drift = "tokens" if text == rendered else "text"
        if text != rendered:
            how = difference(template, text, rendered)
            differing = (n for n, (a, b) in enumerate(zip(text, rendered, strict=False)) if a != b)
            start = next(differing, min(len(text), len(rendered)))
            around = slice(max(0, start - AROUND), start + AROUND)
            audit.difference = f"{how}{how and ': '}shown {text[around]!r}, rendered {rendered[around]!r}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 2 * AROUND else f"{text[: 2 * AROUND]}...")
