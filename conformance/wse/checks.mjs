// The checks: what each has clients do, and what has to come of it. conformance/README.md has them in words.
import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import { setTimeout as wait } from "node:timers/promises"

import { killAndStop, publishWithoutEnd, range, until } from "./checking.mjs"

/** So many clients that are subscribed. */
const followers = (world, count, ...topics) => Promise.all(range(0, count).map(() => world.client().follow(...topics)))

/** Publishes without end, by the command line and by a client; `end` says what the command line was confirmed. */
const publishing = (world, topic, client) =>
  publishWithoutEnd([
    (n) => world.publish(topic, { n, by: "sennit publish" }).then(() => true),
    // It keeps what it cannot send, and sends it later; but no more than 100 a second.
    (n) => client.do("send", ["chat:cut", { n, by: "the client" }]).then(() => wait(15)),
  ])

/** The topic of the publishers, and the name that clients have for it. */
const [TOPIC, CHANNEL] = ["chat%3Acut", "chat:cut"]

const CHECKS = {
  async "connections are cut"(world) {
    await world.sennit(["topic", "create", TOPIC, "--kind", "stream"])
    const all = await followers(world, 4, CHANNEL)
    const publisher = publishing(world, TOPIC, all[0])
    for (const round of range(0, 8)) {
      if (round % 2) world.proxy.cut()
      else world.proxy.cutAfter(() => world.random(4000))
      await Promise.all(all.map((client) => client.isBack(round + 1)))
    }
    await until("many are published", () => publisher.confirmed.length > 30)
    await publisher.end()
    await world.haveAll(TOPIC, CHANNEL, all)
    assert.ok(world.proxy.cuts >= 8 * all.length, `${world.proxy.cuts} cuts`)
  },

  async "the broker is killed, and stops"(world) {
    await world.sennit(["topic", "create", TOPIC, "--kind", "stream"])
    const all = await followers(world, 3, CHANNEL)
    const publisher = publishing(world, TOPIC, all[0])
    const areBack = (round) => Promise.all(all.map((client) => client.isBack(round + 1)))
    const confirmed = await killAndStop(world, publisher, areBack)
    const log = await world.haveAll(TOPIC, CHANNEL, all)
    const there = new Set(log.map(({ payload }) => payload.n))
    for (const n of confirmed) assert.ok(there.has(n), `${n} was confirmed, and is lost`)
  },

  async "what is missed is recovered to any depth"(world) {
    await world.sennit(["topic", "create", "deep", "--kind", "stream"])
    const all = await followers(world, 2, "deep")
    world.proxy.shut()
    const text = "x".repeat(200)
    await world.publish("deep", ...range(0, 10_000).map((n) => ({ n, text })))
    world.proxy.open()
    const log = await world.haveAll("deep", "deep", all)
    assert.equal(log.length, 10_001)
  },

  async "what is lost is passed over, and told"(world) {
    const all = await followers(world, 2, "state")
    await world.publish("state", ...range(0, 10))
    await until("all have ten", () => all.every((client) => client.got("state").length === 10))
    world.proxy.shut()
    // A topic in memory; more than there were, so that offsets alone would look as if nothing had happened.
    await world.broker.killAllAndStartAgain()
    await world.publish("state", ...range(100, 130))
    world.proxy.open()
    const log = await world.log("state")
    await until("all are elsewhere", () => all.every(({ is }) => is.ready && is.positions.state?.[1] === log.at(-1).offset))
    for (const client of all) {
      assert.equal(client.got("state").length, 10, "what cannot be recovered whole does not come in part")
      client.events.length = 0
    }
    await world.publish("state", "next")
    world.proxy.cut()
    await world.haveAll("state", "state", all, 30)
  },

  async "another topic of the same name goes on under the feet of its clients"(world) {
    await world.sennit(["topic", "create", "again", "--kind", "stream"])
    const all = await followers(world, 2, "again")
    await world.publish("again", 1, 2, 3)
    await until("all have three", () => all.every((client) => client.got("again").length === 3))
    await world.sennit(["topic", "delete", "again"])
    await until("all are elsewhere", () => all.every(({ is }) => is.positions.again[1] === 0))
    for (const client of all) client.events.length = 0
    await world.publish("again", 4)
    await world.haveAll("again", "again", all)
    for (const { is } of all) assert.equal(is.reconnects, 0)
  },

  async "clients publish"(world) {
    const [one, other] = await followers(world, 2, "chat", "größe 1")
    const values = [{}, { text: "größe \n \"2\"" }, { list: [1, null, { deep: [[]] }] }, { t: "ping", p: {} }]
    for (const value of values) assert.equal(await one.do("send", ["chat", value]), true)
    await one.do("send_batch", [[["chat", { n: 1 }], ["größe 1", { n: 2 }], ["chat", { n: 3 }]]])
    await one.do("send", ["chat", { n: 4 }], { correlation_id: "q1" })
    assert.equal((await one.event("published")).correlation_id, "q1")
    for (const client of [one, other]) {
      await until("all is there", () => client.got("chat").length === 7 && client.got("größe 1").length === 1)
      assert.deepEqual(client.got("chat").map(({ payload }) => payload), [...values, { n: 1 }, { n: 3 }, { n: 4 }])
    }
    await world.haveAll("chat", "chat", [one, other])
    // It keeps what it cannot send, the first in the order of their time.
    world.proxy.shut()
    await until("it is away", () => !one.is.ready)
    for (const n of range(10, 30)) assert.equal(await one.do("send", ["chat", { n }]), false)
    world.proxy.open()
    await one.isBack(1)
    await until("all were sent", () => other.got("chat").length === 28)
    await world.haveAll("chat", "chat", [one, other])
  },

  async "messages have types, and none is the broker's"(world) {
    await world.sennit(["topic", "create", "prices", "--kind", "stream"])
    const client = await world.client().follow("prices", "ping")
    await world.publish("prices", { t: "tick", p: { px: 1 } }, { t: "tick", p: [2], c: "S" }, "text", 0)
    // Types on which the client acts by itself, and what it cannot read.
    const forged = ["ping", "PONG", "batch", "error", "subscription_update", "priority_message"].map((t) => ({ t, p: { messages: [], recovery: {} } }))
    await world.publish("prices", ...forged)
    await world.publish("ping", { n: 1 })
    await until("all is there", () => client.got("prices").length === 10 && client.got("ping").length === 1)
    const got = client.got("prices").map(({ type, category, payload }) => ({ type, category, payload }))
    assert.deepEqual(got.slice(0, 4), [
      { type: "tick", category: "U", payload: { px: 1 } },
      { type: "tick", category: "S", payload: { data: [2] } },
      { type: "prices", category: "U", payload: { data: "text" } },
      { type: "prices", category: "U", payload: { data: 0 } },
    ])
    assert.deepEqual(got.slice(4), forged.map((payload) => ({ type: "prices", category: "U", payload })))
    assert.deepEqual(client.got("ping").map(({ type }) => type), ["message"])
  },

  async "a message that the client cannot take stops nothing"(world) {
    await world.sennit(["topic", "create", "large", "--kind", "stream"])
    const client = await world.client().follow("large")
    await world.publish("large", { n: 1 }, { text: "x".repeat(1_100_000) }, { n: 2 })
    assert.equal((await client.event("error")).payload.code, "MESSAGE_TOO_LARGE")
    // Python refuses to read a number of so many digits.
    await world.sennit(["publish", "large"], `{"n":${"1".repeat(5000)}}\n{"n":3}\n`)
    await world.publish("large", { n: 4 })
    await until("the others are there", () => client.got("large").at(-1)?.payload.n === 4)
    assert.deepEqual(client.got("large").map(({ payload }) => payload.n), [1, 2, 3, 4])
    assert.equal(client.is.reconnects, 0)
  },

  async "subscriptions end and begin again"(world) {
    await world.sennit(["topic", "create", "news", "--kind", "stream"])
    const [one, other] = await followers(world, 2, "news", "sport")
    await world.publish("news", 1, 2)
    await until("two are there", () => one.got("news").length === 2)
    await one.do("unsubscribe", [["news"]])
    await world.publish("news", 3, 4)
    await until("the other has four", () => other.got("news").length === 4)
    await one.follow("news")
    await world.publish("news", 5)
    await world.publish("sport", 1)
    await until("the next is there", () => one.got("news").length === 3 && one.got("sport").length === 1)
    assert.deepEqual(one.got("news").map(({ offset }) => offset), [1, 2, 5])
    await world.haveAll("news", "news", [other])
    assert.deepEqual([one, other].map(({ is }) => is.reconnects), [0, 0])
  },

  async "topics of the request, a snapshot, and what is not served"(world) {
    await world.sennit(["topic", "create", "news", "--kind", "stream"])
    await world.publish("news", { n: 1 }, { n: 2 })
    const client = world.client({ topics: ["news", "a,b"] })
    await until("subscribed", () => ["news", "a,b"].every((topic) => client.is.positions?.[topic]))
    await client.do("request_snapshot", [["news", "absent"]])
    const complete = await client.event("snapshot_complete")
    assert.deepEqual(complete.payload, { topics: ["news", "absent"], count: 1 })
    const [snapshot] = client.events.filter(({ category }) => category === "S")
    assert.deepEqual([snapshot.type, snapshot.payload], ["news", { n: 2 }])
    await client.do("send", ["debug_request", {}], {})
    await client.do("send", ["health_check", {}])
    await world.publish("news", { n: 3 })
    await until("the next is there", () => client.got("news").length === 1)
  },

  async "the client of programs without asyncio"(world) {
    const client = await world.client({}, "sync").follow("news")
    const other = await world.client().follow("news")
    await other.do("send", ["news", { n: 1 }])
    await client.do("send", ["news", { n: 2 }])
    for (const each of [client, other]) {
      await until("both are there", () => each.got("news").length >= 2)
    }
    world.proxy.cut()
    await world.publish("news", { n: 3 })
    for (const each of [client, other]) {
      await until("all three are there", () => each.got("news").length === 3)
      assert.deepEqual(each.got("news").map(({ payload }) => payload.n), [1, 2, 3])
    }
  },

  async "who comes and goes is told"(world) {
    const ada = await world.client().follow("room")
    const bob = await world.client().follow("room")
    const came = (await ada.event("presence_join", 2)).payload
    assert.deepEqual([came.topic, came.data], ["room", {}])
    bob.end()
    assert.equal((await ada.event("presence_leave")).payload.connection_id, came.connection_id)
  },

  async "tabs come and go"(world) {
    const topics = range(0, 4).map((index) => `room:${index}`)
    for (const index of range(0, 4)) await world.sennit(["topic", "create", `room%3A${index}`, "--kind", "stream"])
    const stays = await world.client().follow(...topics)
    let isOver = false
    const publisher = (async () => {
      for (let n = 0; !isOver; n++) await world.publish(`room%3A${world.random(4)}`, { n }, { n })
    })()
    for (const _ of range(0, 6)) {
      const [first, last] = [world.random(4), world.random(4)]
      const comes = await world.client().follow(topics[first], topics[last])
      if (world.random(2)) world.proxy.cut()
      await comes.isBack(0)
      if (world.random(2)) await comes.do("unsubscribe", [[topics[first]]])
      comes.end()
    }
    isOver = true
    await publisher
    for (const index of range(0, 4)) await world.haveAll(`room%3A${index}`, topics[index], [stays])
  },
}

const GUARDED = {
  async "tokens and rights"(world) {
    const token = world.broker.key
    const refusals = [{}, { token: "sennit_x" }, { token: `${token}x` }].map(async (options) => {
      const client = world.client(options)
      await until("it gives up", () => client.is.state === "error")
      assert.equal((await client.event("error")).payload.code, "AUTH_FAILED")
    })
    // The client waits 10 s for `server_ready` before it says so.
    await Promise.all(refusals)
    const cookie = world.client({ extra_headers: { Cookie: `access_token=${token}` } })
    const [admin] = await Promise.all([world.client({ token }).follow("news"), cookie.follow("news")])
    const said = await world.sennit(["auth", "key", "create", "reader", "--right", "subscribe news"])
    const reader = await world.client({ token: said.trim() }).follow("news")
    await admin.do("send", ["news", { n: 1 }])
    for (const client of [admin, cookie, reader]) await until("it is there", () => client.got("news").length === 1)
    await reader.do("send", ["news", { n: 2 }])
    const refused = await reader.event("error")
    assert.equal(refused.payload.code, "PERMISSION_DENIED")
    assert.deepEqual([refused.payload.topic, refused.payload.recoverable], ["news", false])
    await reader.do("subscribe", [["secret"]])
    assert.equal((await reader.event("error", 2)).payload.topic, "secret")
    await world.publish("news", { n: 3 })
    for (const client of [admin, cookie, reader]) await until("it goes on", () => client.got("news").length === 2)
    assert.equal(reader.got("secret").length, 0)
  },
}

const named = (checks, options) => Object.entries(checks).map(([name, check]) => ({ name, check, options }))

/** What the broker says, as the client reads it: the vectors of its codec. */
const VECTORS = {
  async "what the broker says is read as it is meant"(world) {
    const { to_client: vectors } = JSON.parse(await readFile(process.env.VECTORS))
    const said = await world.decoded(vectors.map(({ message }) => message))
    vectors.forEach(({ name, decoded }, at) => assert.deepEqual(said[at], decoded, name))
    assert.equal(said.length, vectors.length)
  },
}

export const checks = [...named(VECTORS, {}), ...named(CHECKS, {}), ...named(GUARDED, { identity: true })]
