"""Where a format's instructions go."""

from agent_rl.agents.episode.instructions import with_instructions

QUESTION = [{"role": "user", "content": "q"}]


def test_they_begin_the_prompt_or_follow_its_system_message():
    assert with_instructions(QUESTION, "Do.") == [{"role": "system", "content": "Do."}, *QUESTION]
    system = {"role": "system", "content": "Be."}
    assert with_instructions([system, *QUESTION], "Do.") == [{"role": "system", "content": "Be.\n\nDo."}, *QUESTION]
    assert system["content"] == "Be.", "the row's message is shared by its samples"


def test_no_instructions_change_nothing():
    assert with_instructions(QUESTION, "") == QUESTION
