// The checks: what each has clients do, and what has to come of it. conformance/README.md has them in words.
import assert from "node:assert/strict"
import { setTimeout as wait } from "node:timers/promises"

import { killAndStop, publishWithoutEnd, range, until } from "./checking.mjs"
import { REDIS_CHECKS } from "./redis.mjs"
import { plain, refusal } from "./world.mjs"

/** The clients of a check, each subscribed: some tabs, and with a Python SDK a program of it. */
async function followers(world, channel, tabs) {
  const all = range(0, tabs).map(() => world.tab().follow(channel))
  if (world.python) all.push(world.pythonFollower(channel), world.pythonFollower(channel))
  await Promise.all(all.map((follower) => follower.isSubscribed()))
  return all
}

function recoveredAlways(all) {
  for (const { channel, subscribed } of all) {
    for (const told of subscribed.slice(1)) assert.ok(told.wasRecovering && told.recovered, `${channel}: not recovered`)
  }
}

/** Publishes without end, by the command line and by an SDK; `end` says what was confirmed. */
function publishing(world, topic, channel) {
  const tab = world.tab()
  return publishWithoutEnd([
    (n) => world.publish(topic, { n, by: "sennit publish" }).then(() => true),
    (n) => tab.publish(channel, { n, by: "the SDK" }).then(() => true),
  ])
}

const CHECKS = {
  async "connections are cut"(world) {
    const [topic, channel] = ["chat%3Acut", "chat:cut"]
    await world.sennit(["topic", "create", topic, "--kind", "stream"])
    const all = await followers(world, channel, 6)
    const publisher = publishing(world, topic, channel)
    const rounds = world.transport === "websocket" ? 12 : 6
    for (const round of range(0, rounds)) {
      if (round % 2) world.proxy.cut()
      else world.proxy.cutAfter(() => world.random(4000))
      await until("all are back", () => all.every(({ subscribed }) => subscribed.length > round + 1))
    }
    await until("many are published", () => publisher.confirmed.length > 100)
    await publisher.end()
    await world.haveAll(topic, all)
    recoveredAlways(all)
    assert.ok(world.proxy.cuts >= rounds * all.length, `${world.proxy.cuts} cuts`)
  },

  async "the broker is killed, and stops"(world) {
    const [topic, channel] = ["orders", "orders"]
    await world.sennit(["topic", "create", topic, "--kind", "stream"])
    const all = await followers(world, channel, 4)
    const publisher = publishing(world, topic, channel)
    const areBack = (round) => until("all are back", () => all.every(({ subscribed }) => subscribed.length > round + 1))
    const confirmed = await killAndStop(world, publisher, areBack)
    const log = await world.haveAll(topic, all)
    recoveredAlways(all)
    const there = new Set(log.map(({ data }) => (world.encoding === "json" ? data : JSON.parse(data)).n))
    for (const n of confirmed) assert.ok(there.has(n), `${n} was confirmed, and is lost`)
  },

  async "what is missed is recovered to any depth"(world) {
    await world.sennit(["topic", "create", "deep", "--kind", "stream"])
    const all = await followers(world, "deep", 2)
    world.proxy.shut()
    const text = "x".repeat(200)
    await world.publish("deep", ...range(0, 20_000).map((n) => ({ n, text })))
    world.proxy.open()
    const { streamPosition } = all[0].subscribed[0]
    // One that comes for the first time may begin where it likes.
    all.push(world.tab().follow("deep", { since: streamPosition }))
    const log = await world.haveAll("deep", all)
    assert.equal(log.length, 20_001)
    assert.equal((await all.at(-1).isSubscribed()).recovered, true)
    recoveredAlways(all)
  },

  async "what is lost is told"(world) {
    const all = await followers(world, "state", 3)
    await world.publish("state", ...range(0, 10))
    await until("all have ten", () => all.every(({ got }) => got.length === 10))
    world.proxy.shut()
    await world.broker.killAllAndStartAgain()
    // More than there were: offsets alone would look as if nothing had happened.
    await world.publish("state", ...range(100, 130))
    world.proxy.open()
    for (const follower of all) {
      const { wasRecovering, recovered } = await follower.isSubscribed(2)
      assert.deepEqual({ wasRecovering, recovered }, { wasRecovering: true, recovered: false })
      assert.equal(follower.got.length, 10, "what cannot be recovered whole does not come in part")
      follower.got.length = 0
    }
    await world.publish("state", "next")
    await world.haveAll("state", all, 30)
    // From here on it is recovered again.
    world.proxy.cut()
    for (const follower of all) assert.equal((await follower.isSubscribed(3)).recovered, true)
    await world.haveAll("state", all, 30)
  },

  async "another topic of the same name is told"(world) {
    await world.sennit(["topic", "create", "again", "--kind", "stream"])
    const all = await followers(world, "again", 2)
    await world.publish("again", 1, 2, 3)
    await until("all have three", () => all.every(({ got }) => got.length === 3))
    world.proxy.shut()
    await world.sennit(["topic", "delete", "again"])
    await world.sennit(["topic", "create", "again", "--kind", "stream"])
    await world.publish("again", 4, 5, 6, 7)
    world.proxy.open()
    for (const follower of all) {
      assert.equal((await follower.isSubscribed(2)).recovered, false)
      follower.got.length = 0
    }
    await world.haveAll("again", all, 4)
  },

  async "a state is loaded again that cannot be recovered"(world) {
    let loads = 0
    const getState = async () => {
      loads += 1
      const { streamPosition } = await world.tab().follow("board").isSubscribed()
      return streamPosition
    }
    const follower = world.tab().follow("board", { getState })
    assert.equal((await follower.isSubscribed()).recovered, true)
    await world.publish("board", 1)
    await until("it comes", () => follower.got.length === 1)
    world.proxy.cut()
    assert.equal((await follower.isSubscribed(2)).recovered, true)
    assert.equal(loads, 1)
    await world.broker.killAllAndStartAgain()
    assert.equal((await follower.isSubscribed(3)).recovered, true)
    assert.equal(loads, 2)
    assert.deepEqual(follower.errors, [])
    follower.got.length = 0
    await world.haveAll("board", [follower])
  },

  async "clients publish"(world) {
    const [topic, channel] = ["gr%C3%B6%C3%9Fe", "größe"]
    await world.sennit(["topic", "create", topic, "--kind", "stream"])
    const all = await followers(world, channel, 3)
    const tab = world.tab()
    // Each is on its way before the one before is confirmed. Requests beside each other have no order: there they are one.
    if (world.transport !== "websocket") tab.client.startBatching()
    const published = range(0, 300).map((n) => tab.publish(channel, { n }))
    tab.client.stopBatching()
    await Promise.all(published)
    const values = ["text", "", 7, -1.5, true, false, [], [1, { a: null }], {}, { "✓": "ü\u0000\n\"" }, "x".repeat(100_000)]
    for (const value of values) await all[0].subscription.publish(tab.data(value))
    if (world.encoding === "protobuf") await tab.client.publish(channel, Uint8Array.from(range(0, 256)))
    await world.sennit(["publish", topic, "no JSON", "{"])
    const log = await world.haveAll(topic, all)
    const first = world.encoding === "json" ? log.map(({ data }) => data) : log.map(({ data }) => data.toString())
    const wanted = [...range(0, 300).map((n) => ({ n })), ...values]
    assert.deepEqual(first.slice(0, wanted.length).map((data) => (world.encoding === "json" ? data : JSON.parse(data))), wanted)
  },

  async "subscriptions end and begin again"(world) {
    await world.sennit(["topic", "create", "news", "--kind", "stream"])
    const [tab, other] = [world.tab(), world.tab()]
    const [leaves, stays] = [tab.follow("news"), other.follow("news")]
    await Promise.all([leaves.isSubscribed(), stays.isSubscribed()])
    await world.publish("news", 1, 2)
    await until("two come", () => leaves.got.length === 2 && stays.got.length === 2)
    for (const times of range(1, 6)) {
      leaves.subscription.unsubscribe()
      await until("it is unsubscribed", () => leaves.unsubscribed.length === times)
      const had = leaves.got.length
      await world.publish("news", ...range(0, 10))
      await until("who stays has them", () => stays.got.length === 2 + 10 * times)
      assert.equal(leaves.got.length, had, "who has left gets nothing")
      leaves.subscription.subscribe()
      assert.equal((await leaves.isSubscribed(times + 1)).recovered, true)
      // What was missed may be on its way when it leaves again.
    }
    await world.haveAll("news", [leaves, stays])
    assert.deepEqual(leaves.unsubscribed, [0, 0, 0, 0, 0])
    leaves.subscription.unsubscribe()
    tab.client.removeSubscription(leaves.subscription)
    await world.publish("news", "nobody's")
    const anew = tab.follow("news")
    assert.equal((await anew.isSubscribed()).wasRecovering, false)
    await world.haveAll("news", [anew], (await world.log("news")).length)
  },

  async "tabs come and go with several channels each"(world) {
    const channels = ["chat:index", "$private:1", "100%", "a/b.c"]
    const topics = ["chat%3Aindex", "%24private%3A1", "100%25", "a/b.c"]
    for (const topic of topics) await world.sennit(["topic", "create", topic, "--kind", "stream"])
    // Encodings side by side; what is compared is of the check's own.
    const tabs = range(0, 8).map(() => world.tab())
    const all = tabs.map((tab) => channels.map((channel) => tab.follow(channel)))
    const others = channels.map((channel) => world.tab({ encoding: world.encoding === "json" ? "protobuf" : "json" }).follow(channel))
    await Promise.all([...all.flat(), ...others].map((follower) => follower.isSubscribed()))
    const publishers = topics.map((topic, at) => publishing(world, topic, channels[at]))
    for (const _ of range(0, 40)) {
      const { client } = tabs[world.random(tabs.length)]
      if (client.state === "disconnected") client.connect()
      else client.disconnect()
      await wait(world.random(30))
    }
    for (const { client } of tabs) client.connect()
    await Promise.all(publishers.map((publisher) => publisher.end()))
    for (const [at, topic] of topics.entries()) {
      const log = await world.haveAll(topic, all.map((of) => of[at]))
      await until("the other encoding has as many", () => others[at].got.length >= log.length)
      assert.equal(others[at].got.length, log.length)
    }
    recoveredAlways(all.flat())
  },

  async "a network goes silent"(world) {
    const tab = world.tab({ maxServerPingDelay: 1000 })
    const follower = tab.follow("quiet")
    await follower.isSubscribed()
    // Two pings and more: a client that answers stays.
    await wait(2500)
    assert.equal(tab.connected.length, 1)
    world.proxy.silence()
    await world.publish("quiet", 1, 2, 3)
    const { recovered } = await follower.isSubscribed(2)
    assert.ok(recovered)
    await world.haveAll("quiet", [follower])
    const connections = async () => {
      const metrics = await (await fetch(`${world.broker.url}/metrics`)).text()
      const counts = [...metrics.matchAll(/^sennit_live_connections\S* (\d+)/gm)].map(([, count]) => Number(count))
      return counts.reduce((sum, count) => sum + count)
    }
    await until("the broker lets the silent one go", async () => (await connections()) === 1)
  },

  async "history is told in pages"(world) {
    await world.sennit(["topic", "create", "past", "--kind", "stream"])
    await world.publish("past", ...range(0, 50))
    const { client } = world.tab()
    const log = await world.log("past")
    const got = []
    for (let since; ; ) {
      const page = await client.history("past", { limit: 7, since })
      if (page.publications.length === 0) break
      got.push(...page.publications)
      since = { offset: page.publications.at(-1).offset, epoch: page.epoch }
    }
    const offsets = (publications) => publications.map(({ offset }) => offset)
    assert.deepEqual(got.map(({ offset, data }) => ({ offset, data: plain(data) })), log.map(({ offset, data }) => ({ offset, data: plain(data) })))
    const newest = await client.history("past", { limit: 3, reverse: true })
    assert.deepEqual(offsets(newest.publications), [50, 49, 48])
    const { publications, offset, epoch } = await client.history("past")
    assert.deepEqual([publications, offset], [[], 50])
    // A subscription goes on behind it.
    await world.haveAll("past", [world.tab().follow("past", { since: { offset: 40, epoch } })], 40)
    assert.equal(await refusal(client.history("past", { limit: 1, since: { offset: 40, epoch: "another" } })), 112)
  },

  async "clients see who is there"(world) {
    const tabs = [world.tab(), world.tab(), world.tab()]
    const follow = async (at) => {
      const follower = tabs[at].follow("room", { joinLeave: true, data: tabs[at].data({ tab: at }) })
      await follower.isSubscribed()
      return follower
    }
    // It is told of those who come behind it.
    const watching = await follow(0)
    const [other] = await Promise.all([follow(1), follow(2)])
    const ids = new Set(tabs.map(({ connected: [client] }) => client))
    const presence = () => watching.subscription.presence()
    const presenceStats = () => tabs[0].client.presenceStats("room")
    await until("all are there", async () => (await presenceStats()).numClients === 3)
    const { clients } = await presence()
    assert.deepEqual(new Set(Object.keys(clients)), ids)
    const shown = clients[tabs[1].connected[0]]
    assert.ok(!shown.user)
    const said = world.encoding === "json" ? shown.chanInfo : JSON.parse(Buffer.from(shown.chanInfo).toString())
    assert.deepEqual(said, { tab: 1 })
    await until("they were told of all", () => new Set(watching.joined).size === 3)
    await tabs[1].publish("room", "hello")
    await until("a publication", () => watching.got.length === 1)
    assert.equal(watching.got[0].info.client, tabs[1].connected[0])
    other.subscription.unsubscribe()
    tabs[2].end()
    await until("they were told of both", () => watching.left.length === 2)
    assert.deepEqual(new Set(watching.left), new Set([tabs[1], tabs[2]].map(({ connected: [client] }) => client)))
    assert.deepEqual(Object.keys((await presence()).clients), [tabs[0].connected[0]])
    // Whoever comes back is there once.
    world.proxy.cut()
    await watching.isSubscribed(2)
    await until("it is there once", async () => (await presenceStats()).numClients === 1)
  },

  async "a pattern of channels"(world) {
    for (const topic of ["rooms.a", "rooms.b", "rooms.b.deep"]) await world.sennit(["topic", "create", topic, "--kind", "stream"])
    const follower = world.tab().follow("rooms.*")
    const told = await follower.isSubscribed()
    assert.equal(told.recoverable, false)
    const got = []
    follower.subscription.on("publication", ({ tags, data, offset }) => got.push([tags.topic, plain(data), offset]))
    const { client } = world.tab()
    const publish = async (channel, n) => {
      await client.publish(channel, world.encoding === "json" ? n : Buffer.from(String(n)))
    }
    const of = (channel, n) => [channel, world.encoding === "json" ? n : plain(Buffer.from(String(n))), undefined]
    for (const [n, channel] of ["rooms.a", "rooms.b.deep", "rooms.b", "rooms.new", "rooms.a"].entries()) await publish(channel, n)
    await until("four come", () => got.length >= 4)
    const byTopic = (channel) => got.filter(([topic]) => topic === channel)
    assert.deepEqual(byTopic("rooms.a"), [of("rooms.a", 0), of("rooms.a", 4)])
    assert.deepEqual([byTopic("rooms.b"), byTopic("rooms.new")], [[of("rooms.b", 2)], [of("rooms.new", 3)]])
    assert.equal(got.length, 4)
    // After a cut it goes on with what comes.
    world.proxy.cut()
    assert.equal((await follower.isSubscribed(2)).recovered, false)
    await publish("rooms.b", 5)
    await until("it comes", () => got.length === 5)
  },

  async "a message of a group goes to one client, and to another if it is not acked"(world) {
    const channel = "errands?group=runners&ack=client&window=2"
    const held = new Map()
    let applied = 0
    const runners = [world.tab(), world.tab(), world.tab()].map((tab) => {
      const follower = tab.follow(channel)
      follower.subscription.on("publication", async ({ data, tags }) => {
        const n = plain(data)
        held.set(n, [...(held.get(n) ?? []), tags.attempt])
        // The first that come are held until the connection is cut.
        if (held.size <= 6 && tags.attempt === "1") return
        const call = { channel, deliveries: [tags.delivery] }
        const { data: told } = await tab.client.rpc("sennit.ack", tab.data(call))
        applied += (world.encoding === "json" ? told : JSON.parse(Buffer.from(told))).applied
      })
      return follower
    })
    for (const runner of runners) assert.equal((await runner.isSubscribed()).recoverable, false)
    const tab = world.tab()
    for (let n = 0; n < 30; n++) await tab.publish("errands", n)
    // Three clients hold two each, which is all that they may have.
    await until("six are held", () => held.size === 6)
    world.proxy.cut()
    await until("all are acked", () => applied === 30)
    assert.equal(held.size, 30)
    assert.deepEqual([...held.values()].map((attempts) => attempts.length).sort(), [...Array(24).fill(1), ...Array(6).fill(2)])
  },

  async "what is not served is told"(world) {
    const tab = world.tab()
    const follower = tab.follow("plain", { joinLeave: true, delta: "fossil", data: tab.data({ any: "thing" }) })
    await follower.isSubscribed()
    const { client } = tab
    const asked = [client.rpc("method", tab.data({}))]
    assert.deepEqual(await Promise.all(asked.map(refusal)), asked.map(() => 108))
    await client.send(tab.data({ nobody: "takes it" }))
    await world.haveAll("plain", [follower])
    assert.equal(tab.connected.length, 1)
  },
}

const CHECKS_IN_JSON = {
  async "a thousand clients are cut off for ten seconds"(world) {
    await world.sennit(["topic", "create", "crowd", "--kind", "stream"])
    const all = []
    while (all.length < 1000) {
      const some = range(0, 100).map(() => world.tab({ maxReconnectDelay: 2000 }).follow("crowd"))
      await Promise.all(some.map((follower) => follower.isSubscribed()))
      all.push(...some)
    }
    const state = { n: 0, isOver: false }
    const publishing = (async () => {
      for (; !state.isOver; await wait(50)) await world.publish("crowd", state.n++)
    })()
    await wait(500)
    world.proxy.shut()
    await wait(10_000)
    assert.equal(world.proxy.connections, 0)
    world.proxy.open()
    await until("all are back", () => all.every(({ subscribed }) => subscribed.length > 1))
    await until("many are published", () => state.n > 50)
    state.isOver = true
    await publishing
    await world.haveAll("crowd", all)
    recoveredAlways(all)
  },
}

/** Those of clients that fall back to another transport. */
const CHECKS_OF_FALLBACK = {
  async "a network lets no WebSocket through"(world) {
    await world.sennit(["topic", "create", "news", "--kind", "stream"])
    world.proxy.letsUpgrade = false
    const tab = world.tab({ transports: ["websocket", world.transport] })
    const follower = tab.follow("news")
    await follower.isSubscribed()
    for (const n of range(0, 20)) await tab.publish("news", { n })
    world.proxy.cut()
    await follower.isSubscribed(2)
    await world.haveAll("news", [follower])
    recoveredAlways([follower])
    assert.deepEqual(tab.transports, [world.transport, world.transport])
  },
}

/** Checks that are done without a WebSocket as well. */
const EMULATED = [
  "connections are cut",
  "the broker is killed, and stops",
  "what is missed is recovered to any depth",
  "what is lost is told",
  "clients publish",
  "subscriptions end and begin again",
  "a network goes silent",
  "tokens",
  "rights",
]

const CHECKS_WITH_IDENTITY = {
  async "tokens"(world) {
    const token = world.broker.key
    const follower = world.tab({ token }).follow("news")
    await follower.isSubscribed()
    assert.equal(await world.tab({ token }).client.ready(), undefined)
    const asked = world.tab({ getToken: async () => token })
    await asked.client.ready()
    for (const wrong of [world.tab({ token: `${token.slice(0, -1)}${token.endsWith("x") ? "y" : "x"}` }), world.tab({ token: "wrong" }), world.tab()]) {
      await until("it is disconnected", () => wrong.disconnected.length > 0)
      assert.deepEqual([wrong.disconnected, wrong.connected], [[3500], []])
    }
    await world.haveAll("news", [follower])
  },

  async "rights"(world) {
    await world.sennit(["topic", "create", "shop.news", "--kind", "stream"])
    await world.sennit(["topic", "create", "other", "--kind", "stream"])
    const right = "subscribe shop.>"
    const token = (await world.sennit(["auth", "key", "create", "page", "--right", right])).trim()
    const tab = world.tab({ token })
    const follower = tab.follow("shop.news")
    await follower.isSubscribed()
    const refused = tab.follow("other")
    await until("it is refused", () => refused.unsubscribed.length > 0)
    assert.deepEqual(refused.unsubscribed, [103])
    assert.equal(await refusal(tab.publish("shop.news", 1)), 103)
    // A topic that is missing is not created for somebody who may not.
    const missing = tab.follow("shop.missing")
    await until("it is refused", () => missing.unsubscribed.length > 0)
    assert.deepEqual(missing.unsubscribed, [102])
    await world.haveAll("shop.news", [follower])

    const keys = (await world.sennit(["auth", "key", "list", "--json"])).trim().split("\n").map((line) => JSON.parse(line))
    const { id } = keys.find(({ name }) => name === "page")
    await world.sennit(["auth", "revoke", id, "--right", right])
    await until("the subscription ends", () => follower.unsubscribed.length > 0)
    assert.deepEqual([follower.unsubscribed, tab.disconnected], [[2000], []])
    const had = follower.got.length
    await world.publish("shop.news", "for others")
    await world.sennit(["auth", "grant", id, "--right", right])
    follower.subscription.subscribe()
    await follower.isSubscribed(2)
    await world.haveAll("shop.news", [follower])
    assert.ok(follower.got.length > had + 1, "what it missed comes with the right")
    await world.sennit(["auth", "key", "delete", id])
    await until("the connection ends", () => tab.disconnected.length > 0)
    assert.deepEqual(tab.disconnected, [3500])
  },
}

const CHECKS_WITH_TOKENS = {
  async "the server subscribes clients"(world) {
    await world.sennit(["topic", "create", "news", "--kind", "stream"])
    const right = ["--right", "subscribe,create,publish >"]
    const token = await world.token("ada", "--channel", "news", ...right)
    const tabs = range(0, 3).map(() => world.tab({ token }))
    const all = tabs.map((tab) => tab.followServerSide("news"))
    await Promise.all(all.map((follower) => follower.isSubscribed()))
    for (const round of range(0, 6)) {
      await world.publish("news", ...range(0, 50))
      if (round === 3) await world.broker.killAndStartAgain()
      else world.proxy.cut()
      await world.publish("news", ...range(50, 100))
      await until("all are back", () => all.every(({ subscribed }) => subscribed.length > round + 1))
    }
    await world.haveAll("news", all)
    recoveredAlways(all)
    // By a program: as long as the connection is there.
    const extra = tabs.map((tab) => tab.followServerSide("extra"))
    const target = { user: "ada", channel: "extra" }
    assert.equal((await world.api("POST", "live/subscribe", target)).subscribed, 3)
    await Promise.all(extra.map((follower) => follower.isSubscribed()))
    await world.publish("extra", 1, 2)
    await until("it comes", () => extra.every(({ got }) => got.length === 2))
    assert.equal((await world.api("POST", "live/unsubscribe", target)).unsubscribed, 3)
    await until("they are unsubscribed", () => extra.every(({ unsubscribed }) => unsubscribed.length === 1))
    // A client whose token names what it may not have.
    const wrong = world.tab({ token: await world.token("bob", "--channel", "news") })
    await until("it is disconnected", () => wrong.disconnected.length > 0)
    assert.deepEqual([wrong.disconnected, wrong.connected], [[103], []])
  },

  async "the server sends messages, and has connections end"(world) {
    const token = await world.token("ada")
    const [one, two] = [world.tab({ token }), world.tab({ token })]
    const other = world.tab({ token: await world.token("bob") })
    await Promise.all([one, two, other].map(({ client }) => client.ready()))
    const data = { "✓": ["for", "ada"] }
    assert.deepEqual(await world.api("POST", "live/send", { user: "ada", data }), { reached: 2, missed: 0 })
    assert.deepEqual(await world.api("POST", "live/send", { connection: other.connected[0], data: 7 }), { reached: 1, missed: 0 })
    assert.deepEqual(await world.api("POST", "live/send", { all: true, data: "all" }), { reached: 3, missed: 0 })
    const read = (data) => (world.encoding === "json" ? data : JSON.parse(Buffer.from(data)))
    await until("all come", () => [one, two, other].every(({ messages }) => messages.length === 2))
    for (const { messages } of [one, two]) assert.deepEqual(messages.map(read), [data, "all"])
    assert.deepEqual(other.messages.map(read), [7, "all"])
    const { connections } = await world.api("GET", "live/connections?user=ada")
    assert.deepEqual(connections.map(({ id }) => id).sort(), [one.connected[0], two.connected[0]].sort())
    assert.deepEqual(await world.api("DELETE", "live/connections?user=ada"), { disconnected: 2 })
    await until("they are told", () => [one, two].every(({ disconnected }) => disconnected.length === 1))
    assert.deepEqual([one.disconnected, two.disconnected], [[3503], [3503]])
    // Back, by a code that says so.
    assert.deepEqual(await world.api("DELETE", `live/connections/${other.connected[0]}?code=4000`), { disconnected: 1 })
    await until("it comes back", () => other.connected.length === 2)
  },
}

const ALL = ["websocket", "sse", "http_stream"]
const transportsOf = (name) => (EMULATED.includes(name) ? ALL : ["websocket"])

/** All checks: their name, what they do, over which transports, how their broker is started, and in which encodings, if not in all. */
export const checks = [
  ...Object.entries(CHECKS).map(([name, check]) => ({ name, check, transports: transportsOf(name), options: {} })),
  ...Object.entries(CHECKS_OF_FALLBACK).map(([name, check]) => ({ name, check, transports: ["sse", "http_stream"], options: {} })),
  ...Object.entries(CHECKS_WITH_IDENTITY).map(([name, check]) => ({ name, check, transports: transportsOf(name), options: { identity: true } })),
  ...Object.entries(REDIS_CHECKS).map(([name, check]) => ({ name, check, transports: ["websocket"], options: { redis: true }, encodings: ["json"] })),
  ...Object.entries(CHECKS_IN_JSON).map(([name, check]) => ({ name, check, transports: ["websocket"], options: {}, encodings: ["json"] })),
  ...Object.entries(CHECKS_WITH_TOKENS).map(([name, check]) => ({ name, check, transports: ["websocket"], options: { identity: true, tokens: true } })),
]
