import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.rewards import compute_score, find_scorer, route, score_answer, scorer
from agent_rl.rewards.scorers import score_now
from agent_rl.rewards.scorers.scorer import ROUTES


@pytest.fixture(autouse=True)
def ownROUTES() -> Iterator[None]:
    before = dict(ROUTES)
    yield
    ROUTES.clear()
    ROUTES.update(before)
    route.cache_clear()


@pytest.mark.parametrize(
    ("source", "right", "wrong", "truth"),
    [
        ("openai/gsm8k", "so #### 1,234", "#### 1235", "1234"),
        ("agent_rl/arithmetic", "So \\boxed{77}.", "77", 77),
        ("lighteval/MATH", "so \\boxed{x = \\frac{1}{2}}", "the answer is 0.5", "1/2"),
        ("math_dapo", "so it is\nAnswer: 12", "it is 12", "12"),
        ("searchR1_nq", "<answer>The Paris!</answer>", "<answer>Rome</answer>", {"target": ["paris"]}),
        ("hotpotqa", "yes", "no", ["Yes"]),
    ],
)
def test_a_source_has_its_scorer(source: str, right: str, wrong: str, truth: Any) -> None:
    assert compute_score(source, right, truth) == 1.0
    assert compute_score(source, wrong, truth, {"index": 3}) == 0.0


def test_an_unknown_source_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'openai/gsm9k'.*Did you mean 'openai/gsm8k'"):
        compute_score("openai/gsm9k", "1", "1")


def test_the_most_specific_pattern_decides_and_a_source_can_be_taken_over() -> None:
    @scorer("my/*", "openai/gsm8k")
    def general(solution_str: str, ground_truth: Any, extra_info: Any) -> float:
        return 0.25

    @scorer("my/tickets*")
    async def tickets(solution_str: str, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"score": 0.5, "urgent": True}

    assert compute_score("my/mail", "", "") == 0.25
    assert compute_score("openai/gsm8k", "1", "1") == 0.25
    assert compute_score("my/tickets-2", "", "") == {"score": 0.5, "urgent": True}
    assert asyncio.run(score_answer(route("my/tickets-2"), "", "")) == {"score": 0.5, "urgent": True}


def test_without_a_pattern_nothing_is_registered() -> None:
    with pytest.raises(ConfigError, match="the data source is missing"):
        scorer()


def test_scorers_have_names_and_paths(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def half(solution_str, ground_truth, extra_info):\n    return 0.5\nvalue = 3\n")
    assert asyncio.run(score_answer(find_scorer("mine.py:half", tmp_path), "", "")) == 0.5
    assert find_scorer("agent_rl.rewards.scorers.qa.score_qa").function("the b", "B.", {}) == 1.0
    with pytest.raises(ConfigError, match=r"scorer 'qa_em1'. Did you mean 'qa_em'"):
        find_scorer("qa_em1")
    with pytest.raises(ConfigError, match="is a int, not a function"):
        find_scorer("mine.py:value", tmp_path)
    with pytest.raises(ConfigError, match="there is no file"):
        find_scorer("missing.py:half", tmp_path)


def test_a_mapping_sets_the_options_of_a_built_in_scorer() -> None:
    by_line = find_scorer({"name": "gsm8k", "answer": "strict"})
    assert [score_now(by_line, text, "18") for text in ("#### 18", "\\boxed{18}")] == [1.0, 0.0]
    for setting, expected in (
        ({"name": "math", "strikt": True}, r"scorer\.strikt: unknown key .*Did you mean 'strict'"),
        ({"name": "gsm8k", "answer": "first"}, r"scorer\.answer: expected `any`, `marked` or `strict`"),
        ({"name": "code", "server": "here"}, r"scorer\.server: unknown key .*all_or_nothing"),
        ({"name": "qa_f1", "likeness": "same"}, r"scorer\.likeness: unknown key"),
        ({"name": "mine.py:half", "strict": True}, "Only built-in scorers have options"),
    ):
        with pytest.raises(ConfigError, match=expected):
            find_scorer(setting)


@pytest.mark.parametrize(
    ("old", "right", "wrong", "truth"),
    [
        ("math_strict", "\\boxed{5}", "it is 5", "5"),
        ("geo3k", "\\boxed{5}", "it is 5", "5"),
        ("gsm8k_marked", "\\boxed{5}", "it is 5", "5"),
        ("gsm8k_strict", "#### 5", "\\boxed{5}", "5"),
        ("tool_match_all", '{"name": "f", "arguments": {}}', '[{"name": "f", "arguments": {}}, {}]',
         [{"name": "f", "arguments": {}}]),
    ],
)  # fmt: skip
def test_an_old_name_is_a_scorer_with_an_option(
    old: str, right: str, wrong: str, truth: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_RL_OLD_KEYS_TOLD", "")
    key = "agent_rl.reward.per_data_source.mine.correctness.scorer"
    assert [score_now(find_scorer(old, key=key), text, truth) for text in (right, wrong)] == [1.0, 0.0]
    assert f"{key}={old} is {key}={{name: " in capsys.readouterr().err


@pytest.mark.trainer
def test_it_serves_as_verls_reward_function() -> None:
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {"path": "pkg://agent_rl.rewards.routing", "name": "compute_score", "reward_kwargs": {}}
    loaded = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))
    arguments = {"data_source": "openai/gsm8k", "solution_str": "#### 5", "ground_truth": "5", "extra_info": {}}
    assert loaded(**arguments, reward_router_address="host:1", reward_model_tokenizer=None) == 1.0
