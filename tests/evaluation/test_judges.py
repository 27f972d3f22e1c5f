"""Agreement of judges with the truth: JudgeBench by judges whose agreement is known, scores worked out by hand."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import write_parquet
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.evaluation.judges import (
    JudgeSource,
    classifier_judge,
    correlation,
    judge_all,
    read_samples,
    report_on,
    template_judge,
)
from agent_rl.reasoning_rm import DataSample, PairwiseTemplate
from agent_rl.remote import EndpointConfig
from agent_rl.rewards.judge.verdict import VerdictError
from agent_rl.rewards.models import ModelConfig
from tests.rewards.judge.server import judging
from tests.support.http_faults import FaultyServer, answer

JUDGEBENCH = Path(__file__).parents[3] / "shared/data/preferences/judgebench_gpt4o.jsonl"


def known(compares: bool, verdict: Callable[[DataSample], Any]) -> JudgeSource:
    """A judge of one's own."""

    async def judge(sample: DataSample) -> Any:
        found = verdict(sample)
        if isinstance(found, Exception):
            raise found
        return found

    return JudgeSource(judge, compares)


def reported(source: JudgeSource, samples: list[DataSample]) -> dict[str, Any]:
    return report_on(asyncio.run(judge_all(source, samples)))


@pytest.mark.skipif(not JUDGEBENCH.exists(), reason="the data sets are not on this machine")
def test_judgebench_by_an_oracle_a_random_judge_and_one_that_takes_the_first() -> None:
    samples = read_samples([str(JUDGEBENCH)])
    assert len(samples) == 350
    oracle = reported(known(True, lambda sample: sample.preference), samples)
    assert (oracle["accuracy"]["mean"], oracle["consistent"], oracle["unparsable"]) == (1, 1, 0)
    assert set(oracle["categories"].values()) == {1.0}
    assert len(oracle["categories"]) > 10
    rng = random.Random(1)
    chance = reported(known(True, lambda _: rng.choice("AB")), samples)
    assert chance["accuracy"]["low"] < 0.5 < chance["accuracy"]["high"]
    assert chance["accuracy"]["high"] - chance["accuracy"]["low"] < 0.1
    first = reported(known(True, lambda _: "A"), samples)
    assert (first["accuracy"]["mean"], first["position_bias"], first["consistent"]) == (0.5, 1, 0)
    assert (oracle["both_orders"], first["both_orders"]) == (1, 0)
    longer = reported(known(False, lambda sample: float(len(sample.answers[0]))), samples)
    assert 0.3 < longer["accuracy"]["mean"] < 0.7
    assert longer["position_bias"] is None


SCORED = [DataSample(query="q", answers=[str(n)], scores=[n % 5]) for n in range(40)]


def test_scores() -> None:
    right = reported(known(False, lambda sample: float(int(sample.answers[0]) % 5)), SCORED)
    assert (right["accuracy"]["mean"], right["mae"]) == (1, 0)
    assert (right["pearson"], right["spearman"]) == pytest.approx((1, 1))
    off = reported(known(False, lambda sample: 4.0 - int(sample.answers[0]) % 5), SCORED)
    assert (off["accuracy"]["mean"], off["mae"]) == (0.2, 2.4)
    assert off["spearman"] == pytest.approx(-1)


def test_what_cannot_be_read_is_wrong_and_what_failed_is_left_out() -> None:
    def some(sample: DataSample) -> Any:
        number = int(sample.answers[0])
        return UnscoredError("down") if number < 10 else VerdictError("no") if number < 20 else float(number % 5)

    found = reported(known(False, some), SCORED)
    assert (found["failed"], found["accuracy"]["mean"], found["accuracy"]["rows"]) == (10, pytest.approx(2 / 3), 30)
    assert found["unparsable"] == pytest.approx(1 / 3)
    with pytest.raises(UnscoredError, match="the judge did not reply to any sample: down"):
        reported(known(False, lambda _: UnscoredError("down")), SCORED)
    with pytest.raises(ConfigError, match="the template compares two"):
        reported(known(True, lambda _: "A"), SCORED)


def test_a_template_at_an_endpoint() -> None:
    def better(body: dict[str, Any]) -> str:
        first = body["messages"][0]["content"].partition("# Response A\n")[2]
        return f"<preference>{'A' if first.startswith('good') else 'B'}</preference>"

    pairs = [DataSample(query="q", answers=["good", "bad"], preference="A", metadata={"subset": "chat"})] * 3
    with FaultyServer(default=judging(better)) as server:
        source = template_judge(EndpointConfig(url=server.url, model="m"), PairwiseTemplate, {"temperature": 0})
        found = reported(source, pairs)
        body = json.loads(server.requests[0].body)
    assert (found["accuracy"]["mean"], found["categories"], found["position_bias"]) == (1, {"chat": 1}, 0)
    assert (body["temperature"], body["model"]) == (0, "m")


def test_a_discriminative_model(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(
        "def rm_preprocess(text_prompts, text_responses, _):\n    return text_responses\n"
    )

    def length(handler: Any) -> None:
        texts = json.loads(handler.body)["input"]
        answer(200, {"data": [{"index": n, "embedding": [len(text)]} for n, text in enumerate(texts)]})(handler)

    pairs = [DataSample(query="q", answers=answers, preference="A") for answers in (["aa", "a"], ["a", "aa"])]
    with FaultyServer(default=length) as server:
        source = classifier_judge(ModelConfig(url=server.url, hooks=str(tmp_path / "hooks.py"), shown="answer"))
        found = reported(source, pairs)
    assert found["accuracy"]["mean"] == 0.5


def test_samples_are_read_from_rows_and_from_published_forms(tmp_path: Path) -> None:
    write_parquet([sample.to_row("mine", "test", n) for n, sample in enumerate(SCORED)], tmp_path / "rows.parquet")
    bench = {"prompt": "q", "chosen": "a", "rejected": "b", "subset": "hep", "id": 3}
    (tmp_path / "bench.jsonl").write_text(f"{json.dumps(bench)}\n" * 3)
    found = read_samples([str(tmp_path / "rows.parquet"), str(tmp_path / "bench.jsonl")], limit=2)
    assert found[:2] == SCORED[:2]
    assert [sample.preference for sample in found[2:]] == ["A", "A"]
    (tmp_path / "none.jsonl").write_text('{"prompt": "q", "response": "a"}\n')
    with pytest.raises(ConfigError, match=r"none.jsonl, line 1, truth: the sample has neither"):
        read_samples([str(tmp_path / "none.jsonl")])


def test_correlations_by_hand() -> None:
    one, other = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    assert correlation(one, other, "spearman") == pytest.approx(0.8)
    assert correlation(one, [2 * value for value in other]) == pytest.approx(0.8)
    assert correlation([1, 1, 2], [1, 2, 3], "spearman") == pytest.approx(3**0.5 / 2)  # ranks 1.5, 1.5, 3
    assert [correlation([1, 1], [1, 2]), correlation([1], [1], "spearman"), correlation([], [])] == [None] * 3
