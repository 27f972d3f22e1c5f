import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import read_settings

FLAGS = {"data": "x.parquet", "model": "m"}


def test_flags_and_key_value_words_make_the_settings():
    words = [
        "sampling.temperature=0", "sampling.body.reasoning_effort=low", "multi_turn.max_assistant_turns=4",
        "agent_rl.react.instructions=", "agent_rl.reward.efficiency.free_calls=1", "concurrency=2", "policy=sglang",
    ]  # fmt: skip
    settings = read_settings({**FLAGS, "n": 4}, words)
    assert (settings.n, settings.concurrency, settings.policy) == (4, 2, "sglang")
    assert settings.sampling.temperature == 0
    assert settings.sampling.body == {"reasoning_effort": "low"}
    assert settings.agent_rl.react.instructions == ""
    assert settings.agent_rl.reward.efficiency.free_calls == 1


def test_the_bounds_of_an_episode_are_verls_unless_others_are_given():
    from omegaconf import OmegaConf

    from agent_rl.launch.composition import verl_defaults

    verls = OmegaConf.to_container(verl_defaults().actor_rollout_ref.rollout.multi_turn)
    for key, value in read_settings(FLAGS, []).multi_turn.model_dump().items():
        assert verls[key] == value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sampling.temprature=1"], r"^sampling.temprature: unknown key \(value 1\). Did you mean 'temperature'"),
        (["concurency=1"], r"^concurency: unknown key .*Did you mean 'concurrency'"),
        (["agent_rl.rewards.x=1"], r"^agent_rl.rewards: unknown key .*Did you mean 'reward'"),
        (["sampling.top_p=2"], r"^sampling.top_p: "),
        (["policy=other"], r"^policy: expected `chat`, `sglang`, `vllm` or `local`"),
        (["temperature"], r"^temperature: this is not a setting"),
        (["data=y"], r"^data: the setting appears twice. Remove --data or data="),
        (["tokenizer=${nothing}"], r"nothing"),
    ],
)
def test_a_wrong_word_is_named(words, said):
    with pytest.raises(ConfigError, match=said):
        read_settings(FLAGS, words)


def test_an_evaluation_takes_a_trainers_keys_and_old_ones(capsys):
    words = [
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4", "sampling_params.temperature=0.5",
        "agent_loop=tool_agent_loop", "tool_config.max_tool_calls=3", "data.max_response_length=99",
        "+tool_config_path=tools.yaml",
    ]  # fmt: skip
    settings = read_settings(FLAGS, words)
    assert (settings.multi_turn.max_assistant_turns, settings.sampling.temperature) == (4, 0.5)
    assert (settings.loop, settings.tools, settings.agent_rl.budget.max_tool_calls) == ("tool_agent", "tools.yaml", 3)
    assert settings.sampling.max_response_tokens == 99
    assert "agent_loop=tool_agent_loop is loop=tool_agent: " in capsys.readouterr().err
    function = read_settings(FLAGS, ["custom_reward_function.path=a.py"]).reward.custom_reward_function
    assert (function.path, function.name) == ("a.py", "compute_score")
