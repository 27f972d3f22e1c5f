"""The command `agent-rl model`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result

__all__ = ["GROUP", "app"]

GROUP = "train"

app = typer.Typer(help="Models from files of other programs.", no_args_is_help=True, add_completion=False)


@app.callback()
def _model() -> None: ...


@app.command("from-gguf")
def from_gguf(
    file: Annotated[Path, typer.Argument(help="A model for llama.cpp, with its chat template")],
    out: Annotated[Path, typer.Argument(help="Folder to be made")],
    as_json: Json = False,
) -> None:
    r"""Write a model for llama.cpp as a folder that trainer and engine load.

    \b
      agent-rl model from-gguf SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2

    The folder has weights in float32, tokenizer, chat template and generation config. What was quantised stays as
    coarse as it was; gguf.json in the folder says it.

    --json: `folder`, and what the file says: `architecture`, `name`, `license`, `types` of its matrices, `parameters`.
    """
    from agent_rl.trajectory.exports.from_gguf import model_from_gguf

    said = model_from_gguf(file, out)
    types = ", ".join(f"{number} {name}" for name, number in said["types"].items())
    size = f"{said['parameters'] / 1e6:.1f} M parameters"
    line = f"{out}: {said['name']}, {size}, license {said['license'] or 'unknown'}; matrices in the file: {types}"
    print_result({"folder": str(out), **said}, as_json, line)
