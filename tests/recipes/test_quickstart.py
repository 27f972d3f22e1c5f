"""The quickstart, small: the same script with few steps, so that every part of it runs."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from agent_rl.evaluation.experiments.cold_start import MADE, ColdStart
from agent_rl.trajectory import trace
from agent_rl.trajectory.run_files import read_metrics
from agent_rl.trajectory.symptoms import run_warnings
from agent_rl.trajectory.viewer.report import read_run, report
from tests.trajectory.viewer.browser import chromium, findings, served

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "recipes/quickstart/model"

SUMMARY = {
    "engine": str,
    "sglang_version": str,
    "verl_version": str,
    "seed": int,
    "steps": int,
    **{
        f"{name}_{when}": float | int
        for name in ("val_reward", "val_accuracy", "tool_calls_per_trajectory", "malformed_rate")
        for when in ("before", "after")
    },
    "train_seconds": float | int,
    "seconds": float | int,
}


def quickstart(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "recipes/quickstart/quickstart.py", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a quickstart in two steps, and what it printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    done = quickstart("--out", folder, "--steps", 2, "--test-problems", 12)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, (done.stderr + done.stdout).splitlines()


@pytest.mark.engine
def test_the_whole_quickstart_in_two_steps(finished: tuple[Path, list[str]]) -> None:
    folder, shown = finished
    for expected in ("1/3 model", "2/3 data", "3/3 GRPO", "mean reward", "before training", "after training"):
        assert any(expected in line for line in shown)
    assert not any("Traceback" in line for line in shown)
    assert next(number for number, line in enumerate(shown) if line.startswith("step 1/2: reward ")) <= 18
    assert sum(line.startswith("started: ") for line in shown) == 8
    assert {"run.json", "train.log", "metrics.jsonl"} <= {path.name for path in folder.iterdir()}

    summary = json.loads((folder / "summary.json").read_text())
    for key, kind in SUMMARY.items():
        assert isinstance(summary[key], kind), key
    assert (summary["engine"], summary["sglang_version"], summary["steps"]) == ("sglang", version("sglang"), 2)
    assert summary["rollout_probs_diff_mean_max"] < 1e-6
    evaluations = [t for t in trace.read(folder / "trace.jsonl") if t.info["split"] == "test"]
    assert sorted(t.info["step"] for t in evaluations) == [0] * 12 + [2] * 12
    page = (folder / "report.html").read_text()
    assert "2 steps" in page
    assert "<figcaption>Reward" in page
    assert "trajectories of the last step" in page
    steps = [step for step in read_metrics(folder) if step["step"]]
    configuration = json.loads((folder / "run.json").read_text())["configuration"]
    assert [run_warnings(steps[:count], configuration) for count in (1, 2)] == [[], []]


@pytest.fixture(scope="module")
def pages(finished: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Pages]":
    with served(tmp_path_factory.mktemp("cache"), [finished[0]]) as (address, _), chromium() as browser:
        yield Pages(address, browser, finished[0])


@dataclass(frozen=True)
class Pages:
    """The viewer over the finished quickstart, and a browser."""

    address: str
    browser: Browser
    folder: Path

    @contextmanager
    def at(self, path: str, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> Iterator[Page]:
        """A page in a window; what its script logs as an error fails the test."""
        window = self.browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        failed: list[str] = []
        window.on("pageerror", lambda error: failed.append(str(error)))
        window.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
        window.goto(path if "://" in path else self.address + path)
        yield window
        assert failed == []
        window.close()

    def kinds(self) -> dict[str, str]:
        """An address of each kind of page; trajectory 20 was trained on."""
        file = f"{self.folder.name}%2Ftrace.jsonl"
        return {
            "run": "/", "table": "/trajectories?step=0&split=test", "none": "/?text=nosuchword", "trajectory": "/t/20",
            "tokens": "/t/20/tokens",
            "group": "/t/20/group", "compare": f"/compare?a_file={file}&a_step=0&b_file={file}&b_step=2",
            "report": (self.folder / "report.html").as_uri(),
        }  # fmt: skip


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def check_page(pages: Pages, path: str) -> None:
    """All rules of axe, on a telephone and a screen, light and dark; and nothing is wider than the window."""
    with pages.at(path) as page:
        for width, scheme in product((390, 1400), SCHEMES):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert findings(page) == [], (path, width, scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width, scheme)


@pytest.mark.engine
def test_axe_finds_nothing_and_no_page_is_wider_than_its_window(pages: Pages) -> None:
    for path in pages.kinds().values():
        check_page(pages, path)


@pytest.mark.engine
def test_axe_finds_nothing_on_the_pages_of_a_failed_run(pages: Pages, tmp_path: Path) -> None:
    about = json.loads((pages.folder / "run.json").read_text())
    about["end"] = {"status": "failed", "time": "2026-01-02T03:04:05", "error": "CUDA out of memory"}
    failed = tmp_path / "failed"
    failed.mkdir()
    (failed / "run.json").write_text(json.dumps(about))
    (failed / "report.html").write_text(report([read_run(str(failed))]))
    with served(tmp_path, [failed]) as (address, _):
        for path in (f"{address}/", f"{address}/trajectories", (failed / "report.html").as_uri()):
            check_page(pages, path)


@pytest.mark.engine
def test_the_two_sides_of_a_comparison_stand_side_by_side_on_a_screen(pages: Pages) -> None:
    for width, is_beside in ((1400, True), (390, False)):
        with pages.at(pages.kinds()["compare"], width) as page:
            page.click("a[href*='group?with=']")
            page.wait_for_selector(".pair > section")
            left, right = (side.bounding_box() for side in page.locator(".pair > section").all())
            assert left is not None
            assert right is not None
            assert (left["y"] == right["y"]) == is_beside
            assert (left["x"] + left["width"] <= right["x"]) == is_beside


@pytest.mark.engine
def test_the_keyboard_alone_leads_from_the_table_to_a_comparison_and_back(pages: Pages) -> None:
    with pages.at("/trajectories") as page:
        press = page.keyboard.press
        press("/")
        page.keyboard.type("calculator")
        press("Enter")
        page.wait_for_url("**/trajectories?text=calculator")
        press("j")
        press("j")
        place = page.evaluate("document.querySelector('tr.chosen').id")
        press("Enter")
        page.wait_for_url(f"**/t/{place[1:]}?text=calculator")
        press("j")
        page.wait_for_url(lambda url: place[1:] not in url)
        press("k")
        page.wait_for_url(f"**/t/{place[1:]}?text=calculator")
        press("t")
        page.wait_for_url("**/tokens?text=calculator")
        assert "Final Answer:" in page.locator("p.tokens").last.inner_text()
        press("u")
        page.wait_for_url(f"**/t/{place[1:]}?text=calculator")
        if page.locator("#group").count():
            press("g")
            page.wait_for_url("**/group?text=calculator")
            press("j")
            assert page.locator("article.chosen").count() == 1
            press("u")
            page.wait_for_url(f"**/t/{place[1:]}?text=calculator")
        press("u")
        page.wait_for_url(f"**/trajectories?text=calculator#row-{place}")
        assert page.evaluate("document.activeElement.closest('tr').id") == place
        press("c")
        page.wait_for_url("**/compare")
        for _ in range(12):
            press("Tab")
            if page.evaluate("document.activeElement.name") == "b_step":
                break
        page.keyboard.type("2")
        while page.evaluate("document.activeElement.tagName") != "BUTTON":
            press("Tab")
        press("Enter")
        page.wait_for_url("**b_step=2**")
        press("j")
        press("Enter")
        page.wait_for_url("**/group?with=**")
        press("u")
        page.wait_for_url("**/compare?**b_step=2**")
        press("u")
        page.wait_for_url("**/trajectories")
        press("r")
        page.wait_for_url("**/")
        page.click("figure a >> nth=1")  # the second step of the reward
        page.wait_for_url("**/trajectories?file=**step=2")
        assert page.locator("#rows tbody tr").count() > 3


@pytest.mark.engine
def test_what_is_shown_can_be_linked_to_and_is_dark_or_light(pages: Pages) -> None:
    with pages.at("/trajectories") as page:
        page.select_option("select[name=split]", "train")
        page.fill("[name=reward_min]", "0.5")
        page.click("text=Filter >> nth=1")
        page.wait_for_url("**/trajectories?**reward_min=0.5**")
        assert "&text=" not in page.url
        page.click("thead a:text('tokens')")
        page.wait_for_url("**sort=tokens**")
        shown, address = page.locator("#rows").inner_text(), page.url
        assert page.locator("#rows tbody tr").count() > 3
        with pages.at(address) as again:
            assert again.locator("#rows").inner_text() == shown
        colour = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(colour)
        page.keyboard.press("d")
        assert page.evaluate(colour) != before
        page.click("#rows a.plain >> nth=0")
        page.wait_for_url("**/t/**")
        assert page.evaluate(colour) != before
    with pages.at("/trajectories", scheme="dark") as page:
        assert page.evaluate(colour) not in ("rgb(255, 255, 255)", before)


@pytest.mark.engine
def test_a_table_follows_the_run_and_keeps_the_readers_place(pages: Pages) -> None:
    with pages.at("/trajectories") as page:
        for _ in range(9):
            page.keyboard.press("j")
        place = "document.querySelector('tr.chosen').id"
        where = "document.querySelector('tr.chosen').getBoundingClientRect().top"
        chosen, top = page.evaluate(place), page.evaluate(where)
        count = int(page.get_attribute("#rows", "data-count") or 0)
        last = list(trace.read(pages.folder / "trace.jsonl"))[-1]
        for _ in range(3):
            trace.append(pages.folder / "trace.jsonl", last)
        page.wait_for_selector(f"#rows[data-count='{count + 3}']", timeout=15_000)
        assert page.evaluate(place) == chosen
        assert page.evaluate("document.activeElement.closest('tr').id") == chosen
        assert abs(page.evaluate(where) - top) < 2


def test_a_wrong_key_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    done = quickstart("--out", tmp_path, "--steps", 1, "agent_rl.budgt.x=1")
    assert done.returncode == 2
    output = " ".join(done.stdout.split())
    assert "error: agent_rl.budgt: unknown key" in output
    assert "Did you mean 'budget'?" in output
    assert "Traceback" not in done.stdout + done.stderr


def test_the_model_of_the_repository_is_the_one_of_its_record(tmp_path: Path) -> None:
    made = json.loads((MODEL / MADE).read_text())
    start = ColdStart(str(MODEL.parent), [f"actor_rollout_ref.model.path={tmp_path}/model"])
    assert made["settings"] == start.settings.model_dump(mode="json", exclude_none=True)
    assert made["rows_sha256"] == start.rows_digest()
    assert made["model_sha256"] == hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 600_000


@pytest.mark.engine
@pytest.mark.recipes
@pytest.mark.timeout(1800)
def test_the_model_can_be_made_again(tmp_path: Path) -> None:
    """The same on a machine like the one that made it; as good a model on any other."""
    start = ColdStart(str(MODEL.parent), [f"actor_rollout_ref.model.path={tmp_path}/model"])
    assert start.make()
    made, again = (json.loads(path.read_text()) for path in (MODEL / MADE, tmp_path / MADE))
    assert again["losses"] == pytest.approx(made["losses"], abs=0.02)
