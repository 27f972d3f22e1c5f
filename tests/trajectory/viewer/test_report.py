"""A run as one page: what it shows of metrics and trajectories, and that it needs and runs nothing else."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from agent_rl.cli.report import app
from agent_rl.errors import ConfigError
from agent_rl.trajectory import Message, ToolResult, Turn, trace
from agent_rl.trajectory.viewer.report import read_run, report
from tests.trajectory.viewer.conftest import trajectory
from tests.trajectory.viewer.hostile import CONTROL, HOSTILE, Elements


def with_metrics(folder: Path, steps: int = 2, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    lines = []
    for step in range(1, steps + 1):
        data = {
            "critic/score/mean": step / 10,
            "agent/acc": step / 20,
            "agent/correctness": step / 20,
            "agent/tool_calls": 1.0,
        }
        data |= {"val-core/gsm8k/acc/mean@1": 0.25, "agent/stop_answered": 1.0, "timing_s/step": 3.0}
        lines.append(json.dumps({"step": step, "data": data | more}))
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def shown(*folders: Path) -> str:
    return report([read_run(str(folder)) for folder in folders])


def test_of_one_validation_no_change_is_shown(tmp_path: Path) -> None:
    said = "no later validation"
    assert said in shown(with_metrics(tmp_path / "one", 1))
    assert said not in shown(with_metrics(tmp_path / "two", 2))


def test_a_run_is_shown_with_its_curves_and_trajectories(run: Path) -> None:
    about = {
        "command": ["agent-rl", "train", "mine"],
        "configuration": {"data": {"seed": 7}},
        "versions": {"verl": "0.9.1"},
    }
    (run / "run.json").write_text(json.dumps(about))
    for number in range(2):
        tested = trajectory(number, number, 2, info={"step": 2, "split": "test", "index": number})
        trace.append(run / "trace.jsonl", tested)
    page = shown(with_metrics(run))
    for text in (
        "agent-rl train mine", "verl 0.9.1", "&#34;seed&#34;: 7", "2 steps", 'title="agent/acc">Success</th>',
        'Success in step 1, 3 prompts</th><td class="n">0.500</td>', '<th scope="row">gsm8k/acc/mean@1',
        "Best trajectories of the last step",
        "What is number 102?",
        "Prompts that changed most", "correctness: 0.1", "held-out rows, measured at step 2: 0.5 [",
    ):  # fmt: skip
        assert text in page, text
    assert page.count("<figure>") == 6


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"status": "trained"}, ['class="chip good">trained</span>', "trained after step 2"]),
        ({"status": "failed", "error": "CUDA out of memory"},
         ['class="chip bad">failed</span>', "failed after step 2", "The run ran out of memory: CUDA out of memory"]),
        (None, ['class="chip ">unknown</span>']),
    ],
)  # fmt: skip
def test_a_page_says_how_the_run_ended(tmp_path: Path, end: dict[str, str] | None, words: list[str]) -> None:
    folder = with_metrics(tmp_path / "ended")
    about = {} if end is None else {"end": {"time": "2026-01-02T03:04:05", **end}}
    (folder / "run.json").write_text(json.dumps(about))
    page = shown(folder)
    for text in words:
        assert text in page, text


def test_an_answer_has_its_mark_its_ground_truth_and_its_stop_reason(run: Path) -> None:
    page = shown(with_metrics(run))
    for name, mark, answer in (("Best", "right", "[02]"), ("Worst", "wrong", "[13]")):
        section = page.partition(f"{name} trajectories")[2].partition("</details>")[0]
        assert re.search(
            rf'">{mark}</span> What is number \d+\? <b>{answer}</b> <span class="dim">truth: 42, answered</span>',
            section,
        )


def test_images_are_in_the_page_itself_small_and_written_anew(tmp_path: Path) -> None:
    folder = with_metrics(tmp_path / "seen")
    turn = Turn("I look.", results=[ToolResult("", "camera", "Done.", images=[Image.new("RGB", (2000, 1000), "blue")])])
    prompt = [Message("user", "<image>Which?", images=[Image.new("RGB", (60, 40), "red")])]
    trace.append(folder / "trace.jsonl", trajectory(0, 0, 2, prompt=prompt, turns=[turn]))
    sources = [str(attributes["src"]) for tag, attributes in Elements(shown(folder)).found if tag == "img"]
    sizes = set()
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            sizes.add(image.size)
    assert sizes == {(60, 40), (360, 180)}
    for file in (folder / "trace.images").iterdir():
        file.write_text("<svg onload=alert(1)>")
    assert "<img" not in shown(folder)


def test_without_a_trace_or_run_json_the_metrics_are_shown(tmp_path: Path) -> None:
    page = shown(with_metrics(tmp_path / "bare"))
    assert "bare <span" in page
    assert "trajectories of the last step" not in page


def test_several_runs_are_compared(tmp_path: Path) -> None:
    page = shown(with_metrics(tmp_path / "one"), with_metrics(tmp_path / "two", 3))
    assert "2 runs" in page
    reward = page[page.index("<figcaption>Reward") :]
    assert re.search(r"one: 0\.2<.*two: 0\.3<", reward[: reward.index("</figure>")])
    assert re.search(r'title="critic/score/mean">Reward</th><td class="n">0\.150</td><td class="n">0\.200</td>', page)
    assert "differences between the configurations" not in page
    for name, seed in (("one", 1), ("two", 2)):
        (tmp_path / name / "run.json").write_text(json.dumps({"configuration": {"data": {"seed": seed, "size": 3}}}))
    page = shown(tmp_path / "one", tmp_path / "two")
    assert "<code>data.seed</code></th><td>1</td><td>2</td>" in page
    assert "<code>data.size" not in page


def test_the_page_needs_and_runs_nothing(tmp_path: Path) -> None:
    """With hostile texts in every field of the run, its metrics and its trajectories; two such runs are compared."""
    folders = [tmp_path / "a<script>{{7*7}}\u202e", tmp_path / "b' onload='x"]
    for folder in folders:
        texts = dict.fromkeys(HOSTILE, folder.name)
        metrics = {f"val-core/{text}/acc/mean@1": 0.5 for text in HOSTILE} | {
            f"agent/stop_{text}": 1.0 for text in HOSTILE
        }
        with_metrics(folder, **metrics)
        about = {"command": [*HOSTILE], "configuration": {**texts, "agent_rl": texts}, "versions": texts}
        (folder / "run.json").write_text(json.dumps(about))
        for step in (1, 2):
            for number, text in enumerate(HOSTILE):
                made = trajectory(
                    number, 0, step, text.encode(errors="replace").decode(), answer=text[:40].strip("\ud800")
                )
                trace.append(folder / "trace.jsonl", made)
    page = shown(*folders)
    allowed = (
        "html head meta title style body main h1 h2 p code section table thead tbody tr th td div span br b pre ul li"
    )
    allowed += " dl dt dd figure figcaption svg g path text polyline polygon circle i details summary h3 h4 meter"
    for tag, attributes in Elements(page).found:
        assert tag in allowed.split(), tag
        assert not any(name.startswith("on") or name in ("href", "src", "style") for name in attributes), attributes
    assert not CONTROL.search(page)
    assert page.count("<style>") == page.count("</style>") == 1
    assert "default-src 'none'" in page
    assert ">49<" not in page


def test_the_command_writes_page_and_charts_and_refuses_a_folder_without_metrics(
    run: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    words = [str(with_metrics(run)), "--png", str(tmp_path / "charts")]
    found = CliRunner().invoke(app, words, catch_exceptions=False)
    page, *charts = found.stdout.split()
    assert (found.exit_code, page) == (0, str(run / "report.html"))
    assert "<svg" in (run / "report.html").read_text()
    assert {"reward.png", "tools.png", "success_with_its_95_interval.png"} <= {Path(each).name for each in charts}
    assert (tmp_path / "charts/reward.png").read_bytes().startswith(b"\x89PNG")
    about = {"command": ["/home/me/bin/agent-rl", "train", "mine"], "versions": {"verl": "0.9.1"},
             "files": {"data.train_files": [{"path": "/home/me/train.parquet", "sha256": "beef"}]}}  # fmt: skip
    (run / "run.json").write_text(json.dumps(about))
    (facts,) = json.loads(CliRunner().invoke(app, [words[0], "--json"], catch_exceptions=False).stdout)["runs"]
    assert (facts["command"], facts["steps"], facts["sha256"]) == (
        "agent-rl train mine", 2, {"data.train_files": ["beef"]},
    )  # fmt: skip
    assert facts["metrics"]["critic/score/mean"] == [[1, 0.1], [2, 0.2]]
    assert facts["validation"] == {"gsm8k/acc/mean@1": [[1, 0.25], [2, 0.25]]}
    with pytest.raises(ConfigError, match=r"the folder has no readable metrics.*metrics\.jsonl"):
        CliRunner().invoke(app, [str(tmp_path)], catch_exceptions=False)
