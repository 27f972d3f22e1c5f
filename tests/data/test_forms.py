"""The forms in which data sets are published become rows; all rows of the real sets are in test_real_sets."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import (
    check_row,
    code,
    geo3k,
    gsm8k,
    math_choice,
    math_dataset,
    preferences,
    read_parquet,
    search_qa,
    tool_calls,
    write_parquet,
)
from agent_rl.data.code import stub
from agent_rl.data.math_dataset import boxed_answer
from agent_rl.data.rows import ToRow
from agent_rl.data.tool_calls import read_with_answers
from agent_rl.errors import ConfigError
from agent_rl.tools.declared import declared_functions

PAIRS = {"inputs": ["1\n"], "outputs": ["2\n"]}
PYTEST = "from solution import f\n\ndef test_f():\n    assert f(1) == 2"
CONTEST = {
    "name": "a",
    "description": "Add 1.",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["3\n"], "output": ["4\n"]},
}
MBPP = {"text": "Add 1.", "test_list": ["assert f(1) == 2"], "code": "f"}
CHOICES = ["1", "2", "1,000"]
LISTED = "\nA. 1\nB. 2\nC. 1,000\n"
LABELLED = {"text": CHOICES, "label": ["1", "2", "3"]}
SOLUTION = r"It is $\boxed{5}$."
DAPO = {
    "data_source": "math_dapo",
    "prompt": [{"role": "user", "content": "Solve it.\n\nHow much is 2+3?"}],
    "reward_model": {"ground_truth": "5", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a-b"},
}
RETOOL = [
    {"role": "user", "content": "Use <code>.\n\n*user question:*\n2+3?\n\nRemember to place the final answer last."},
    {"role": "assistant", "content": "<code>\n```python\n2+3\n```\n</code>\n<answer>\n\\boxed{5}\n</answer>"},
]
GSM8K = {"question": "Half of 2,000?", "answer": "2000/2 = <<2000/2=1000>>1000.\n#### 1,000"}
ADD = {"name": "add", "description": "Adds.", "parameters": {"type": "dict", "properties": {}}}
BFCL = {"id": "simple_1", "question": [[{"role": "user", "content": "2+3?"}]], "function": [ADD]}
CALLS = [{"name": "add", "arguments": {"a": 2}}]
RLLA = '<think>Add.</think>\n<tool_call>\n{"name": "add", "parameters": {"a": 2}}\n</tool_call>'
ASKED = [{"role": "system", "content": "Tools."}, {"role": "user", "content": "2+3?"}]
PREFERRED = partial(preferences.to_row, data_source="mine")
JUDGED = partial(PREFERRED, judge=True)
TALK = "\n\nHuman: Hi.\n\nAssistant: Hello.\n\nHuman: Bye?\n\nAssistant:"
PAIR = {"prompt": "Bye?", "chosen": "Good bye.", "rejected": "No."}
BYE = {"role": "user", "content": "Bye?"}

FORMS: list[tuple[ToRow, dict[str, Any], str, Any, str]] = [
    (
        code.to_row,
        {"question": "Add 1.", "input_output": json.dumps(PAIRS), "solutions": '["print(2)"]', "difficulty": "easy"},
        "apps", PAIRS, "Add 1.",
    ),
    (
        code.to_row,
        {"question": "Add 1.", "input_output": PAIRS | {"fn_name": "f"}, "starter_code": "def f(", "skill_types": []},
        "taco", PAIRS | {"fn_name": "f"}, "def f(",
    ),
    (code.to_row, CONTEST, "codecontests", {"inputs": ["1\n", "3\n"], "outputs": ["2\n", "4\n"]}, "Add 1."),
    (code.to_row, {"question": "Add 1.", "test": PYTEST}, "KodCode/KodCode-V1", {"pytest": PYTEST}, "Add 1."),
    (code.to_row, MBPP, "mbpp", MBPP["test_list"], "Add 1."),
    (
        math_choice.to_row,
        {"Problem": "Half of 4?", "options": "a ) 1 , b ) 2 , c ) 1,000", "correct": "b"},
        "allenai/math_qa", "B", LISTED,
    ),
    (
        math_choice.to_row,
        {"problem": "Half of 4?", "options": "['a ) 1', 'b ) 2', 'c ) 1,000']", "correct": "b"},
        "allenai/math_qa", "B", LISTED,
    ),
    (math_choice.to_row, {"question": "Half of 4?", "choices": CHOICES, "answer": 1}, "cais/mmlu", "B", LISTED),
    (
        math_choice.to_row,
        {"question": "Half of 4?", "options": CHOICES, "answer": "B", "answer_index": 1},
        "TIGER-Lab/MMLU-Pro", "B", LISTED,
    ),
    (
        math_choice.to_row,
        {"question": "Half of 4?", "choices": LABELLED, "answerKey": "2"},
        "allenai/ai2_arc", "B", LISTED,
    ),
    (
        math_dataset.to_row,
        {"problem": "2+3?", "level": "Level 1", "type": "Algebra", "solution": SOLUTION},
        "DigitalLearningGmbH/MATH-lighteval", "5", "2+3?",
    ),
    (
        math_dataset.to_row,
        {"problem": "2+3?", "solution": "5.", "answer": "5", "unique_id": "a"},
        "HuggingFaceH4/MATH-500", "5", "2+3?",
    ),
    (math_dataset.to_row, {"Problem": "2+3?", "Answer": 5, "ID": "2024-I-1"}, "aime", "5", "2+3?"),
    (math_dataset.to_row, {"question": "2+3?", "answer": 5.0}, "aime", "5", "2+3?"),
    (
        math_dataset.to_row,
        {"Body": "Ann has 2", "Question": "And 3 more?", "Answer": 5.0, "Equation": "( 2.0 + 3.0 )"},
        "ChilleD/SVAMP", "5", "Ann has 2. And 3 more?",
    ),
    (math_dataset.to_row, DAPO, "math_dapo", "5", "2+3?"),
    (math_dataset.to_row, {"messages": RETOOL}, "JoeYing/ReTool-SFT", "5", "2+3?"),
    (partial(math_dataset.to_row, data_source="mine"), {"problem": "2+3?", "answer": 5}, "mine", "5", "2+3?"),
    (gsm8k.to_row, GSM8K, "openai/gsm8k", "1000", "Half of 2,000?"),
    (gsm8k.to_row, {"question": "a?", "answer": "#### 1\n#### -1,080.5 "}, "openai/gsm8k", "-1080.5", "a?"),
    (
        geo3k.to_row,
        {"images": [b"a", b"b"], "problem": "Find x.", "answer": 3},
        "hiyouga/geometry3k", "3", "<image><image>Find x.",
    ),
    (search_qa.to_row, {"question": "who", "answer": ["Goethe", "J. W. G."]}, "nq", ["Goethe", "J. W. G."], "who?"),
    (
        search_qa.to_row,
        {"question": "who?", "answer": {"value": "Goethe", "aliases": ["Goethe", "von Goethe"]}},
        "triviaqa", ["Goethe", "von Goethe"], "who?",
    ),
    (search_qa.to_row, {"question": "who", "answer": "Goethe", "context": {}}, "hotpotqa", ["Goethe"], "who?"),
    (search_qa.to_row, {"question": "who", "golden_answers": ["a"], "data_source": "popqa"}, "popqa", ["a"], "who?"),
    (
        tool_calls.to_row,
        {"query": "2+3?", "tools": json.dumps([ADD]), "answers": json.dumps(CALLS)},
        "xlam", CALLS, json.dumps(ADD),
    ),
    (tool_calls.to_row, {"prompt": ASKED, "reward_model": {"ground_truth": RLLA}}, "rlla", CALLS, "Tools."),
    (tool_calls.to_row, BFCL | {"id": "irrelevance_1"}, "bfcl", [], json.dumps(ADD)),
    (PREFERRED, {"chosen": f"{TALK} Good bye.", "rejected": f"{TALK} No."}, "mine", "Good bye.", "Hello."),
    (PREFERRED, PAIR | {"prompt": TALK}, "mine", "Good bye.", "Hello."),
    (PREFERRED, PAIR, "mine", "Good bye.", "Bye?"),
    (
        PREFERRED,
        {name: [BYE, {"role": "assistant", "content": PAIR[name]}] for name in ("chosen", "rejected")}
        | {"prompt": "Bye?"},
        "mine", "Good bye.", "Bye?",
    ),
    (JUDGED, PAIR, "mine", "B", "# Answer B\nGood bye."),
    (JUDGED, {"question": "2?", "response_A": "6", "response_B": "2", "label": "B > A"}, "mine", "B", "# Answer A\n6"),
]  # fmt: skip


@pytest.mark.parametrize(("to_row", "example", "source", "truth", "text"), FORMS)
def test_each_form_becomes_a_row(to_row: ToRow, example: dict[str, Any], source: str, truth: Any, text: str) -> None:
    row = to_row(example, "test", 3)
    check_row(row, "row")
    assert (row["data_source"], row["reward_model"]["ground_truth"]) == (source, truth)
    assert text in "\n".join(message["content"] for message in row["prompt"])


REFUSED: list[tuple[ToRow, dict[str, Any], str]] = [
    (code.to_row, {"question": "a"}, "column question"),
    (code.to_row, {"question": "a", "input_output": "{"}, "column input_output"),
    (code.to_row, {"question": "a", "input_output": "{}"}, "column input_output"),
    (code.to_row, {"description": "a", "public_tests": {"input": [], "output": []}}, "column public_tests"),
    (code.to_row, {"problem_description": "a", "test": "b", "prompt": "c"}, "column entry_point"),
    (partial(code.to_row, visible=1), MBPP, "--visible"),
    (math_choice.to_row, {"question": "a?", "choices": ["1", "2"], "answer": 2}, "column answer"),
    (math_choice.to_row, {"question": "a?", "choices": ["1"], "answer": 0}, "column choices"),
    (math_choice.to_row, {"question": "a?", "options": "1, 2 or 3", "correct": "a"}, "column options"),
    (math_choice.to_row, {"question": "a?", "choices": LABELLED, "answerKey": "E"}, "column answer"),
    (math_dataset.to_row, {"problem": "a?", "solution": "5"}, "column solution"),
    (math_dataset.to_row, {"problem": "a?", "answer": None}, "column answer"),
    (math_dataset.to_row, {"solution": r"\boxed{5}"}, "column problem"),
    (math_dataset.to_row, {"messages": RETOOL[:1]}, "column messages"),
    (gsm8k.to_row, {"Question": "a?", "answer": "#### 1"}, "column question"),
    (gsm8k.to_row, GSM8K | {"answer": "#### seven"}, "column answer"),
    (geo3k.to_row, {"images": [b"a"], "problem": "<image><image>?", "answer": "3"},
     "hiyouga/geometry3k, test row 3"),
    (search_qa.to_row, {"question": "a?", "answer": [""]}, "column answer"),
    (search_qa.to_row, {"question": "a?", "answer": {"aliases": ["a"]}}, "column value"),
    (tool_calls.to_row, {"text": "2+3?"}, "column question"),
    (tool_calls.to_row, {"query": "a?", "tools": "[", "answers": "[]"}, "column tools"),
    (tool_calls.to_row, BFCL, "column ground_truth"),
    (tool_calls.to_row, BFCL | {"ground_truth": [["cd("]]}, "column ground_truth"),
    (tool_calls.to_row, BFCL | {"ground_truth": [["x"]]}, "column ground_truth"),
    (tool_calls.to_row, {"prompt": "a?", "reward_model": {"ground_truth": "<tool_call>{</tool_call>"}},
     "column reward_model.ground_truth"),
    (PREFERRED, {"chosen": "Good bye.", "rejected": "No."}, "column chosen"),
    (JUDGED, {"prompt": "Bye?", "response": "a"}, "column rejected"),
    (JUDGED, {"question": "2?", "response_A": "6", "response_B": "2", "label": "A=B"}, "column label"),
]  # fmt: skip


@pytest.mark.parametrize(("to_row", "example", "key"), REFUSED)
def test_what_cannot_be_used_is_named(to_row: ToRow, example: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        to_row(example, "test", 3)
    assert caught.value.key == key


def test_what_a_set_says_besides_is_kept() -> None:
    info = math_dataset.to_row({"problem": "2?", "level": "L", "type": "Algebra", "solution": SOLUTION}, "test", 3)
    assert info["extra_info"].items() >= {"level": "L", "subject": "Algebra", "solution": SOLUTION}.items()
    assert math_dataset.to_row(DAPO, "test", 3)["extra_info"]["index"] == "9a-b"
    assert gsm8k.to_row(GSM8K, "test", 4)["extra_info"] == {"split": "test", "index": 4, **GSM8K}
    assert math_choice.to_row(FORMS[5][1], "test", 3)["extra_info"]["choices"] == CHOICES
    rated = PREFERRED({"prompt": "Bye?", "response": "", "helpfulness": 0}, "train", 0)
    assert (rated["reward_model"], rated["extra_info"]["helpfulness"]) == ({"style": "model"}, 0)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{3} and then \boxed 4.", "4"),
        (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
        (r"\boxed{1} \text{ or } \boxed{2}", "1, 2"),
        (r"First \boxed{1}. So \boxed{2}.", "2"),
        (r"\boxed{2} and \boxed{2}", "2"),
    ],
)
def test_the_answer_of_a_solution_is_in_its_last_box(solution: str, answer: str) -> None:
    assert boxed_answer(solution) == answer


@pytest.mark.parametrize(
    ("example", "shown", "hidden"),
    [
        (
            {"question": "a", "input_output": {"inputs": [[1], [2], [3]], "outputs": [1, 2, 3], "fn_name": "f"}},
            {"inputs": [[1]], "outputs": [1], "fn_name": "f"},
            {"inputs": [[2], [3]], "outputs": [2, 3], "fn_name": "f"},
        ),
        (CONTEST, PAIRS, {"inputs": ["3\n"], "outputs": ["4\n"]}),
        (MBPP | {"test_list": ["assert f(1) == 2", "assert f(2) == 3"]}, ["assert f(1) == 2"], ["assert f(2) == 3"]),
    ],
)
def test_visible_tests_go_to_the_tool_and_the_others_grade(example: dict[str, Any], shown: Any, hidden: Any) -> None:
    row = code.to_row(example, "train", 0, visible=1)
    assert row["reward_model"]["ground_truth"] == hidden
    assert row["extra_info"]["tools_kwargs"] == {"run_tests": {"create_kwargs": {"tests": shown}}}
    assert "run_tests" in row["prompt"][0]["content"]
    assert "f(2) == 3" not in row["prompt"][0]["content"]


def test_a_stub_has_the_functions_of_the_published_solution() -> None:
    solution = "import math\nclass A:\n    def f(self, x):\n        return x\n"
    assert stub({"extra_info": {"solution": solution}}).endswith("class A:\n\n    def f(self, x):\n        return None")
    assert [stub({"extra_info": {"solution": text}}) for text in ("print(1)", "print 1", None)] == ["pass"] * 3


def test_a_figure_goes_into_the_file_and_comes_out_again(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    example = {"images": [image.new("RGB", (3, 2), "red")], "problem": "<image>Find x.", "answer": "3"}
    write_parquet([geo3k.to_row(example, "train", 0)], tmp_path / "rows.parquet")
    (row,) = read_parquet(tmp_path / "rows.parquet")
    assert image.open(io.BytesIO(row["images"][0]["bytes"])).size == (3, 2)
    assert row["extra_info"]["question"] == "Find x."


def test_dialogues_that_part_earlier_are_cut_there() -> None:
    other = TALK.replace("Hello.", "Go away.")
    row = PREFERRED({"chosen": f"{TALK} Good bye.", "rejected": f"{other} No."}, "train", 0)
    assert row["prompt"] == [{"role": "user", "content": "Hi."}]
    assert (row["extra_info"]["chosen"], row["extra_info"]["rejected"]) == ("Hello.", "Go away.")


def test_bfcl_has_its_answers_beside_its_questions(tmp_path: Path) -> None:
    truth = [{"add": {"a": [2], "b": ["", 3]}}]
    (tmp_path / "simple.json").write_text(json.dumps(BFCL))
    (tmp_path / "simple_answers.json").write_text(json.dumps({"id": "simple_1", "ground_truth": truth}))
    (raw,) = read_with_answers(tmp_path / "simple.json")
    assert tool_calls.to_row(raw.value, "test", 0)["reward_model"]["ground_truth"] == truth
    (tmp_path / "simple.json").write_text(json.dumps(BFCL | {"id": "other"}))
    with pytest.raises(ConfigError, match="no answer for id 'other'"):
        list(read_with_answers(tmp_path / "simple.json"))


def test_several_turns_are_said_by_a_scripted_user_and_their_calls_are_one_list() -> None:
    turns = [[{"role": "user", "content": text}] for text in ("First.", "Then.", "Last.")]
    calls = [["fs.cd('a')"], [], ["mv(source='x', to=['y'])"]]
    example = {"id": "m", "question": turns, "ground_truth": calls}
    row = tool_calls.to_row(example, "test", 0, agent_name="react_agent")
    assert (row["agent_name"], row["prompt"]) == ("user_sim_agent", turns[0])
    assert row["extra_info"]["user"] == {"replies": ["Then.", "Last."]}
    assert row["reward_model"]["ground_truth"] == [
        {"name": "fs.cd", "arguments": {"_0": "a"}},
        {"name": "mv", "arguments": {"source": "x", "to": ["y"]}},
    ]


def test_a_judge_gets_no_pair_of_equal_answers(
    convert: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"prompt": "Bye?", "response_1": "Good bye.", "response_2": "See you."}
    lines = [json.dumps(pair | {"preference_strength": strength}) for strength in (0, 2)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    arguments = (preferences.PREFERENCE_PAIRS, "--input", tmp_path / "pairs.jsonl")
    (row,) = convert(*arguments, "--judge")["train"]
    assert row["extra_info"]["answers"] == ["See you.", "Good bye."]
    assert "omitted: 1 rows, because a judge cannot choose between equal answers" in capsys.readouterr().out
    assert [row["extra_info"].get("preference") for row in convert(*arguments)["train"]] == ["tie", None]


def test_another_agent_gets_the_functions_as_its_tools() -> None:
    to_row = partial(tool_calls.to_row, split="test", index=0, agent_name="tool_call_agent")
    nested = {"type": "dict", "properties": {"at": {"type": "tuple", "items": {"type": "float"}}, "x": {"type": "any"}}}
    bfcl = to_row(BFCL | {"function": [ADD | {"parameters": nested}], "ground_truth": []})
    assert [message["role"] for message in bfcl["prompt"]] == ["user"]
    (spec,) = declared_functions(bfcl["extra_info"]["functions"])
    assert spec.parameters["properties"] == {"at": {"type": "array", "items": {"type": "number"}}, "x": {}}
    short = {"a": {"type": "int", "description": "A"}, "b": {"type": "List[str], optional", "default": []}}
    xlam = {"query": "2+3?", "tools": json.dumps([ADD | {"parameters": short}]), "answers": json.dumps(CALLS)}
    (spec,) = declared_functions(to_row(xlam)["extra_info"]["functions"])
    assert spec.parameters["required"] == ["a"]
    assert [each["type"] for each in spec.parameters["properties"].values()] == ["integer", "array"]
    bare = to_row(xlam | {"tools": [ADD | {"parameters": {"type": "dict"}}]})
    assert bare["extra_info"]["functions"] == [ADD | {"parameters": {"type": "object"}}]
