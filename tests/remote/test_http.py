"""Outgoing HTTP against a real server that misbehaves."""

import asyncio
import gzip
import logging
import socket
import time
from email.utils import formatdate

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.remote import Remote, RemoteError, RemoteLimits
from agent_rl.remote import http as module
from agent_rl.remote.http import is_near
from tests.support.http_faults import FaultyServer, answer, cut_short, drop, endless, hang, trickle

pytestmark = pytest.mark.usefixtures("quick_delays")

KEY = "sk-very-secret-value"


def remote_to(server, **limits):
    return Remote(server.url, limits=RemoteLimits(**limits))


def ask(server, method="POST", *, idempotent=True, **limits):
    return asyncio.run(remote_to(server, **limits).request(method, "/x", idempotent=idempotent))


def failure(server, method="POST", *, idempotent=True, **limits):
    with pytest.raises(RemoteError) as caught:
        ask(server, method, idempotent=idempotent, **limits)
    assert caught.value.host == f"127.0.0.1:{server.server_port}"
    return caught.value


async def test_json_is_sent_and_received():
    latin = {"Content_Type": "text/plain; charset=latin-1"}
    with FaultyServer(answer(200, {"b": 1}), answer(200, "täxt".encode("latin-1"), **latin)) as server:
        async with Remote(f"{server.url}/v1", headers={"Authorization": KEY}) as remote:
            assert await remote.post_json("/deep/path", {"a": ["ü"]}) == {"b": 1}
            response = await remote.request("GET", "/x", params={"q": "a b"}, headers={"X-Own": "1"})
    assert (response.status, response.ok, response.text, response.truncated) == (200, True, "täxt", False)
    first, second = server.requests
    assert (first.method, first.path, first.body) == ("POST", "/v1/deep/path", '{"a":["ü"]}'.encode())
    assert (second.path, second.headers["x-own"]) == ("/v1/x?q=a+b", "1")
    assert first.headers["authorization"] == second.headers["authorization"] == KEY


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_statuses_that_pass_are_retried(status):
    with FaultyServer(answer(status), answer(status)) as server:
        assert ask(server).json() == {"fine": True}
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 422])
def test_other_statuses_are_answers(status):
    with FaultyServer(answer(status, b"no")) as server:
        response = ask(server)
    assert (response.status, response.ok, response.text, len(server.requests)) == (status, False, "no", 1)


def test_retry_after_in_seconds_and_as_a_date():
    date = int(time.time()) + 2
    steps = answer(429, retry_after="0.3"), answer(503, Retry_After=formatdate(date, usegmt=True))
    with FaultyServer(*steps) as server:
        assert ask(server).ok
        assert time.time() >= date
    assert server.arrived_s[1] - server.arrived_s[0] >= 0.3


@pytest.mark.parametrize("value", ["3600", "1e999", "Fri, 31 Dec 2999 23:59:59 GMT"])
def test_a_retry_after_beyond_the_deadline_is_not_waited_for(value):
    started = time.monotonic()
    with FaultyServer(answer(429, retry_after=value)) as server:
        error = failure(server, total_s=20)
    assert (error.status, error.attempts, len(server.requests)) == (429, 1, 1)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("fault", [drop, cut_short])
def test_a_broken_connection_is_retried(fault):
    with FaultyServer(fault, fault) as server:
        assert ask(server).ok
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", [hang, trickle])
def test_a_slow_answer_is_cut_off_and_retried(fault):
    with FaultyServer(fault) as server:
        assert ask(server, timeout_s=0.5).ok
    with FaultyServer(default=fault) as server:
        error = failure(server, timeout_s=0.2, attempts=2)
    assert (error.problem, error.attempts, error.status) == ("no answer within 0.2 s", 2, None)


def test_attempts_run_out():
    with FaultyServer(default=answer(500, KEY.encode())) as server:
        error = failure(server, attempts=3)
    assert (error.status, error.attempts, len(server.requests)) == (500, 3, 3)
    assert str(error) == f"127.0.0.1:{server.server_port}: status 500 (attempt 3)"
    assert isinstance(error, UnscoredError)


def test_the_total_runs_out():
    started = time.monotonic()
    with FaultyServer(default=hang) as server:
        error = failure(server, timeout_s=0.4, total_s=1, attempts=100)
    assert time.monotonic() - started < 10
    assert error.problem == "no answer within 0.4 s; gave up after 1 s"
    assert 1 < len(server.requests) <= 3  # a busy machine starts fewer in a second


def test_a_refused_connection_is_an_error_after_all_attempts():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        remote = Remote(f"http://127.0.0.1:{unused.getsockname()[1]}", limits=RemoteLimits(attempts=2))
        with pytest.raises(RemoteError, match=r"cannot connect: .*\(attempt 2\)"):
            asyncio.run(remote.request("POST", "/", idempotent=False))


@pytest.mark.parametrize("fault", [drop, cut_short, hang, answer(500), answer(503), answer(429)])
def test_a_request_that_is_not_idempotent_is_sent_once(fault):
    with FaultyServer(fault) as server:
        failure(server, idempotent=False, timeout_s=0.5)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_request_that_is_not_idempotent_is_retried_after_a_retry_after(status):
    with FaultyServer(answer(status, retry_after=0)) as server:
        assert ask(server, idempotent=False).ok


def test_a_body_without_an_end():
    with FaultyServer(endless) as server:
        response = ask(server, max_bytes=100_000)
    assert (response.content, response.truncated) == (b"x" * 100_000, True)
    with pytest.raises(RemoteError, match="longer than 100000 bytes"):
        response.json()


def test_a_compressed_body_is_limited_by_its_decompressed_size():
    bomb = gzip.compress(b"0" * 50_000_000)
    with FaultyServer(default=answer(200, bomb, Content_Encoding="gzip")) as server:
        response = ask(server, max_bytes=1000)
        assert (response.content, response.truncated) == (b"0" * 1000, True)
        assert not ask(server, max_bytes=50_000_000).truncated
    with FaultyServer(answer(200, b"not gzip", Content_Encoding="gzip")) as server:
        assert ask(server).json() == {"fine": True}
    with FaultyServer(answer(200, gzip.compress(b"{}"), Content_Encoding="gzip")) as server:
        assert ask(server).json() == {}


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"", b"{", b"\xff\xfe", b"[" * 200_000])
def test_an_answer_that_is_not_json(body):
    with FaultyServer(answer(200, body)) as server:
        remote = remote_to(server)
        with pytest.raises(RemoteError, match=r"is not JSON \(status 200\)"):
            asyncio.run(remote.post_json("/", {}))


def test_post_json_wants_a_2xx_and_shows_no_key():
    with FaultyServer(answer(401, f"the key {KEY} is wrong {'x' * 1000}".encode())) as server:
        remote = Remote(server.url, headers={"Authorization": f"Bearer {KEY}"})
        with pytest.raises(RemoteError, match=r"status 401: the key \*\*\* is wrong x") as caught:
            asyncio.run(remote.post_json("/", {}))
    assert len(str(caught.value)) < 300
    assert caught.value.status == 401


async def test_redirects_are_off_unless_the_host_is_allowed():
    with FaultyServer() as other:
        elsewhere = f"http://localhost:{other.server_port}/there"
        with FaultyServer(default=answer(302, location=elsewhere)) as server:
            for hosts, status in ((None, 302), (["127.0.0.1"], 302), (["127.*", "LOCALHOST"], 200)):
                assert other.requests == []
                remote = Remote(server.url, headers={"X-Key": KEY}, allow_hosts=hosts)
                response = await remote.request("GET", "/", headers={"Authorization": KEY})
                assert response.status == status
    assert response.host == f"localhost:{other.server_port}"
    sent = other.requests[0].headers
    assert (sent["x-key"], sent["authorization"]) == (None, None)  # our keys are not for others
    assert server.requests[-1].headers["x-key"] == KEY


def test_redirects_end():
    with FaultyServer(default=answer(302, location="/again")) as server:
        response = asyncio.run(Remote(server.url, allow_hosts=["127.0.0.1"]).request("GET", "/"))
    assert (response.status, len(server.requests)) == (302, module.MAX_REDIRECTS + 1)


def test_no_request_goes_to_a_host_that_is_not_allowed():
    with FaultyServer() as server:
        remote = Remote(allow_hosts=["*.example.org"])
        with pytest.raises(ValueError, match=r"'127.0.0.1' is not allowed"):
            asyncio.run(remote.request("GET", server.url))
    assert server.requests == []


@pytest.mark.parametrize("url", ["", "/path", "ftp://host/", "http://", "http://a:b/", "file:///x"])
def test_unusable_urls_are_refused(url):
    with pytest.raises(ValueError, match="the URL is not valid"):
        asyncio.run(Remote().request("GET", url))


def test_a_header_that_cannot_be_sent_is_not_shown():
    with FaultyServer() as server:
        remote = Remote(server.url, headers={"Authorization": f"{KEY}\n"})
        with pytest.raises(ValueError, match="cannot be sent") as caught:
            asyncio.run(remote.request("GET", "/"))
    assert KEY not in repr(caught.getrepr(style="long"))


async def test_a_header_with_letters_outside_ascii_is_not_a_proxys_fault():
    with pytest.raises(ValueError, match="a header of the request cannot be sent"):
        await Remote("http://judge.example.com", headers={"Authorization": "Bearer schlüssel"}).request("GET", "/")


async def test_no_cookie_is_kept():
    with FaultyServer(default=answer(200, {}, set_cookie="session=1; Path=/")) as server:
        async with Remote(server.url) as remote:
            assert [(await remote.request("GET", "/")).status for _ in range(2)] == [200, 200]
        assert server.requests[1].headers["cookie"] is None


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
async def test_hosts_elsewhere_are_reached_through_a_proxy_and_near_ones_directly(monkeypatch, variable):
    elsewhere, excepted = "http://judge.example.com/v1", "http://judge.example.invalid/v1"
    with FaultyServer(default=answer(200, {})) as server, FaultyServer(default=answer(200, {})) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        monkeypatch.setenv("NO_PROXY", ".invalid")
        async with Remote(limits=RemoteLimits(attempts=1)) as remote:
            await remote.request("GET", server.url)
            await remote.request("GET", elsewhere)
            with pytest.raises(RemoteError, match="cannot connect"):
                await remote.request("GET", excepted)
        assert [request.path for request in proxy.requests] == [elsewhere]
        assert [request.path for request in server.requests] == ["/"]


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", f"gopher://user:{KEY}@127.0.0.1:1")
    with pytest.raises(RemoteError, match=r"^judge\.example\.com: the proxy .* cannot be used: .*gopher") as caught:
        asyncio.run(Remote("http://judge.example.com").request("GET", "/"))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "near"),
    [("127.0.0.1", True), ("localhost", True), ("node-17", True), ("10.1.2.3", True), ("fd00::1", True), ("::1", True),
     ("8.8.8.8", False), ("2001:4860:4860::8888", False), ("api.example.com", False)],
)  # fmt: skip
def test_near_hosts_are_those_that_no_proxy_reaches(host, near):
    assert is_near(host) is near


def test_logs_and_errors_hold_no_secret(caplog):
    caplog.set_level(logging.INFO)
    with FaultyServer(answer(200, {}), default=answer(500)) as server:
        address = server.url.replace("http://", f"http://user:{KEY}@")
        remote = Remote(address, headers={"X-Key": KEY}, limits=RemoteLimits(attempts=2))
        response = asyncio.run(remote.request("GET", "/ok", params={"key": KEY}))
        with pytest.raises(RemoteError) as caught:
            asyncio.run(remote.request("GET", "/", params={"key": KEY}))
    assert "/ok" in caplog.text
    assert f"{server.url.removeprefix('http://')}: status 500 (attempt 1)" in caplog.text
    assert KEY not in caplog.text
    assert KEY not in str(caught.value)
    assert KEY not in repr(response)


async def test_requests_at_one_time_are_limited():
    with FaultyServer(default=answer(200, {}, delay_s=0.05)) as server:
        async with remote_to(server, max_concurrent=3) as remote:
            await asyncio.gather(*[remote.request("GET", "/") for _ in range(12)])
    assert server.most_at_once == 3


async def test_waiting_for_ones_turn_does_not_count_against_the_total():
    with FaultyServer(default=answer(200, {}, delay_s=0.4)) as server:
        remote = remote_to(server, max_concurrent=1, total_s=2)
        await asyncio.gather(*[remote.request("GET", "/") for _ in range(6)])
    assert len(server.requests) == 6


async def test_the_rate_is_limited_also_for_retries():
    with FaultyServer(answer(500)) as server:
        remote = remote_to(server, rate_per_s=10)
        for _ in range(3):  # each opens its own connection
            await remote.request("GET", "/")
    assert len(server.arrived_s) == 4
    assert server.arrived_s[-1] - server.arrived_s[0] >= 0.25


def test_connections_are_kept_while_somebody_uses_the_remote():
    def ports(server):
        return {request.port for request in server.requests}

    async def nested(remote):
        async with remote:
            async with remote:
                await remote.request("GET", "/")
            await remote.request("GET", "/")

    with FaultyServer() as server:
        remote = remote_to(server)
        asyncio.run(nested(remote))
        assert len(ports(server)) == 1
        for _ in range(3):  # a fresh event loop each time
            asyncio.run(nested(remote))
        assert len(ports(server)) == 4


async def test_a_cancelled_request_frees_its_place():
    with FaultyServer(hang) as server:
        remote = remote_to(server, max_concurrent=1)
        task = asyncio.create_task(remote.request("GET", "/"))
        await asyncio.to_thread(server.arrived.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await remote.request("GET", "/")).ok


async def test_a_request_cancelled_between_two_attempts():
    with FaultyServer(answer(429, retry_after=30)) as server:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(remote_to(server).request("GET", "/"), 0.5)
    assert len(server.requests) == 1
