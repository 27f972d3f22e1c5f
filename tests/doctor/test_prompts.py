from pathlib import Path

from agent_rl.doctor.finding import Status
from agent_rl.doctor.prompts import KEY, lengths
from agent_rl.doctor.tooling import KEY as TOOLS

from .conftest import MakeCase, only


def longest(text: str) -> int:
    return int(text.removeprefix("at most ").split(" ")[0])


def test_prompts_are_counted_with_the_agents_instructions(make_case: MakeCase) -> None:
    with_instructions = only(lengths(make_case()))
    assert with_instructions.status is Status.OK
    without = only(lengths(make_case({"agent_rl.react.instructions": ""})))
    assert longest(without.text) + 200 < longest(with_instructions.text)


def test_prompts_that_are_too_long(make_case: MakeCase) -> None:
    longest_prompt = longest(only(lengths(make_case())).text)
    some = only(lengths(make_case({KEY: longest_prompt - 1})))
    assert some.status is Status.WARNING
    assert some.remedy.startswith(f"Set {KEY}={longest_prompt},")
    assert only(lengths(make_case({KEY: longest_prompt}))).status is Status.OK
    assert only(lengths(make_case({KEY: 100}))).status is Status.PROBLEM


def test_without_what_it_needs(make_case: MakeCase, tmp_path: Path) -> None:
    for keys in ({"actor_rollout_ref.model.path": "some/model"}, {TOOLS: str(tmp_path / "none.yaml")}):
        assert only(lengths(make_case(keys))).status is Status.SKIPPED
    nowhere = {"data.train_files": "x.parquet", "data.val_files": "x.parquet"}
    assert only(lengths(make_case(nowhere))).status is Status.SKIPPED
