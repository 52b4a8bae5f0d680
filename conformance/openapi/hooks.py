"""What is made up of single fields, put together so that a broker can do it: fields that need each other come
together or not at all, and nobody outside is called. What is meant to be wrong stays wrong. Where the broker asks for
credentials, each request shows a key, and some show one that must not be enough."""

import json
import os
from collections import Counter

import schemathesis
from schemathesis import GenerationMode

CLAIMED = json.loads(os.environ["CLAIMED"])
KEY, POWERLESS_KEY = os.environ.get("CONFORMANCE_KEY"), os.environ.get("POWERLESS_KEY")
# Of thirteen requests for an operation, three show these in turn.
NO_KEYS, NO_RIGHT = [None, f"Bearer {KEY}x"], f"Bearer {POWERLESS_KEY}"
SHOWN = [f"Bearer {KEY}", *NO_KEYS, NO_RIGHT] + 9 * [f"Bearer {KEY}"]
asked = Counter()
PRODUCER = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
FORK = ("Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset")
TYPES = {"notes": "text/plain", "over": "text/plain", "log/json": "application/json"}
TYPES |= {"wakes": "application/json", "pair/one": "text/plain", "pair/two": "text/plain"}


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw.get("operationId")
    call_nobody(case.body)
    if needs_key(case):
        show_key(case.operation.label, case.headers)
    spare(operation, case.path_parameters, case.headers)
    if case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE:
        agree(case.headers, PRODUCER, all(name in case.headers for name in PRODUCER))
        agree(case.headers, FORK, FORK[0] in case.headers)
        if "Producer-Seq" in case.headers:
            case.headers["Producer-Seq"] = "0"
        if "Stream-TTL" in case.headers:
            case.headers.pop("Stream-Expires-At", None)
        if operation == "appendToStream":
            append(case)
        if operation in ("connectLiveStream", "connectLiveEventsByBody") and isinstance(case.body, dict):
            # A number that no command may have: the answer says so, and ends.
            case.body["id"] = 0
        if operation == "appendTogether" and isinstance(case.body, dict):
            append_together(case.body["appends"])
        if operation == "createSubscription" and isinstance(case.body, dict) and "wake_stream" in case.body:
            case.body["wake_stream"] = "wakes"
        if operation == "ackWork" and isinstance(case.body, dict):
            ack(case)


def call_nobody(body):
    """Webhooks go to a port of this machine that nobody listens on."""
    webhook = body.get("webhook") if isinstance(body, dict) else None
    if isinstance(webhook, dict) and str(webhook.get("url")).lower().startswith("http"):
        webhook["url"] = "https://localhost:9/"


def needs_key(case):
    """Some are open to all, and some have a token of their own: the page says so."""
    return KEY is not None and "security" not in case.operation.definition.raw


def show_key(label, headers):
    shown = SHOWN[asked[label] % len(SHOWN)]
    asked[label] += 1
    headers.pop("Authorization", None)
    if shown is not None:
        headers["Authorization"] = shown


@schemathesis.check
class NothingWithoutARight:
    """Who shows no key or a wrong one is told so, whatever is asked; who has no right does nothing."""

    def __init__(self):
        self.refusals = set()

    def after_response(self, ctx, response, case):
        if not needs_key(case):
            return
        shown, status = response.request.headers.get("Authorization"), response.status_code
        if shown in NO_KEYS:
            assert status == 401, f"{status} without a key"
        if shown == NO_RIGHT:
            assert 400 <= status < 500, f"{status} without a right"
            self.refusals.add(status)

    def after_run(self, ctx):
        assert KEY is None or 403 in self.refusals, f"who has no right hears {self.refusals}"


def agree(headers, names, wanted):
    for name in () if wanted else names:
        headers.pop(name, None)


def spare(operation, path, headers):
    """What there is from the beginning stays and goes on, so that there is something to ask."""
    if operation == "appendToStream" and path.get("path") in TYPES:
        headers.pop("Stream-Closed", None)
    if operation == "deleteStream" and path.get("path") in TYPES:
        path["path"] = "a/b/c"
    if operation == "deleteSubscription":
        path["id"] = "mailer"
    if operation == "ackWork" and path.get("verb") == "release":
        path["id"] = "mailer"


def append(case):
    """Of the stream's type."""
    path = case.path_parameters.get("path")
    if path in TYPES:
        case.media_type = TYPES[path]
        case.body = case.body if TYPES[path] == "application/json" else json.dumps(str(case.body))


def append_together(appends):
    """To the two streams that can, each once, as whoever is new."""
    del appends[2:]
    for stream, one in zip(("pair/one", "pair/two"), appends):
        one.update(stream=stream, content_type="text/plain", close=False)
        one.pop("seq", None)
        one.pop("producer", None)


def ack(case):
    """Of the wake that was claimed, without ending it."""
    case.headers["Authorization"] = f"Bearer {CLAIMED['token']}"
    if case.path_parameters.get("verb") != "release":
        case.path_parameters["id"] = "puller"
        case.body.update({name: CLAIMED[name] for name in ("wake_id", "generation")}, done=False)
