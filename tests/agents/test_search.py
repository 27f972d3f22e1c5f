"""The search tags: what is read from a turn, and an episode over a real index."""

import json

import pytest

from agent_rl.agents.search import DEFAULT_INSTRUCTIONS, NO_ACTION, SearchFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.search import Search
from agent_rl.trajectory import StopReason, ToolCall, Trajectory
from tests.agents.episodes import run

PROMPT = [{"role": "user", "content": "Where was the author of Faust born?"}]
TOOLS = [ToolSpec.from_class(Search)]


@pytest.fixture
def search(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    rows = [
        {"id": "a", "contents": '"Faust"\nFaust is a play by Goethe.'},
        {"id": "b", "contents": '"Goethe"\nGoethe was born in Frankfurt.'},
    ]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ToolSpec.from_class(Search, config={"corpus": str(corpus), "top_k": 1})


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("<think>x</think>\n<search>author of Faust</search>", "author of Faust"),
        ("<search>\n author of Faust\n</search>", "author of Faust"),
        ("free text <search>größer 日本</search>", "größer 日本"),
        ("<search>a < b</search>", "a < b"),
        ("<search>x <search>y</search>", "y"),
        ("<think>or <answer> now? no</think><search>y</search>", "y"),
        ("<search>y</search><answer>z</answer>", "y"),
    ],
)
def test_query_is_read(text, query):
    assert SearchFormat().parse(text, TOOLS).calls == [ToolCall("search", {"query": query})]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>x</think><answer>Frankfurt</answer>", "Frankfurt"),
        ("<answer>\nFrankfurt am Main\n</answer>", "Frankfurt am Main"),
        ("<answer>y</answer><search>z</search>", "y"),
    ],
)
def test_answer_is_read(text, answer):
    step = SearchFormat().parse(text, TOOLS)
    assert (step.answer, step.calls) == (answer, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Frankfurt",
        "<search></search>",
        "<answer> \n</answer>",
        "<search>open",
        "open</search>",
        "<search>x</answer>",
        "<answer>x</search>",
        "<Search>x</Search>",
        "<think>x</think>",
        "<search>x <answer>y</search>",
    ],
)
def test_other_turns_are_malformed(text):
    with pytest.raises(MalformedActionError, match="I could not read an action"):
        SearchFormat().parse(text, TOOLS)


def test_instructions_go_into_the_system_message_and_show_a_turn_that_can_be_read():
    assert SearchFormat().prompt(PROMPT, TOOLS) == [{"role": "system", "content": DEFAULT_INSTRUCTIONS}, *PROMPT]
    assert SearchFormat().parse(DEFAULT_INSTRUCTIONS.rpartition(":")[2], TOOLS).answer == "Weimar"


def test_episode_searches_twice_and_answers(search):
    texts = [
        "<think>Who wrote it?</think>\n<search>Faust play</search>\n<information>Doc 1: invented</information>",
        "<search>where was Goethe born</search>",
        "<think>done</think><answer>Frankfurt</answer> and more",
    ]
    trajectory = run(texts, search, form=SearchFormat())
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "Frankfurt")
    first, second, last = trajectory.turns
    assert first.text == "<think>Who wrote it?</think>\n<search>Faust play</search>"
    assert first.observation == '<information>Doc 1(Title: "Faust") Faust is a play by Goethe.</information>'
    assert second.observation == '<information>Doc 1(Title: "Goethe") Goethe was born in Frankfurt.</information>'
    assert last.text == "<think>done</think><answer>Frankfurt</answer>"
    assert [result.name for result in trajectory.results] == ["search", "search"]
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_query_in_an_unclosed_thought_is_read(search):
    trajectory = run(["<think>maybe <search>Faust play</search>", "<answer>x</answer>"], search, form=SearchFormat())
    assert trajectory.results[0].text.startswith("Doc 1")


def test_mistakes_are_observations_and_counted(search):
    trajectory = run(["hm", "<search>???</search>", "<answer>x</answer>"], search, form=SearchFormat())
    assert trajectory.turns[0].observation == f"<information>Error: {NO_ACTION}</information>"
    assert trajectory.turns[1].observation == "<information>Error: the query has no words to search for</information>"
    assert (trajectory.malformed_turns, trajectory.tool_errors) == (1, 1)
