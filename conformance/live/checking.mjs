// What the checks of live connections share, whatever their clients speak: a broker with the command line and a proxy before
// it, publishers that do not end while brokers are killed, and how checks are run and counted. Knows no protocol and no check.
import { appendFileSync } from "node:fs"
import { setTimeout as wait } from "node:timers/promises"

import { launch } from "./broker.mjs"

/** How long anything may take that has to happen. */
const PATIENCE_MS = 60_000

/** How long one check may take. */
const DEADLINE_MS = 180_000

/** Numbers from one to before the other. */
export const range = (from, to) => Array.from({ length: to - from }, (_, index) => from + index)

/** Waits until something is so. */
export async function until(what, condition, patience = PATIENCE_MS) {
  for (const late = Date.now() + patience; !(await condition()); await wait(5)) {
    if (Date.now() > late) throw new Error(`${what}: not after ${patience / 1000} s`)
  }
}

/** Numbers that a seed decides. */
export function randomOf(seed) {
  let state = BigInt(seed) + 1n
  return (below) => {
    state = (state * 6364136223846793005n + 1442695040888963407n) % (1n << 64n)
    return Number((state >> 33n) % BigInt(below))
  }
}

/** What a check has of its broker, which whoever extends this sets: `binary`, `broker`, `proxy`. */
export class LiveWorld {
  /** What is done when the check is over. */
  ends = []

  /** Runs the command line; its output. */
  async sennit(args, input = "", broker = this.broker) {
    const env = { ...process.env, SENNIT_SERVER: `127.0.0.1:${broker.listenPort}`, SENNIT_KEY: broker.key ?? "" }
    if (!broker.key) delete env.SENNIT_KEY
    const child = launch([this.binary, ...args], { env, stdio: ["pipe", "pipe", "pipe"] })
    const said = ["stdout", "stderr"].map(async (name) => Buffer.concat(await child[name].toArray()).toString())
    child.stdin.on("error", () => {})
    child.stdin.end(input)
    const code = await new Promise((resolve) => child.once("exit", resolve))
    const [out, err] = await Promise.all(said)
    if (code !== 0) throw new Error(`sennit ${args.join(" ")} ended with ${code}: ${err.slice(0, 300)}`)
    return out
  }

  /** Publishes natively, each value as JSON. */
  async publish(topic, ...values) {
    await this.publishAt(this.broker, topic, ...values)
  }

  async publishAt(broker, topic, ...values) {
    await this.sennit(["publish", topic], values.map((value) => `${JSON.stringify(value)}\n`).join(""), broker)
  }

  /** The messages of a topic, as the command line shows them; but offsets begin with 1, as in protocols. */
  async messages(topic) {
    const lines = (await this.sennit(["read", topic, "--json"])).trim().split("\n").filter(Boolean)
    return lines.map((line) => JSON.parse(line)).map((message) => ({ ...message, offset: message.offset + 1 }))
  }

  /** The broker is killed, or stopped if it is to be, and starts again. */
  async startAgain({ stops = false } = {}) {
    if (stops) {
      const ended = new Promise((resolve) => this.broker.child.once("exit", resolve))
      this.broker.child.kill("SIGTERM")
      await ended
    }
    await this.broker.killAndStartAgain()
  }

  async end() {
    for (const end of this.ends) end()
    this.proxy.stop()
    await this.broker.stop()
  }
}

/** Has each of the publishers publish numbers without end, all of them different; `end` says what was `confirmed` by `true`. */
export function publishWithoutEnd(publishers) {
  const confirmed = []
  const state = { n: 0, isOver: false }
  const all = publishers.map(async (publish) => {
    while (!state.isOver) {
      const n = state.n++
      // Whether one that fails is there, only the topic says.
      const isConfirmed = await publish(n).catch(() => wait(5))
      if (isConfirmed === true) confirmed.push(n)
    }
  })
  return {
    confirmed,
    async end() {
      state.isOver = true
      await Promise.all(all)
      return confirmed
    },
  }
}

/** Kills the broker three times and stops it once while publishers go on; `areBack` waits until all clients are. What was confirmed. */
export async function killAndStop(world, publisher, areBack) {
  for (const round of range(0, 4)) {
    const before = publisher.confirmed.length
    await until("something is published", () => publisher.confirmed.length > before + 20)
    await world.startAgain({ stops: round === 3 })
    await areBack(round)
  }
  return publisher.end()
}

/** Checks that were run. */
export class Score {
  passed = 0
  failed = 0

  /** Runs one of them in a world of its own, and says how it went. */
  async run(name, check, world) {
    const begun = Date.now()
    const why = await within(check, world).then(() => undefined, (error) => error)
    const seconds = ((Date.now() - begun) / 1000).toFixed(1).padStart(6)
    console.log(`${why ? "FAILED" : "ok    "} ${seconds} s  ${name}`)
    if (why) console.log(`       ${String(why.stack ?? JSON.stringify(why)).slice(0, 1000)}`)
    this.add(...(why ? [0, 1] : [1, 0]))
  }

  add(passed, failed) {
    this.passed += passed
    this.failed += failed
  }

  /** Says how all went, and ends the process; `missing` says what was not run. */
  end(missing) {
    console.log(`${this.passed} passed, ${this.failed} failed`)
    if (missing) console.log(missing)
    if (process.env.TEST_COUNTS) appendFileSync(process.env.TEST_COUNTS, `${this.passed} ${this.failed}\n`)
    process.exit(this.failed === 0 && !missing && this.passed > 0 ? 0 : 1)
  }
}

async function within(check, begin) {
  const world = await begin()
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

/** The options of a run, and their help, beside those of its own. */
export const OPTIONS = {
  sennit: { type: "string", default: process.env.SENNIT },
  only: { type: "string" },
  seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 32)) },
  help: { type: "boolean", default: false },
}
export const OPTIONS_HELP = `
  --sennit FILE     the broker (default: $SENNIT, else target/debug/sennit)
  --only PATTERN    only checks whose name matches
  --seed N          when connections are cut (default: drawn, and printed)`

/** Settings of every broker of a run. */
export function setUp() {
  /** Pings come often enough for a check to see some. */
  process.env.SENNIT_LIVE__PING_INTERVAL = "1s"
  /** As the Python SDK's own tests have Centrifugo do; and clients of WSE do not ask for it. */
  process.env.SENNIT_LIVE__JOIN_LEAVE = "all"
  /** Wrong credentials are shown on purpose. */
  process.env.RUST_LOG ??= "error"
}
