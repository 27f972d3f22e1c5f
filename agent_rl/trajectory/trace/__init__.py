"""Reads and writes a trace: a JSON Lines file with one trajectory per line, and files of tokens and batches next to it.

`trace.jsonl` contains the trajectories, `trace.tokens.jsonl` their token ids, masks and log-probs, and
`trace.batches.jsonl` the rows of every training batch in order, with the advantages. A file that reaches a given size
continues in `<name>.1.jsonl`, `<name>.2.jsonl`, ...; every function of this package takes the path of the first part
and also reads the other parts. `trace.images/` contains the images.
"""

from agent_rl.trajectory.trace.batches import TrainedBatch, TrainedRow, read_batches, read_trained_rows
from agent_rl.trajectory.trace.files import append, read, segments
from agent_rl.trajectory.trace.images import find_image, image_folder, image_names
from agent_rl.trajectory.trace.tokens import TokenReader, Tokens, TokenSequence
from agent_rl.trajectory.trace.writer import TraceWriter
from agent_rl.work.parts import append_lines, firsts, parts

__all__ = [
    "TokenReader",
    "TokenSequence",
    "Tokens",
    "TraceWriter",
    "TrainedBatch",
    "TrainedRow",
    "append",
    "append_lines",
    "find_image",
    "firsts",
    "image_folder",
    "image_names",
    "parts",
    "read",
    "read_batches",
    "read_trained_rows",
    "segments",
]
