// The programs as their users have them: a terminal each, a broker that is killed, a program that is ended and started
// again where it was. Waits for what is printed, never for time to pass.
import assert from "node:assert/strict"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { after, before, test } from "node:test"

import { Broker, launch, sennit } from "./broker.mjs"

/** How long what has to be printed may take. */
const PRINTED_MS = 60_000

const COMMANDS = { python: process.env.PROGRAM_PYTHON.split(" "), go: [process.env.PROGRAM_GO] }
const ROOM = "chat:programs"

let broker, folder

before(async () => {
  broker = await Broker.start(sennit(process.env.SENNIT, "file-durable"))
  folder = await mkdtemp(join(tmpdir(), "sennit-programs-"))
  await create()
})

after(async () => {
  await broker?.stop()
  await rm(folder, { recursive: true, force: true })
})

const stream = () => `${broker.url}/v1/stream/${encodeURIComponent(ROOM)}`
const headers = { "Content-Type": "application/json" }
const create = () => fetch(stream(), { method: "PUT", headers })
const kept = async () => (await fetch(`${stream()}?offset=-1`)).json()

async function publish(...texts) {
  for (const text of texts) {
    const reply = await fetch(stream(), { method: "POST", headers, body: JSON.stringify({ id: text, name: "HTTP", text }) })
    assert.ok(reply.ok)
  }
}

/** A program at work: what it prints, and what it tells of itself. */
class Program {
  printed = []
  told = []
  #waits = new Set()

  constructor(language) {
    const flag = language === "go" ? "-" : "--"
    const position = [`${flag}position`, join(folder, `${language}.json`)]
    const url = `${broker.url.replace("http", "ws")}/connection/websocket`
    const flags = [...position, `${flag}broker`, url, "programs", language]
    this.child = launch([...COMMANDS[language], ...flags], { stdio: ["pipe", "pipe", "pipe"] })
    this.#hear(this.child.stdout, this.printed)
    this.#hear(this.child.stderr, this.told)
  }

  #hear(from, into) {
    createInterface({ input: from }).on("line", (line) => {
      into.push(line)
      for (const wait of this.#waits) wait()
    })
  }

  until(is) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`printed ${this.printed.slice(-9)}, told ${this.told.slice(-9)}`)), PRINTED_MS)
      const wait = () => {
        if (!is(this)) return
        clearTimeout(timer)
        this.#waits.delete(wait)
        resolve()
      }
      this.#waits.add(wait)
      wait()
    })
  }

  prints(line) {
    return this.until(({ printed }) => printed.includes(line))
  }

  says(...lines) {
    for (const line of lines) this.child.stdin.write(`${line}\n`)
  }

  async end() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve))
    this.child.kill("SIGKILL")
    await ended
  }
}

/** What the log has, each message once. */
async function said() {
  const once = new Map((await kept()).map((message) => [`${message.person} ${message.id}`, `${message.name}: ${message.text}`]))
  return [...once.values()]
}

test("programs in Python and Go have all that is said, each once, over a broker that is killed and programs that are", async () => {
  await publish("before anybody came")
  let [python, go] = [new Program("python"), new Program("go")]
  const both = async (line) => Promise.all([python.prints(line), go.prints(line)])
  await both("HTTP: before anybody came")
  python.says("hello from Python", "größe ✓ {}")
  go.says("hello from Go")
  for (const line of ["python: hello from Python", "python: größe ✓ {}", "go: hello from Go"]) await both(line)

  await broker.killAndStartAgain(async () => {
    await Promise.all([python, go].map((program) => program.until(({ told }) => told.at(-1).startsWith("away"))))
    python.says("said to nobody", "and again")
    go.says("is it away?")
  })
  await publish("while they came back")
  for (const line of ["python: and again", "go: is it away?", "HTTP: while they came back"]) await both(line)
  assert.deepEqual(python.printed, await said())
  assert.deepEqual(go.printed, await said())

  await Promise.all([python.end(), go.end()])
  await publish("while they were ended", "a second one")
  ;[python, go] = [new Program("python"), new Program("go")]
  await both("HTTP: a second one")
  for (const { printed } of [python, go]) assert.deepEqual(printed, ["HTTP: while they were ended", "HTTP: a second one"])
  for (const { told } of [python, go]) assert.ok(!told.some((line) => line.startsWith("gap")))

  await Promise.all([python.end(), go.end()])
  await fetch(stream(), { method: "DELETE" })
  await create()
  await publish("a room of the same name")
  ;[python, go] = [new Program("python"), new Program("go")]
  await both("HTTP: a room of the same name")
  for (const { told } of [python, go]) assert.equal(told.filter((line) => line.startsWith("gap")).length, 1)
  await Promise.all([python.end(), go.end()])
})
