// Runs each check with each encoding, every one against a broker of its own, then the Python SDK's own tests, and says how
// it went.
// `./run --help` tells the options.
import { createInterface } from "node:readline"
import { parseArgs } from "node:util"

import { Broker, launch, sennit } from "./broker.mjs"
import { OPTIONS, OPTIONS_HELP, Score, randomOf, setUp } from "./checking.mjs"
import { checks } from "./checks.mjs"
import { World } from "./world.mjs"

const ENCODINGS = ["json", "protobuf"]
const TRANSPORTS = ["websocket", "sse", "http_stream"]

/** The Python SDK's own tests, as a check is named. */
const OWN = "own tests of the Python SDK"

/** What has to be run, checks and tests: fewer would mean that some were not. */
const CHECKS = 38 + 7 + 30 + 59

const HELP = `run [options]: the Centrifuge SDKs against a broker
${OPTIONS_HELP}
  --encodings LIST  (default: ${ENCODINGS.join(",")})
  --transports LIST (default: ${TRANSPORTS.join(",")})`

const { values: options } = parseArgs({
  options: {
    ...OPTIONS,
    encodings: { type: "string", default: ENCODINGS.join(",") },
    transports: { type: "string", default: TRANSPORTS.join(",") },
  },
})

if (options.help) {
  console.log(HELP)
  process.exit(0)
}

setUp()

function world(start, transport, encoding) {
  const random = randomOf(options.seed)
  // The Python SDK knows WebSocket only.
  const python = transport === "websocket" ? process.env.CLIENT_PYTHON?.split(" ") : undefined
  return World.start(options.sennit, { transport, encoding, random, python }, start)
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
const score = new Score()
const only = new RegExp(options.only ?? "")
const canRun = ({ options: { redis } }) => !(redis && process.env.WITHOUT_REDIS)
for (const each of checks.filter((each) => only.test(each.name) && canRun(each))) {
  for (const [transport, encoding] of ways(each)) {
    const name = `${`${transport} ${encoding}`.padEnd(20)} ${each.name}`
    await score.run(name, each.check, () => world(each.options, transport, encoding))
  }
}
if (only.test(OWN)) {
  console.log(OWN)
  score.add(...(await ownTests()))
}
const isPart = options.only || options.encodings !== ENCODINGS.join(",") || options.transports !== TRANSPORTS.join(",")
const isWhole = isPart || process.env.WITHOUT_REDIS || score.passed + score.failed === CHECKS
score.end(isWhole ? undefined : `${CHECKS} have to be run`)
