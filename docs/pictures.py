"""Writes the pictures of the guides to docs/pictures: the panel and report of a finished run, and pages of the viewer.

    python docs/pictures.py outputs/quickstart

It needs the development tools and Chromium (`$CHROMIUM`, or one on the path).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.trajectory.viewer.browser import chromium, served

OUT = Path(__file__).with_name("pictures")
PANEL_STEP = "12"
"""The step after which the panel is shown; the quickstart has 20."""
SHADES = 96
"""Number of colours in a picture: a third of the file size without a visible loss."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="Folder of a run whose trace has tokens, such as the quickstart's")
    run = parser.parse_args().run.resolve()
    subprocess.run([sys.executable, OUT / "panel.py", run, PANEL_STEP, OUT / "panel.svg"], check=True)
    file = f"{run.name}%2Ftrace.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        words = [sys.executable, "-m", "agent_rl.cli.main", "report", str(run), "-o", str(page)]
        subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)
        with served(Path(folder), [run]) as (address, _), chromium() as browser:
            group = _good_group(browser, address)
            compare = f"{address}/compare?a_file={file}&a_step=0&b_file={file}&b_step={_last_step(browser, address)}"
            for name, place, width, dark in (
                ("run", f"{address}/", 1280, False),
                ("table", f"{address}/trajectories?split=train&sort=reward", 1280, False),
                ("table_narrow", f"{address}/trajectories?split=train&sort=reward", 400, True),
                ("trajectory", f"{address}/t/{group}", 1280, True),
                ("trajectory_narrow", f"{address}/t/{group}", 400, False),
                ("tokens", f"{address}/t/{group}/tokens", 1280, False),
                ("group", f"{address}/t/{group}/group", 1280, False),
                ("compare", compare, 1280, True),
                ("report", page.as_uri(), 1280, False),
                ("report_narrow", page.as_uri(), 400, True),
            ):
                _take(browser, place, OUT / f"{name}.png", width, dark)


def _take(browser: Browser, place: str, path: Path, width: int, dark: bool) -> None:
    window = browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light")
    window.goto(place)
    if place.startswith("file:"):  # show the curves
        window.locator("section.charts").first.evaluate("it => scrollTo(0, it.getBoundingClientRect().top - 60)")
    window.screenshot(path=path)
    window.close()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(SHADES, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


def _good_group(browser: Browser, address: str) -> int:
    """Return a trajectory with a good reward and a failed call, or the first trajectory."""
    window = browser.new_page()
    window.goto(f"{address}/trajectories?split=train&reward_min=0.5&errors_min=1")
    links = window.locator("#rows a.plain")
    link = (links.first.get_attribute("href") if links.count() else None) or "/t/1"
    window.close()
    return int(link.split("/")[2].partition("?")[0])


def _last_step(browser: Browser, address: str) -> str:
    window = browser.new_page()
    window.goto(f"{address}/compare")
    last = window.locator("select[name=b_step] option").last.get_attribute("value") or ""
    window.close()
    return last


if __name__ == "__main__":
    main()
