"""The scripted policy, and where a turn is cut."""

import asyncio

import pytest

from agent_rl.agents.episode.policy import ScriptedPolicy, cut_at_stop

PROMPT = [{"role": "user", "content": "what is this"}]


def started(*args, **options):
    policy = ScriptedPolicy(*args, **options)
    asyncio.run(policy.begin(PROMPT, []))
    return policy


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("abc", [], "abc"),
        ("abc", ["x"], "abc"),
        ("abcabc", ["c"], "ab"),
        ("abcd", ["d", "b"], "a"),
        ("abc", ["abc"], ""),
        ("", ["a"], ""),
        ("größer|x", ["|"], "größer"),
    ],
)
def test_text_is_cut_before_the_first_stop_string(text, stop, expected):
    assert cut_at_stop(text, stop) == expected


def test_stop_string_can_be_kept():
    assert cut_at_stop("ab</a>c</b>", ["</b>", "</a>"], keep_stop=True) == "ab</a>"
    assert cut_at_stop("abc", ["x"], keep_stop=True) == "abc"
    policy = started(["x</a> y"])
    assert asyncio.run(policy.generate(["</a>"], keep_stop=True)).text == "x</a>"
    assert policy.messages[-1]["content"] == "x</a>"
