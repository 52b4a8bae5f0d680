// What the official TypeScript client does with a broker; conformance/README.md says the steps.
import assert from "node:assert/strict"
import { createInterface } from "node:readline"
import { isDeepStrictEqual } from "node:util"

import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const base = `${process.argv[2]}/v1/stream/clients/typescript-${process.pid}`
const [FIRST, TAILED, AFTER] = [20, 5, 10]

const { CONFORMANCE_KEY: key } = process.env
const headers = key ? { Authorization: `Bearer ${key}` } : {}
const quiet = { warnOnHttp: false, headers }
const json = { url: `${base}/json`, contentType: "application/json", ...quiet }
const bytes = { url: `${base}/bytes`, contentType: "application/octet-stream", ...quiet }
const produced = { url: `${base}/produced`, contentType: "application/json", ...quiet }

const message = (n) => ({ n, text: `message ${n} ✓` })
const chunk = (n) => Uint8Array.from({ length: 1000 + n }, (_, index) => (index * 7 + n) % 256)
const upTo = (count, make) => Array.from({ length: count }, (_, n) => make(n))
function same(what, got, want) {
  assert.ok(isDeepStrictEqual(got, want), `${what}: other than was appended: ${got.length}, not ${want.length}`)
}
const step = (name) => console.log(`step ${name}`)

const [jsons, chunks, numbers] = await Promise.all([json, bytes, produced].map((of) => DurableStream.create(of)))
step("create")

let sent = 0
async function append(count) {
  // Each begun before the one before is answered: the client makes batches of them.
  const ns = upTo(count, (index) => sent + index)
  await Promise.all(ns.map((n) => jsons.append(JSON.stringify(message(n)))))
  for (const n of ns) await chunks.append(chunk(n))
  sent += count
}
await append(FIRST)
step("append")

same("json", await (await stream({ ...json, offset: "-1", live: false })).json(), upTo(FIRST, message))
const body = await (await stream({ ...bytes, offset: "-1", live: false })).body()
same("bytes", Buffer.from(body), Buffer.concat(upTo(FIRST, chunk)))
step("read")

/**
 * Follows a stream from its start; `seen(count)` waits until so many have come. The client ends a session of
 * events whose connection breaks, so it is begun again after the last batch, as a user of it would.
 */
function tail(of, live, follow) {
  const items = []
  let look = () => {}
  const seen = (count) => new Promise((resolve) => {
    look = () => items.length >= count && resolve()
    look()
  })
  const run = async (offset) => {
    for (;;) {
      const session = await stream({ ...of, offset, live })
      follow(session, (batch, pieces) => {
        offset = batch.offset
        items.push(...pieces)
        look()
      })
      const broken = await session.closed.then(() => false, () => true)
      if (!broken) return
    }
  }
  return { items, seen, ended: run("-1") }
}
const messages = tail(json, "sse", (session, take) => session.subscribeJson((batch) => take(batch, batch.items)))
const octets = tail(bytes, "long-poll", (session, take) => session.subscribeBytes((batch) => take(batch, batch.data)))
const octetsOf = (count) => upTo(count, (n) => chunk(n).length).reduce((sum, length) => sum + length, 0)
async function tailed() {
  await Promise.all([messages.seen(sent), octets.seen(octetsOf(sent))])
  same("the tail of json", messages.items, upTo(sent, message))
  same("the tail of bytes", Buffer.from(octets.items), Buffer.concat(upTo(sent, chunk)))
}
await tailed()
await append(TAILED)
await tailed()
step("tail")

// A producer appends while the broker is killed: each of its messages is there once all the same.
// The client leaves it to its `fetch` to repeat what was not answered, and what a broker that recovers refuses.
async function fetchUntilAnswered(...request) {
  for (;;) {
    const response = await fetch(...request).catch(() => ({ status: 503 }))
    if (response.status !== 503) return response
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
const producer = new IdempotentProducer(numbers, `typescript-${process.pid}`, { lingerMs: 1, fetch: fetchUntilAnswered })
let count = 0
let killed = false
const producing = (async () => {
  for (let after = 0; after < 50; after += Number(killed)) {
    producer.append(JSON.stringify({ n: count++ }))
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  await producer.flush()
})()
console.log("kill")
await new Promise((resolve) => createInterface({ input: process.stdin }).once("line", resolve))
killed = true
await append(AFTER)
await tailed()
await producing
const there = await (await stream({ ...produced, offset: "-1", live: false })).json()
same("what a producer appended", there, upTo(count, (n) => ({ n })))
step("restart")

await Promise.all([jsons.close(), chunks.close(), producer.close()])
await Promise.all([messages.ended, octets.ended])
await tailed()
assert.equal((await DurableStream.head(json)).streamClosed, true)
await assert.rejects(jsons.append(JSON.stringify(message(sent))), { status: 409 })
step("close")
process.exit(0)
