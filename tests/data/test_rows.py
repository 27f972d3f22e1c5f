"""`make_row`: what it builds, its worked examples, and what it refuses."""

import re
import textwrap
from typing import Any

import pytest

from agent_rl.data import check_row, make_row, rows
from agent_rl.errors import ConfigError

BASE = {"data_source": "shop/sums", "ground_truth": "7", "split": "train"}


def row(index: int | str = 0, **changes: Any) -> dict[str, Any]:
    return make_row(**{"question": "3 + 4?", "index": index, **BASE, **changes})


def test_a_question_becomes_one_user_message() -> None:
    assert row(5, extra_info={"answer": "3+4 #### 7"}) == {
        "data_source": "shop/sums",
        "agent_name": "react_agent",
        "prompt": [{"role": "user", "content": "3 + 4?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "7"},
        "extra_info": {"split": "train", "index": 5, "question": "3 + 4?", "answer": "3+4 #### 7"},
    }


def test_the_worked_examples_of_the_docstring_are_rows() -> None:
    examples = re.findall(r"^    make_row\(.*?\)$(?=\n\n|\n\Z)", rows.__doc__ or "", re.DOTALL | re.MULTILINE)
    assert len(examples) == 5
    built = [eval(textwrap.dedent(example), {"make_row": make_row}) for example in examples]  # noqa: S307
    for each in built:
        check_row(each, "example")
    assert built[1]["extra_info"]["tool_selection"] == ["sql"]
    assert built[2]["images"] == [{"path": "hexagon.png"}]
    assert [message["role"] for message in built[3]["prompt"]] == ["system", "user", "assistant", "user"]
    assert built[4]["extra_info"]["user"]["replies"]


def test_a_prompt_of_messages_keeps_its_order_and_names_its_question() -> None:
    prompt = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "3 + 4?", "tool_calls": None}]
    built = make_row(prompt=prompt, index="a-1", **BASE)
    assert built["prompt"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "3 + 4?"}]
    assert built["extra_info"]["question"] == "3 + 4?"
    assert make_row(prompt=prompt, question="the sum", index=0, **BASE)["extra_info"]["question"] == "the sum"


def test_images_among_content_parts_are_stored_beside_the_prompt() -> None:
    parts = [{"type": "image", "image": b"png"}, {"type": "text", "text": "3 + 4?"}]
    built = make_row(prompt=parts, index=0, rm_prompt="The sum?", **BASE)
    assert built["prompt"] == [{"role": "user", "content": "<image>3 + 4?"}]
    assert built["images"] == [{"bytes": b"png"}]
    assert built["rm_prompt"] == [{"role": "user", "content": "The sum?"}]
    aspects = make_row(prompt=parts, index=0, rm_prompt={"kind": "Kind?", "brief": "Brief?"}, **BASE)
    assert aspects["extra_info"]["rm_prompt.brief"] == [{"role": "user", "content": "Brief?"}]


@pytest.mark.parametrize(
    ("value", "stored"), [(7, "7"), (7.5, "7.5"), ("seven", "seven"), (["7", "seven"], ["7", "seven"]), ([], [])]
)
def test_numbers_are_stored_as_text_and_lists_as_they_are(value: Any, stored: Any) -> None:
    assert row(ground_truth=value)["reward_model"]["ground_truth"] == stored


def test_tool_arguments_are_kept_as_they_are() -> None:
    kwargs: dict[str, Any] = {"search": {"create_kwargs": {"index": "wiki", "filter": None}}, "calculator": {}}
    info = row(tools_kwargs=kwargs, tool_selection=("search",))["extra_info"]
    assert info["tools_kwargs"] == kwargs
    assert info["need_tools_kwargs"] is True
    assert info["tool_selection"] == ["search"]
    assert "tools_kwargs" not in row(tools_kwargs={})["extra_info"]


@pytest.mark.parametrize(
    ("arguments", "key", "problem"),
    [
        ({"question": None}, "prompt", "both prompt and question are missing"),
        ({"prompt": ["hello"]}, "prompt", "['hello'] is not a prompt"),
        ({"prompt": [{"type": "audio"}]}, "prompt", "'audio'"),
        ({"ground_truth": None}, "reward_model", "no ground_truth"),
        ({"extra_info": {"index": 3}}, "extra_info.index", "reserved"),
    ],
)
def test_make_row_refuses_with_row_column_and_value(arguments: dict[str, Any], key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        row(12, **arguments)
    assert caught.value.key == f"shop/sums, train row 12, column {key}"
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_makes_row_gives_a_function_the_options_that_it_names_and_make_row_the_others() -> None:
    @rows.makes_row
    def to_row(example: int, index: int, unit: str = "", tool: str | None = None) -> dict[str, Any]:
        question = f"{index}: {example} {unit}?"
        return {"question": question, "data_source": "my", "ground_truth": 1, "index": f"{tool}-{index}"}

    made = to_row(7, "test", 2, unit="cm", agent_name="tool_agent", tool_selection=["sql"])
    assert made == make_row(question="2: 7 cm?", data_source="my", ground_truth=1, split="test", index="None-2",
                            agent_name="tool_agent", tool_selection=["sql"])  # fmt: skip
    with pytest.raises(TypeError, match="ground_truth"):  # an option does not replace what the example decides
        to_row(7, "test", 2, ground_truth=2)
