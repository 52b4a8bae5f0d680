// Runs each check, every one against a broker of its own, and says how it went.
// `./run --help` tells the options.
import { appendFileSync } from "node:fs"
import { parseArgs } from "node:util"

import { checks } from "./checks.mjs"
import { World, randomOf } from "./world.mjs"

/** How long one check may take. */
const DEADLINE_MS = 180_000

const HELP = `run [options]: WSE's Python client against a broker

  --sennit FILE     the broker (default: $SENNIT, else target/debug/sennit)
  --only PATTERN    only checks whose name matches
  --seed N          when connections are cut (default: drawn, and printed)`

const { values: options } = parseArgs({
  options: {
    sennit: { type: "string", default: process.env.SENNIT },
    only: { type: "string" },
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
/** Clients of WSE do not ask for it. */
process.env.SENNIT_LIVE__JOIN_LEAVE = "all"
/** Wrong credentials are shown on purpose. */
process.env.RUST_LOG ??= "error"

async function run({ check, options: start }) {
  const python = process.env.CLIENT_PYTHON.split(" ")
  const world = await World.start(options.sennit, { random: randomOf(options.seed), python }, start)
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

console.log(`seed ${options.seed}`)
let [passed, failed] = [0, 0]
const only = new RegExp(options.only ?? "")
for (const each of checks.filter(({ name }) => only.test(name))) {
  const begun = Date.now()
  const why = await run(each).then(() => undefined, (error) => error)
  const seconds = ((Date.now() - begun) / 1000).toFixed(1).padStart(6)
  console.log(`${why ? "FAILED" : "ok    "} ${seconds} s  ${each.name}`)
  if (why) console.log(`       ${String(why.stack ?? JSON.stringify(why)).slice(0, 1000)}`)
  if (why) failed += 1
  else passed += 1
}
console.log(`${passed} passed, ${failed} failed`)
if (process.env.TEST_COUNTS) appendFileSync(process.env.TEST_COUNTS, `${passed} ${failed}\n`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
