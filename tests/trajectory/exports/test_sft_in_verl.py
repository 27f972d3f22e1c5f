"""The SFT trainer's data set reads what is exported, with the loss where the episode has sampled."""

import asyncio

import pytest
from omegaconf import OmegaConf

from agent_rl.trajectory import Score, StopReason, trace
from tests.trajectory.exports.command import export

pytestmark = pytest.mark.trainer

CALL = 'Action: calculator\nAction Input: {"expression": "1+2"}'


def test_it_trains_on_what_was_sampled(model_dir, tmp_path):
    from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
    from agent_rl.agents.policies import Sampling
    from agent_rl.agents.policies.source import PolicyUsage
    from agent_rl.agents.react import ReactFormat
    from agent_rl.tools import ToolSession, load_tools
    from agent_rl.verl_adapter.row_data_set import EpisodeDataSet
    from tests.agents.policies.test_tokens import Scripted

    async def run():
        policy = Scripted(model_dir, Sampling(), [CALL, "Final Answer: 3"]).policy(PolicyUsage(), format=ReactFormat())
        async with ToolSession(load_tools("tool_configs/calculator.yaml"), default_timeout_s=5) as session:
            prompt = [{"role": "user", "content": "What is 1+2?"}]
            return policy, await run_episode(policy, ReactFormat(), session, prompt, EpisodeBudget())

    policy, done = asyncio.run(run())
    assert (done.stop_reason, done.tool_errors) == (StopReason.ANSWERED, 0)
    done.id, done.score, done.info = "a_0", Score(1.0), {"split": "train", "tokens": policy.record()}
    trace.append(tmp_path / "trace.jsonl", done)
    said = export(tmp_path, "sft", "--min-reward", "1")
    assert said == {"out": f"{tmp_path}/trace.sft.parquet", "trajectories": 1, "left_out": {}}
    (sequence,) = policy.sequences()
    (row,) = EpisodeDataSet(said["out"], None, OmegaConf.create({"max_length": 4096}))
    assert row["input_ids"].tolist() == [*sequence.prompt_ids, *sequence.response_ids]
    assert row["loss_mask"].tolist() == [*[0] * len(sequence.prompt_ids), *sequence.mask]
