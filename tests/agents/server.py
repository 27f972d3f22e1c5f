"""A stand-in for verl's token server that plays a script, and loops made as verl's worker makes them."""

from verl.workers.rollout.replica import TokenOutput

THINKING = (
    "{%- set known = tools %}"
    "{%- set last = namespace(i=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set last.i = loop.index0 %}"
    "{%- endif %}{%- endfor %}{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.role == 'assistant' and loop.index0 < last.i %}{{ m.content.split('</think>')[-1] }}"
    "{%- else %}{{ m.content }}{%- endif %}<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
"""A template that keeps thoughts after the last user message only, as Qwen3's does."""


class Server:
    """Answers each request with the next turn of its script.

    Args:
        tokenizer: encodes turns that are texts; such a turn ends with the end-of-turn token.
        turns: texts, lists of token ids, whole `TokenOutput`s, exceptions to raise, or coroutine functions that return
            one of these.
    """

    def __init__(self, tokenizer, *turns):
        self.tokenizer, self.turns = tokenizer, list(turns)
        self.requests = []

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False)

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.requests.append({"id": request_id, "ids": list(prompt_ids), "params": dict(sampling_params)})
        turn = self.turns.pop(0)
        if callable(turn):
            turn = await turn()
        if isinstance(turn, BaseException):
            raise turn
        if isinstance(turn, TokenOutput):
            return turn
        ids = [*self.encode(turn), self.tokenizer.eos_token_id] if isinstance(turn, str) else list(turn)
        left = sampling_params.get("max_new_tokens", len(ids))
        reason = "length" if left < len(ids) else "stop"
        ids = ids[:left]
        return TokenOutput(token_ids=ids, log_probs=self.logprobs(ids), stop_reason=reason)

    @staticmethod
    def logprobs(ids):
        """A log-probability from which the token can be told."""
        return [-1.0 - token / 1000 for token in ids]


def make_loop(config, server, tokenizer, name="react_agent", tools=None, processor=None, hf_model_type="qwen2"):
    """As `AgentLoopWorker._run_agent_loop` does it; inside a running event loop."""
    import hydra
    import verl.experimental.agent_loop.agent_loop as module
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.dataset.rl_dataset import get_dataset_class

    if tools is None:
        tools = load_all_tools(config.actor_rollout_ref.rollout.multi_turn.tool_config_path, None)
    return hydra.utils.instantiate(
        config=module._agent_loop_registry[name],
        trainer_config=module.DictConfigWrap(config=config),
        server_manager=server,
        tokenizer=tokenizer,
        processor=processor,
        hf_model_type=hf_model_type,
        dataset_cls=get_dataset_class(config.data),
        data_config=module.DictConfigWrap(config.data),
        tools=module.ToolListWrap(tools),
    )
