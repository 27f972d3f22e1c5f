from agent_rl.trajectory import trace
from agent_rl.trajectory.trace.batches import append_batch
from agent_rl.trajectory.trace.tokens import pack, unpack


def test_batches_come_back_in_order_and_say_where_a_trajectory_was_trained_on(tmp_path):
    path = tmp_path / "trace.jsonl"
    single = unpack(pack([0.1, -0.7]))  # as 32 bits hold them
    batches = [
        trace.TrainedBatch(1, 0, ["a_0_0", "a_1_0", "b_0_0"], [0.1, -1 / 3, 0.0]),
        trace.TrainedBatch(2, 0, ["c_0_1", "c_0_0"], [single, 1.5]),
        trace.TrainedBatch(2, 1, ["a_0_0"], [2.0], [0, 2]),
    ]
    assert list(trace.read_batches(path)) == []
    for batch in batches:
        append_batch(path, batch, part_bytes=100)
    with open(tmp_path / "trace.batches.jsonl", "ab") as file:
        file.write(b'{"step": 3, "upd')  # of a killed run
    assert list(trace.read_batches(path)) == batches
    assert trace.read_trained_rows(path, ["a_0", "c_0", "unknown"]) == {
        "a_0": [trace.TrainedRow(1, 0, 0, 0, 0.1), trace.TrainedRow(2, 1, 0, 0, 2.0)],
        "c_0": [trace.TrainedRow(2, 0, 0, 1, single), trace.TrainedRow(2, 0, 1, 0, 1.5)],
    }


def test_only_the_last_occurrence_of_a_repeated_step_counts(tmp_path):
    path = tmp_path / "trace.jsonl"
    for step, names in ((1, ["a_0_0"]), (2, ["b_0_0", "c_0_0"]), (2, ["c_0_0"])):
        append_batch(path, trace.TrainedBatch(step, 0, names, [0.5] * len(names)))
    assert trace.read_trained_rows(path) == {
        "a_0": [trace.TrainedRow(1, 0, 0, 0, 0.5)],
        "c_0": [trace.TrainedRow(2, 0, 0, 0, 0.5)],
    }


def test_updates_that_a_resumed_run_discarded_do_not_count(tmp_path):
    path = tmp_path / "trace.jsonl"
    updates = [(1, 1, "a"), (2, 1, "b"), (2, 2, "c"), (3, 1, "d"), (2, 1, "e")]  # resumed after step 1, ended at step 2
    for step, update, id in updates:
        append_batch(path, trace.TrainedBatch(step, update, [f"{id}_0_0"], [0.5]))
    assert trace.read_trained_rows(path).keys() == {"a_0", "e_0"}
