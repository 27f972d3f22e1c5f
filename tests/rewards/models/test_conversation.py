from agent_rl.rewards.models.conversation import messages, texts
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn

DIALOGUE = Trajectory(
    prompt=[Message("system", "Be kind."), Message("user", "Where is 17?")],
    stop_reason=StopReason.ANSWERED,
    turns=[Turn("Action: orders", observation="Observation: in Ghent"), Turn("Message: In Ghent.")],
    answer="In Ghent.",
)


def test_a_conversation_has_every_turn_and_what_was_answered() -> None:
    prompt, response = messages(DIALOGUE, "conversation")
    assert [message["role"] for message in prompt] == ["system", "user"]
    assert response == [
        {"role": "assistant", "content": "Action: orders"},
        {"role": "user", "content": "Observation: in Ghent"},
        {"role": "assistant", "content": "Message: In Ghent."},
    ]


def test_texts_name_the_roles_where_there_are_several() -> None:
    prompt, response = texts(DIALOGUE, "conversation")
    assert prompt == "system: Be kind.\n\nuser: Where is 17?"
    assert response.startswith("assistant: Action: orders\n\nuser: Observation")


def test_part_answer_gives_the_final_answer_alone() -> None:
    assert texts(DIALOGUE, "answer")[1] == "In Ghent."
    nothing = Trajectory(prompt=[Message("user", "Hi")], stop_reason=StopReason.MAX_TURNS, turns=[Turn("hm")])
    assert texts(nothing, "answer") == ("Hi", "")


def test_half_of_a_surrogate_pair_can_be_sent() -> None:
    odd = Trajectory(prompt=[Message("user", "a\ud800")], stop_reason=StopReason.ANSWERED, turns=[Turn("\udfff")])
    for text in texts(odd, "conversation"):
        text.encode()
