"""What the official Python client does with a broker; conformance/README.md says the steps."""

import os
import sys
import threading
import time

import httpx
from durable_streams import DurableStream, stream
from durable_streams._errors import DurableStreamError, FetchError

BASE = f"{sys.argv[1]}/v1/stream/clients/python-{os.getpid()}"
JSON, BYTES = f"{BASE}/json", f"{BASE}/bytes"
FIRST, TAILED, AFTER = 20, 5, 10
DEADLINE_S = 60
KEY = os.environ.get("CONFORMANCE_KEY")
HEADERS = {"Authorization": f"Bearer {KEY}"} if KEY else {}


def message(n):
    return {"n": n, "text": f"message {n} ✓"}


def chunk(n):
    return bytes((index * 7 + n) % 256 for index in range(1000 + n))


def step(name):
    print(f"step {name}", flush=True)


class Tail(threading.Thread):
    """Follows a stream from its start. The client ends a session whose connection breaks, so it is begun
    again at the offset that the session has reached, as a user of it would."""

    def __init__(self, url, live, mode):
        super().__init__(daemon=True)
        self.url, self.live, self.mode = url, live, mode
        self.items, self.closed, self.stopped = [], False, False
        self.change = threading.Condition()
        self.start()

    def run(self):
        offset = "-1"
        while not self.closed:
            try:
                with stream(self.url, offset=offset, live=self.live, headers=HEADERS) as session:
                    for event in session.iter_events(mode=self.mode):
                        offset = event.next_offset
                        with self.change:
                            self.items.extend(event.data)
                            self.change.notify_all()
                            if self.stopped:
                                return
            except (httpx.HTTPError, FetchError, DurableStreamError):
                time.sleep(0.05)

    def wait_for(self, count):
        with self.change:
            whole = self.change.wait_for(lambda: len(self.items) >= count, DEADLINE_S)
        assert whole, f"{self.url}: {len(self.items)} of {count} have come"


json_stream = DurableStream.create(JSON, content_type="application/json", headers=HEADERS)
bytes_stream = DurableStream.create(BYTES, content_type="application/octet-stream", headers=HEADERS)
step("create")

sent = 0


def append(count):
    global sent
    for n in range(sent, sent + count):
        json_stream.append(message(n))
        bytes_stream.append(chunk(n))
    sent += count


append(FIRST)
step("append")

with stream(JSON, offset="-1", live=False, headers=HEADERS) as session:
    assert session.read_json() == [message(n) for n in range(FIRST)]
with stream(BYTES, offset="-1", live=False, headers=HEADERS) as session:
    assert session.read_bytes() == b"".join(map(chunk, range(FIRST)))
step("read")

messages, octets = Tail(JSON, "sse", "json"), Tail(BYTES, "long-poll", "bytes")


def tailed():
    whole = b"".join(map(chunk, range(sent)))
    messages.wait_for(sent)
    octets.wait_for(len(whole))
    assert messages.items == [message(n) for n in range(sent)]
    assert bytes(octets.items) == whole


tailed()
append(TAILED)
tailed()
step("tail")

print("kill", flush=True)
sys.stdin.readline()
append(AFTER)
tailed()
step("restart")

# This client knows no close yet: its headers do it, with a last message.
closing = {**HEADERS, "Stream-Closed": "true"}
for url, content_type, last in [
    (JSON, "application/json", message(sent)),
    (BYTES, "application/octet-stream", chunk(sent)),
]:
    messages.stopped = octets.stopped = True
    DurableStream(url, content_type=content_type, headers=closing).append(last)
sent += 1
tailed()
try:
    json_stream.append(message(sent))
    raise AssertionError("an append to a closed stream was taken")
except DurableStreamError as refusal:
    assert "409" in str(refusal) or "onflict" in str(refusal), refusal
step("close")
