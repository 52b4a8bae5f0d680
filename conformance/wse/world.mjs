// What a check has: a broker of its own, a proxy before it, programs of the client, and the command line. Knows no check.
import assert from "node:assert/strict"
import { createInterface } from "node:readline"

import { Broker, launch, sennit } from "./broker.mjs"
import { LiveWorld, until } from "./checking.mjs"
import { Proxy } from "./proxy.mjs"

/** A program of the client. */
export class Client {
  /** Events that it was given. */
  events = []
  /** How it is: `state`, `ready`, `reconnects`, `positions`. */
  is = {}
  #returned = []

  constructor(python, options, way) {
    const flags = [JSON.stringify(options), ...(way ? [way] : [])]
    this.child = launch([...python, ...flags], { stdio: ["pipe", "pipe", "inherit"] })
    this.child.stdin.on("error", () => {})
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      const { event, is, done, returned } = JSON.parse(line)
      if (event) this.events.push(event)
      if (is) Object.assign(this.is, is)
      if (done) this.#returned.push(returned)
    })
  }

  /** Has it call one of its methods; what that returns, if it is a truth. */
  async do(name, args = [], named = {}) {
    const before = this.#returned.length
    this.child.stdin.write(`${JSON.stringify({ do: name, with: args, named })}\n`)
    await until(`${name} returns`, () => this.#returned.length > before)
    return this.#returned.at(-1)
  }

  /** Subscribes, and waits until it is told where it is. */
  async follow(...topics) {
    await until("it is ready", () => this.is.ready)
    await this.do("subscribe", [topics])
    await until(`subscribed to ${topics}`, () => topics.every((topic) => this.is.positions[topic]))
    return this
  }

  async isBack(times) {
    await until(`it is back ${times} times`, () => this.is.ready && this.is.reconnects >= times)
  }

  /** The messages that it was given of a topic. */
  got(topic) {
    return this.events.filter((event) => event.topic === topic && event.offset !== null)
  }

  /** The next event of a type. */
  async event(type, count = 1) {
    const these = () => this.events.filter((event) => event.type === type)
    await until(`${count} events of the type ${type}`, () => these().length >= count)
    return these()[count - 1]
  }

  end() {
    this.child.kill("SIGKILL")
  }
}

/** What the client makes of a payload. */
function shown(topic, payload) {
  let json = payload
  try {
    json = JSON.parse(payload)
  } catch {}
  const isObject = typeof json === "object" && json !== null && !Array.isArray(json)
  return { type: topic, payload: isObject ? json : { data: json } }
}

export class World extends LiveWorld {
  static async start(binary, { random, python }, { identity = false } = {}) {
    const world = new World()
    Object.assign(world, { binary, random, python })
    world.broker = await Broker.start(sennit(binary, identity ? "file-durable+identity" : "file-durable"))
    world.proxy = await Proxy.start(() => world.broker.port)
    world.url = `ws://127.0.0.1:${world.proxy.port}/wse`
    return world
  }

  client(options = {}, way = undefined) {
    const client = new Client(this.python, { url: this.url, ...options }, way)
    this.ends.push(() => client.end())
    return client
  }

  /** What the client's codec makes of each message. */
  async decoded(messages) {
    const child = launch([...this.python, "{}", "decode"], { stdio: ["pipe", "pipe", "inherit"] })
    child.stdin.on("error", () => {})
    child.stdin.end(messages.map((message) => `${JSON.stringify(message)}\n`).join(""))
    const said = Buffer.concat(await child.stdout.toArray()).toString()
    return said.trim().split("\n").map((line) => JSON.parse(line))
  }

  /** What a topic has, as clients have to be given it. */
  async log(topic, channel = topic) {
    return (await this.messages(topic)).map(({ offset, payload }) => ({ offset, ...shown(channel, payload) }))
  }

  /** Each client has all of the topic, from the `first` on, once and in order, and gets no more. */
  async haveAll(topic, channel, clients, first = 0) {
    await this.publish(topic, { text: "the last one" })
    const log = (await this.log(topic, channel)).slice(first)
    for (const [index, client] of clients.entries()) {
      const who = `client ${index} of ${topic}`
      const last = () => client.got(channel).at(-1)?.offset ?? 0
      await until(`${who} has all ${log.length}, not ${client.got(channel).length}`, () => last() >= log.at(-1).offset)
      const got = client.got(channel).map(({ offset, type, payload }) => ({ offset, type, payload }))
      got.forEach((one, at) => assert.deepEqual(one, log[at], `${who}: the ${at + 1}. of ${log.length}`))
      assert.equal(got.length, log.length, who)
    }
    return log
  }
}
