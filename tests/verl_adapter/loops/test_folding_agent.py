"""`folding_agent` as verl's worker runs it: one trajectory becomes several training sequences."""

from pathlib import Path

from tests.agents.episodes import ANSWER, act

ROOT = Path(__file__).parents[3]
CALCULATOR = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={ROOT}/tool_configs/calculator.yaml"
SMALL = ["data.max_response_length=130", "+agent_rl.folding.reserve_tokens=60", "+agent_rl.folding.instructions=Notes"]


def test_trajectory_becomes_several_sequences(run_loop, tokenizer):
    outputs, _ = run_loop("folding_agent", act(), act("1+1"), "It was 42.", ANSWER, overrides=[CALCULATOR, *SMALL])
    first, last = outputs
    assert tokenizer.decode(first.response_ids).endswith("Notes<|im_end|>\n<|im_start|>assistant\nIt was 42.<|im_end|>")
    assert tokenizer.decode(last.response_ids) == f"{ANSWER}<|im_end|>"
    assert "It was 42." in tokenizer.decode(last.prompt_ids)
    for output in outputs:
        assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs) <= 130
    assert set(first.as_dict()) == set(last.as_dict())
    assert "trajectory" not in first.extra_fields
    trajectory = last.extra_fields["trajectory"]
    assert (trajectory.agent, trajectory.answer) == ("folding_agent", "42")
    assert trajectory.turns[1].notes["fold"]["notes"] == "It was 42."
    assert trajectory.response_tokens >= sum(len(output.response_ids) for output in outputs)


def test_any_of_our_loops_can_be_folded(run_loop, tokenizer):
    overrides = [CALCULATOR, *SMALL, "+agent_rl.folding.loop=user_sim_agent"]
    row = {"extra_info": {"user": {"replies": ["Go on. " * 25, "Thanks."]}}}
    outputs, _ = run_loop("folding_agent", "What? " * 10, "I asked.", "Bye.", "Bye!", overrides=overrides, **row)
    assert len(outputs) == 2
    assert outputs[1].extra_fields["trajectory"].answer == "Bye!"
    assert "Go on. Go on." in tokenizer.decode(outputs[1].prompt_ids)
