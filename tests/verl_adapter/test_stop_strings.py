"""A request stops at the same token as with SGLang's own check, and its tail is decoded only where a stop may end."""

import json

import pytest

from agent_rl.verl_adapter.stop_strings import CHECK
from tests.cpu.test_attention import python
from tests.support.real_templates import FOLDER

COMPARE = r"""
import json, random
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.plugins import load_plugins
from sglang.srt.sampling.sampling_params import SamplingParams
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast
load_plugins()
ours, own = Req._check_str_based_finish, Req._check_str_based_finish.__wrapped__

STOPS = [["\nObservation:"], ["</search>", "</answer>"], ["```output"], ["\u3002", "\U0001f642"], ["don't", "the 's'"]]
STOPS += [["end "]]
PIECES = [*sum(STOPS, []), "Search: caf\xe9 \U0001f600\u3001\xe9", " it 's n't . , ! x",
          "\nObs", "</", "`", ":", " the ' s '", "ation"]

class Counting:
    def __init__(self, tokenizer):
        self.tokenizer, self.tails = tokenizer, 0
    def decode(self, ids):
        self.tails += len(ids) > 1
        return self.tokenizer.decode(ids)

def stop_at(check, tokenizer, stops, tokens, at_a_time):
    params = SamplingParams(stop=list(stops))
    params.normalize(tokenizer)
    request = Req("0", "", [1], params)
    request.tokenizer = counting = Counting(tokenizer)
    for at in range(0, len(tokens), at_a_time):
        request.output_ids.extend(tokens[at : at + at_a_time])
        if check(request):
            return (len(request.output_ids), request.finished_reason.matched), counting.tails
    return None, counting.tails

def compare(tokenizer, runs=120):
    draw, stopped, tails = random.Random(0), 0, [0, 0]
    for _ in range(runs):
        stops, at_a_time = draw.choice(STOPS), draw.choice([1, 1, 3])
        pieces = draw.choices([piece for piece in PIECES if piece not in stops], k=12) + draw.choices(stops)
        tokens = [token for piece in pieces for token in tokenizer.encode(piece, add_special_tokens=False)]
        for _ in range(draw.choice([0, 4])):
            tokens.insert(draw.randrange(len(tokens)), draw.randrange(len(tokenizer)))
        found, expected = (stop_at(check, tokenizer, stops, tokens, at_a_time) for check in (ours, own))
        assert found[0] == expected[0], (stops, tokens, found, expected)
        stopped += found[0] is not None
        tails = [tails[0] + found[1], tails[1] + expected[1]]
    print(json.dumps([stopped / runs, tails[0] / tails[1]]))
"""

OURS = """
import tempfile
from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer
compare(make_tokenizer(CORPUS, tempfile.mkdtemp()))
"""
REAL = """
from tests.support.real_templates import real_tokenizer
tokenizer = real_tokenizer("meta-llama-Llama-3.1-8B-Instruct")
tokenizer.clean_up_tokenization_spaces = True
compare(tokenizer)
"""
SENTENCEPIECE = r"""
words = ["\u2581", "\u2581end", "Obs", "ation", "</", "search", ">", "don", "\u2581the", *map(chr, range(33, 127))]
pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
vocab = {piece: at for at, piece in enumerate(dict.fromkeys(pieces))}
made = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
made.decoder = decoders.Sequence(steps)
compare(PreTrainedTokenizerFast(tokenizer_object=made))
"""
needs_data = pytest.mark.skipif(not FOLDER.exists(), reason="the vocabularies are not here")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(OURS, id="tiny"),
        pytest.param(SENTENCEPIECE, id="sentencepiece"),
        pytest.param(REAL, id="llama", marks=needs_data),
    ],
)
def test_a_request_stops_where_it_stopped_and_decodes_less(code: str) -> None:
    stopped, decoded = json.loads(python(COMPARE + code))
    assert stopped > 0.5
    assert decoded < 0.7  # the pieces are full of the characters with which stop strings end


def test_sglang_still_decodes_the_tail_in_every_step() -> None:
    """Otherwise the plugin is not needed any more."""
    look = f"inspect.getsource(pkgutil.resolve_name({CHECK!r}))"
    assert python(f"import inspect, pkgutil; print('tail_str = self.tail_str()' in {look})") == "True"
