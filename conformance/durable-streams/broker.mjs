// A broker in a process of its own: started, asked for its address, killed, started again where it was.
// Knows how a server is started, and nothing of what is tested against it.
import { spawn } from "node:child_process"
import { rmSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { setTimeout as wait } from "node:timers/promises"

/** Milliseconds that a long-poll waits: the suite is told the same. */
export const LONG_POLL_MS = 500

/** How long a server may take until it answers. */
const READY_MS = 30_000

/** How many nodes a broker is: one, or a cluster of as many groups, of which clients are told one node, the last. */
const NODES = Number(process.env.SENNIT_NODES ?? 1)

const children = new Set()
const folders = new Set()

/** Starts a process that ends with this one. */
export function launch([program, ...flags], options) {
  const child = spawn(program, flags, options)
  children.add(child)
  child.once("error", (error) => console.error(`${program}: ${error.message}`))
  child.once("exit", () => children.delete(child))
  return child
}

process.on("exit", () => {
  for (const child of children) child.kill("SIGKILL")
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(130))

/** `sennit` with streams in a storage `mode`; `MODE+identity` has it ask for credentials. It says itself where it listens. */
export function sennit(binary, mode) {
  const [storage, identity] = mode.split(/\+(?=identity$)/)
  const serve = async (flags) => {
    flags.push("--streams-storage", storage, "--streams-long-poll-timeout", `${LONG_POLL_MS}ms`)
    flags.push("--streams-allow-private-webhooks")
    if (identity) flags.push("--init-admin")
    const child = server([binary, "serve", "--json", ...flags], { RUST_LOG: process.env.RUST_LOG ?? "warn" })
    const [first, second] = twoLines(child)
    const said = JSON.parse(await first)
    const portOf = (address) => Number(address.split(":").pop())
    return { child, port: portOf(said.http), listenPort: portOf(said.listen), key: said.admin_key, second }
  }
  const at = (port) => `127.0.0.1:${port ?? 0}`
  return {
    name: NODES > 1 ? `${mode} on ${NODES} nodes` : mode,
    asks: identity !== undefined,
    async start({ data, port, listenPort, key, nodePorts, others }) {
      nodePorts ??= NODES > 1 ? await Promise.all(Array.from({ length: NODES }, freePort)) : []
      const flagsOf = (node, listenPort, port) => {
        const flags = ["--data", NODES > 1 ? join(data, String(node)) : data, "--listen", at(listenPort), "--http", at(port)]
        if (NODES === 1) return flags
        const peers = nodePorts.map((port, index) => `${index + 1}=${at(port)}`).filter((_, index) => index + 1 !== node)
        flags.push("--node-id", String(node), "--peers", peers.join(","), "--cluster-listen", at(nodePorts[node - 1]))
        return [...flags, "--cluster-id", "1", "--shards", String(NODES)]
      }
      others ??= await Promise.all(nodePorts.slice(1).map((_, index) => serve(flagsOf(index + 1))))
      const told = await serve(flagsOf(NODES, listenPort, port))
      // The key is said at the first start alone; of several nodes by the one that has made it.
      if (NODES > 1 && identity) key ??= JSON.parse(await Promise.race([told, ...others].map(({ second }) => second))).admin_key
      key ??= told.key
      if (NODES > 1) await leadersAreSpread(`http://${at(told.port)}`, headersOf(key))
      return { ...told, key, nodePorts, others }
    },
  }
}

/** Any server that `command` starts: it is given PORT, DATA and LONG_POLL_MS, and is ready when it answers. */
export function other(command) {
  return {
    name: command.split(/[/ ]/).pop(),
    async start({ data, port }) {
      port ??= await freePort()
      const env = { PORT: String(port), DATA: data, LONG_POLL_MS: String(LONG_POLL_MS) }
      const child = server(["/bin/bash", "-c", `exec ${command}`], env)
      child.stdout.resume()
      return { child, port }
    },
  }
}

/** A server that runs, with a folder of its own that is removed with it, and with the `key` that it asks for, if it does. */
export class Broker {
  static async start(kind) {
    const broker = new Broker()
    broker.kind = kind
    broker.data = await mkdtemp(join(tmpdir(), "sennit-conformance-"))
    folders.add(broker.data)
    await broker.#begin({})
    return broker
  }

  async #begin(ports) {
    Object.assign(this, await this.kind.start({ data: this.data, ...ports }))
    this.url = `http://127.0.0.1:${this.port}`
    await answers(this)
    // What is tested without credentials would be tested twice.
    if (this.kind.asks && (await ask(this.url)) !== 401) throw new Error(`${this.kind.name}: it serves who shows no key`)
  }

  /** The headers that a request needs. */
  get headers() {
    return headersOf(this.key)
  }

  /** kill -9 of the node that clients are told, and the same again: the same folder, the same ports. `between` is done while it is away. */
  async killAndStartAgain(between = async () => {}) {
    await this.#end(this.child)
    await between()
    await this.#beginAgain(this.others)
  }

  /** The same of all nodes at once: what was in memory alone is lost, whichever of them led. */
  async killAllAndStartAgain() {
    await this.#end(this.child)
    await this.#endOthers()
    await this.#beginAgain()
  }

  async #beginAgain(others) {
    const { port, listenPort, key, nodePorts } = this
    await this.#begin({ port, listenPort, key, nodePorts, others })
  }

  async #endOthers() {
    for (const { child } of this.others ?? []) await this.#end(child)
  }

  async #end(child) {
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = new Promise((resolve) => child.once("exit", resolve))
    child.kill("SIGKILL")
    await ended
  }

  async stop() {
    await this.#end(this.child)
    await this.#endOthers()
    await rm(this.data, { recursive: true, force: true })
    folders.delete(this.data)
  }
}

/**
 * Each group is led by the node that is meant to lead it: they are handed over soon after a start, and what is in memory alone would be
 * lost amid a check.
 */
async function leadersAreSpread(url, headers) {
  const begun = Date.now()
  for (;;) {
    const page = await (await fetch(`${url}/metrics`, { headers })).text()
    const leaders = [...page.matchAll(/^sennit_replica_leader\{group="(\d+)"\} (\d+)$/gm)].map(([, group, leader]) => [Number(group), Number(leader)])
    if (leaders.length === NODES && leaders.every(([group, leader]) => leader === group)) return
    if (Date.now() - begun > READY_MS) throw new Error(`groups and their leaders: ${leaders.join(" ")}`)
    await wait(100)
  }
}

function server(command, env) {
  return launch(command, { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, ...env } })
}

/** The first two lines that a server prints. */
function twoLines(child) {
  const told = []
  const first = new Promise((resolve, reject) => {
    told.push(resolve)
    child.once("error", reject)
    child.once("exit", (code) => reject(new Error(`the broker ended with ${code} before it listened`)))
  })
  const second = new Promise((resolve) => told.push(resolve))
  createInterface({ input: child.stdout }).on("line", (line) => told.shift()?.(line))
  return [first, second]
}

export function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

/** How a key is shown. */
export const headersOf = (key) => (key ? { Authorization: `Bearer ${key}` } : {})

/** The status with which a stream's route is answered. */
function ask(url, headers) {
  return fetch(`${url}/v1/stream/conformance-ready`, { method: "HEAD", headers })
    .then((response) => response.status, () => 503)
}

/** Ready is who answers a stream's route with anything but a refusal to serve yet. */
async function answers({ child, url, headers }) {
  const until = Date.now() + READY_MS
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}`)
    if ((await ask(url, headers)) !== 503) return
    if (Date.now() > until) throw new Error(`${url} does not answer`)
    await wait(20)
  }
}
