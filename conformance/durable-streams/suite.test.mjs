// The official conformance suite as a library: its own command line finds no test under vitest 4,
// and never enables the tests of subscriptions. It knows no credentials: identity.setup.mjs shows them.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({
  baseUrl: process.env.CONFORMANCE_URL,
  longPollTimeoutMs: Number(process.env.CONFORMANCE_LONG_POLL_MS),
  subscriptions: true,
})
