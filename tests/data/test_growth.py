from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.growth import HarderVersions, variant_row
from agent_rl.errors import ConfigError
from agent_rl.user_code import UserCodeError

ROW: dict[str, Any] = {
    "data_source": "my/arithmetic",
    "prompt": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 plus 2? Show your work."},
    ],
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"index": 7, "question": "What is 2 plus 2?", "original_prompt": "What is 2 plus 2?"},
}
STEP = {"generation": 1, "step": 12}


def function(folder: Path, body: str) -> HarderVersions:
    (folder / f"harder_{abs(hash(body))}.py").write_text(body)
    return HarderVersions(f"harder_{abs(hash(body))}.py:generate_harder_version", folder)


def test_the_guides_function_gets_the_original_prompt_and_returns_another(tmp_path: Path) -> None:
    harder = function(tmp_path, "def generate_harder_version(prompt):\n    return prompt.replace('2', '22')\n")
    made = harder.of(ROW)
    assert made == {"prompt": "What is 22 plus 22?"}
    row = variant_row(ROW, {**made, **STEP})
    assert row["prompt"][1]["content"] == "What is 22 plus 22? Show your work."
    assert row["prompt"][0] == ROW["prompt"][0]
    assert row["reward_model"] == ROW["reward_model"]
    assert row["extra_info"] == {
        "index": 7,
        "question": "What is 22 plus 22?",
        "original_prompt": "What is 22 plus 22?",
        "grown": {"parent": 7, "generation": 1, "step": 12},
    }
    assert ROW["prompt"][1]["content"] == "What is 2 plus 2? Show your work."


def test_a_function_may_see_the_row_and_return_truth_messages_and_data(tmp_path: Path) -> None:
    body = (
        "def generate_harder_version(prompt, row):\n"
        "    truth = row['reward_model']['ground_truth']\n"
        "    row.clear()\n"
        "    chat = [{'role': 'user', 'content': prompt + ' And then?'}]\n"
        "    return {'prompt': chat, 'ground_truth': int(truth) + 1, 'extra_info': {'difficulty': 3}}\n"
    )
    made = function(tmp_path, body).of(ROW)
    assert made is not None
    row = variant_row(ROW, {**made, **STEP})
    assert row["prompt"] == [{"role": "user", "content": "What is 2 plus 2? And then?"}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "5"}
    assert row["extra_info"]["difficulty"] == 3
    assert ROW["reward_model"]["ground_truth"] == "4"


def test_without_an_original_prompt_the_last_message_of_the_user_counts(tmp_path: Path) -> None:
    row = {**ROW, "extra_info": {"index": 1}}
    harder = function(tmp_path, "def generate_harder_version(prompt, *, style=1):\n    return prompt + '!'\n")
    made = harder.of(row)
    assert made == {"prompt": "What is 2 plus 2? Show your work.!"}
    assert variant_row(row, {**made, **STEP})["prompt"][1]["content"] == made["prompt"]


def test_no_variant_and_an_outage_leave_the_data_as_they_are(tmp_path: Path) -> None:
    assert function(tmp_path, "def generate_harder_version(prompt):\n    return None\n").of(ROW) is None
    assert function(tmp_path, "def generate_harder_version(prompt):\n    raise TimeoutError\n").of(ROW) is None


def test_a_bug_is_shown_with_file_and_line(tmp_path: Path) -> None:
    harder = function(tmp_path, "def generate_harder_version(prompt):\n    return 1 / 0\n")
    with pytest.raises(
        UserCodeError, match=r"agent_rl\.data\.grow\.function failed at .*harder_\d+\.py:2: ZeroDivision"
    ):
        harder.of(ROW)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("''", r"the function returned ''.*Return the harder prompt"),
        ("{'ground_truth': '5'}", r"the function returned \{'ground_truth'"),
        ("{'prompt': 'x', 'truth': 5}", r"a mapping with 'truth'.*Did you mean 'ground_truth'"),
        ("{'prompt': [{'role': 'system', 'content': 'x'}]}", "the function returned"),
    ],
)
def test_what_is_no_variant_is_refused(tmp_path: Path, returned: str, words: str) -> None:
    harder = function(tmp_path, f"def generate_harder_version(prompt):\n    return {returned}\n")
    with pytest.raises(ConfigError, match=words):
        harder.of(ROW)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("generate_harder_version = 3", "is no function"),
        ("async def generate_harder_version(prompt): pass", "is `async def`"),
        ("def generate_harder_version(): pass", "cannot be called with a prompt"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_once(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"agent_rl\.data\.grow\.function.*{words}"):
        function(tmp_path, body)
