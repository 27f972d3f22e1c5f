from agent_rl.doctor.checks import CHECKS


def test_every_check_says_what_it_looks_for_and_groups_stand_together() -> None:
    assert all(check.run.__doc__ for check in CHECKS)
    assert len({check.run for check in CHECKS}) == len(CHECKS)
    groups = [check.group for check in CHECKS]
    starts = [group for number, group in enumerate(groups) if number == 0 or groups[number - 1] != group]
    assert len(starts) == len(set(starts))
