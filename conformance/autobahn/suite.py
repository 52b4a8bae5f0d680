"""Runs the fuzzing client of the Autobahn test suite against one server, and judges its report. Python 2.7.

suite.py PACKAGES URL FOLDER [CASES...]
"""
from __future__ import print_function

import json
import os
import site
import sys

packages, url, folder = sys.argv[1:4]
patterns = sys.argv[4:] or ["*"]
AGENT = "server"
ALL_CASES = 517
# What the protocol leaves open is told, and not judged.
RIGHT = ("OK", "INFORMATIONAL")

# Packages that share a name (zope) are put together by files that only this reads.
site.addsitedir(packages)
from autobahntestsuite import fuzzing  # noqa: E402
from twisted.internet import reactor  # noqa: E402


class Client(fuzzing.FuzzingClientFactory):
    """Says how far it is."""

    def logCase(self, result):
        fuzzing.FuzzingClientFactory.logCase(self, result)
        print("%(id)s: %(behavior)s, its close: %(behaviorClose)s, %(duration)s ms" % result)
        if "TEST_PROGRESS" in os.environ:
            with open(os.environ["TEST_PROGRESS"], "a") as progress:
                progress.write("autobahn: case %s\n" % result["id"])


def report():
    with open(os.path.join(folder, "report", "index.json")) as index:
        return json.load(index).get(AGENT, {})


def main():
    log = open(os.path.join(folder, "suite.log"), "w", 1)
    sys.stdout, told = log, sys.stdout
    client = Client({
        "outdir": os.path.join(folder, "report"),
        "servers": [{"agent": AGENT, "url": url}],
        "cases": patterns,
        "exclude-cases": [],
        "exclude-agent-cases": {},
    })
    reactor.run()
    sys.stdout = told
    wanted, cases = client.specCases, report()
    if patterns == ["*"] and len(wanted) != ALL_CASES:
        print("the suite has %d cases, not %d" % (len(wanted), ALL_CASES))
        return 1
    wrong, open_to_choice = [], 0
    for case in wanted:
        behavior = cases.get(case, {}).get("behavior", "NOT RUN")
        close = cases.get(case, {}).get("behaviorClose", "NOT RUN")
        open_to_choice += "INFORMATIONAL" in (behavior, close)
        if behavior not in RIGHT or close not in RIGHT:
            wrong.append(case)
            print("case %s: %s, its close: %s" % (case, behavior, close))
    if wrong:
        print("what went over the wire: %s" % os.path.join(folder, "report", "index.html"))
    print("autobahn: %d cases, %d of them informational" % (len(wanted), open_to_choice))
    print("%d passed, %d failed" % (len(wanted) - len(wrong), len(wrong)))
    if "TEST_COUNTS" in os.environ:
        with open(os.environ["TEST_COUNTS"], "a") as counts:
            counts.write("%d %d\n" % (len(wanted) - len(wrong), len(wrong)))
    return 1 if wrong or not wanted else 0


sys.exit(main())
