# Follows a channel with the Python SDK, and prints what it is given, one JSON object a line:
#   python follower.py URL CHANNEL json|protobuf
# It goes on until it is killed.
import asyncio
import base64
import json
import sys

from centrifuge import Client, PublicationContext, SubscribedContext, SubscriptionEventHandler

url, channel, encoding = sys.argv[1:]


def say(what: dict) -> None:
    print(json.dumps(what), flush=True)


class Says(SubscriptionEventHandler):
    async def on_subscribed(self, ctx: SubscribedContext) -> None:
        say({"subscribed": {"wasRecovering": ctx.was_recovering, "recovered": ctx.recovered}})

    async def on_publication(self, ctx: PublicationContext) -> None:
        data = ctx.pub.data
        is_bytes = isinstance(data, bytes)
        said = {"base64": base64.b64encode(data).decode()} if is_bytes else {"data": data}
        say({"publication": {"offset": ctx.pub.offset, **said}})


async def follow() -> None:
    client = Client(url, use_protobuf=encoding == "protobuf", min_reconnect_delay=0.01, max_reconnect_delay=0.2)
    subscription = client.new_subscription(
        channel, events=Says(), recoverable=True, positioned=True, min_resubscribe_delay=0.01, max_resubscribe_delay=0.2
    )
    await client.connect()
    await subscription.subscribe()
    await asyncio.Event().wait()


asyncio.run(follow())
