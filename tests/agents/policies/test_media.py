"""Images in results and prompts, with verl's builder for vision models: token for token as in verl's own loop."""

import asyncio

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings.sections import ToolsSettings
from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import ToolCall
from agent_rl.trajectory.trace import image_names
from tests.agents.server import Server, make_loop
from tests.trajectory.trace.waiting import tokens_of

pytestmark = pytest.mark.trainer

TEMPLATE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{%- if m.content is string %}{{ m.content }}{%- else %}"
    "{%- for part in m.content %}{{ '<image>' if part.type == 'image' else part.text }}{%- endfor %}{%- endif %}"
    "<|im_end|>\n{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
TOOLS = """
from PIL import Image

from agent_rl.tools import Tool, ToolOutput


class Camera(Tool):
    name, description = "camera", "Takes pictures."
    parameters = {"type": "object", "properties": {"colours": {"type": "array"}}}
    reusable = True
    taken = 0

    async def call(self, arguments):
        type(self).taken += 1
        colours = arguments.get("colours", ["red"])
        return ToolOutput("Done.", images=[Image.new("RGB", (40, 30), colour) for colour in colours])
"""
CALL = '<tool_call>{"name": "camera", "arguments": {"colours": %s}}</tool_call>'
ROW = {"raw_prompt": [{"role": "user", "content": "What do you see?"}], "tools_kwargs": {}, "extra_info": {}}


class VisionServer(Server):
    """Notes the images of each request."""

    async def generate(self, request_id, *, image_data=None, **more):
        output = await super().generate(request_id, **more)
        self.requests[-1]["images"] = list(image_data or ())
        return output


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    """CLIP's image processor and the tiny tokenizer, put together as for LLaVA: four tokens for an image."""
    from transformers import LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from verl.utils import hf_tokenizer

    from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer

    folder = tmp_path_factory.mktemp("vision")
    make_tokenizer(CORPUS, folder)
    tokenizer = hf_tokenizer(str(folder))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=TEMPLATE,
        image_token="<image>",
        num_additional_image_tokens=1,
    )


@pytest.fixture
def run(compose, processor, tmp_path):
    (tmp_path / "camera.py").write_text(TOOLS)
    (tmp_path / "tools.yaml").write_text("tools:\n  - class_name: camera.py:Camera\n")

    def _run(name, *turns, row=None, vision=True, more=()):
        config = compose(
            f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tmp_path}/tools.yaml",
            "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=4",
            *more,
        )
        server = VisionServer(processor.tokenizer, *turns)

        async def inside():
            given = processor if vision else None
            kind = "qwen2_vl" if vision else "qwen2"
            loop = make_loop(config, server, processor.tokenizer, name=name, processor=given, hf_model_type=kind)
            return await loop.run({"logprobs": True}, **{**ROW, **(row or {})})

        return asyncio.run(inside()), server

    return _run


def test_images_of_results_are_what_verls_loop_makes_of_them(run, processor):
    turns = [CALL % '["red"]', CALL % '["green", "blue"]' + CALL % '["white"]', "Colours."]
    verls, server = run("tool_agent", *turns)
    ours, our_server = run("tool_call_agent", *turns)
    assert ours.prompt_ids == verls.prompt_ids
    assert (ours.response_ids, ours.response_mask) == (verls.response_ids, verls.response_mask)
    assert ours.response_logprobs == verls.response_logprobs
    assert processor.tokenizer.decode(ours.response_ids).count("<image>") == 4 * 4
    assert len(ours.multi_modal_data["images"]) == 4
    for name in ("multi_modal_data", "mm_processor_kwargs", "mm_processor_output"):
        assert getattr(ours, name) == getattr(verls, name)
    assert [request["images"] for request in our_server.requests] == [request["images"] for request in server.requests]
    assert [len(request["images"]) for request in our_server.requests] == [0, 1, 4]


def test_images_and_tokens_of_a_conversation_are_kept(run, tmp_path):
    from PIL import Image

    more = [f"+agent_rl.trace.path={tmp_path}/trace.jsonl", "+agent_rl.trace.tokens=true"]
    output, _ = run("tool_call_agent", CALL % '["red"]', "Colours.", more=more)
    stored = tokens_of(tmp_path / "trace.jsonl", output.extra_fields["trajectory"].id)
    assert stored["sequences"][0]["mask"] == output.response_mask
    assert (stored["sequences"][0]["images"], stored["messages"][2]["content"][0]) == (1, {"type": "image"})
    (name,) = image_names(output.extra_fields["trajectory"])
    with Image.open(tmp_path / "trace.images" / name) as image:
        assert image.getpixel((0, 0)) == (255, 0, 0)


def test_text_format_shows_images_before_its_observation(run, processor):
    turns = ['Action: camera\nAction Input: {"colours": ["red"]}', "Final Answer: red"]
    output, _ = run("react_agent", *turns)
    assert "user<image><image><image><image>Observation: Done." in processor.tokenizer.decode(output.response_ids)
    assert len(output.multi_modal_data["images"]) == 1


def test_images_of_the_prompt_come_first(run, processor, monkeypatch, tmp_path):
    from PIL import Image
    from verl.utils.dataset.rl_dataset import RLHFDataset

    given = Image.new("RGB", (30, 30), "black")

    async def read(messages, **_):
        return [given], None, None

    monkeypatch.setattr(RLHFDataset, "process_multi_modal_info", read, raising=False)
    row = {"raw_prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And?"}]}]}
    turns = [CALL % '["red"]', "Colours."]
    ours, server = run("tool_call_agent", *turns, row=row, more=[f"+agent_rl.trace.path={tmp_path}/trace.jsonl"])
    verls, _ = run("tool_agent", *turns, row=row)
    assert ours.prompt_ids == verls.prompt_ids
    assert ours.response_ids == verls.response_ids
    assert ours.multi_modal_data == verls.multi_modal_data
    assert [request["images"][:1] for request in server.requests] == [[given], [given]]
    trajectory = ours.extra_fields["trajectory"]
    assert [len(trajectory.prompt[0].images), len(trajectory.results[0].images)] == [1, 1]


def test_image_that_no_longer_fits_is_in_no_sequence(run):
    output, _ = run("tool_call_agent", CALL % '["red"]', "Colours.", more=["data.max_response_length=45"])
    assert output.extra_fields["trajectory"].stop_reason == "max_tokens"
    assert output.multi_modal_data == {}


def test_image_that_no_turn_has_answered_is_handed_to_nobody(run, processor, tmp_path):
    (tmp_path / "stop.py").write_text(
        "from agent_rl.agents.episode.hooks import Hooks\n\n\nclass Stop(Hooks):\n"
        "    async def after_turn(self, trajectory, turn):\n        return len(trajectory.turns) == 2\n"
    )
    turns = [CALL % '["red"]', CALL % '["green", "blue"]', "Colours."]
    output, _ = run("tool_call_agent", *turns, more=[f"+agent_rl.hooks={tmp_path}/stop.py:Stop"])
    assert output.extra_fields["trajectory"].stop_reason == "stopped"
    assert processor.tokenizer.decode(output.response_ids).count("<image>") == 4
    assert len(output.multi_modal_data["images"]) == 1


def test_each_sequence_has_the_images_whose_places_it_keeps(run, processor):
    """The context is folded before the second image, which begins the next one."""
    folding = {"loop": "tool_call_agent", "instructions": "Notes?", "reserve_tokens": 30}
    more = ["data.max_response_length=140", *(f"+agent_rl.folding.{key}={value}" for key, value in folding.items())]
    outputs, _ = run("folding_agent", CALL % '["red"]', CALL % '["green"]', "Notes.", "Colours.", more=more)
    colours = [[image.getpixel((0, 0)) for image in each.multi_modal_data["images"]] for each in outputs]
    assert colours == [[(255, 0, 0)], [(0, 128, 0)]]
    texts = [processor.tokenizer.decode([*each.prompt_ids, *each.response_ids]) for each in outputs]
    assert [text.count("<image>") for text in texts] == [4, 4]


def test_model_without_vision_is_refused(run):
    with pytest.raises(ConfigError, match="which this model does not accept") as caught:
        run("tool_call_agent", CALL % '["red"]', "Colours.", vision=False)
    assert caught.value.key == "actor_rollout_ref.model.path"


def test_result_with_images_is_not_cached(run, tmp_path):
    (spec,) = load_tools(tmp_path / "tools.yaml")

    async def twice():
        async with ToolSession([spec], default_timeout_s=5, settings=ToolsSettings()) as session:
            return [(await session.run([ToolCall("camera", {})]))[0] for _ in range(2)]

    first, second = asyncio.run(twice())
    assert len(first.images) == len(second.images) == 1
    assert "cached" not in second.metrics
