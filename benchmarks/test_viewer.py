"""The viewer on 200,000 trajectories of 8 KB: how long it reads them, how fast each filter is, what memory it takes."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import psutil
import pytest
from playwright.sync_api import Page

from tests.support.bench.viewer_data import STEPS, write_trace
from tests.trajectory.viewer.browser import chromium, served

pytestmark = pytest.mark.benchmark

COUNT = 200_000
MOST_INDEX_S, MOST_PAINT_MS, MOST_FILTER_MS, MOST_MIB = 120, 1000, 300, 500
FILTERS: dict[str, dict[str, str]] = {
    "step": {"step": "77"},
    "data source": {"data_source": "math"},
    "stop reason": {"stop_reason": "answered"},
    "tool": {"tool": "search"},
    "with an error": {"error": "yes"},
    "without an error": {"error": "no"},
    "range of reward": {"reward_min": "0.2", "reward_max": "0.95"},
    "range of reward, sorted": {"reward_min": "0.2", "reward_max": "0.95", "sort": "reward"},
    "range of a component": {"component": "format", "component_min": "0.5"},
    "text: a rare word": {"text": "unique123456"},
    "text: two common words": {"text": "abb abc"},
    "text, reward and step": {"text": "abb", "reward_min": "0.5", "step": "150"},
    "sorted by seconds": {"sort": "seconds"},
    "the last page": {"page": str(COUNT // 50 - 1)},
}
"""The values of an address, by what they ask for."""
PAINT = """() => new Promise((done) => new PerformanceObserver((list) => {
    const found = list.getEntriesByName("first-contentful-paint")[0];
    if (found) done(found.startTime);
}).observe({ type: "paint", buffered: true }))"""


def painted(page: Page) -> float:
    """Milliseconds from the request to the first paint of what it asked for."""
    return float(page.evaluate(PAINT))


def test_index_filters_paint_and_memory(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", COUNT)
    size = (folder / "trace.jsonl").stat().st_size
    started = time.perf_counter()
    with served(tmp_path / "cache", [folder]) as (address, process), chromium() as browser:
        seconds = time.perf_counter() - started
        watched = psutil.Process(process.pid)
        cpu = sum(watched.cpu_times()[:2])
        print(
            f"\n{COUNT:,} trajectories, {size / COUNT / 1000:.1f} KB each: {seconds:.0f} s to the address, "
            f"{cpu:.0f} CPU-seconds"
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        first = painted(page)
        print(f"first paint: {first:.0f} ms")
        slowest = {"server": 0.0, "browser": 0.0}
        for name, asked in FILTERS.items():
            began = time.perf_counter()
            answer = httpx.get(address, params=asked)
            took = {"server": 1000 * (time.perf_counter() - began)}
            assert answer.status_code == 200
            page.goto(f"{address}/?{urlencode(asked)}")
            took["browser"] = painted(page)
            shown = page.locator("#count").inner_text()
            print(f"{name:26s} server {took['server']:4.0f} ms, painted {took['browser']:4.0f} ms: {shown}")
            slowest = {kind: max(slowest[kind], took[kind]) for kind in slowest}
        for kind in (
            "/t/123456",
            "/t/123456/group",
            f"/compare?a_file=run/trace.jsonl&a_step=1&b_file=run/trace.jsonl&b_step={STEPS}",
        ):
            began = time.perf_counter()
            assert httpx.get(address + kind, timeout=60).status_code == 200
            print(f"{kind.partition('?')[0]:26s} server {1000 * (time.perf_counter() - began):4.0f} ms")
        memory = watched.memory_info().rss / 2**20
        print(f"memory {memory:.0f} MiB")
        assert seconds < MOST_INDEX_S
        assert 0 < first < MOST_PAINT_MS
        assert max(slowest.values()) < MOST_FILTER_MS
        assert memory < MOST_MIB
