"""Realistic tokenizers: the chat templates of real models over real vocabularies, from `../shared/data`.

A template's special tokens are those that it writes. The vocabulary is cut after its most frequent tokens, which makes
it quick to build and changes no rule of merging.
"""

import base64
import functools
import re
from pathlib import Path

from jinja2 import UndefinedError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

FOLDER = Path(__file__).parent.parent.parent.parent / "shared/data"
NAMES = sorted(path.stem for path in (FOLDER / "chat_templates").glob("*.jinja"))
RANKS = 20_000
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {"qwen": SPLIT % r"\p{N}", "llama3": SPLIT % r"\p{N}{1,3}"}

SPECIAL = re.compile(
    r"<\|[^|<>\s{}']{1,40}\|>|<\uff5c[^\uff5c<>{}']{1,40}\uff5c>|\[/?[A-Z][A-Z_]{2,30}\]|<(?:start|end)_of_turn>"
    r"|<\|(?:turn|tool|tool_call|tool_response|channel|think)>|<(?:turn|tool|tool_call|tool_response|channel)\|>"
    r"|\]~[a-z!]{1,3}\[|\[e~\[|</?s>|</?assistant>|<(?:bos|eos|seed:bos|seed:eos)>|<[A-Z_|]{3,40}>|<SPECIAL_\d+>|<(?:beginning|end)_of_sentence>"
)
"""Special tokens as families write them: `<|im_end|>`, `[INST]`, `<end_of_turn>`, `]~b]`."""

TAG = re.compile(r"</?(?:think|tool_call|tool_response|minimax:tool_call|seed:tool_call|mm:think|seed:think)>")
"""Tokens of their own that are part of a turn's text."""

ENDS = {
    "GLM": ("<|endoftext|>", "<|user|>", "<|observation|>"),
    "gpt-oss": ("<|return|>", "<|call|>"),
    "meta-llama": ("<|eot_id|>", "<|eom_id|>"),
}
"""The tokens at which an engine stops by a family's generation config, where a rendered turn ends with others."""


def real_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a template's family; its `all_special_tokens` are the tokens that the template writes."""
    template = (FOLDER / f"chat_templates/{name}.jinja").read_text(encoding="utf-8")
    specials = sorted(set(SPECIAL.findall(template)) | {"<s>", "</s>"})
    tags = sorted(set(TAG.findall(template)) - set(specials))
    ends = next((ends for family, ends in ENDS.items() if family in name), ())
    backend = Tokenizer.from_str(_vocabulary("llama3" if "lama" in name else "qwen"))
    backend.add_special_tokens([AddedToken(token, special=True) for token in (*specials, *ends)])
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", chat_template=template)
    tokenizer.eos_token = ends[0] if ends else "</s>"
    if not ends:
        tokenizer.eos_token = _end_of_turn(tokenizer, specials)
    return tokenizer


def _end_of_turn(tokenizer: PreTrainedTokenizerFast, specials: list[str]) -> str:
    """The first special token that the template writes after an assistant's turn."""
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Goodbye!"}]
    try:
        after = tokenizer.apply_chat_template(messages, tokenize=False, tools=[]).rpartition("Goodbye!")[2]
    except UndefinedError:  # it wants a variable that only its own library gives
        after = ""
    return min((token for token in specials if token in after), key=after.index, default="</s>")


@functools.cache
def _vocabulary(family: str) -> str:
    lines = (FOLDER / f"vocabularies/{family}.tiktoken").read_text().split("\n")[:RANKS]
    ranks = {base64.b64decode(line.split()[0]): number for number, line in enumerate(filter(None, lines))}
    letters = _letters()
    written = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in ranks:
        if len(token) > 1 and len(pair := _parts(token, ranks)) == 2:
            merges.append((written[pair[0]], written[pair[1]]))
    backend = Tokenizer(models.BPE({written[token]: rank for token, rank in ranks.items()}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLITS[family]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return str(backend.to_str())


def _parts(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """What the merges of lower rank make of a token's bytes: the two halves of its own merge."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 1:
        rank, at = min((ranks.get(parts[at] + parts[at + 1], len(ranks)), at) for at in range(len(parts) - 1))
        if rank >= ranks[token]:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _letters() -> dict[int, str]:
    """The letters by which byte-level BPE writes bytes (GPT-2)."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in plain else next(others)) for byte in range(256)}
