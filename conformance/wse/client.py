# A program of WSE's Python client. It does what it reads, one JSON object a line, and prints what it is given:
#   python client.py '{"url": URL, "token": KEY}' [sync]
# It goes on until its input ends. With `decode` each line is a message as a JSON string, and it prints what the client's codec
# makes of it.
import asyncio
import json
import logging
import sys
import threading
import time

from wse_client import AsyncWSEClient, ReconnectConfig, SyncWSEClient
from wse_client.compression import CompressionHandler
from wse_client.protocol import MessageCodec

way = sys.argv[2] if sys.argv[2:] else "async"
options = json.loads(sys.argv[1])
# It must come back before five attempts have failed: then it rests for a minute.
options["reconnect"] = ReconnectConfig(base_delay=0.7, factor=2.0, max_delay=8.0)
logging.getLogger("wse_client").setLevel(logging.CRITICAL)


# The client without asyncio is told of by three threads, and each says whole lines.
speaking = threading.Lock()


def say(what: dict) -> None:
    with speaking:
        print(json.dumps(what), flush=True)


def say_event(event) -> None:
    fields = ("type", "payload", "category", "topic", "epoch", "offset", "id", "correlation_id")
    say({"event": {field: getattr(event, field) for field in fields}})


said = None


def say_state(client: AsyncWSEClient | SyncWSEClient) -> None:
    global said
    state = {"state": client.state.value, "ready": client.is_fully_ready, "reconnects": client.get_stats()["reconnect_count"]}
    state["positions"] = {topic: list(position) for topic, position in client.recovery_state.items()}
    if state != said:
        said = state
        say({"is": state})


async def say_states(client: AsyncWSEClient) -> None:
    while True:
        say_state(client)
        await asyncio.sleep(0.01)


async def obey(client: AsyncWSEClient) -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        asked = json.loads(line)
        done = await getattr(client, asked["do"])(*asked.get("with", []), **asked.get("named", {}))
        say({"done": asked["do"], "returned": done if isinstance(done, bool) else None})


async def run() -> None:
    client = AsyncWSEClient(**options, queue_size=1_000_000)
    watching = asyncio.create_task(say_states(client))

    async def hear() -> None:
        await client.connect()
        # An iteration ends with each attempt that fails, though the client goes on.
        while True:
            async for event in client:
                say_event(event)

    hearing = asyncio.create_task(hear())
    await obey(client)
    watching.cancel()
    hearing.cancel()
    await client.disconnect()


def run_sync() -> None:
    client = SyncWSEClient(**options)

    client.connect()
    client.on_any(say_event)

    def hear() -> None:
        while True:
            client.run_forever()

    threading.Thread(target=hear, daemon=True).start()

    def say_states() -> None:
        while True:
            say_state(client)
            time.sleep(0.01)

    threading.Thread(target=say_states, daemon=True).start()
    for line in sys.stdin:
        asked = json.loads(line)
        getattr(client, asked["do"])(*asked.get("with", []))
        say({"done": asked["do"]})
    client.close()


def decode() -> None:
    fields = ("type", "payload", "category", "topic", "epoch", "offset", "correlation_id")
    for line in sys.stdin:
        event = MessageCodec(CompressionHandler()).decode(json.loads(line))
        said = {field: getattr(event, field) for field in fields}
        say({field: value for field, value in said.items() if value is not None})


if way == "decode":
    decode()
elif way == "sync":
    run_sync()
else:
    asyncio.run(run())
