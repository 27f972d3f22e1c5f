"""The doctor is silent for a moment, then says what it does."""

import time

from agent_rl.doctor.progress import progress


def test_nothing_is_said_about_what_is_quick() -> None:
    said: list[str] = []
    with progress(said.append, 0.2) as say:
        say("checking: data")
    time.sleep(0.3)
    assert said == []


def test_what_is_being_done_is_said_after_a_moment_and_each_thing_after_it_once() -> None:
    said: list[str] = []
    with progress(said.append, 0.05) as say:
        say("first")
        say("second")
        time.sleep(0.3)
        assert said == ["second"]
        for text in ("second", "third", "third"):
            say(text)
    assert said == ["second", "third"]
