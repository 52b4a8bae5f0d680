// What a check has: a broker of its own, a proxy before it, clients of the SDKs, and the command line. Knows no check.
import assert from "node:assert/strict"
import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"

import { Centrifuge as JsonCentrifuge } from "centrifuge"
import { Centrifuge as ProtobufCentrifuge } from "centrifuge/build/protobuf"
import { EventSource } from "eventsource"
import WebSocket from "ws"

import { Broker, launch, sennit } from "./broker.mjs"
import { LiveWorld, until } from "./checking.mjs"
import { Proxy } from "./proxy.mjs"
import { Redis } from "./redis.mjs"

/** What an encoding makes of a message's payload, which the command line gives as a text or in base64. */
const OF_PAYLOAD = {
  json({ payload, payload_base64 }) {
    if (payload === undefined) return { b64data: payload_base64 }
    try {
      return JSON.parse(payload)
    } catch {
      return payload
    }
  },
  protobuf: ({ payload, payload_base64: base64 }) =>
    payload === undefined ? Buffer.from(base64, "base64") : Buffer.from(payload),
}

/** What subscribers were given of a channel, whatever their SDK. */
class Follower {
  /** Publications: `offset`, `data`. */
  got = []
  /** What each `subscribed` said. */
  subscribed = []
  /** The codes of `unsubscribed`. */
  unsubscribed = []
  /** The faults of `error`. */
  errors = []
  /** The clients that came, and that went. */
  joined = []
  left = []

  constructor(channel) {
    this.channel = channel
  }

  async isSubscribed(times = 1) {
    await until(`${this.channel}: subscribed ${times} times`, () => this.subscribed.length >= times)
    return this.subscribed[times - 1]
  }
}

/** A client of the JavaScript SDK, as a tab of a browser has one. */
export class Tab {
  /** The codes of `disconnected` and of `connecting`. */
  disconnected = []
  connecting = []
  connected = []
  /** The data of messages that are of no channel. */
  messages = []

  constructor(port, encoding, { transports, ...options }) {
    const Centrifuge = { json: JsonCentrifuge, protobuf: ProtobufCentrifuge }[encoding]
    const quick = { minReconnectDelay: 10, maxReconnectDelay: 200 }
    const endpoint = (transport) => `${transport === "websocket" ? "ws" : "http"}://127.0.0.1:${port}/connection/${transport}`
    const emulationEndpoint = `http://127.0.0.1:${port}/emulation`
    const given = { websocket: WebSocket, eventsource: EventSource, fetch, readableStream: ReadableStream }
    const endpoints = transports.map((transport) => ({ transport, endpoint: endpoint(transport) }))
    // An SDK that is given one address speaks WebSocket.
    const where = transports.join() === "websocket" ? endpoint("websocket") : endpoints
    this.encoding = encoding
    this.transports = []
    this.client = new Centrifuge(where, { emulationEndpoint, ...given, ...quick, ...options })
    this.client.on("connected", ({ transport }) => this.transports.push(transport))
    for (const event of ["disconnected", "connecting", "connected"]) {
      this.client.on(event, (told) => this[event].push(told.code ?? told.client))
    }
    this.client.on("message", ({ data }) => this.messages.push(data))
    this.client.connect()
  }

  follow(channel, options = {}) {
    const follower = new Follower(channel)
    const asked = { recoverable: true, positioned: true, minResubscribeDelay: 10, maxResubscribeDelay: 200, ...options }
    follower.subscription = this.client.newSubscription(channel, asked)
    follower.subscription.on("publication", ({ offset, data, info }) => follower.got.push({ offset, data, info }))
    follower.subscription.on("join", ({ info }) => follower.joined.push(info.client))
    follower.subscription.on("leave", ({ info }) => follower.left.push(info.client))
    follower.subscription.on("subscribed", (told) => follower.subscribed.push(told))
    follower.subscription.on("unsubscribed", ({ code }) => follower.unsubscribed.push(code))
    follower.subscription.on("error", ({ error }) => follower.errors.push(error.code))
    follower.subscription.subscribe()
    return follower
  }

  /** Follows a channel to which the server subscribes the client. */
  followServerSide(channel) {
    const follower = new Follower(channel)
    const of = (act) => (told) => told.channel === channel && act(told)
    this.client.on("subscribed", of((told) => follower.subscribed.push(told)))
    this.client.on("publication", of(({ offset, data }) => follower.got.push({ offset, data })))
    this.client.on("unsubscribed", of((told) => follower.unsubscribed.push(told)))
    return follower
  }

  /** What the SDK takes for a publication of this value. */
  data(value) {
    return this.encoding === "json" ? value : Buffer.from(JSON.stringify(value))
  }

  publish(channel, value) {
    return this.client.publish(channel, this.data(value))
  }

  end() {
    this.client.disconnect()
  }
}

export class World extends LiveWorld {
  static async start(binary, { transport, encoding, random, python }, { identity = false, redis = false, tokens = false } = {}) {
    const world = new World()
    if (tokens) world.#takeTokens()
    Object.assign(world, { binary, transport, encoding, random, python })
    const kind = sennit(binary, identity ? "file-durable+identity" : "file-durable")
    if (redis) {
      world.redis = await Redis.start()
      process.env.SENNIT_LIVE__REDIS = world.redis.url
      world.other = await Broker.start(kind)
    }
    world.broker = await Broker.start(kind)
    world.proxy = await Proxy.start(() => world.broker.port)
    world.url = `ws://127.0.0.1:${world.proxy.port}/connection/websocket`
    return world
  }

  /** Has the broker take tokens of an issuer whose secret is here. */
  #takeTokens() {
    const folder = mkdtempSync(join(tmpdir(), "sennit-issuer-"))
    this.secret = join(folder, "secret")
    writeFileSync(this.secret, randomBytes(32).toString("hex"))
    const env = { SENNIT_AUTH__TOKEN_ISSUER: "dev", SENNIT_AUTH__TOKEN_SECRET_FILE: this.secret }
    Object.assign(process.env, env)
    this.ends.push(() => {
      for (const name of Object.keys(env)) delete process.env[name]
      rmSync(folder, { recursive: true })
    })
  }

  /** A token of the issuer. */
  async token(subject, ...options) {
    const flags = ["--issuer", "dev", "--signing-secret-file", this.secret, ...options]
    return (await this.sennit(["auth", "token", subject, ...flags])).trim()
  }

  /** Asks the HTTP API as the admin; what it says. */
  async api(method, path, body) {
    const headers = { authorization: `Bearer ${this.broker.key}` }
    const asked = { method, headers, body: body && JSON.stringify(body) }
    const answer = await fetch(`${this.broker.url}/api/v1/${path}`, asked)
    assert.equal(answer.status, 200, await answer.clone().text())
    return answer.json()
  }

  tab(options = {}) {
    const { encoding = this.encoding, transports = [this.transport], ...others } = options
    const tab = new Tab(this.proxy.port, encoding, { transports, ...others })
    this.ends.push(() => tab.end())
    return tab
  }

  /** One at the other broker. */
  tabElsewhere(options = {}) {
    const tab = new Tab(this.other.port, this.encoding, { transports: ["websocket"], ...options })
    this.ends.push(() => tab.end())
    return tab
  }

  /** A program of the Python SDK that follows a channel. */
  pythonFollower(channel) {
    const follower = new Follower(channel)
    const child = launch([...this.python, this.url, channel, this.encoding], { stdio: ["pipe", "pipe", "inherit"] })
    createInterface({ input: child.stdout }).on("line", (line) => {
      const { publication, subscribed } = JSON.parse(line)
      if (subscribed) follower.subscribed.push(subscribed)
      if (!publication) return
      const { offset, data, base64 } = publication
      follower.got.push({ offset, data: base64 === undefined ? data : Buffer.from(base64, "base64") })
    })
    this.ends.push(() => child.kill("SIGKILL"))
    return follower
  }

  /** Publishes at the other broker, in a topic that is created if it is missing. */
  async publishElsewhere(topic, ...values) {
    await this.sennit(["topic", "create", topic, "--kind", "stream", "--durability", "memory"], "", this.other).catch(() => {})
    await this.publishAt(this.other, topic, ...values)
  }

  /** What a topic has, as subscribers of the encoding have to be given it. */
  async log(topic) {
    return (await this.messages(topic)).map((message) => ({ offset: message.offset, data: OF_PAYLOAD[this.encoding](message) }))
  }

  /** Each follower has all of the topic, from the `first` on, once and in order, and gets no more. */
  async haveAll(topic, followers, first = 0) {
    await this.publish(topic, "the last one")
    const log = (await this.log(topic)).slice(first)
    for (const [index, { got }] of followers.entries()) {
      const who = `follower ${index} of ${topic}`
      await until(`${who} has all ${log.length}, not ${got.length}`, () => got.length >= log.length && got.at(-1).offset >= log.at(-1).offset)
      got.forEach(({ offset }, at) => assert.equal(offset, log[at]?.offset, `${who}: the ${at + 1}. of ${log.length}`))
      assert.equal(got.length, log.length, who)
      got.forEach(({ data }, at) => assert.deepEqual(plain(data), plain(log[at].data), `${who}: the ${at + 1}.`))
    }
    return log
  }

  async end() {
    await super.end()
    if (!this.redis) return
    delete process.env.SENNIT_LIVE__REDIS
    await this.other.stop()
    await this.redis.stop()
  }
}

/** Data as it can be compared, bytes as their digits. */
export const plain = (data) => (data instanceof Uint8Array ? Buffer.from(data).toString("hex") : data)

/** The code with which a promise is rejected. */
export const refusal = (promise) => promise.then(() => assert.fail("it was not refused"), ({ code }) => code)
