"""The load of ``make soak``: visitors who open pictures and ask, each with a picture only they have.

``python -m tests.soak.visitors [--visitors 20] [--seconds 300]`` prints the figures. Everything stays on loopback.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import random
import re
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from tests.unit.app.served import read_frame

#: Evaluations of one map: what the queue is made of, not how good the map is.
EVALUATIONS = 48


@dataclass
class Figures:
    """What came of it."""

    visitors: int
    seconds: float
    answers: int
    refused: int
    #: Answers that belong to somebody else.
    strangers: int
    #: Seconds from a question to its finished map.
    mean: float
    median: float
    longest: float
    #: Seconds to the first map.
    first: float
    memory_mb: float
    growth_mb: float


@dataclass
class Visitor:
    """One of them: opens a picture of their own and asks, again and again."""

    number: int
    port: int
    end: float
    waits: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    refused: int = 0
    strangers: int = 0

    def picture(self, turn: int) -> bytes:
        """One that only this visitor has: its width tells whose it is."""
        rng = np.random.default_rng(1000 * self.number + turn)
        pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).resize((300 + self.number, 260), Image.Resampling.BICUBIC).save(out, "PNG")
        return out.getvalue()

    def run(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)) as connection:
            self.ask(connection)

    def ask(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        chosen, turn = random.Random(self.number), 0
        time.sleep(chosen.random())
        while time.monotonic() < self.end:
            turn += 1
            data = self.picture(turn)
            connection.request("POST", "/api/pictures", data, {"Cookie": cookie})
            answer = connection.getresponse()
            about = json.loads(answer.read())
            if answer.status != 200:
                self.refused += 1
                time.sleep(1)
                continue
            self.strangers += about["width"] != 300 + self.number
            self.explain(connection, about, cookie, about["top"][chosen.randrange(5)]["index"])

    def explain(self, connection: http.client.HTTPConnection, about: dict, cookie: str, target: int) -> None:
        began = time.monotonic()
        body = json.dumps({"target": target}).encode()
        connection.request("POST", f"/api/pictures/{about['id']}/explain", body, {"Cookie": cookie})
        answer = connection.getresponse()
        kind, first = "", None
        while head := answer.read(8):
            size = int.from_bytes(head[:4], "little") + int.from_bytes(head[4:], "little")
            kind, values, _ = read_frame(head + answer.read(size))
            first = first or time.monotonic() - began
            self.strangers += values.get("target", target) != target
        if kind == "done":
            self.waits.append(time.monotonic() - began)
            self.firsts.append(first or 0.0)
        else:
            self.refused += 1


def memory_mb(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else 0.0


def run(visitors: int = 20, seconds: float = 300) -> Figures:
    """The embedded network on a free port, for so long."""
    command = [sys.executable, "-m", "usu.cli", "app", "--port", "0", "--no-browser", "--evaluations", str(EVALUATIONS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None, "the server did not start"
        end = time.monotonic() + seconds
        everybody = [Visitor(number, int(found[1]), end) for number in range(visitors)]
        threads = [threading.Thread(target=one.run) for one in everybody]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 3)  # by then everybody has a picture open, and caches are full
        early, most = memory_mb(process.pid), 0.0
        while any(thread.is_alive() for thread in threads):
            most = max(most, memory_mb(process.pid))
            time.sleep(0.5)
        waits = [wait for one in everybody for wait in one.waits]
        return Figures(
            visitors, seconds, len(waits), sum(one.refused for one in everybody),
            sum(one.strangers for one in everybody), float(np.mean(waits)), float(np.median(waits)), max(waits),
            float(np.median([first for one in everybody for first in one.firsts])), most, most - early,
        )  # fmt: skip
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=300)
    asked = parser.parse_args()
    for name, value in vars(run(asked.visitors, asked.seconds)).items():
        sys.stdout.write(f"{name:12} {value:.4g}\n")


if __name__ == "__main__":
    main()
