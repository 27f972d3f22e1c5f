"""Folding: when it happens, what the next conversation has, and that every token is exact."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.episode import FinalTurn
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.folding import AGENT, FoldingPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.errors import ConfigError
from agent_rl.rewards.components.terms import overlong
from agent_rl.settings import AgentRLSettings, OverlongSettings
from agent_rl.trajectory import StopReason, Trajectory
from tests.agents.episodes import ANSWER, PROMPT, act, run

ROOT = Path(__file__).parents[2]
ASKED = {"role": "user", "content": "Write notes."}


def folding(texts, max_tokens, reserve_tokens, max_folds=8):
    inner = ScriptedPolicy(texts, max_tokens=max_tokens)
    policy = FoldingPolicy(inner, reserve_tokens=reserve_tokens, max_folds=max_folds, instructions="Write notes.")
    return policy, inner


def play(policy, **options):
    return run(policy, form=ReactFormat("Use tools."), **options)


def test_full_context_continues_from_the_policys_notes():
    policy, inner = folding([act(), act("1+1"), "It was 42.", act("2+2"), ANSWER], max_tokens=20, reserve_tokens=5)
    trajectory = play(policy)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")
    assert [turn.observation for turn in trajectory.turns] == [
        "Observation: 42",
        "Observation: 2",
        "Observation: 4",
        None,
    ]
    (fold,) = [turn.notes["fold"] for turn in trajectory.turns if turn.notes]
    assert trajectory.turns[1].notes["fold"] is fold
    assert (fold["notes"], fold["tokens"]) == ("It was 42.", 3)
    assert inner.messages[:2] == [
        {"role": "system", "content": "Use tools."},
        {
            "role": "user",
            "content": f"{PROMPT[0]['content']}\n\nYour notes so far:\nIt was 42.\n\n"
            "The answer to your last action:\nObservation: 2",
        },
    ]
    assert [message["content"] for message in inner.messages[2:]] == [act("2+2"), "Observation: 4", ANSWER]
    assert PROMPT[0]["content"] == "What is 6*7?"
    sampled = sum(turn.tokens for turn in trajectory.turns) + fold["tokens"]
    assert trajectory.response_tokens == sampled + 2 * 2 + 2  # and two observations, and the request for notes
    assert trajectory.response_tokens > 20 >= trajectory.longest_tokens > 0
    assert overlong(trajectory, OverlongSettings(penalty=1.0, buffer_tokens=1), 20) > -1.0
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_request_for_notes_stands_where_the_results_would():
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1"}}\n</tool_call>'
    policy, inner = folding([f"{call}\n{call}", "notes", "It is 1."], max_tokens=14, reserve_tokens=4)
    seen = []

    async def extend(messages):
        seen.append([dict(message) for message in messages])
        return await ScriptedPolicy.extend(inner, messages)

    inner.extend = extend
    trajectory = run(policy, form=ToolCallFormat())
    assert trajectory.answer == "It is 1."
    results, asked = seen
    assert [message["role"] for message in asked] == [message["role"] for message in results] == ["tool", "tool"]
    assert [message["content"] for message in asked] == ["(later)", "Write notes."]
    assert "The answer to your last action:\n1\nSkipped" in inner.messages[0]["content"]


def test_notes_in_a_channel_go_along_without_its_tokens():
    notes = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It was 42."
    policy, inner = folding([act(), act("1+1"), notes, ANSWER], max_tokens=20, reserve_tokens=5)
    play(policy)
    assert "Your notes so far:\nIt was 42.\n\nThe answer" in inner.messages[1]["content"]


def test_a_program_cannot_be_folded():
    section = {"folding": {"loop": "gateway_agent"}, "gateway": {"command": "true"}}
    with pytest.raises(ConfigError, match=r"agent_rl\.folding\.loop"):
        AGENT.format(AgentRLSettings.from_config({"agent_rl": section}), EpisodeLimits())


def test_images_go_along():
    image, seen = {"type": "image", "image": "pixels"}, []

    class Inner(ScriptedPolicy):
        async def begin(self, messages, tools):
            seen.append(messages)
            self.prompt_tokens = 1

        async def extend(self, messages):
            return messages[-1]["content"] == "Write notes."

    async def fold(prompt):
        policy = FoldingPolicy(Inner(["notes"]), reserve_tokens=1, max_folds=1, instructions="Write notes.")
        await policy.begin(prompt, [])
        assert await policy.extend([{"role": "tool", "content": [image, {"type": "text", "text": "a chart"}]}])

    told = {"type": "text", "text": "Your notes so far:\nnotes\n\nThe answer to your last action:\na chart"}
    for content in ("What?", [{"type": "text", "text": "What?"}]):
        asyncio.run(fold([{"role": "user", "content": content}]))
        assert seen[-1] == [{"role": "user", "content": [{"type": "text", "text": "What?"}, image, told]}]


def test_notes_replace_notes_and_thoughts_stay_out_of_them():
    texts = [act(), act(), "<think>hm</think>one", act(), act(), "two", ANSWER]
    policy, inner = folding(texts, max_tokens=20, reserve_tokens=5)
    trajectory = play(policy)
    assert [turn.notes["fold"]["notes"] for turn in trajectory.turns if turn.notes] == ["<think>hm</think>one", "two"]
    told = inner.messages[1]["content"]
    assert "Your notes so far:\ntwo\n" in told
    assert "one" not in told
    assert told.count("Your notes so far") == 1


SMALL, LAST = {"max_tokens": 20, "reserve_tokens": 5}, FinalTurn("Last turn.", reserve_tokens=12)
ENDS = {
    "a context that is large enough": ([act(), act(), ANSWER], {"max_tokens": 200}, "answered", 0),
    "one fold at most": ([act(), act(), "notes", *[act()] * 9], {"max_folds": 1}, "max_tokens", 1),
    "no folds": ([act()] * 9, {"max_folds": 0}, "max_tokens", 0),
    "no room for the request": ([act(), act(), "notes"], {"max_tokens": 16, "reserve_tokens": 1}, "max_tokens", 0),
    "no room for the notes": ([act(), act(), "notes " * 20], {"max_tokens": 17, "reserve_tokens": 1}, "max_tokens", 1),
    "an engine that fails": ([act(), act()], {}, "engine_error", 0),
    "a final turn when no folds are left": (
        [act(), act(), "notes", act(), act(), act(), ANSWER],
        {"max_tokens": 30, "reserve_tokens": 16, "max_folds": 1, "final": LAST},
        "answered",
        1,
    ),
}


@pytest.mark.parametrize(("texts", "options", "reason", "folds"), ENDS.values(), ids=ENDS)
def test_how_it_ends(texts, options, reason, folds):
    options = {**SMALL, **options}
    final = options.pop("final", None)
    policy, inner = folding(texts, **options)
    trajectory = play(policy, final=final)
    assert trajectory.stop_reason.value == reason
    assert sum("fold" in turn.notes for turn in trajectory.turns) == folds
    assert final is None or inner.messages[-2]["content"] == "Last turn."


def test_time_that_runs_out_while_folding_ends_the_episode():
    policy, inner = folding([act(), act()], max_tokens=20, reserve_tokens=5)

    async def generate(stop=(), keep_stop=False):
        if inner.messages[-1] == ASKED:
            await asyncio.sleep(60)
        return await ScriptedPolicy.generate(inner, stop)

    inner.generate = generate
    assert play(policy, max_seconds=0.3).stop_reason is StopReason.MAX_SECONDS


# Token ids


@pytest.fixture
def tokens(tokenizer, builder):
    """Makes a folding policy over verl's builder, and its server."""
    from agent_rl.agents.policies.token_policy import TokenPolicy
    from tests.agents.server import Server

    def make(*texts, response_length, reserve_tokens, max_folds=8):
        server = Server(tokenizer, *texts)
        inner = TokenPolicy(
            server,
            builder,
            tokenizer,
            {"logprobs": True},
            prompt_length=512,
            response_length=response_length,
            engine_stops=False,
        )
        policy = FoldingPolicy(inner, reserve_tokens=reserve_tokens, max_folds=max_folds, instructions=ASKED["content"])
        return policy, inner, server

    return make


def test_each_sequence_has_what_was_sampled_in_it(tokens, tokenizer):
    policy, inner, server = tokens(act(), act("1+1"), "It was 42.", ANSWER, response_length=130, reserve_tokens=60)
    trajectory = play(policy)
    assert trajectory.answer == "42"
    first, second = inner.sequences()
    end, user, asks = "<|im_end|>", "\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(first.response_ids) == (
        f"{act()}{end}{user}Observation: 42{asks}{act('1+1')}{end}{user}Write notes.{asks}It was 42.{end}"
    )
    folded = "Your notes so far:\nIt was 42.\n\nThe answer to your last action:\nObservation: 2"
    assert tokenizer.decode(second.prompt_ids).endswith(f"{PROMPT[0]['content']}\n\n{folded}{asks}")
    assert tokenizer.decode(second.response_ids) == f"{ANSWER}{end}"
    for sample in (first, second):
        sampled = [i for i, mask in zip(sample.response_ids, sample.mask, strict=True) if mask]
        assert set(sampled) >= {tokenizer.eos_token_id}
        assert list(sample.logprobs) == [
            logprob if mask else 0.0
            for logprob, mask in zip(server.logprobs(sample.response_ids), sample.mask, strict=True)
        ]
    assert list(first.prompt_ids) == server.requests[0]["ids"]
    assert list(second.prompt_ids) == server.requests[3]["ids"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.sampled_from([act(), act("2**90"), "hm", "It was 42.", "größer 日本 " * 6, ANSWER]), min_size=1, max_size=12
    ),
    response_length=st.integers(60, 260),
    reserve_tokens=st.integers(1, 59),
    max_folds=st.integers(0, 3),
)
def test_any_sequence_is_exact_and_within_its_budget(tokens, texts, response_length, reserve_tokens, max_folds):
    policy, inner, server = tokens(
        *texts, response_length=response_length, reserve_tokens=reserve_tokens, max_folds=max_folds
    )
    trajectory = play(policy, max_malformed=99)
    reason = trajectory.stop_reason
    assert (trajectory.answer is not None) == (reason is StopReason.ANSWERED)
    assert reason in (StopReason.ANSWERED, StopReason.MAX_TOKENS, StopReason.ENGINE_ERROR)
    samples = inner.sequences()
    folds = [turn for turn in trajectory.turns if "fold" in turn.notes]
    assert len(samples) <= 1 + len(folds)
    assert len(folds) <= max_folds
    sequences = [[*sample.prompt_ids, *sample.response_ids] for sample in samples]
    for sample in samples:
        assert len(sample.response_ids) == len(sample.mask) == len(sample.logprobs) <= response_length
        assert sample.mask[-1] == 1
    for request in server.requests[: len(texts) - len(server.turns)]:  # each request continues one of the sequences
        ids = request["ids"]
        assert any(sequence[: len(ids)] == ids for sequence in sequences)
    sampled = sum(turn.tokens for turn in trajectory.turns) + sum(turn.notes["fold"]["tokens"] for turn in folds)
    assert sum(sum(sample.mask) for sample in samples) == sampled
