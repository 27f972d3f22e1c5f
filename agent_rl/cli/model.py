"""The `agent-rl model` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result

app = typer.Typer(rich_help_panel="train", help="Convert model files from other programs.", no_args_is_help=True)


@app.command("from-gguf")
def from_gguf(
    file: Annotated[Path, typer.Argument(help="A llama.cpp GGUF file with a chat template")],
    out: Annotated[Path, typer.Argument(help="Folder to create")],
    as_json: Json = False,
) -> None:
    r"""Convert a llama.cpp GGUF model to a folder that the trainer and the engine can load.

    \b
      agent-rl model from-gguf SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2

    The folder contains float32 weights, the tokenizer, the chat template and a generation config. Converting does not
    restore the precision lost to quantization; gguf.json in the folder records the original types.

    --json: `folder`, and about the file: `architecture`, `name`, `license`, `types` of its matrices, `parameters`.
    """
    from agent_rl.trajectory.exports.from_gguf import model_from_gguf

    facts = model_from_gguf(file, out)
    types = ", ".join(f"{number} {name}" for name, number in facts["types"].items())
    size = f"{facts['parameters'] / 1e6:.1f} M parameters"
    line = f"{out}: {facts['name']}, {size}, license {facts['license'] or 'unknown'}; matrices in the file: {types}"
    print_result({"folder": str(out), **facts}, as_json, line)
