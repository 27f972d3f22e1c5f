import random

import pytest

from agent_rl.trajectory import StopReason, Trajectory, trace
from agent_rl.trajectory.trace.tokens import append_tokens, pack, token_line, unpack


def made(seed=0, length=300):
    """Tokens of a trajectory with two training sequences, one without log-probs."""
    draw = random.Random(seed)
    mask = [int(number // 50 % 2 == 0) for number in range(length)]
    logprobs = [-draw.expovariate(1) if each else 0.0 for each in mask]
    one = {
        "prompt_ids": [draw.randrange(150_000) for _ in range(40)],
        "response_ids": [draw.randrange(150_000) for _ in range(length)],
        "mask": mask,
        "logprobs": unpack(pack(logprobs)),  # as 32 bits hold them
        "images": 1,
    }
    messages = [{"role": "user", "content": 'two\nlines "\u4e2d\U0001f600'}]
    return {
        "messages": messages,
        "tools": [{"name": "x"}],
        "sequences": [one, {**one, "logprobs": None, "samples": [1, 3, 2]}],
    }


def test_any_id_comes_back(tmp_path):
    for ids in ([], [0], [-(2**31), 2**31 - 1, 7]):
        given = {"messages": [], "tools": [], "sequences": [{**made()["sequences"][0], "prompt_ids": ids}]}
        append_tokens(tmp_path / "trace.jsonl", f"{ids}", given)
        assert trace.TokenReader(tmp_path / "trace.jsonl").read(f"{ids}") == given


def test_tokens_are_found_by_id_through_all_parts(tmp_path):
    path = tmp_path / "trace.jsonl"
    wanted = {f'id "{number}"\\': made(number) for number in range(7)}
    for id, tokens in wanted.items():
        append_tokens(path, id, tokens, part_bytes=10_000)
    assert len(trace.parts(tmp_path / "trace.tokens.jsonl")) > 1
    reader = trace.TokenReader(path)
    assert {id: reader.read(id) for id in wanted} == wanted
    assert trace.TokenReader(path).read('id "3"\\') == made(3)
    assert reader.read("another") is None
    append_tokens(path, "another", made(99), part_bytes=10_000)  # written since
    assert reader.read("another") == made(99)
    append_tokens(path, "another", made(100), part_bytes=10_000)  # an episode that was run again
    assert trace.TokenReader(path).read("another") == made(100)


def test_a_trace_without_tokens_has_none(tmp_path):
    assert trace.TokenReader(tmp_path / "trace.jsonl").read("a") is None


@pytest.mark.parametrize("kept", [1, 10, 30, 200, -1])
def test_a_torn_line_hides_no_other(tmp_path, kept):
    path = tmp_path / "trace.tokens.jsonl"
    line = token_line("torn", made(1))
    path.write_bytes(token_line("before", made(0)) + line[:kept])
    reader = trace.TokenReader(tmp_path / "trace.jsonl")
    assert reader.read("before") == made(0)
    assert reader.read("torn") is None
    append_tokens(tmp_path / "trace.jsonl", "after", made(2))
    for each in (reader, trace.TokenReader(tmp_path / "trace.jsonl")):
        assert [each.read("before"), each.read("after")] == [made(0), made(2)]


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path):
    path = tmp_path / "trace.tokens.jsonl"
    line = token_line("slow", made())
    reader = trace.TokenReader(tmp_path / "trace.jsonl")
    for end in (100, len(line) - 1):
        path.write_bytes(line[:end])
        assert reader.read("slow") is None
    path.write_bytes(line)
    assert reader.read("slow") == made()


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "trace.tokens.jsonl").write_bytes(b'{"id":"a","size":15,"data":"eA=="}\n')
    with pytest.raises(ValueError, match=r"trace\.tokens\.jsonl: the tokens of 'a' cannot be read"):
        trace.TokenReader(tmp_path / "trace.jsonl").read("a")


def test_a_trajectory_with_tokens_is_divided(tmp_path):
    path = tmp_path / "trace.jsonl"
    given = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, id="a", info={"step": 3, "tokens": made()})
    trace.append(path, given)
    (plain,), (whole,) = trace.read(path), trace.read(path, tokens=True)
    assert plain.info == {"step": 3}
    assert whole == given


def test_it_takes_a_fraction_of_json(tmp_path):
    tokens = made(length=2000)
    tokens["sequences"].pop()
    assert len(token_line("a", tokens)) < 9 * 2000
