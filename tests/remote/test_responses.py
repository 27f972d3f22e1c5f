"""What is read from an answer, and the errors that say why there is none."""

import pickle
import time
from email.utils import formatdate

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.remote.responses import RemoteError, Response, wait_wanted_s


def test_errors_cross_process_boundaries():
    error = RemoteError("host:1", "status 500", 500, 3)
    assert isinstance(error, UnscoredError)
    assert str(error) == "host:1: status 500 (attempt 3)"
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.status, copy.attempts) == (str(error), 500, 3)


def test_a_body_that_was_cut_is_not_json():
    assert Response(200, {}, b'{"a": 1}', False, "http://host/").json() == {"a": 1}
    with pytest.raises(RemoteError, match="host: the answer is longer than 8 bytes"):
        Response(200, {}, b'{"a": 1}', True, "http://user:secret@host/").json()


def test_a_charset_that_does_not_exist():
    response = Response(200, {"content-type": "text/html; charset=base64"}, "ü".encode(), False, "http://host/")
    assert response.text == "ü"


def test_seconds_of_a_retry_after_header():
    assert [wait_wanted_s(value) for value in ("3", "0", "-5", "soon", "", None)] == [3, 0, None, None, None, None]
    assert 50 < (wait_wanted_s(formatdate(time.time() + 60, usegmt=True)) or 0) <= 60
    assert wait_wanted_s(formatdate(time.time() - 60, usegmt=True)) == 0
