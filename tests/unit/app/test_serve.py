"""Starting and ending: addresses, keys, ports, signals, a notebook."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.app.served import Client, loaded, picture
from usu.app import show
from usu.app.guard import address, door_of
from usu.app.serve import glass_of, listening
from usu.errors import UsuError
from usu.models import Loaded

MODEL = """
from tests.unit.app.served import Small
from usu.models import Preparation
def small():
    return Small(), Preparation(crop=(32, 32), resize=None)
"""


def test_beyond_loopback_names_are_wanted_and_a_key_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USU_TOKEN", raising=False)
    assert door_of("127.0.0.1", (), ()).token is None
    with pytest.raises(ValueError, match="`--allow-host` must name"):
        door_of("0.0.0.0", (), ())
    one, two = (door_of("0.0.0.0", ("demo.example",), ()) for _ in range(2))
    assert one.token != two.token
    assert len(one.token or "") >= 22
    assert address("0.0.0.0", 80, one) == f"http://demo.example:80/?token={one.token}"
    monkeypatch.setenv("USU_TOKEN", "kept")
    assert door_of("0.0.0.0", ("demo.example",), ()).token == "kept"
    # named by others, it is reached by others: a proxy stands before it
    assert door_of("127.0.0.1", ("demo.example",), ()).token == "kept"


def test_a_port_that_is_taken() -> None:
    with listening("127.0.0.1", 0) as sock, pytest.raises(UsuError, match="cannot listen"):
        listening("127.0.0.1", sock.getsockname()[1])


def test_a_model_without_gradients_wants_a_map() -> None:
    whole = loaded()
    callable_ = Loaded("callable", lambda batch: whole.model(batch), whole.prepare)
    with pytest.raises(ValueError, match="must be a coarse map of your own"):
        glass_of(callable_)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_starts_answers_and_ends_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MODEL)
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "usu.cli", "app", "--port", "0", "--model", f"{file}:small", "--engine", "torch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        found = re.search(r"http://127.0.0.1:(\d+)/", process.stdout.readline())
        assert found is not None
        client = Client(int(found[1])).visit()
        about = client.open(picture())
        assert client.explain(about, 0, evaluations=24).frames[-1][0] == "done"
        process.send_signal(number)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0
    assert '"question": "explain"' in log
    assert "Traceback" not in log


def test_a_notebook_shows_it() -> None:
    page = show(loaded())
    try:
        port = int(page.url.rstrip("/").rpartition(":")[2])
        front = Client(port).ask("GET", "/")
        assert "frame-ancestors http://localhost:* http://127.0.0.1:*" in front.headers["content-security-policy"]
        assert page.url in page._repr_html_()
    finally:
        page.close()
    with pytest.raises(OSError, match=r"refused|reset"):
        Client(port).ask("GET", "/")
