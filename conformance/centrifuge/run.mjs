// Runs each check with each encoding, every one against a broker of its own, then the Python SDK's own tests, and says how
// it went.
// `./run --help` tells the options.
import { appendFileSync } from "node:fs"
import { createInterface } from "node:readline"
import { parseArgs } from "node:util"

import { Broker, launch, sennit } from "./broker.mjs"
import { checks } from "./checks.mjs"
import { World, randomOf } from "./world.mjs"

const ENCODINGS = ["json", "protobuf"]
const TRANSPORTS = ["websocket", "sse", "http_stream"]

/** The Python SDK's own tests, as a check is named. */
const OWN = "own tests of the Python SDK"

/** What has to be run, checks and tests: fewer would mean that some were not. */
const CHECKS = 36 + 6 + 30 + 59

/** How long one check may take. */
const DEADLINE_MS = 180_000

const HELP = `run [options]: the Centrifuge SDKs against a broker

  --sennit FILE     the broker (default: $SENNIT, else target/debug/sennit)
  --only PATTERN    only checks whose name matches
  --encodings LIST  (default: ${ENCODINGS.join(",")})
  --transports LIST (default: ${TRANSPORTS.join(",")})
  --seed N          when connections are cut (default: drawn, and printed)`

const { values: options } = parseArgs({
  options: {
    sennit: { type: "string", default: process.env.SENNIT },
    only: { type: "string" },
    encodings: { type: "string", default: ENCODINGS.join(",") },
    transports: { type: "string", default: TRANSPORTS.join(",") },
    seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 32)) },
    help: { type: "boolean", default: false },
  },
})

if (options.help) {
  console.log(HELP)
  process.exit(0)
}

/** Pings come often enough for a check to see some. */
process.env.SENNIT_LIVE__PING_INTERVAL = "1s"
/** As the Python SDK's own tests have Centrifugo do. */
process.env.SENNIT_LIVE__JOIN_LEAVE = "all"
/** Wrong credentials are shown on purpose. */
process.env.RUST_LOG ??= "error"

async function run({ check, options: start }, transport, encoding) {
  const random = randomOf(options.seed)
  // The Python SDK knows WebSocket only.
  const python = transport === "websocket" ? process.env.CLIENT_PYTHON?.split(" ") : undefined
  const world = await World.start(options.sennit, { transport, encoding, random, python }, start)
  let late
  try {
    const tooLate = new Promise((_, reject) => {
      late = setTimeout(() => reject(new Error(`not done after ${DEADLINE_MS / 1000} s`)), DEADLINE_MS)
    })
    await Promise.race([check(world), tooLate])
  } finally {
    clearTimeout(late)
    await world.end()
  }
}

/** The Python SDK's own tests; the numbers of those that passed and failed. */
async function ownTests() {
  const brokers = []
  for (const mode of ["file-durable", "file-durable+identity"]) brokers.push(await Broker.start(sennit(options.sennit, mode)))
  try {
    const { OWN_TESTS, OWN_TESTS_SOURCE: source } = process.env
    const ports = brokers.map(({ port }) => String(port))
    const child = launch([...OWN_TESTS.split(" "), source, ...ports], { stdio: ["ignore", "pipe", "inherit"] })
    const ended = new Promise((resolve) => child.once("exit", resolve))
    let tally
    for await (const line of createInterface({ input: child.stdout })) {
      console.log(line)
      tally = /^(\d+) passed, (\d+) failed/.exec(line) ?? tally
    }
    const [passed, failed] = tally ? [Number(tally[1]), Number(tally[2])] : [0, 0]
    // It knows best whether it was whole.
    return (await ended) === 0 || failed > 0 ? [passed, failed] : [passed, 1]
  } finally {
    for (const broker of brokers) await broker.stop()
  }
}

/** Over what a check is done. Events are text. */
function ways({ transports, encodings = ENCODINGS }) {
  const wanted = options.transports.split(",").filter((transport) => transports.includes(transport))
  const both = options.encodings.split(",").filter((encoding) => encodings.includes(encoding))
  const pairs = wanted.flatMap((transport) => both.map((encoding) => [transport, encoding]))
  return pairs.filter(([transport, encoding]) => transport !== "sse" || encoding === "json")
}

console.log(`seed ${options.seed}`)
let [passed, failed] = [0, 0]
const only = new RegExp(options.only ?? "")
const canRun = ({ options: { redis } }) => !(redis && process.env.WITHOUT_REDIS)
for (const each of checks.filter((each) => only.test(each.name) && canRun(each))) {
  for (const [transport, encoding] of ways(each)) {
    const begun = Date.now()
    const why = await run(each, transport, encoding).then(() => undefined, (error) => error)
    const seconds = ((Date.now() - begun) / 1000).toFixed(1).padStart(6)
    console.log(`${why ? "FAILED" : "ok    "} ${seconds} s  ${`${transport} ${encoding}`.padEnd(20)} ${each.name}`)
    if (why) console.log(`       ${String(why.stack ?? JSON.stringify(why)).slice(0, 1000)}`)
    if (why) failed += 1
    else passed += 1
  }
}
if (only.test(OWN)) {
  console.log(OWN)
  const [ownPassed, ownFailed] = await ownTests()
  passed += ownPassed
  failed += ownFailed
}
console.log(`${passed} passed, ${failed} failed`)
const isPart = options.only || options.encodings !== ENCODINGS.join(",") || options.transports !== TRANSPORTS.join(",")
const isWhole = isPart || process.env.WITHOUT_REDIS || passed + failed === CHECKS
if (!isWhole) console.log(`${CHECKS} have to be run`)
if (process.env.TEST_COUNTS) appendFileSync(process.env.TEST_COUNTS, `${passed} ${failed}\n`)
process.exit(failed === 0 && isWhole && passed > 0 ? 0 : 1)
