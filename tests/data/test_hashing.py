import numpy as np

from agent_rl.data.hashing import hashed


def test_the_numbers_are_the_same_everywhere() -> None:
    """Fixed values: a checkpoint goes on under another release of Python and numpy."""
    assert hashed("1/pass/a/0", np.arange(3)).tolist() == [
        5614166475902949607,
        12645122886370698591,
        8635780112177960683,
    ]


def test_keys_and_numbers_give_unrelated_bits() -> None:
    one, two = hashed("a", np.arange(10_000)), hashed("b", np.arange(10_000))
    assert len(set(one.tolist())) == 10_000
    for bits in (one, one ^ two, one[1:] ^ one[:-1]):
        ones = np.unpackbits(bits.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 0.003
