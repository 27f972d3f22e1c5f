"""The pages: what they show, that nothing in a trajectory is code, and who may see them."""

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from PIL import Image
from starlette.testclient import TestClient

from agent_rl.trajectory import Message, Score, ToolCall, ToolResult, Turn, trace
from agent_rl.trajectory.viewer.app import create_app
from agent_rl.trajectory.viewer.index import TraceIndex
from agent_rl.trajectory.viewer.records import find_sources
from tests.trajectory.viewer.conftest import trajectory
from tests.trajectory.viewer.hostile import CONTROL, HOSTILE, Elements

LOCAL = "http://127.0.0.1:8321"


@pytest.fixture
def client(index: TraceIndex) -> Iterator[TestClient]:
    with TestClient(create_app(index), base_url=LOCAL) as client:
        yield client


@contextmanager
def pages(cache: Path, *places: Path) -> Iterator[TestClient]:
    """The pages over these files and folders."""
    with closing(TraceIndex(find_sources([str(place) for place in places]), cache)) as index:
        index.refresh()
        yield TestClient(create_app(index), base_url=LOCAL)


def texts(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page))


def test_the_table_shows_what_the_address_asks_for(client: TestClient) -> None:
    page = client.get("/").text
    assert "25 of 25 trajectories" in texts(page)
    assert page.count('<tr id="t') == 25
    page = client.get("/?step=2&data_source=math&sort=reward&order=asc&component=correctness&component_min=1").text
    assert "4 of 25 trajectories" in texts(page)
    assert "No trajectories match" in client.get("/?text=nothing+says+this").text
    assert client.get("/count?step=2").json() == {"count": 13}


@pytest.mark.parametrize(
    "query", ["page=-3", "page=x", "step=x", "reward_min=abc", "sort=nothing", "order=1", "error=?"]
)
def test_what_cannot_be_read_in_an_address_does_not_count(client: TestClient, query: str) -> None:
    assert client.get(f"/?{query}").status_code == 200


def test_a_trajectory_is_shown_as_a_conversation(client: TestClient) -> None:
    page = texts(client.get("/t/6?step=1").text)
    for text in (
        "What is number 101?",
        "I calculate.",
        '"expression": "6*7"',
        "calculator  error",
        "It is 1.",
        "Group of 4",
    ):
        assert text in page
    assert "the engine failed" in client.get("/t/25").text
    answer = client.get("/t/6/json")
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == trajectory(1, 1).to_dict()
    assert client.get("/t/99").status_code == 404
    (following,) = re.findall(r'id="next" href="/t/(\d+)\?step=1"', client.get("/t/6?step=1").text)
    assert 'id="previous" href="/t/6?step=1"' in client.get(f"/t/{following}?step=1").text


def test_right_and_wrong_answers_are_marked_beside_the_ground_truth(client: TestClient) -> None:
    for page in ("/trajectories", "/t/6", "/t/6/group", "/compare"):
        text = client.get(page).text
        assert re.search(r'<span class="chip mark \w+">(right|wrong|partly)</span>', text), page
        assert "truth" in texts(text), page
        assert ">42<" in text or "truth: 42" in text, page


def test_what_is_not_there_is_a_page(client: TestClient) -> None:
    for address, problem in (("/nothing", "There is no page /nothing"), ("/t/99", "There is no trajectory 99")):
        answer = client.get(address)
        assert answer.status_code == 404
        assert problem in texts(answer.text)
    assert "reward to" not in texts(client.get("/?reward_to=0.5").text)  # an unknown key is not a filter


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, ("unknown before the first step", "The run has not finished its first step yet", "0 trajectories")),
        ({"end": {"status": "failed", "time": "2026-01-02T03:04:05", "error": "CUDA out of memory"}},
         ("failed before the first step, 2026-01-02 03:04", "The run ended before its first step",
          "The run ran out of memory: CUDA out of memory", "Lower actor_rollout_ref")),
        ({"metrics": [{"step": step, "data": {"critic/score/mean": 0.5, "agent/tool_calls": 0}} for step in (1, 2)]},
         ("No tool was ever called", "unknown after step 2")),
    ],
)  # fmt: skip
def test_the_first_page_says_how_a_run_stands(files: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    configuration = {"actor_rollout_ref": {"model": {"path": "tiny"}}, "data": {"train_files": ["rows.parquet"]}}
    about = {"configuration": configuration, "started": ["2026-01-02T03:00:00"]} | files
    metrics = about.pop("metrics", [])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/run.json").write_text(json.dumps(about))
    if metrics:
        (tmp_path / "mine/metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in metrics))
    with closing(TraceIndex(find_sources([str(tmp_path / "mine")]), tmp_path / "cache")) as index:
        page = TestClient(create_app(index), base_url=LOCAL).get("/").text
    for text in ("mine", "tiny", "rows.parquet", "2026-01-02 03:00", *words):
        assert text in texts(page), text
    assert ('href="/trajectories?file=mine%2Ftrace.jsonl&amp;step=2"' in page) == bool(metrics)


def test_a_group_shows_advantages(client: TestClient) -> None:
    page = client.get("/t/6/group").text
    assert "4 samples of one prompt, step 1" in texts(page)
    assert re.findall(r'class="n strong (good|bad)">([-+][\d.]+)', page) == [
        ("good", "+0.866"), ("good", "+0.866"), ("bad", "-0.866"), ("bad", "-0.866"),
    ]  # fmt: skip
    assert "the trace has no advantages" in page


def test_a_judges_reasons_stand_beside_the_reward(tmp_path: Path) -> None:
    verdicts = {"verdicts": [{"reason": "It is polite.", "score": 7}, {"reason": "Too long.", "score": 2}]}
    noted = {"notes": {"style": verdicts, "rules": {"broken": ["x"]}}, "logged": {}}
    trace.append(tmp_path / "trace.jsonl", trajectory(0, 0, info={"step": 1, "reward": noted}))
    with pages(tmp_path / "cache", tmp_path) as client:
        page = texts(client.get("/t/1").text)
        assert client.get("/count?text=polite").json() == {"count": 1}
    assert re.search(r"style\s+\u2013\s+score 7\s+It is polite\.\s+score 2\s+Too long\.", page)


def test_two_steps_are_compared(client: TestClient) -> None:
    name = "my_run/trace.jsonl"
    page = client.get("/compare", params={"a_file": name, "a_step": "1", "b_file": name, "b_step": "2"}).text
    assert "3 prompts on both sides" in texts(page)
    assert page.count(">-0.100<") == 4  # three prompts, and their mean
    (first, *_) = re.findall(r'href="(/t/\d+/group\?with=[^"]*)"', page)
    assert texts(client.get(unescape(first)).text).count("4 samples of one prompt, step") == 2
    first_and_last = texts(client.get("/compare").text)
    assert re.search(r"reward\s+0\.\d+\s+0\.\d+\s+-0\.100", first_and_last)


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A trajectory of a trace with three images, and one whose images are hostile."""
    tmp_path = tmp_path_factory.mktemp("images")
    folder = tmp_path / "seen"
    prompt = [Message("user", "<image>Which?", images=[Image.new("RGB", (60, 40), "red")])]
    shots = [Image.new("RGB", (20, 10), colour) for colour in ("blue", "green")]
    turn = Turn("I look.", results=[ToolResult("", "camera", "Done.", images=shots)])
    trace.append(folder / "trace.jsonl", trajectory(0, 0, prompt=prompt, turns=[turn]))
    images = folder / "trace.images"
    (images / "real.webp").write_bytes(image_bytes("WEBP"))
    (images / "script.png").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (images / "page.png").write_text("<html><script>alert(1)</script>")
    (images / "huge.png").write_bytes(image_bytes("PNG", (8_000, 8_000)))
    (images / "heavy.png").write_bytes(image_bytes("PNG") + bytes(21 << 20))
    (images / "bitmap.png").write_bytes(image_bytes("BMP"))
    (folder / "secret.png").write_bytes(image_bytes("PNG"))
    (images / "link.png").symlink_to(folder / "secret.png")
    record = trajectory(1, 0, turns=[]).to_dict()
    record["prompt"][0]["images"] = [*SHOWN, *NOT_SHOWN]
    with open(folder / "trace.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")
    with pages(tmp_path / "cache", folder) as client:
        assert client.get("/count").json() == {"count": 2}
        yield client


SHOWN = ("real.webp",)
NOT_SHOWN = (
    *("script.png", "page.png", "huge.png", "heavy.png", "bitmap.png", "link.png", "../secret.png", "/etc/passwd"),
    *("missing.png", "http://evil.example/x.png", "data:image/svg+xml,<svg onload=alert(1)>", "trace.jsonl", *HOSTILE),
)


def image_bytes(kind: str, size: tuple[int, int] = (2, 2)) -> bytes:
    made = io.BytesIO()
    Image.new("1" if size[0] > 1000 else "RGB", size).save(made, kind)
    return made.getvalue()


def test_images_are_shown_where_they_were_seen(pictured: TestClient) -> None:
    client, page = pictured, pictured.get("/t/1").text
    found = [attributes for tag, attributes in Elements(page).found if tag == "img"]
    assert [(each["src"], each["alt"]) for each in found] == [
        ("/t/1/image/0", "user, image 1 of 1"),
        ("/t/1/image/1", "result of camera, image 1 of 2"),
        ("/t/1/image/2", "result of camera, image 2 of 2"),
    ]
    sizes = []
    for each in found:
        answer = client.get(str(each["src"]))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        with Image.open(io.BytesIO(answer.content)) as image:
            sizes.append(image.size)
    assert sizes == [(60, 40), (20, 10), (20, 10)]
    assert "/t/1/image/1" in client.get("/t/1/group").text
    assert client.get("/t/1/image/3").status_code == client.get("/t/9/image/0").status_code == 404
    assert "img-src 'self';" in client.get("/").headers["content-security-policy"]


def test_a_hostile_image_is_named_and_not_shown(pictured: TestClient) -> None:
    client, page = pictured, pictured.get("/t/2").text
    images = [attributes["src"] for tag, attributes in Elements(page).found if tag == "img"]
    assert images == ["/t/2/image/0"]
    assert client.get("/t/2/image/0").headers["content-type"] == "image/webp"
    for place in range(1, 1 + len(NOT_SHOWN)):
        assert client.get(f"/t/2/image/{place}").status_code == 404, NOT_SHOWN[place - 1]
    assert texts(page).count("This image is not shown: ") == len(NOT_SHOWN)
    assert "the image has too many pixels: 8000 by 8000" in page
    assert not CONTROL.search(page)


def hostile_line(number: int, text: str) -> str:
    """A trajectory with the text in every field."""
    calls, results = [ToolCall(text, {text: text}, text)], [ToolResult(text, text, text, metrics={text: text})]
    turn = Turn(text, 1, calls, results, malformed=text, observation=text, notes={text: text})
    later = Turn(f"<think>{text}</think>", 1, observation=text)
    reward = {"notes": {text: {"verdicts": [{"reason": text, "score": text, text: text}]}}, "logged": {text: 1.0}}
    made = trajectory(
        0, number, turns=[turn, later], prompt=[Message("system", text), Message("user", text)], answer=text,
        error=text, id=f"{text}{number}", agent=text, data_source=text, ground_truth=text,
        score=Score(1.0, {text: 1.0}, {text: 0.5}), row={"extra_info": {text: text}},
        info={"step": 1, "split": text, "reward": reward, text: text},
    )  # fmt: skip
    made.turns[0].results[0].status = text  # type: ignore[assignment]
    record = {**dataclasses.asdict(made), "stop_reason": text}
    record["prompt"][0]["role"] = text
    return json.dumps(record)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The pages over our trajectories, dumps of verl and ATIF documents with hostile texts in every field."""
    folder = tmp_path_factory.mktemp("hostile") / "a<b>&'\"{{7*7}}\u202e"
    (folder / "rollouts").mkdir(parents=True)
    lines = [hostile_line(number, text) for number, text in enumerate(HOSTILE)]
    dumps = [
        {"input": text, "output": text, "gts": text, "score": 1.0, "step": 1, "uid": text, text: 1} for text in HOSTILE
    ]
    (folder / "trace.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "rollouts/1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in dumps))
    for number, text in enumerate(HOSTILE[:12]):
        call = {"tool_call_id": text, "function_name": text, "arguments": {text: text}}
        step = {"source": "agent", "message": text, "reasoning_content": text, "tool_calls": [call], "model_name": text}
        step["observation"] = {"results": [{"source_call_id": text, "content": text}]}
        steps = [{"source": "user", "message": text}, step]
        document = {"schema_version": "ATIF-v1.7", "session_id": text, "agent": {"name": text, "version": text}}
        (folder / f"{number}.atif.json").write_text(json.dumps({**document, "steps": steps, "extra": {"x": text}}))
    (folder / "run.json").write_text(
        json.dumps({"configuration": {"actor_rollout_ref": {"model": {"path": HOSTILE[0]}}}})
    )
    for number, text in enumerate(HOSTILE):
        logprobs = [-0.1, -9.0]
        sequence = {"prompt_ids": [1], "response_ids": [2, 3], "mask": [1, 1], "logprobs": logprobs, "images": 0}
        trace.append(
            folder / "kept/trace.jsonl",
            trajectory(0, number, info={"tokens": {"messages": [text], "tools": [text], "sequences": [sequence]}}),
        )
    with pages(folder / "cache", folder, folder / "rollouts/1.jsonl", folder / "kept/trace.jsonl") as client:
        assert client.get("/count").json() == {"count": 3 * len(HOSTILE) + 12}
        yield client


def test_nothing_in_a_trajectory_is_code_or_leads_away(hostile: TestClient) -> None:
    numbers = range(1, len(HOSTILE) + 1)
    kinds = ("", "/group", "/tokens")
    addresses = [
        "/",
        "/?page=1",
        "/?page=2",
        "/?page=3",
        *(f"/t/{number}{kind}" for number in numbers for kind in kinds),
    ]
    addresses += [f"/t/{3 * len(HOSTILE) - number}{kind}" for number in range(-12, 100, 7) for kind in kinds]
    keys = ("text", "tool", "agent", "sort", "step", "component", "file", "order")
    addresses += [f"/?{urlencode({key: text}, errors='replace')}" for text in HOSTILE for key in keys[:1]]
    addresses += [f"/?{urlencode({key: text}, errors='replace')}" for text in HOSTILE[:9] for key in keys[1:]]
    files = re.findall(r"<option>(.*?)</option>", hostile.get("/compare").text) or ["x"]
    addresses += [f"/compare?{urlencode({'a_file': unescape(one), 'b_file': unescape(one)})}" for one in files]
    addresses += [f"/compare?{urlencode({'a_file': text, 'b_step': text}, errors='replace')}" for text in HOSTILE[:9]]
    allowed = {"/static/viewer.js", "/static/viewer.css", "/static/icon.svg"}
    for address in addresses:
        answer = hostile.get(address)
        assert answer.status_code == 200, address
        for tag, attributes in Elements(answer.text).found:
            assert tag not in ("iframe", "object", "embed", "base", "style", "svg", "math", "img", "template"), address
            assert not any(name.startswith("on") or name == "style" for name in attributes), (address, attributes)
            if tag in ("script", "link"):
                assert (attributes.get("src") or attributes.get("href")) in allowed
            if tag in ("a", "form"):
                assert re.match(r"(/|\?|#)(?!/)", attributes.get("href") or attributes.get("action") or "/"), attributes
        assert not CONTROL.search(answer.text), address
        assert "\ufffd" not in answer.text or "%EF%BF%BD" in address or "errors" in address, address
        assert "'unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert hostile.get(f"/t/{len(HOSTILE)}/json").json()["answer"] == HOSTILE[-1]


def test_a_long_text_is_cut_until_it_is_asked_for(tmp_path: Path) -> None:
    trace.append(tmp_path / "trace.jsonl", trajectory(0, 0, text="x" * 10_000_000))
    with pages(tmp_path / "cache", tmp_path) as client:
        page = client.get("/t/1").text
        assert len(page) < 100_000
        assert "more characters" in page
        assert len(client.get("/t/1?full=1").text) > 10_000_000
        assert len(client.get("/").text) < 100_000


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8321"}, 200),
        ({"host": "[::1]:8321"}, 200),
        ({"host": "evil.example:8321"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": ""}, 403),
        ({"origin": LOCAL}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_only_this_machines_own_names_are_answered(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.get("/", headers=headers)
    assert answer.status_code == status
    assert answer.headers["x-frame-options"] == "DENY"
    assert ("trajectories" in answer.text) == (status == 200)


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/t/../../etc/passwd"],
)
def test_no_other_file_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 405)
    assert client.post("/").status_code == 405


@pytest.mark.parametrize("host", ["node", "10.0.0.5", "node.example.org"])
def test_other_machines_need_the_token(index: TraceIndex, host: str) -> None:
    app = create_app(index, token="secret")
    with TestClient(app, base_url=f"http://{host}:8321", follow_redirects=False) as client:
        assert client.get("/").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        assert client.get("/static/viewer.js").status_code == 401
        given = client.get("/?step=1&token=secret")
        assert (given.status_code, given.headers["location"]) == (303, "/?step=1")
        assert "HttpOnly" in given.headers["set-cookie"]
        assert "SameSite=strict" in given.headers["set-cookie"]
        assert client.get("/?step=1").status_code == 200


def test_two_viewers_on_one_machine_keep_their_tokens(index: TraceIndex) -> None:
    """A browser has one set of cookies for all ports of a host."""
    clients = [TestClient(create_app(index, token=f"{port}"), base_url=f"http://node:{port}") for port in (8321, 8322)]
    for client in clients:
        given = client.get(f"/count?token={client.base_url.port}", follow_redirects=False)
        for each in clients:
            each.cookies.update(given.cookies)
    assert [client.get("/count").status_code for client in clients] == [200, 200]


def test_what_is_written_meanwhile_is_shown(client: TestClient, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_rl.trajectory.viewer.app.REFRESH_S", 0.01)
    with TestClient(client.app, base_url=LOCAL) as again:
        trace.append(run / "trace.jsonl", trajectory(9, 0))
        for _ in range(500):
            if again.get("/count").json() == {"count": 26}:
                break
        else:
            pytest.fail("the new trajectory is not shown")
        assert "26 of 26" in again.get("/").text
