"""The scripted policy, and where a turn is cut."""

import asyncio

from agent_rl.agents.episode.policy import ScriptedPolicy, cut_at_stop

PROMPT = [{"role": "user", "content": "what is this"}]


def started(*args, **options):
    policy = ScriptedPolicy(*args, **options)
    asyncio.run(policy.begin(PROMPT, []))
    return policy


def test_stop_string_can_be_kept():
    assert cut_at_stop("ab</a>c</b>", ["</b>", "</a>"], keep_stop=True) == "ab</a>"
    assert cut_at_stop("abc", ["x"], keep_stop=True) == "abc"
    policy = started(["x</a> y"])
    assert asyncio.run(policy.generate(["</a>"], keep_stop=True)).text == "x</a>"
    assert policy.messages[-1]["content"] == "x</a>"
