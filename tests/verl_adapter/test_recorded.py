"""Episodes and batches that a run takes from the trace of another run."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.trajectory import Score, StopReason, Trajectory, trace
from agent_rl.trajectory.trace.batches import append_batch
from agent_rl.verl_adapter.recorded import RecordedRun
from agent_rl.verl_adapter.stragglers import EndedEarlyError
from tests.agents.server import Server, make_loop
from tests.verl_adapter.test_verl_loop import ACT, ANSWER, CALCULATOR, ROW, SAMPLING


def episode(compose: Any, tokenizer: Any, *turns: str, overrides: tuple[str, ...]) -> tuple[Any, Server]:
    """The output of the row's episode, and the server that was asked for its turns."""
    config, server = compose(CALCULATOR, *overrides), Server(tokenizer, *turns)

    async def inside() -> Any:
        return await make_loop(config, server, tokenizer).run(SAMPLING, **ROW)

    return asyncio.run(inside()), server


def test_a_recorded_episode_is_what_the_engine_and_the_tools_gave(compose: Any, tokenizer: Any, tmp_path: Path) -> None:
    words = f"+agent_rl.trace.path={tmp_path}/trace.jsonl", "+agent_rl.trace.tokens=true"
    first, server = episode(compose, tokenizer, ACT, "Hm.", ANSWER, overrides=words)
    assert len(server.requests) == 3
    own = first.extra_fields.pop("trajectory")
    own.score = Score(0.75, {"correctness": 1.0}, turn_rewards=[0.25, 0.0, 0.0])
    trace.append(tmp_path / "trace.jsonl", own)
    first.reward_score = 0.75
    words = f"+agent_rl.policy.trace={tmp_path}", f"+agent_rl.trace.path={tmp_path}/new/trace.jsonl"
    again, server = episode(compose, tokenizer, overrides=(*words, "+agent_rl.trace.tokens=true"))
    assert not server.requests
    assert again.extra_fields.pop("trajectory") == own
    report = again.extra_fields.pop("reward_extra_info")
    assert (report["acc"], report["turn_rewards"]) == (1.0, [0.25, 0.0, 0.0])
    assert again.extra_fields.pop("max_global_steps") == ROW["global_steps"] - 1
    for name in ("prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs"):
        one, other = first.as_dict()[name], again.as_dict()[name]
        assert one.dtype == other.dtype
        assert one.float().allclose(other.float(), rtol=2**-24, atol=0)  # the trace and the trainer have 32 bits
    assert again.extra_fields["turn_spans"] == first.extra_fields["turn_spans"]
    assert again.extra_fields["turn_states"] == first.extra_fields["turn_states"]
    assert again.num_turns == first.num_turns
    (stored,) = trace.read(tmp_path / "new/trace.jsonl", tokens=True)
    assert stored.score == own.score
    assert stored.info["tokens"] == next(trace.read(tmp_path / "trace.jsonl", tokens=True)).info["tokens"]
    masked, _ = episode(compose, tokenizer, overrides=(words[0], "+agent_rl.mask_void=turn"))
    assert sum(masked.response_mask) < sum(again.response_mask)  # the masks are those of the new run


@pytest.mark.parametrize("error", ["the judge is down", f"CancelledError: {EndedEarlyError()}"])
def test_a_recorded_failure_is_the_same_failure(compose: Any, tokenizer: Any, tmp_path: Path, error: str) -> None:
    append(tmp_path, "u_2", step=3, error=error)
    with pytest.raises(UnscoredError, match=error.rpartition(": ")[2]) as caught:
        episode(compose, tokenizer, overrides=(f"+agent_rl.policy.trace={tmp_path}",))
    assert isinstance(caught.value, EndedEarlyError) == ("CancelledError" in error)


def append(folder: Path, id: str, step: int, question: str = "a", **fields: Any) -> None:
    info = {"step": step, "split": "train"}
    row = {"data_source": "s", "extra_info": {"question": question, "list": [1, {"k": None}]}}
    trace.append(folder / "trace.jsonl", Trajectory([], StopReason.ANSWERED, id=id, info=info, row=row, **fields))


def prompts(*questions: str) -> Any:
    """The prompts of a step, as verl's trainer hands them to its workers."""
    from verl.utils.tensordict_utils import get_tensordict

    extra = [{"question": each, "list": [1, {"k": None}]} for each in questions]
    columns = {"data_source": ["s"] * len(extra), "extra_info": extra, "uid": ["x"] * len(extra)}
    columns |= {"raw_prompt": [ROW["raw_prompt"]] * len(extra), "agent_name": ["react_agent"] * len(extra)}
    arrays: dict[str, Any] = {name: np.empty(len(extra), dtype=object) for name in columns}
    for name, values in columns.items():
        arrays[name][:] = values
    return get_tensordict(arrays)


def test_a_prompt_gets_the_uid_of_the_row_in_its_step(tmp_path: Path) -> None:
    for id, step, question in (("u_0", 1, "a"), ("v_0", 1, "b"), ("w_0", 1, "b"), ("u2_0", 2, "a"), ("u3_0", 2, "a")):
        append(tmp_path, id, step, question)
        append(tmp_path, id.replace("_0", "_1"), step, question)
    append_batch(tmp_path / "trace.jsonl", trace.TrainedBatch(2, 0, ["u2_0_0"], [0.5]))
    run = RecordedRun(tmp_path)
    batch = prompts("b", "a", "b")
    run.name_prompts(batch, 1)
    assert list(batch["uid"]) == ["v", "u", "w"]
    run.name_prompts(batch := prompts("a"), 2)
    assert list(batch["uid"]) == ["u2"]  # the last group of a resumed run is not in a batch
    with pytest.raises(ConfigError, match=r"trainer\.total_training_steps: step 3 of 4 is not in .* at most 2"):
        run.require(4)
    with pytest.raises(ConfigError, match="row 2 of step 2 was not drawn in this step"):
        run.name_prompts(prompts("a", "c"), 2)
    with pytest.raises(ConfigError, match="has no trajectory u_2"):
        run.episode("u_2")
    with pytest.raises(ConfigError, match="has no tokens of u2_0"):
        run.require(2)
    with pytest.raises(ConfigError, match="has no training batches"):
        run.require(1)


def test_a_batch_gets_its_order_and_its_padding_back(tmp_path: Path) -> None:
    from transfer_queue import KVBatchMeta

    append(tmp_path, "u_0", 1)
    append_batch(tmp_path / "trace.jsonl", trace.TrainedBatch(1, 0, ["u_1_0", "u_0_0", "v_0_0"], [0.5] * 3, [1, 4]))
    run, keys = RecordedRun(tmp_path), ["new_0_0", "u_0_0", "u_1_0", "v_0_0", "pad_0_0", "pad_1_0"]

    def batch(*names: str) -> Any:
        tags = [{"is_padding": name.startswith("pad")} for name in names]
        return KVBatchMeta(partition_id="train", keys=list(names), tags=tags)

    run.order(given := batch(*keys), 1, 0)
    assert given.keys == ["u_1_0", "pad_0_0", "u_0_0", "v_0_0", "pad_1_0", "new_0_0"]
    assert [tag["is_padding"] for tag in given.tags] == [key.startswith("pad") for key in given.keys]
    run.order(given := batch("u_0_0", "u_1_0"), 1, 0)  # an algorithm that leaves a group out
    assert given.keys == ["u_1_0", "u_0_0"]
    run.order(given := batch(*keys), 2, 0)
    assert given.keys == keys


def test_images_are_refused() -> None:
    from agent_rl.verl_adapter.recorded import RecordedEpisode

    tokens: Any = {"messages": [], "tools": [], "sequences": [{"images": 1}]}
    own = RecordedEpisode(Trajectory([], StopReason.ANSWERED, id="u_0", info={"step": 1}), tokens)
    with pytest.raises(ConfigError, match="images, which are not stored"):
        own.record()
