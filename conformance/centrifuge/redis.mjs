// A Redis in a process of its own, and the checks of brokers that share one.
import assert from "node:assert/strict"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as wait } from "node:timers/promises"

import { freePort, launch } from "./broker.mjs"
import { range, until } from "./checking.mjs"

export class Redis {
  static async start() {
    const redis = new Redis()
    redis.port = await freePort()
    redis.url = `redis://127.0.0.1:${redis.port}`
    redis.folder = await mkdtemp(join(tmpdir(), "sennit-redis-"))
    redis.begin()
    return redis
  }

  begin() {
    const flags = ["--port", this.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", this.folder]
    this.child = launch(["redis-server", ...flags.map(String)], { stdio: "ignore" })
  }

  async kill() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve))
    this.child.kill("SIGKILL")
    await ended
  }

  /** What `redis-cli` says. */
  async ask(...words) {
    const child = launch(["redis-cli", "-p", String(this.port), ...words], { stdio: ["ignore", "pipe", "ignore"] })
    return Buffer.concat(await child.stdout.toArray()).toString().trim()
  }

  async stop() {
    await this.kill()
    await rm(this.folder, { recursive: true, force: true })
  }
}

/** The channels of Redis that some broker is subscribed to, but for those of brokers themselves. */
async function followed(world) {
  const channels = (await world.redis.ask("pubsub", "channels")).split("\n")
  return channels.filter((channel) => channel.startsWith("sennit:topic:")).map((channel) => channel.slice("sennit:topic:".length))
}

/** The values that a follower has got. */
const values = (follower) => follower.got.map(({ data }) => data)

export const REDIS_CHECKS = {
  async "what is published at one broker reaches those at another"(world) {
    assert.deepEqual(await followed(world), [], "nobody is subscribed")
    const here = world.tab().follow("news")
    const there = world.tabElsewhere().follow("news")
    await Promise.all([here.isSubscribed(), there.isSubscribed()])
    assert.deepEqual(await followed(world), ["news"], "by interest")
    await world.publishElsewhere("news", ...range(0, 500))
    await world.publish("news", ...range(500, 1000))
    for (const [name, follower] of Object.entries({ here, there })) {
      await until(`all are ${name}, not ${follower.got.length}`, () => follower.got.length >= 1000)
      await wait(200)
      const got = values(follower)
      assert.equal(got.length, 1000, `${name}: each once, and none comes back`)
      for (const part of [range(0, 500), range(500, 1000)]) {
        assert.deepEqual(got.filter((value) => part.includes(value)), part, `${name}: in order`)
      }
      follower.got.forEach(({ offset }, at) => assert.equal(offset, at + 1, `${name}: the offsets are those of its broker`))
    }
  },

  async "a pattern has what is published at another broker"(world) {
    const follower = world.tab().follow("rooms.*")
    await follower.isSubscribed()
    const got = []
    follower.subscription.on("publication", ({ tags, data }) => got.push([tags.topic, data]))
    // Nobody here has these topics, and one of them is too deep.
    for (const topic of ["rooms.a", "rooms.a.deep", "rooms.b"]) await world.publishElsewhere(topic, ...range(0, 100))
    await until(`all are here, not ${got.length}`, () => got.length >= 200)
    // By the pattern and by the name: each once.
    const named = world.tab().follow("rooms.a")
    await named.isSubscribed()
    await world.publishElsewhere("rooms.a", ...range(100, 200))
    await world.publish("rooms.a", 200)
    const of = (topic) => got.filter(([name]) => name === topic).map(([, data]) => data)
    await until("the last is here", () => of("rooms.a").includes(200) && values(named).includes(200))
    await until(`all are here, not ${got.length}`, () => got.length >= 301)
    await wait(200)
    assert.deepEqual(of("rooms.a").sort((a, b) => a - b), range(0, 201))
    assert.deepEqual(of("rooms.b"), range(0, 100))
    assert.equal(got.length, 301, "nothing else comes")
    assert.deepEqual(values(named).sort((a, b) => a - b), range(100, 201))
  },

  async "Redis is killed, and nothing is missing once it is back"(world) {
    const follower = world.tab().follow("news")
    await follower.isSubscribed()
    let sent = 0
    const publish = async (count) => {
      await world.publishElsewhere("news", ...range(sent, sent + count))
      sent += count
    }
    await publish(200)
    for (let kill = 0; kill < 3; kill += 1) {
      const publishing = publish(300)
      await wait(world.random(50))
      await world.redis.kill()
      await publishing
      await publish(300)
      await wait(world.random(500))
      world.redis.begin()
      await publish(100)
    }
    await until(`all ${sent} are there, not ${follower.got.length}`, () => follower.got.length >= sent)
    await wait(200)
    assert.deepEqual(values(follower), range(0, sent))
    assert.equal(follower.subscribed.length, 1, "nobody was told that something is missing")
  },

  async "a broker is killed, and what it confirmed arrives"(world) {
    for (const broker of [world.broker, world.other]) {
      await world.sennit(["topic", "create", "orders", "--kind", "stream"], "", broker)
    }
    const follower = world.tab().follow("orders")
    await follower.isSubscribed()
    let sent = 0
    for (let kill = 0; kill < 3; kill += 1) {
      await world.publishElsewhere("orders", ...range(sent, sent + 500))
      sent += 500
      await world.other.killAndStartAgain()
    }
    await world.publishElsewhere("orders", "the last one")
    await until(`all ${sent} are there, not ${follower.got.length}`, () => follower.got.length > sent)
    assert.deepEqual(values(follower), [...range(0, sent), "the last one"])
  },

  async "what is missing for good is told"(world) {
    const keeps = ["--durability", "memory", "--retain", "10messages"]
    await world.sennit(["topic", "create", "short", ...keeps], "", world.other)
    const tab = world.tab()
    const follower = tab.follow("short")
    await follower.isSubscribed()
    await world.publishElsewhere("short", 1)
    await until("the first", () => follower.got.length === 1)
    await world.redis.kill()
    for (let times = 0; times < 40; times += 1) await world.publishElsewhere("short", ...range(0, 100))
    world.redis.begin()
    const told = await follower.isSubscribed(2)
    assert.deepEqual([told.wasRecovering, told.recovered], [true, false])
    await world.publishElsewhere("short", "from here on")
    await until("what comes next", () => values(follower).includes("from here on"))
    // Whoever was away while nobody followed is told as well.
    tab.client.disconnect()
    await world.broker.killAndStartAgain()
    tab.client.connect()
    const again = await follower.isSubscribed(3)
    assert.equal(again.recovered, false)
  },

  async "clients come back, and have each once"(world) {
    const followers = range(0, 20).map(() => world.tab().follow("crowd"))
    await Promise.all(followers.map((follower) => follower.isSubscribed()))
    for (let cut = 0; cut < 5; cut += 1) {
      const publishing = world.publishElsewhere("crowd", ...range(cut * 200, cut * 200 + 200))
      await wait(world.random(100))
      world.proxy.cut()
      await publishing
    }
    for (const follower of followers) {
      await until(`all are there, not ${follower.got.length}`, () => follower.got.length >= 1000)
      assert.deepEqual(values(follower), range(0, 1000))
    }
  },
}
