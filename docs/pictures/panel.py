"""Draws the panel of a run as it stood after a step.

python docs/pictures/panel.py outputs/quickstart 12 docs/pictures/panel.svg
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from agent_rl.launch.panel import RunPanel
from agent_rl.launch.run_progress import RunProgress
from agent_rl.trajectory.run_files import read_metrics
from agent_rl.trajectory.trace import append, read

COLUMNS, LINES = 100, 32
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
{styles}</style><defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}"
height="{terminal_height}" /></clipPath>{lines}</defs>{chrome}<g transform="translate({terminal_x}, {terminal_y})"
clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""
"""rich's own form loads a font from another host."""


def main(folder: Path, step: int, out: Path) -> None:
    """Replay a run up to the end of a step, and write what the terminal showed.

    Args:
        folder: of a run that has come further.
        step: the last one that is shown.
        out: the picture.
    """
    console = Console(file=io.StringIO(), force_terminal=True, width=COLUMNS, height=LINES, record=True)
    progress = RunProgress(lambda: progress.stage.time)
    panel = RunPanel(progress, console)
    configuration = json.loads((folder / "run.json").read_text())["configuration"]
    with tempfile.TemporaryDirectory() as temporary:
        traced = Path(temporary) / "trace.jsonl"
        for each in read(folder / "trace.jsonl"):
            if each.info["step"] <= step:
                append(traced, each)
        configuration["agent_rl"]["trace"]["path"] = str(traced)
        progress.folder, progress.configuration = folder, configuration
        metrics = iter(read_metrics(folder))
        for line in (folder / "train.log").read_text(errors="replace").splitlines():
            progress.line(line)
            if progress.begun is None and progress.started:
                progress.begun = progress.stage.time - progress.started[0][1]
            while progress.stage.step > max(progress.steps, default=-1) + 1:
                each_step = next(metrics)
                progress.step(each_step["step"], each_step)
                panel.step(each_step["step"])
            if progress.stage.step > step:
                break
    console.print(panel)
    out.write_text(console.export_svg(title="agent-rl train", theme=DIMMED_MONOKAI, code_format=SVG))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
