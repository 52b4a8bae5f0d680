# Runs the Python SDK's own tests, unmodified, against a broker:
#   python own_tests.py SOURCE PORT PORT_WITH_IDENTITY [PATTERN]
# They ask localhost:8000 for Centrifugo, and get the broker of PORT. Each has a process and a deadline of its own.
# It prints a line for each, and `N passed, N failed`.
import asyncio
import multiprocessing
import os
import re
import socket
import sys
import unittest

source, port, port_with_identity = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
pattern = sys.argv[4] if len(sys.argv) > 4 else ""

MODULE = "tests.test_client"

# Tests of that module: fewer would mean that some were not looked at. The other modules ask servers of their own.
TESTS = 62

DEADLINE_S = 60

# What the broker does not serve.
LEFT_OUT = {
    "TestSubscriptionTokenInvalid.test_client_token": "tokens of subscriptions",
    "TestServerSideSubscriptions.test_server_side_subs": "server-side subscriptions",
    "TestGetState.test_get_state_called_again_on_unrecoverable_position": "a namespace whose channels keep two publications",
}

# Only a broker that asks for credentials has wrong ones.
WITH_IDENTITY = {"TestClientTokenInvalid.test_client_token"}

# They connect a second client without waiting for the subscription of the first, whose topic has to be created durably. With
# the second one subscribed first, what they wait for would not come.
SUBSCRIBES_ONE_BY_ONE = {
    "TestAutoRecovery.test_auto_recovery",
    "TestJoinLeave.test_join_leave",
    "TestPresenceTwoClients.test_presence_two_clients",
}


def lead_to(port: int) -> None:
    """Has connections to localhost:8000 go to a port of the loopback."""
    create, create_sync = asyncio.BaseEventLoop.create_connection, socket.create_connection

    async def create_connection(self, factory, host=None, to=None, **options):
        to = options.pop("port", to)
        if (host, to) == ("localhost", 8000):
            host, to = "127.0.0.1", port
        return await create(self, factory, host, to, **options)

    def create_connection_sync(address, *rest, **options):
        return create_sync(("127.0.0.1", port) if address == ("localhost", 8000) else address, *rest, **options)

    asyncio.BaseEventLoop.create_connection = create_connection
    socket.create_connection = create_connection_sync


def subscribe_one_by_one() -> None:
    """Has `subscribe` wait until the server has answered."""
    subscription = sys.modules[MODULE].centrifuge.Subscription
    subscribe = subscription.subscribe

    async def subscribe_and_wait(self):
        await subscribe(self)
        await self.ready()

    subscription.subscribe = subscribe_and_wait


def run(test: unittest.TestCase, name: str, says) -> None:
    # What the SDK logs of all that it does.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    lead_to(port_with_identity if name in WITH_IDENTITY else port)
    if name in SUBSCRIBES_ONE_BY_ONE:
        subscribe_one_by_one()
    result = unittest.TestResult()
    try:
        sys.modules[MODULE].setUpModule()
        test.run(result)
    except RuntimeError as error:
        return says.send(str(error)[:300])
    whys = [why for _, why in result.errors + result.failures + result.skipped]
    says.send(whys[0].strip().splitlines()[-1][:300] if whys else "" if result.testsRun == 1 else "it did not run")


def tests(suite) -> list:
    return [test for each in suite for test in (tests(each) if isinstance(each, unittest.TestSuite) else [each])]


# Behind the SDK that is installed.
sys.path.append(source)
forking = multiprocessing.get_context("fork")
found = {test.id().removeprefix(f"{MODULE}."): test for test in tests(unittest.defaultTestLoader.loadTestsFromName(MODULE))}
passed = failed = 0
for name, test in found.items():
    if not re.search(pattern, name):
        continue
    if name in LEFT_OUT:
        print(f"left out  {name}: {LEFT_OUT[name]}")
        continue
    hears, says = forking.Pipe(duplex=False)
    child = forking.Process(target=run, args=(test, name, says))
    child.start()
    says.close()
    try:
        why = hears.recv() if hears.poll(DEADLINE_S) else f"not done after {DEADLINE_S} s"
    except EOFError:
        why = "its process ended"
    child.kill()
    child.join()
    passed, failed = (passed, failed + 1) if why else (passed + 1, failed)
    print(f"FAILED    {name}: {why}" if why else f"ok        {name}", flush=True)
print(f"{passed} passed, {failed} failed, {len(LEFT_OUT)} left out", flush=True)
is_whole = len(found) == TESTS and LEFT_OUT.keys() | WITH_IDENTITY | SUBSCRIBES_ONE_BY_ONE <= found.keys()
if not is_whole:
    print(f"{len(found)} tests of {MODULE}, not {TESTS}, or others than those that are known")
sys.exit(0 if is_whole and passed and not failed else 1)
