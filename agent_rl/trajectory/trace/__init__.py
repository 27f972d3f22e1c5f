"""The trace: every trajectory as a line of JSON, and next to it the tokens and batches of training.

`trace.jsonl` has the trajectories, `trace.tokens.jsonl` their token ids, masks and log-probs, `trace.batches.jsonl` the
rows of every training batch in their order, with the advantages. Each of the three continues in `<name>.1.jsonl`,
`<name>.2.jsonl`, ... at a given size; every function here takes the path of the first part and follows the others.
`trace.images/` has the images.
"""

from agent_rl.trajectory.trace.batches import TrainedBatch, TrainedRow, read_batches, read_trained_rows
from agent_rl.trajectory.trace.files import append, read
from agent_rl.trajectory.trace.images import find_image, image_folder, image_names
from agent_rl.trajectory.trace.rollouts import segments
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
