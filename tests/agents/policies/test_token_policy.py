"""Token-exact conversations with verl's server."""

import asyncio

import pytest

pytest.importorskip("verl")

from verl.workers.rollout.replica import TokenOutput

from agent_rl.agents.policies.token_policy import TokenPolicy, stored_sequences
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import EngineError, UnscoredError
from tests.agents.server import THINKING, Server

pytestmark = pytest.mark.trainer

PROMPT = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "What is 6*7?"}]
STOP = ReactFormat.stop
ACT = 'Thought: x\nAction: calculator\nAction Input: {"expression": "6*7"}'
ANSWER = "Thought: done\nFinal Answer: 42"
OBSERVATION = [{"role": "user", "content": "Observation: 42"}]


@pytest.fixture
def policy(tokenizer, builder):
    """Makes a started policy and its server."""

    def make(*turns, logprobs=True, prompt=PROMPT, **options):
        server = Server(tokenizer, *turns)
        limits = {"prompt_length": 256, "response_length": 512, "engine_stops": False, **options}
        made = TokenPolicy(server, builder, tokenizer, {"temperature": 1.0, "logprobs": logprobs}, **limits)
        asyncio.run(made.begin(prompt, []))
        return made, server

    return make


def play(policy, observation=OBSERVATION, stop=STOP):
    """One turn and the answer to it."""
    generation = asyncio.run(policy.generate(stop))
    return generation, asyncio.run(policy.extend(observation))


def check(policy):
    """What holds at any time."""
    assert policy.ids[: len(policy.prompt_ids)] == policy.prompt_ids
    response = policy.ids[len(policy.prompt_ids) :]
    assert len(response) == len(policy.mask) == policy.response_tokens
    assert set(policy.mask) <= {0, 1}
    if policy.logprobs is not None:
        expected = [
            logprob if sampled else 0.0 for logprob, sampled in zip(Server.logprobs(response), policy.mask, strict=True)
        ]
        assert policy.logprobs.tolist() == expected


# Tokens


def test_conversation_is_what_the_chat_template_gives(policy, tokenizer):
    made, _ = policy(ACT, ACT.replace("6*7", "größer 日本"), ANSWER)
    messages = list(PROMPT)
    for text in (ACT, ACT.replace("6*7", "größer 日本")):
        before = len(made.mask)
        generation, fits = play(made)
        assert (generation.text, generation.finish, fits) == (text, "stop", True)
        assert made.mask[before:].tolist() == [1] * generation.tokens + [0] * (
            len(made.mask) - before - generation.tokens
        )
        messages += [{"role": "assistant", "content": text}, *OBSERVATION]
        assert made.ids.tolist() == tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert tokenizer.decode(made.ids) == tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        check(made)
        assert made.sequences()[0].mask[-1] == 1
    asyncio.run(made.generate(STOP))
    rendered = tokenizer.apply_chat_template([*messages, {"role": "assistant", "content": ANSWER}], tokenize=False)
    assert tokenizer.decode(made.ids) == rendered.removesuffix("\n")


def test_ids_are_only_ever_appended_and_one_request_id_is_kept(policy):
    made, server = policy(ACT, ACT, ANSWER)
    play(made)
    play(made)
    asyncio.run(made.generate(STOP))
    requests = [request["ids"] for request in server.requests]
    assert requests[0] == made.prompt_ids.tolist()
    for earlier, later in zip(requests, [*requests[1:], made.ids.tolist()], strict=True):
        assert later[: len(earlier)] == earlier
    assert len({request["id"] for request in server.requests}) == 1


def test_sampled_ids_are_kept_even_when_their_text_encodes_differently(policy, tokenizer):
    spelled = [token for byte in b"Final Answer: 42" for token in tokenizer.encode(chr(byte), add_special_tokens=False)]
    assert spelled != tokenizer.encode("Final Answer: 42", add_special_tokens=False)
    made, _ = policy([*spelled, tokenizer.eos_token_id])
    generation, _ = play(made)
    assert generation.text == "Final Answer: 42"
    assert made.ids[len(made.prompt_ids) :][: len(spelled)].tolist() == spelled


@pytest.mark.parametrize(
    "text",
    [
        ACT + "\nObservation: 43\nFinal Answer: 43",
        ACT + "\nObservation:",
        ACT + " größer 日本 🧮\nObservation:🧮日本 ü",
        "\nObservation: x",
        ACT + "\n\n\nObservation: x\nObservation: y",
    ],
)
def test_turn_is_cut_at_the_first_token_that_completes_a_stop_string(policy, tokenizer, text):
    made, server = policy(text)
    assert len(server.encode("\nObservation:")) > 1, "the stop string must be spread over several tokens"
    generation, fits = play(made)
    before = text[: text.index("\nObservation:")]
    assert (generation.text, generation.finish, fits) == (before, "stop", True)
    kept = made.ids[len(made.prompt_ids) :][: generation.tokens].tolist()
    assert kept == server.encode(text)[: generation.tokens]
    assert "\nObservation:" in tokenizer.decode(kept)
    assert "\nObservation:" not in tokenizer.decode(kept[:-1])
    assert made.mask[: generation.tokens + 1].tolist() == [1] * generation.tokens + [0]
    rest = made.ids[len(made.prompt_ids) + generation.tokens :]
    assert tokenizer.decode(rest) == "<|im_end|>\n<|im_start|>user\nObservation: 42<|im_end|>\n<|im_start|>assistant\n"
    check(made)


def test_turn_that_ends_with_another_end_token_is_closed_for_the_template(policy, tokenizer):
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    made, _ = policy([*tokenizer.encode(ACT, add_special_tokens=False), end])
    generation, _ = play(made)
    assert generation.text == ACT
    text = tokenizer.decode(made.ids[len(made.prompt_ids) :])
    assert text.startswith(ACT + "<|endoftext|><|im_end|>\n<|im_start|>user\n")
    assert made.mask[generation.tokens - 1 : generation.tokens + 1].tolist() == [1, 0]
    check(made)


def test_stop_strings_are_sent_only_to_an_engine_that_knows_text(policy):
    for engine_stops in (False, True):
        made, server = policy(ACT, engine_stops=engine_stops)
        asyncio.run(made.generate(STOP))
        assert server.requests[0]["params"].get("stop") == (list(STOP) if engine_stops else None)


# Budgets


def test_each_request_may_use_what_is_left_of_the_response(policy):
    made, server = policy(ACT, ANSWER, response_length=300)
    play(made)
    used = len(made.mask)
    asyncio.run(made.generate(STOP))
    assert [request["params"]["max_new_tokens"] for request in server.requests] == [300, 300 - used]


def test_turn_that_is_cut_by_the_budget_is_length(policy):
    made, _ = policy(ACT, response_length=5)
    generation, fits = play(made)
    assert (generation.tokens, generation.finish, fits) == (5, "length", False)
    assert len(made.sequences()[0].response_ids) == 5


def test_end_of_turn_is_not_inserted_beyond_the_budget(policy, tokenizer):
    ids = tokenizer.encode("x\nObservation:", add_special_tokens=False)
    made, _ = policy(ids, response_length=len(ids))
    generation, fits = play(made)
    assert (generation.text, generation.finish, fits) == ("x", "stop", False)
    assert made.response_tokens == len(ids)


def test_observation_that_does_not_fit_is_not_appended(policy, tokenizer):
    made, _ = policy(ACT, response_length=80)
    generation = asyncio.run(made.generate(STOP))
    before = (made.ids[:], made.mask[:], made.logprobs[:])
    assert not asyncio.run(made.extend([{"role": "user", "content": "word " * 100}]))
    assert (made.ids, made.mask, made.logprobs) == before
    _, ids, mask, *_ = made.sequences()[-1]
    assert mask.tolist() == [1] * generation.tokens
    assert len(ids) == generation.tokens
    assert asyncio.run(made.extend(OBSERVATION)), "a shorter one still fits"


def test_observation_must_leave_room_for_a_token_and_what_is_kept(policy):
    roomy, _ = policy(ACT)
    play(roomy)
    needed = len(roomy.mask)
    for kept in (0, 30):
        for response_length, fits in ((needed + kept, False), (needed + kept + 1, True)):
            made, _ = policy(ACT, response_length=response_length)
            made.reserve = kept
            assert play(made)[1] is fits


def test_response_without_a_token_is_unscored(policy):
    made, _ = policy()
    with pytest.raises(UnscoredError, match="no token"):
        made.sequences()


def test_prompt_that_is_too_long_is_unscored_and_names_the_key(policy):
    with pytest.raises(UnscoredError, match=r"data\.max_prompt_length=8"):
        policy(prompt_length=8)


# Engine failures


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (RuntimeError("connection lost"), "RuntimeError: connection lost"),
        (TimeoutError(), "TimeoutError"),
        (TokenOutput(token_ids=[], log_probs=[], stop_reason="stop"), "returned 0 tokens"),
        (TokenOutput(token_ids=[5, 6], log_probs=[-1.0], stop_reason="stop"), "2 tokens came with 1 log-probs"),
        (TokenOutput(token_ids=[5, 6], log_probs=None, stop_reason="stop"), "2 tokens came with 0 log-probs"),
        (TokenOutput(token_ids=[5] * 513, log_probs=[-1.0] * 513), "returned 513 tokens where 1 to 512"),
        (TokenOutput(token_ids=[5], log_probs=[-1.0], stop_reason="abort"), "aborted"),
        (TokenOutput(token_ids=[], stop_reason="aborted"), "aborted"),
    ],
)
def test_failure_of_the_engine_is_an_engine_error(policy, turn, message):
    made, _ = policy(turn)
    with pytest.raises(EngineError, match=message):
        asyncio.run(made.generate(STOP))
    assert made.ids == made.prompt_ids
    check(made)


def test_versions_of_the_weights_and_preemptions_are_kept(policy):
    def output(low, high, preempted):
        return TokenOutput(
            token_ids=[5],
            log_probs=Server.logprobs([5]),
            stop_reason="stop",
            num_preempted=preempted,
            extra_fields={"min_global_steps": low, "max_global_steps": high, "global_steps": high},
        )

    made, _ = policy(output(3, 3, 1), output(4, 5, 2))
    assert made.preempted == -1
    play(made)
    play(made)
    assert made.extra_fields["min_global_steps"] == 3
    assert made.extra_fields["max_global_steps"] == 5
    assert made.preempted == 3


# Several training sequences


def test_stored_sequences_keep_the_order_of_parallel_turns(policy):
    first, _ = policy(ACT, ACT, ACT)
    other = first.sibling()
    asyncio.run(other.begin([{"role": "user", "content": "Another question."}], []))
    for each in (first, other, first):
        play(each)
    spans = [sequence.spans for sequence in first.sequences()]
    assert [[number for number, *_ in own] for own in spans] == [[1, 3], [2]]
    assert [tuple(sequence.spans) for sequence in stored_sequences(first.record()["sequences"])] == spans


@pytest.fixture
def thinking(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", THINKING)


def test_thoughts_that_the_template_drops_leave_the_context(policy, tokenizer, thinking):
    turns = [f"<think>{word}</think>{ACT}" for word in ("uno", "dos", "tres")]
    made, server = policy(*turns, drop_thoughts=True)
    for _ in turns:
        _, fits = play(made)
        assert fits
    samples = made.sequences()
    assert len(samples) == 3
    for number, (sample, request) in enumerate(zip(samples, server.requests, strict=True)):
        ids = [*sample.prompt_ids, *sample.response_ids]
        assert ids[: len(request["ids"])] == request["ids"], "what is trained on is what the engine saw"
        assert list(sample.mask) == [0] * (len(request["ids"]) - len(sample.prompt_ids)) + [1] * (
            len(ids) - len(request["ids"])
        )
        sampled = [token for token, one in zip(sample.response_ids, sample.mask, strict=True) if one]
        assert tokenizer.decode(sampled) == turns[number] + "<|im_end|>"
        assert tokenizer.decode(ids).count("<think>") == 1
        assert [logprob for logprob, one in zip(sample.logprobs, sample.mask, strict=True) if one] == Server.logprobs(
            sampled
        )
    assert made.response_tokens == sum(len(sample.mask) for sample in samples) + len(made.mask)


@pytest.mark.parametrize("role", ["tool", "user"])
def test_thoughts_that_the_template_keeps_need_no_new_sequence(policy, tokenizer, thinking, role):
    turns = [f"<think>uno</think>{ACT}", f"<think>dos</think>{ACT}"]
    made, _ = policy(*turns, drop_thoughts=role == "tool")
    for _ in turns:
        play(made, [{"role": role, "content": "42"}])
    assert len(made.sequences()) == 1
    check(made)


def test_history_that_does_not_fit_changes_nothing(policy, thinking):
    made, _ = policy(f"<think>uno</think>{ACT}", drop_thoughts=True, response_length=70, prompt_length=60)
    asyncio.run(made.generate(STOP))
    before = (made.ids[:], made.mask[:])
    assert not asyncio.run(made.extend([{"role": "user", "content": "word " * 200}]))
    assert (made.ids, made.mask) == before
    assert len(made.sequences()) == 1


def test_conversation_may_be_replaced_by_another(policy, tokenizer):
    made, server = policy(ACT, ANSWER, prompt_length=60)
    play(made)
    summary = [*PROMPT, {"role": "user", "content": "So far: " + "much " * 60}]
    asyncio.run(made.begin(summary, []))
    asyncio.run(made.generate(STOP))
    first, second = made.sequences()
    assert set(first.mask) == {1}
    rendered = tokenizer.apply_chat_template(summary, add_generation_prompt=True, return_dict=False)
    assert server.requests[1]["ids"] == rendered
    assert len(rendered) > 60
    assert [*second.prompt_ids, *second.response_ids][: len(rendered)] == rendered
    assert len(second.prompt_ids) == 60
    sampled = sum(second.mask)
    assert list(second.mask) == [0] * (len(rendered) - 60) + [1] * sampled
    assert made.prompt_tokens == len(server.requests[0]["ids"])


def test_conversation_that_leaves_no_token_is_unscored(policy):
    made, _ = policy(ANSWER, prompt_length=60, response_length=10)
    with pytest.raises(UnscoredError, match="which leaves none for an answer"):
        asyncio.run(made.begin([*PROMPT, {"role": "user", "content": "word " * 100}], []))


# What is kept for the final turn


def test_turn_is_cut_before_what_is_kept_and_closed_for_the_template(policy, tokenizer):
    made, server = policy(ACT, ANSWER, response_length=60)
    made.reserve = 40
    generation = asyncio.run(made.generate(STOP))
    assert (generation.finish, generation.tokens) == ("length", 20)
    made.reserve = 0
    assert asyncio.run(made.extend([{"role": "user", "content": "Now."}]))
    text = tokenizer.decode(made.ids[len(made.prompt_ids) :])
    assert text.endswith("<|im_end|>\n<|im_start|>user\nNow.<|im_end|>\n<|im_start|>assistant\n")
    used = len(made.mask)
    assert list(made.mask) == [1] * 20 + [0] * (used - 20)
    asyncio.run(made.generate(STOP))
    assert [request["params"]["max_new_tokens"] for request in server.requests] == [20, 60 - used]
    check(made)
