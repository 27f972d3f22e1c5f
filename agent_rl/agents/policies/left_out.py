"""Excludes void turns and overlong trajectories from the loss (`agent_rl.mask_void` and `agent_rl.mask_overlong`).

Void turns, which have neither a call nor an answer, are rare and improbable, and their gradients are large, so
SimpleTIR (arXiv 2509.02479) excludes whole trajectories with a void turn. If the token budget ended a trajectory, its
outcome is unknown and its reward is noise, so DAPO (arXiv 2503.14476, section 3.4) excludes such trajectories.

The reward of an excluded trajectory stays in the group's baseline, as with TRL's `mask_truncated_completions`, SkyRL's
`apply_overlong_filtering` and NeMo RL's `overlong_filtering`, which change only the mask.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Literal

from agent_rl.agents.policies.token_policy import TrainingSequence
from agent_rl.trajectory import StopReason, Trajectory, Turn


def masked_sequences(
    sequences: list[TrainingSequence],
    trajectory: Trajectory,
    mask_void: Literal["none", "turn", "trajectory"],
    mask_overlong: bool = False,
) -> list[TrainingSequence]:
    """Return the training sequences of a trajectory, with mask 0 on excluded tokens.

    Args:
        sequences: all sequences; each of their `spans` is a turn, or a fold's notes.
        trajectory: the trajectory, with its turns and stop reason.
        mask_void: with `turn`, exclude void turns, and sequences without any other turn; with `trajectory`, exclude the
            whole trajectory if it has a void turn.
        mask_overlong: whether to exclude the whole trajectory if its stop reason is `max_tokens`.

    Returns:
        At least one sequence. With `turn`, a sequence is cut after its last trained token, which gets the reward,
        unless an image follows that token.
    """
    void = mask_void != "none" and any(map(_is_void, trajectory.turns))
    if (void and mask_void == "trajectory") or (mask_overlong and trajectory.stop_reason is StopReason.MAX_TOKENS):
        return [sequence._replace(mask=array("b", bytes(len(sequence.mask)))) for sequence in sequences]
    if not void:
        return sequences
    samples = list(_kept(trajectory.turns))
    masked = [_masked(sequence, samples) for sequence in sequences]
    return [sequence for sequence in masked if any(sequence.mask)] or masked[-1:]


def _is_void(turn: Turn) -> bool:
    """Whether a turn has neither a call nor an answer, because it is malformed or the token budget cut it off."""
    return turn.malformed is not None or "cut" in turn.notes


def _kept(turns: Sequence[Turn]) -> Iterator[tuple[bool, bool]]:
    """Yield, for each sample in order, whether it is trained on, and whether images follow it."""
    for turn in turns:
        yield not _is_void(turn), any(result.images for result in turn.results)
        if "fold" in turn.notes:
            yield True, False


def _masked(sequence: TrainingSequence, samples: Sequence[tuple[bool, bool]]) -> TrainingSequence:
    mask, images_follow = array("b", bytes(len(sequence.mask))), False
    for number, start, last in sequence.spans:
        kept, images = samples[number - 1]
        images_follow = images or (images_follow and not kept)
        if kept:
            mask[start:last] = sequence.mask[start:last]
    end = len(mask)
    if any(mask) and not images_follow:
        end -= mask[::-1].index(1)
    logprobs = None if sequence.logprobs is None else sequence.logprobs[:end]
    return sequence._replace(response_ids=sequence.response_ids[:end], mask=mask[:end], logprobs=logprobs)
