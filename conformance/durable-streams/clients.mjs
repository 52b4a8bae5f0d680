// Runs a program of each language's client against one broker, kills the broker once all of them have
// tails open, starts it again where it was, and says how far each came. `clients/run --help` tells the options.
import { appendFileSync } from "node:fs"
import { createInterface } from "node:readline"
import { parseArgs } from "node:util"

import { Broker, launch, other, sennit } from "./broker.mjs"

const CLIENTS = ["typescript", "python", "go", "rust"]

/** What each of them goes through; conformance/README.md says what each is. */
const STEPS = ["create", "append", "read", "tail", "restart", "close"]

const MODES = "file-durable,file-durable+identity"

/** How long all of it may take. */
const DEADLINE_MS = 120_000

const HELP = `clients/run [options]: the official Durable Streams clients

  --sennit FILE     the broker (default: $SENNIT, else target/debug/sennit)
  --modes LIST      its storage modes, one after the other, MODE+identity with credentials
                    (default: ${MODES})
  --clients LIST    which (default: ${CLIENTS.join(",")})
  --server COMMAND  a server that COMMAND starts with PORT, DATA and LONG_POLL_MS set, instead

$CONFORMANCE_KEY is what the clients show, if it is set, and not the key that a broker with credentials has made.`

const { values: options } = parseArgs({
  options: {
    sennit: { type: "string", default: process.env.SENNIT },
    modes: { type: "string", default: MODES },
    clients: { type: "string", default: CLIENTS.join(",") },
    server: { type: "string" },
    help: { type: "boolean", default: false },
  },
})

/** A client's program: it says each step that it has done, and waits for a line once it wants the kill. It shows the key. */
class Program {
  constructor(language, { url, key }) {
    this.language = language
    this.done = []
    const command = process.env[`CLIENT_${language.toUpperCase()}`].split(" ")
    const env = { ...process.env, CONFORMANCE_KEY: process.env.CONFORMANCE_KEY ?? key }
    this.child = launch([...command, url], { env, stdio: ["pipe", "pipe", "inherit"] })
    const ended = new Promise((resolve) => {
      this.child.once("error", (error) => resolve(error.message))
      this.child.once("exit", (code, signal) => resolve(code === 0 ? undefined : `ended with ${code ?? signal}`))
    })
    // Who has ended will ask for no kill.
    this.wantsKill = new Promise((resolve) => {
      createInterface({ input: this.child.stdout }).on("line", (line) => {
        if (line === "kill") return resolve()
        if (line.startsWith("step ")) this.done.push(line.slice(5))
      })
      ended.then(resolve)
    })
    this.ended = ended.then((why) => (this.why = why))
    // It may have ended by then.
    this.child.stdin.on("error", () => {})
  }

  goOn() {
    this.child.stdin.write("on\n")
  }
}

async function run(kind, languages) {
  const broker = await Broker.start(kind)
  const programs = languages.map((language) => new Program(language, broker))
  const late = setTimeout(() => programs.forEach(({ child }) => child.kill("SIGKILL")), DEADLINE_MS)
  try {
    await Promise.all(programs.map(({ wantsKill }) => wantsKill))
    await broker.killAndStartAgain()
    programs.forEach((program) => program.goOn())
    await Promise.all(programs.map(({ ended }) => ended))
  } finally {
    clearTimeout(late)
    await broker.stop()
  }
  return programs
}

if (options.help) {
  console.log(HELP)
  process.exit(0)
}
const kinds = options.server
  ? [other(options.server)]
  : options.modes.split(",").map((mode) => sennit(options.sennit, mode))
let whole = true
for (const kind of kinds) {
  console.log([kind.name.padEnd(21), ...STEPS].join("  "))
  for (const { language, done, why } of await run(kind, options.clients.split(","))) {
    const cells = STEPS.map((step) => (done.includes(step) ? "ok" : "FAILED").padEnd(step.length))
    console.log([language.padEnd(21), ...cells, why ?? ""].join("  ").trimEnd())
    const isWhole = !why && STEPS.every((step) => done.includes(step))
    if (process.env.TEST_COUNTS) appendFileSync(process.env.TEST_COUNTS, isWhole ? "1 0\n" : "0 1\n")
    whole &&= isWhole
  }
}
process.exit(whole ? 0 : 1)
