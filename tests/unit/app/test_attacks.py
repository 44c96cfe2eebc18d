"""What strangers try: each is refused with a sentence, and the next visitor is served."""

from __future__ import annotations

import http.client
import io
import select
import socket
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor

from tests.unit.app.served import Client, Small, glass, picture, served, until
from usu.app.guard import Door
from usu.app.visitors import Limits

LIMITS = Limits(megabytes=1, megapixels=1, evaluations=48)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(limits=LIMITS) as (found, _):
        yield found
        client = Client(found).visit()  # whatever happened, the next one is served
        about = client.open(picture())
        assert client.explain(about, 0).frames[-1][0] == "done"


@pytest.fixture
def client(port: int) -> Client:
    return Client(port).visit()


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def bomb() -> bytes:
    """A PNG of 50,000 x 50,000 pixels in a few bytes."""
    header = (50_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def test_two_gigabytes_are_refused_before_they_are_sent(port: int, client: Client) -> None:
    with socket.create_connection(("127.0.0.1", port), 20) as raw:
        cookie = "; ".join(f"{k}={v}" for k, v in client.cookies.items())
        head = (
            f"POST /api/pictures HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\nContent-Length: 2000000000\r\n\r\n"
        )
        raw.sendall(head.encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert b"more than 1 MB" in answer


def test_a_body_without_an_end_is_cut(port: int, client: Client) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", port), 20) as raw:
        cookie = "; ".join(f"{k}={v}" for k, v in client.cookies.items())
        head = (
            f"POST /api/pictures HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        raw.sendall(head.encode())
        try:
            for _ in range(1000):
                raw.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
                sent += 65536
        except OSError:  # it does not listen any more
            pass
    assert sent < 20_000_000


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (bomb(), "too many pixels to open safely"),
        (picture(size=(2000, 1000)), "2000 x 1000 pixels, and 1000000 are the most"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "not a picture in a known format"),
        (b"<html><script>alert(1)</script>" + picture(), "not a picture in a known format"),
        (b"%PDF-1.4\n" + picture(form="JPEG"), "not a picture in a known format"),
        (b"", "not a picture in a known format"),
        (picture()[:200], "cannot be decoded"),
    ],
    ids=["bomb", "large", "svg", "polyglot-html", "polyglot-pdf", "empty", "half"],
)
def test_what_is_no_picture(client: Client, data: bytes, sentence: str) -> None:
    answer = client.ask("POST", "/api/pictures", data)
    assert answer.status == 400
    assert sentence in answer.json["error"]


def test_of_a_polyglot_nothing_but_the_pixels_comes_back(client: Client) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("evil.html", "<script>alert(1)</script>")
    about = client.open(picture() + b"<script>alert(1)</script>" + packed.getvalue())
    shown = client.ask("GET", f"/api/pictures/{about['id']}")
    assert shown.headers["content-type"] == "image/jpeg"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert b"script" not in shown.body
    assert b"evil" not in shown.body


@pytest.mark.parametrize("name", ["../../../etc/passwd", "C:\\evil.png", "a\x1b[2J\x07.png", "x'); import os; ('.png"])
def test_a_file_name_is_a_word_and_nothing_else(client: Client, name: str) -> None:
    about = client.open(picture())
    client.explain(about, 0)
    found = client.ask("POST", f"/api/pictures/{about['id']}/export/python", {"target": 0, "name": name})
    text = found.body.decode()
    compile(text, "again.py", "exec")
    (line,) = [one for one in text.splitlines() if one.startswith("picture = read(")]
    assert ".." not in line
    assert "\x1b" not in text
    import ast

    call = ast.parse(line).body[0].value  # type: ignore[attr-defined]
    assert isinstance(call.args[0], ast.Constant)
    assert not {"/", "\\"} & set(call.args[0].value)


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/limits.py", "/etc/passwd"]
)
def test_no_path_from_outside_is_opened(client: Client, path: str) -> None:
    assert client.ask("GET", path).status == 404
    assert client.ask("POST", "/api/samples/..%2f..%2fsecret").status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_may_not_ask(client: Client, headers: dict[str, str]) -> None:
    answer = client.ask("POST", "/api/pictures", picture(), headers)
    assert answer.status == 403
    assert answer.json["error"] == "Only the page itself may ask this."


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "localhost@evil", ""])
def test_other_names_are_not_answered(client: Client, host: str) -> None:
    assert client.ask("GET", "/", headers={"Host": host}).status in (400, 421)


def test_another_visitors_picture_is_not_there(port: int, client: Client) -> None:
    about = client.open(picture())
    other = Client(port).visit()
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/explain", {"target": 0}),
        ("POST", "/map", {"target": 0}),
        ("POST", "/without", {"target": 0, "box": [0, 0, 1, 1]}),
        ("POST", "/export/npz", {"target": 0}),
    ):
        answer = other.ask(method, f"/api/pictures/{about['id']}{path}", body)
        assert answer.status == 404
        assert "not here" in answer.json["error"]
    forged = Client(port, dict.fromkeys(client.cookies, "a" * 32))
    assert forged.ask("GET", f"/api/pictures/{about['id']}").status == 403
    assert client.ask("GET", f"/api/pictures/{about['id']}").status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"\xff", b"[]", b'{"target": "0"}', b'{"target": 99999999999999999999}', b'{"target": -1}', b'{"target": true}',
        b'{"target": 0, "temperature": 1e999}', b'{"target": 0, "temperature": "hot"}', b'{"target": 0, "way": "evil"}',
        b'{"target": 0, "evaluations": 100000}', b"[" * 50_000, b'{"target": 0, "depth": 9}',
        b'{"target": 0, "temperature": 1' + b"0" * 400 + b"}",
    ],
)  # fmt: skip
def test_nonsense_is_refused(client: Client, body: bytes) -> None:
    about = client.open(picture())
    answer = client.ask("POST", f"/api/pictures/{about['id']}/explain", body)
    assert answer.status == 400
    assert answer.json["error"].endswith(".")


def test_marks_that_make_no_sense(client: Client) -> None:
    about = client.open(picture())
    client.explain(about, 0)
    for part in ({}, {"box": [0, 0, 0, 0]}, {"box": [0, 0, 9, 9]}, {"segments": [10**30]}, {"segments": []}):
        assert client.ask("POST", f"/api/pictures/{about['id']}/without", {"target": 0, **part}).status == 400


def test_fifty_uploads_at_once() -> None:
    with served(limits=LIMITS) as (port, _), ThreadPoolExecutor(50) as pool:
        clients = [Client(port).visit() for _ in range(LIMITS.visitors - 8)]
        one_each = [pool.submit(client.ask, "POST", "/api/pictures", picture()) for client in clients]
        again = [pool.submit(clients[0].ask, "POST", "/api/pictures", picture()) for _ in range(50 - len(clients))]
        answers = [one.result() for one in (*one_each, *again)]
    assert {answer.status for answer in answers} <= {200, 429, 409, 503}
    assert sum(answer.status == 200 for answer in answers) >= 10
    assert all("error" in answer.json for answer in answers if answer.status != 200)


class Trouble:
    """A model that can be told to raise or to hang."""

    def __init__(self) -> None:
        self.model, self.mood, self.calls = Small().eval(), "", 0
        self.free = threading.Event()

    def __call__(self, batch: Tensor) -> Tensor:
        self.calls += 1
        if self.mood == "raise":
            raise RuntimeError("the weights are gone")
        if self.mood == "hang":
            self.free.wait(60)
        if self.mood == "slow":
            time.sleep(0.05)
        with torch.no_grad():
            found: Tensor = self.model(batch)
        return found


def test_a_model_that_raises_or_hangs() -> None:
    trouble = Trouble()
    with served(glass(trouble), limits=Limits(seconds=1, evaluations=48)) as (port, app):
        client, other = Client(port).visit(), Client(port).visit()
        about, theirs = client.open(picture()), other.open(picture(1))
        trouble.mood = "raise"
        kind, values, _ = client.explain(about, 0).frames[-1]
        assert (kind, values["error"]) == ("error", "The model could not answer (RuntimeError: the weights are gone).")
        trouble.mood = "hang"
        kind, values, _ = client.explain(about, 0).frames[-1]
        assert kind == "error"
        assert "longer than 1 seconds" in values["error"]
        trouble.mood = ""
        assert other.explain(theirs, 0).frames[-1][0] == "done"  # nobody else has to wait for it
        assert client.ask("GET", "/health").status == 200
        trouble.free.set()
        until(lambda: app.state.desk.turns.lost == 0)


def test_uploads_are_read_a_few_at_a_time_and_more_than_so_many_are_refused() -> None:
    with served(glass(), limits=Limits(visitors=25)) as (port, _), ExitStack() as stack:
        uploads = []
        for visitor in [Client(port).visit() for _ in range(17)]:  # they begin and do not end
            uploads.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
            lines = ["POST /api/pictures HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Cookie: {cookie}"]
            uploads[-1].sendall("\r\n".join([*lines, "Content-Length: 9000", "", "x"]).encode())
        answered, _, _ = select.select(uploads, [], [], 20)
        assert [one.recv(12) for one in answered] == [b"HTTP/1.1 503"]
        assert Client(port).ask("GET", "/health").status == 200


def test_who_comes_to_a_full_house_reads_a_sentence() -> None:
    with served(glass(), limits=Limits(visitors=1)) as (port, _):
        Client(port).visit().open(picture())
        refused = Client(port).ask("GET", "/")
        assert (refused.status, refused.headers["content-type"]) == (503, "text/plain; charset=utf-8")
        assert refused.body == b"There are too many visitors right now. Please come back in a while."


def test_a_model_that_hangs_for_good_is_told_to_who_runs_it() -> None:
    trouble = Trouble()
    with served(glass(trouble), limits=Limits(seconds=1, evaluations=48)) as (port, _):
        clients = [Client(port).visit() for _ in range(4)]
        abouts = [client.open(picture(i)) for i, client in enumerate(clients)]
        trouble.mood = "hang"
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda pair: pair[0].explain(pair[1], 0), zip(clients, abouts, strict=True)))
        assert all(answer.frames[-1][0] == "error" for answer in answers)
        health = clients[0].ask("GET", "/health")
        assert (health.status, health.json["status"]) == (503, "failing")
        assert clients[0].ask("GET", "/").status == 200  # the page itself is there
        refused = clients[0].ask("POST", "/api/pictures", picture())
        assert refused.status == 503
        assert "does not answer any more" in refused.json["error"]
        trouble.free.set()


def test_who_leaves_stops_their_work() -> None:
    trouble = Trouble()
    with served(glass(trouble), limits=Limits(evaluations=1200)) as (port, app):
        client = Client(port).visit()
        about = client.open(picture())
        trouble.mood = "slow"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        cookie = "; ".join(f"{k}={v}" for k, v in client.cookies.items())
        connection.request(
            "POST", f"/api/pictures/{about['id']}/explain", b'{"target": 0, "evaluations": 1200}', {"Cookie": cookie}
        )
        connection.getresponse().read(100)
        before = trouble.calls
        connection.close()
        until(lambda: not app.state.desk._asked)
        time.sleep(0.3)
        after = trouble.calls
        time.sleep(0.3)
        assert trouble.calls == after
        assert after - before < 60
        assert client.ask("GET", "/health").json["waiting"] == 0


@pytest.fixture(scope="module")
def guarded() -> Iterator[int]:
    with served(door=Door(("demo.example", "127.0.0.1"), token="secret")) as (port, _):
        yield port


def test_beyond_this_machine_it_wants_a_key(guarded: int) -> None:
    client = Client(guarded)
    assert client.ask("GET", "/").status == 401
    assert client.ask("GET", "/?token=wrong").status == 403
    assert client.ask("POST", "/api/pictures", picture()).status == 401
    assert client.ask("GET", "/static/main.js").status == 401
    assert client.ask("GET", "/health").status == 200
    welcome = client.ask("GET", "/?token=secret")
    assert (welcome.status, welcome.headers["location"]) == (303, "./")  # the key leaves the address
    assert client.visit().open(picture())["top"]
    assert client.ask("GET", "/", headers={"Host": "other.example"}).status == 421
    assert client.ask("GET", "/", headers={"Host": "demo.example"}).status == 200


def test_what_browsers_are_told(client: Client) -> None:
    front = client.ask("GET", "/")
    policy = front.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    fresh = Client(client.port).ask("GET", "/").headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict"} <= {part.strip() for part in fresh.split(";")}
    framed = Door(frames=("http://localhost:*",)).headers
    assert "frame-ancestors http://localhost:*" in framed["Content-Security-Policy"]
    assert "X-Frame-Options" not in framed
    assert Door(frames=("https://huggingface.co",), secure=True).cookie["partitioned"]


def test_the_page_loads_nothing_from_elsewhere() -> None:
    from usu.app.assets import files

    # a namespace is a name, not a place
    pages = {name: data.replace(b"http://www.w3.org/2000/svg", b"") for name, data in files().items()}
    assert [name for name, data in pages.items() if b"http:" in data or b"https:" in data] == []
