"""`user_sim_agent` as verl's worker runs it: what the user says is not trained on."""

from pathlib import Path

USER = {"goal": "the secret", "replies": ["Order 17.", "Thanks."]}


def test_users_words_are_masked(run_loop, tokenizer):
    output, server = run_loop("user_sim_agent", "Which?", "Message: Done.", "Bye.", extra_info={"user": USER})
    assert tokenizer.decode(output.response_ids) == (
        "Which?<|im_end|>\n<|im_start|>user\nOrder 17.<|im_end|>\n<|im_start|>assistant\n"
        "Message: Done.<|im_end|>\n<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\nBye.<|im_end|>"
    )
    sampled = [i for i, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    assert tokenizer.decode(sampled) == "Which?<|im_end|>Message: Done.<|im_end|>Bye.<|im_end|>"
    assert all(
        (logprob == 0.0) is not bool(mask)
        for logprob, mask in zip(output.response_logprobs, output.response_mask, strict=True)
    )
    assert output.extra_fields["trajectory"].answer == "Bye."
    assert not any("secret" in tokenizer.decode(request["ids"]) for request in server.requests)


def test_user_judges(run_loop, tmp_path):
    (tmp_path / "judge.py").write_text(
        "from agent_rl.agents.users.user import ScriptedUser\n\n\n"
        "class Judge(ScriptedUser):\n"
        "    async def score(self, trajectory):\n"
        "        return self.config['scale'] * len(trajectory.turns)\n\n"
        "    async def respond(self, message, trajectory):\n"
        "        reply = await super().respond(message, trajectory)\n"
        "        reply.reward = float(len(message))\n"
        "        return reply\n"
    )
    overrides = [f"+agent_rl.user_sim.user={tmp_path}/judge.py:Judge", "+agent_rl.user_sim.config.scale=0.25"]
    output, _ = run_loop("user_sim_agent", "a", "bb", "c", overrides=overrides, extra_info={"user": USER})
    assert output.extra_fields["trajectory"].verdict == 0.75
    assert output.extra_fields["turn_scores"] == [1.0, 2.0, 1.0]


def test_native_calls_beside_messages(run_loop, tokenizer):
    root = Path(__file__).parents[3]
    overrides = [
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={root}/tool_configs/calculator.yaml",
        "+agent_rl.user_sim.native=true",
    ]
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'
    output, _ = run_loop(
        "user_sim_agent", "Which?", call, "It is 42.", overrides=overrides, extra_info={"user": {"replies": ["6*7."]}}
    )
    first, second, last = output.extra_fields["trajectory"].turns
    assert (first.observation, second.results[0].text, last.text) == ("6*7.", "42", "It is 42.")
    assert "<|im_start|>user\n6*7.<|im_end|>" in tokenizer.decode(output.response_ids)
    assert "<tool_response>\n42\n</tool_response>" in tokenizer.decode(output.response_ids)
