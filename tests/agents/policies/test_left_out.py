"""What is left out of the loss: void turns, and trajectories that the token budget ended."""

from array import array

import pytest

from agent_rl.agents.policies.left_out import masked_sequences
from agent_rl.agents.policies.token_policy import TrainingSequence
from agent_rl.trajectory import StopReason, ToolResult, Trajectory, Turn
from agent_rl.trajectory.trace.tokens import sampled_runs


def sequence(response_ids, mask, logprobs, samples):
    spans = [(sample, *run) for sample, run in zip(samples, sampled_runs(mask), strict=True)]
    return TrainingSequence(array("i", [1, 2]), array("i", response_ids), array("b", mask), logprobs, [], spans)


FIRST = sequence([3, 4, 5, 6], [1, 1, 0, 1], array("d", [-0.1, -0.2, 0.0, -0.3]), [1, 2])
LAST = sequence([7, 8, 9], [0, 1, 1], None, [3])
GOOD, FOLDED, BAD, CUT = (
    Turn("a"),
    Turn("a", notes={"fold": {}}),
    Turn("b", malformed="?"),
    Turn("c", notes={"cut": True}),
)


def trained(turns, mode, *, reason=StopReason.ANSWERED, first=FIRST, **settings):
    return masked_sequences([first, LAST], Trajectory(prompt=[], stop_reason=reason, turns=turns), mode, **settings)


def masks(turns, mode, **settings):
    return [sequence.mask.tolist() for sequence in trained(turns, mode, **settings)]


@pytest.mark.parametrize("turns", [[GOOD, BAD, GOOD], [BAD, BAD, BAD], [GOOD, GOOD, CUT]])
def test_the_whole_trajectory_is_left_out(turns):
    assert masks(turns, "trajectory") == [[0, 0, 0, 0], [0, 0, 0]]
    assert masks(turns, "none") == [FIRST.mask.tolist(), LAST.mask.tolist()]


@pytest.mark.parametrize(
    ("turns", "left"),
    [
        ([BAD, GOOD, GOOD], [[0, 0, 0, 1], [0, 1, 1]]),
        ([GOOD, BAD, GOOD], [[1, 1], [0, 1, 1]]),  # ends where something is trained on
        ([GOOD, GOOD, CUT], [[1, 1, 0, 1]]),
        ([FOLDED, BAD], [[1, 1, 0, 1]]),  # the notes are the second run
        ([BAD, BAD, BAD], [[0, 0, 0]]),
        ([GOOD, GOOD, GOOD], [[1, 1, 0, 1], [0, 1, 1]]),
    ],
)
def test_void_turns_are_left_out(turns, left):
    assert masks(turns, "turn") == left


def test_turns_of_parallel_conversations_are_found_by_their_numbers():
    first = sequence([3, 4, 5, 6], [1, 1, 0, 1], None, [1, 3])
    last = sequence([7, 8, 9], [0, 1, 1], None, [2])
    trajectory = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, turns=[GOOD, BAD, GOOD])
    assert masked_sequences([first, last], trajectory, "turn") == [first]


def test_ids_and_log_probs_stay_aligned():
    (first, _) = trained([GOOD, BAD, GOOD], "turn")
    assert first == sequence([3, 4], [1, 1], array("d", [-0.1, -0.2]), [1])._replace(spans=FIRST.spans)
    (asked, _) = trained([GOOD, BAD, GOOD], "turn", first=FIRST._replace(images=["x"]))
    assert asked == first._replace(images=["x"])  # of the prompt
    seen = Turn("a", results=[ToolResult("", "", "", images=["x"])])
    (shown, _) = trained([seen, BAD, GOOD], "turn", first=FIRST._replace(images=["x"]))
    assert (shown.response_ids, shown.mask) == (
        FIRST.response_ids,
        array("b", [1, 1, 0, 0]),
    )  # its images keep their places


@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize("mode", ["none", "turn"])
def test_exactly_what_the_token_budget_ended_is_left_out(reason, mode):
    turns = [GOOD, GOOD, GOOD]  # an observation that no longer fits cuts no turn
    kept = [FIRST.mask.tolist(), LAST.mask.tolist()]
    nothing = [[0, 0, 0, 0], [0, 0, 0]]
    assert masks(turns, mode, reason=reason) == kept
    assert masks(turns, mode, reason=reason, mask_overlong=True) == (nothing if reason == "max_tokens" else kept)
