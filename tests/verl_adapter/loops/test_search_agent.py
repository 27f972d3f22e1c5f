"""`search_agent` as verl's worker runs it: a closing tag is sampled text, and what was found is not."""

import json

import pytest

from tests.agents.server import Server

SEARCH = "<think>x</think>\n<search>Goethe</search>"
ANSWER = "<answer>Frankfurt</answer>"
FOUND = '<information>Doc 1(Title: "Goethe") Goethe was born in Frankfurt.</information>'


@pytest.fixture
def run(run_loop, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": "b", "contents": '"Goethe"\nGoethe was born in Frankfurt.'}) + "\n")
    tools = tmp_path / "tools.yaml"
    tools.write_text(json.dumps({"tools": [{"name": "search", "config": {"corpus": str(corpus)}}]}))
    path = f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tools}"
    return lambda *turns, overrides=(): run_loop("search_agent", *turns, overrides=[path, *overrides])


@pytest.mark.parametrize("continuation", ["", "\n<information>invented</information>\n<answer>Rome</answer>", " 日本"])
def test_closing_tag_is_trained_on_and_what_follows_is_not(run, tokenizer, continuation):
    output, _ = run(SEARCH + continuation, ANSWER)
    text = tokenizer.decode(output.response_ids)
    assert text == (
        f"{SEARCH}<|im_end|>\n<|im_start|>user\n{FOUND}<|im_end|>\n<|im_start|>assistant\n{ANSWER}<|im_end|>"
    )
    sampled = tokenizer.decode([i for i, m in zip(output.response_ids, output.response_mask, strict=True) if m])
    ended = "" if continuation else "<|im_end|>"  # sampled only where the policy ended the turn itself
    assert sampled == f"{SEARCH}{ended}{ANSWER}<|im_end|>"
    expected = [
        logprob if mask else 0.0
        for logprob, mask in zip(Server.logprobs(output.response_ids), output.response_mask, strict=True)
    ]
    assert output.response_logprobs == expected
    first, second = output.extra_fields["trajectory"].turns
    assert (first.text, first.observation, second.text) == (SEARCH, FOUND, ANSWER)
    assert output.extra_fields["trajectory"].answer == "Frankfurt"
