// Starts a broker, puts into it what there is to be found, and has Schemathesis ask it whatever the page of the
// HTTP interface allows. `./run --help` tells the options.
import { execFileSync } from "node:child_process"
import { appendFileSync } from "node:fs"
import { parseArgs } from "node:util"

import { Broker, launch, sennit } from "./broker.mjs"

const HELP = `run [options]: docs/reference/openapi.yaml against a broker, by Schemathesis

  --sennit FILE     the broker (default: $SENNIT, else target/debug/sennit)
  --identity        has the broker ask for credentials
  --examples N      requests made up for each operation (default: 25)
  --report FILE     where every request and answer is written, as HAR
  --seed N          what they are made up from (default: drawn, and printed)`

const { values: options } = parseArgs({
  options: {
    sennit: { type: "string", default: process.env.SENNIT },
    examples: { type: "string", default: "25" },
    seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 32)) },
    report: { type: "string" },
    identity: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
})

const JSON_TYPE = { "Content-Type": "application/json" }

const TOGETHER = { "Stream-Storage": "acid", "Stream-Group": "pair" }

/** What there is from the beginning: method, path below /v1/stream/, headers, body. */
const THERE = [
  ["PUT", "notes", { "Content-Type": "text/plain" }, "first line\n"],
  ["PUT", "log/json", JSON_TYPE, '[{"n":1},{"n":2}]'],
  ["PUT", "over", { "Content-Type": "text/plain", "Stream-Closed": "true" }, "all of it"],
  ["PUT", "wakes", JSON_TYPE],
  ["PUT", "pair/one", { ...TOGETHER, "Content-Type": "text/plain" }],
  ["PUT", "pair/two", { ...TOGETHER, "Content-Type": "text/plain" }],
  ["PUT", "__ds/subscriptions/puller", JSON_TYPE, '{"type":"pull-wake","wake_stream":"wakes","streams":["log/json"]}'],
  ["PUT", "__ds/subscriptions/mailer", JSON_TYPE, '{"type":"webhook","pattern":"a/**","webhook":{"url":"https://localhost:9/"}}'],
  ["POST", "log/json", JSON_TYPE, '{"n":3}'],
  ["POST", "__ds/subscriptions/puller/claim", JSON_TYPE, '{"worker":"schemathesis"}'],
]

/** A key without a right. */
function powerlessKey() {
  const env = { ...process.env, SENNIT_SERVER: `127.0.0.1:${broker.listenPort}`, SENNIT_KEY: broker.key }
  return execFileSync(options.sennit, ["auth", "key", "create", "powerless"], { env, encoding: "utf8" }).trim()
}

if (options.help) {
  console.log(HELP)
  process.exit(0)
}
/** A live connection that says nothing ends soon. */
process.env.SENNIT_LIVE__PING_INTERVAL = "1s"
const broker = await Broker.start(sennit(options.sennit, options.identity ? "file-durable+identity" : "file-durable"))
let last
for (const [method, path, headers, body] of THERE) {
  const reply = await fetch(`${broker.url}/v1/stream/${path}`, { method, headers: { ...headers, ...broker.headers }, body })
  last = await reply.text()
  if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${last}`)
}
console.log(`seed ${options.seed}`)
const { SCHEMATHESIS, OPENAPI, CONFIG } = process.env
const flags = ["--config-file", CONFIG, "run", OPENAPI, "--url", broker.url, "--no-color"]
flags.push("--max-examples", options.examples, "--seed", options.seed, "--generation-database", "none")
if (options.report) flags.push("--report-har-path", options.report)
const env = { ...process.env, CLAIMED: last, CONFORMANCE_KEY: broker.key && (process.env.CONFORMANCE_KEY ?? broker.key) }
env.POWERLESS_KEY = broker.key && powerlessKey()
const child = launch([SCHEMATHESIS, ...flags], { stdio: ["ignore", "inherit", "inherit"], env })
const code = await new Promise((resolve) => child.once("exit", resolve))
const metrics = await fetch(`${broker.url}/metrics`, { headers: broker.headers }).then((reply) => reply.text(), () => "")
const answers = (kind) =>
  [...metrics.matchAll(RegExp(`^sennit_http_answers_${kind}_total\\S* (\\d+)`, "gm"))].reduce((sum, [, count]) => sum + Number(count), 0)
const [done, refused, failed] = ["2xx", "4xx", "5xx"].map(answers)
console.log(`${done} requests done, ${refused} refused, ${failed} failed`)
// Refusals alone would say little. Routes to WebSocket refuse all of it, and those to connections by id nearly all.
const isWhole = done > refused / 10
if (!isWhole) console.log("hardly anything that was asked was done")
const isReady = await fetch(`${broker.url}/readyz`).then((reply) => reply.ok, () => false)
if (!isReady) console.log("the broker is not ready any more")
await broker.stop()
const isRight = code === 0 && isReady && isWhole
if (process.env.TEST_COUNTS) appendFileSync(process.env.TEST_COUNTS, isRight ? "1 0\n" : "0 1\n")
process.exit(isRight ? 0 : 1)
