"""Follows a room of examples/chat and speaks in it, with PyPI's centrifuge-python.

    python room.py lobby Ada                          # all that is kept, then what is new; each line you type is said
    python room.py lobby Ada --position position.json # goes on where it was when it ended

Whatever becomes of network, broker and program: each message is printed once, or its loss is told.
"""

import argparse
import asyncio
import json
import os
import sys
import time
import uuid
from collections import OrderedDict
from pathlib import Path

from centrifuge import CentrifugeError, Client, ReplyError, StreamPosition, SubscriptionEventHandler

# Ids of messages that are remembered, so that one that was sent twice is printed once.
REMEMBERED = 10_000
# Seconds until a message is sent again that was not confirmed.
AGAIN_S = 0.5


def tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


class Room(SubscriptionEventHandler):
    def __init__(self, client: Client, name: str, position_file: Path | None) -> None:
        self.client, self.name, self.channel, self.file = client, name, f"chat:{name}", position_file
        self.epoch, self.has_begun = "", False
        self.seen: OrderedDict[tuple, None] = OrderedDict()
        self.subscription = client.new_subscription(
            self.channel, events=self, recoverable=True, positioned=True, get_state=self.where_to_begin
        )

    async def where_to_begin(self, _channel: str) -> StreamPosition:
        """The SDK asks at the beginning, and again if the broker cannot go on there without a gap."""
        if not self.has_begun:
            self.has_begun = True
            if self.file and self.file.exists():
                return StreamPosition(**json.loads(self.file.read_text()))
            return StreamPosition(offset=0, epoch="")
        tell(f"gap: messages of {self.name} are missing; going on with the oldest that is kept")
        kept = await self.client.history(self.channel, limit=1)
        oldest = kept.publications[0].offset - 1 if kept.publications else kept.offset
        return StreamPosition(offset=oldest, epoch=kept.epoch)

    async def on_subscribed(self, ctx) -> None:
        self.epoch = ctx.stream_position.epoch
        tell("live")

    async def on_subscribing(self, ctx) -> None:
        tell(f"away: {ctx.reason}")

    async def on_unsubscribed(self, ctx) -> None:
        tell(f"the broker ends it: {ctx.reason}")
        os._exit(1)

    async def on_publication(self, ctx) -> None:
        message = ctx.pub.data
        if isinstance(message, dict) and isinstance(message.get("text"), str):
            if self.is_new(message):
                print(f"{message.get('name', 'somebody')}: {message['text']}", flush=True)
        if self.file:
            beside = self.file.with_suffix(".new")
            beside.write_text(json.dumps({"offset": ctx.pub.offset, "epoch": self.epoch}))
            beside.replace(self.file)

    def is_new(self, message: dict) -> bool:
        if not isinstance(message.get("id"), str):
            return True
        key = (str(message.get("person")), message["id"])
        if key in self.seen:
            return False
        self.seen[key] = None
        if len(self.seen) > REMEMBERED:
            self.seen.popitem(last=False)
        return True

    async def say(self, message: dict) -> None:
        """Sends a message until it is confirmed, always with the same id."""
        while True:
            try:
                await self.subscription.publish(message)
                return
            except ReplyError as refusal:
                if not refusal.temporary:
                    return tell(f"not sent: {refusal.message}")
            except (CentrifugeError, OSError):
                pass
            await asyncio.sleep(AGAIN_S)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Follows a room and speaks in it.")
    parser.add_argument("room")
    parser.add_argument("name")
    parser.add_argument("--broker", default="ws://127.0.0.1:4437/connection/websocket")
    parser.add_argument("--position", type=Path, help="the file that remembers where it was")
    options = parser.parse_args()

    client = Client(options.broker, max_reconnect_delay=2)
    room = Room(client, options.room, options.position)
    await client.connect()
    await room.subscription.subscribe()

    person = str(uuid.uuid4())
    while line := await asyncio.to_thread(sys.stdin.readline):
        if text := line.strip():
            at = int(time.time() * 1000)
            await room.say({"id": str(uuid.uuid4()), "person": person, "name": options.name, "text": text, "at": at})
    await asyncio.Event().wait()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
