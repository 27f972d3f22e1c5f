"""verl's loader behind an order, killed at 1,000 points, and what a step reports.

A kill of the real trainer is in tests/e2e/test_data_order.py.
"""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.dataset.rl_dataset import collate_fn

from agent_rl.data import write_parquet
from agent_rl.data.order import RowOrder
from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter.ordering import ROW, Draws, RunOrder, check
from tests.data.scripted import Run, order
from tests.support.rows import sum_row

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it

AHEAD = 16
"""Events after a kill that are compared; after them the state is that of a later kill."""
ROWS = {"path": "pkg://agent_rl/verl_adapter/row_data_set", "name": "RowDataSet"}


class Items:
    """The number of each row."""

    def __init__(self, order: RowOrder) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order.sources)

    def __getitem__(self, row: int) -> dict[str, int]:
        return {ROW: row}


def behind_a_loader(order: RowOrder, batch_size: int) -> StatefulDataLoader:
    return StatefulDataLoader(
        dataset=Items(order), batch_size=batch_size, drop_last=True, collate_fn=collate_fn, sampler=Draws(order)
    )


@pytest.mark.parametrize("batch_size", [1, 4], ids=["asynchronous", "synchronous"])
def test_verls_loader_killed_at_1000_points_goes_on_with_the_same_rows(batch_size: int) -> None:
    whole = order()
    loader = behind_a_loader(whole, batch_size)
    ahead = 6 if batch_size == 1 else 0
    rows = iter(loader)
    run = Run(whole, lambda: list(next(rows)[ROW]), ahead=ahead)
    saved = []
    for _ in range(1_000 + AHEAD):
        saved.append((pickle.dumps(loader.state_dict()), list(run.waiting), run.step, len(run.drawn)))
        run.event()
    for place, (state, waiting, step, count) in enumerate(saved[:1_000]):
        other = order(seed=99)
        another = behind_a_loader(other, batch_size)
        another.load_state_dict(pickle.loads(state))
        its = iter(another)
        again = Run(other, lambda its=its: list(next(its)[ROW]), ahead=ahead, waiting=waiting, step=step)
        for _ in range(AHEAD):
            again.event()
        assert again.drawn == run.drawn[count : count + len(again.drawn)]
        assert another.state_dict() == pickle.loads(saved[place + AHEAD][0])  # and so on to the end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ordering")
    for name in "ab":
        columns = [{"question": f"Question {i} of {name}?", "extra_info": {"difficulty": float(i)}} for i in range(4)]
        rows = [sum_row(i, data_source=f"set/{name}", **each) for i, each in enumerate(columns)]
        write_parquet(rows, folder / f"{name}.parquet")
    return folder


@pytest.fixture
def trainer(folder: Path, compose: Any, tokenizer: Any, tmp_path: Path) -> Any:
    """Makes a trainer that has its data and no more."""

    def make(mode: str = "sync", files: str = "ab", **data: Any) -> Any:
        paths = [f"{folder}/{name}.parquet" for name in files]
        config = compose(
            "trainer.resume_mode=disable",
            f"data.train_files={paths}",
            f"data.val_files={paths[:1]}",
            "data.train_batch_size=2",
        )
        own = {"data": data, "run": {"folder": str(tmp_path)}}
        OmegaConf.set_struct(config, False)
        config = OmegaConf.merge(config, {"agent_rl": own, "data": {"dataloader_num_workers": 0, "custom_cls": ROWS}})
        config.trainer.v1.trainer_mode = mode
        made = get_trainer_cls(mode)(config)
        made.tokenizer, made.processor = tokenizer, None
        made._init_dataloader()
        return made

    return make


def order_of(config: Any, dataset: Any) -> RunOrder:
    return RunOrder(config, AgentRLSettings.from_config(config), dataset)


def test_the_trainers_loader_has_numbered_rows_in_the_order(trainer: Any) -> None:
    from torchdata.stateful_dataloader.sampler import RandomSampler

    plain = trainer()  # without a key verl's order stays
    assert isinstance(plain.train_dataloader.sampler, RandomSampler)
    assert ROW not in next(iter(plain.train_dataloader))
    assert plain.row_order is None
    made = trainer(order="difficulty", weights={"set/a": 1, "set/b": 3})
    rows = iter(made.train_dataloader)
    batches = [next(rows) for _ in range(4)]
    numbers = [int(row) for batch in batches for row in batch[ROW]]
    assert [row for row in numbers if row >= 4] == [4, 5, 6, 7, 4, 5]
    assert [row for row in numbers if row < 4] == [0, 1]
    questions = [chat[-1]["content"] for batch in batches for chat in batch["raw_prompt"]]
    assert questions == [f"Question {row % 4} of {'ab'[row // 4]}?" for row in numbers]
    assert made.steps_per_epoch == 4
    assert trainer("colocate_async", order="file").train_dataloader.batch_size == 1


def test_data_shuffle_and_seed_hold(trainer: Any) -> None:
    made = trainer(temperature=1)
    first = [made.row_order.order.next() for _ in range(8)]
    made.config.data.seed = 5
    assert first != [order_of(made.config, trainer().train_dataset).order.next() for _ in range(8)]
    made.config.data.shuffle = False
    plain = order_of(made.config, trainer().train_dataset)
    assert sorted(plain.order.next() for _ in range(2)) == [0, 4]


def test_a_checkpoint_of_other_files_or_of_verls_order_is_refused(trainer: Any) -> None:
    state = trainer(order="file").train_dataloader.state_dict()
    other = trainer(order="file", files="ba")
    other.train_dataloader.load_state_dict(state)
    with pytest.raises(ConfigError, match=r"b\.parquet, .*a\.parquet: these 8 rows differ from the 8 .*Use the files"):
        iter(other.train_dataloader)
    ours = trainer(order="file")
    ours.train_dataloader.load_state_dict(trainer().train_dataloader.state_dict())
    with pytest.raises(ConfigError, match="saved with verl's own row order"):
        iter(ours.train_dataloader)
    verls_own = trainer()
    verls_own.train_dataloader.load_state_dict(state)
    with pytest.raises(
        ConfigError, match=r"agent_rl\.data: the checkpoint was saved with an order from agent_rl\.data"
    ):
        verls_own._load_checkpoint()


def test_a_weight_for_each_file_and_a_difficulty_that_is_no_number(trainer: Any) -> None:
    run = trainer(order="file", weights=[3, 1]).row_order
    assert sum(run.order.next() < 4 for _ in range(40)) == 30
    rows = [{"data_source": "x", "prompt": [{"role": "user", "content": "?"}], "extra_info": {"difficulty": "hard"}}]
    made = trainer()
    made.train_dataset.dataframe = made.train_dataset.dataframe.from_list(rows)
    made.config.agent_rl.data = {"order": "difficulty"}
    with pytest.raises(ConfigError, match=r"extra_info\.difficulty: expected a number, got 'hard' \(data_source 'x'\)"):
        order_of(made.config, made.train_dataset)
    with pytest.raises(ConfigError, match=r"data\.custom_cls: list has no table of rows"):
        order_of(made.config, [])


def test_files_are_checked_before_ray_starts(trainer: Any) -> None:
    config = trainer().config
    check(config, AgentRLSettings.from_config(config))
    for keys, words in (
        ({"weights": {"set/a": 1}}, r"the data source 'set/b' has no weight"),
        ({"stages": [{"difficulty": [7, 9]}]}, r"stages\[0\]\.difficulty: no row .* overlaps 0 to 3"),
    ):
        config.agent_rl.data = keys
        with pytest.raises(ConfigError, match=words):
            check(config, AgentRLSettings.from_config(config))
    config.agent_rl.data = {"weights": [1, 3]}
    check(config, AgentRLSettings.from_config(config))
    config.data.train_files = [*config.data.train_files, config.data.train_files[0]]
    with pytest.raises(ConfigError, match="there are 2 weights for 3"):
        check(config, AgentRLSettings.from_config(config))


class Queue:
    """TransferQueue's entries for two groups, one of them with a trajectory of two sequences."""

    def __init__(self, **reported: float) -> None:
        self.rows = {"u": 3, "v": 5}
        self.scores = {"u_0_0": 1.0, "u_1_0": 9.0, "u_1_1": 0.5, "v_0_0": 0.0, "v_1_0": 1.0}
        self.reported = reported
        self.of_group: dict[str, dict[str, float]] = {}
        self.cleared: list[str] = []

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        assert partition_id == "train"
        scores = [torch.tensor([0.0] * number + [self.scores[key]]) for number, key in enumerate(keys, 1)]
        return {
            ROW: [self.rows[key.split("_")[0]] for key in keys],
            "rm_scores": torch.nested.as_nested_tensor(scores, layout=torch.jagged),
            "extra_fields": [{"reward_extra_info": self.reported | self.of_group.get(key[0], {})} for key in keys],
        }

    def kv_clear(self, *, keys: list[str], partition_id: str) -> None:
        self.cleared += keys


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    import transfer_queue

    queue = Queue()
    for name in ("kv_batch_get", "kv_clear"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    return queue


def test_a_groups_success_is_the_mean_of_its_trajectories(trainer: Any, queue: Queue) -> None:
    run = trainer(order="file").row_order
    keys = list(queue.scores)
    assert run.visits(keys, "train") == [(3, 0.75), (5, 0.5)]
    assert run.visits([], "train") == []
    queue.reported = {"acc": 0.25}
    assert run.visits(keys, "train") == [(3, 0.25), (5, 0.25)]
    assert trainer(order="file", measure="score").row_order.visits(keys, "train")[0] == (3, 0.75)
    queue.reported, queue.of_group = {}, {"u": {"acc": 0.25}}  # the answers of the other data source are not scored
    assert run.visits(keys, "train") == [(3, 0.25), (5, 0.5)]
    queue.of_group = {}
    run = trainer(order="file", measure="corectness").row_order
    queue.reported = {"acc": 0.25, "correctness": 1.0}
    with pytest.raises(ConfigError, match=r"agent_rl\.data\.measure: .*'corectness'.*Did you mean 'correctness'"):
        run.visits(keys, "train")


def test_groups_that_the_buffer_removes_are_reported_with_the_step(trainer: Any, queue: Queue) -> None:
    made = trainer(order="file")
    run, buffer = made.row_order, made.replay_buffer
    for made.row_order in (None, run):
        buffer.partitions["train"] = {key: {} for key in queue.scores}
        buffer._clear_groups("train", {"v"})
        assert run.removed == [(5, 0.5)] * (made.row_order is run)
    assert sorted(queue.cleared) == ["v", "v", "v_0_0", "v_0_0", "v_1_0", "v_1_0"]
    run.scores_in_time = False  # a reward model that scores after sampling
    buffer.partitions["train"] = {key: {} for key in queue.scores}
    buffer._clear_groups("train", {"u"})
    assert run.removed == [(5, 0.5)]


def test_a_steps_metrics_are_those_of_its_sources(trainer: Any) -> None:
    run = trainer(order="file", band={"low": 0.1, "high": 0.9}).row_order
    visits = [(0, 1.0), (1, 0.5), (4, 0.0), (5, 0.5)]
    run.order.report(1, visits)
    metrics = run.metrics([*visits, (1, 0.0)])
    assert metrics["data/share/set/a"] == 0.6
    assert metrics["data/success/set/a"] == 0.5
    assert metrics["data/success/set/b"] == 0.25
    assert (metrics["data/rows"], metrics["data/visited"], metrics["data/in_band"]) == (8, 4, 2)
