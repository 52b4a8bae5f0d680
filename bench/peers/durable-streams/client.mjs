// What the protocol's own benchmark measures, by the protocol's own TypeScript client, against any number of
// servers in turns:
//
//   client.mjs --runs N --seconds S NAME=URL...
//
// One Node thread, one stream at a time: the client's own time for a request is in every figure, and makes
// most of them. What a server does for many clients at once `sennit bench http-streams` measures.
import assert from "node:assert/strict"
import { parseArgs } from "node:util"

import { DurableStream, stream } from "@durable-streams/client"

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { runs: { type: "string", default: "3" }, seconds: { type: "string", default: "5" }, json: { type: "boolean" } },
})
const [runs, seconds] = [Number(values.runs), Number(values.seconds)]
const targets = positionals.map((of) => {
  const at = of.indexOf("=")
  assert.ok(at > 0, `${of} is not NAME=URL`)
  return { name: of.slice(0, at), url: of.slice(at + 1) }
})

let made = 0
const ofStream = (base) => ({
  url: `${base}/v1/stream/client-${process.pid}-${made++}`,
  contentType: "application/octet-stream",
  warnOnHttp: false,
})
const filled = (bytes) => new Uint8Array(bytes).fill(42)

/** Appends, each begun before the one before is answered, `rounds` times: the client makes batches of them. */
async function appendAll(handle, size, each, rounds) {
  for (let round = 0; round < rounds; round++) {
    await Promise.all(Array.from({ length: each }, () => handle.append(filled(size))))
  }
}

/** One append, until a reader that waited for it has it: milliseconds. */
async function roundTrip(base) {
  const of = ofStream(base)
  const handle = await DurableStream.create(of)
  const once = async (offset) => {
    const session = await stream({ ...of, offset, live: "long-poll" })
    return new Promise((resolve) => {
      const stop = session.subscribeBytes((batch) => {
        if (batch.data.length > 0) {
          stop()
          session.cancel()
          resolve(batch.offset)
        }
      })
    })
  }
  const warm = once("-1")
  await handle.append(filled(100))
  const offset = await warm
  const begun = performance.now()
  await Promise.all([once(offset), handle.append(filled(100))])
  const took = performance.now() - begun
  await DurableStream.delete(of)
  return took
}

/** Messages a second of `rounds` times `each` appends of `size` bytes to a new stream. */
async function throughput(base, size, each, rounds) {
  const of = ofStream(base)
  const handle = await DurableStream.create(of)
  const begun = performance.now()
  await appendAll(handle, size, each, rounds)
  const took = performance.now() - begun
  const there = await (await stream({ ...of, offset: "-1", live: false })).body()
  assert.equal(there.length, size * each * rounds, `${of.url}: other than was appended`)
  await DurableStream.delete(of)
  return (each * rounds * 1000) / took
}

const FIGURES = {
  "round trip, ms": roundTrip,
  "100 B, messages/s": (base) => throughput(base, 100, 75, 14),
  "1 MiB, messages/s": (base) => throughput(base, 1 << 20, 15, 4),
}

const mean = (figures) => figures.reduce((sum, figure) => sum + figure, 0) / figures.length
const median = (figures) => figures.toSorted((a, b) => a - b)[Math.floor(figures.length / 2)]

const measured = Object.fromEntries(targets.map(({ name }) => [name, {}]))
for (let run = 0; run < runs; run++) {
  for (const [figure, measure] of Object.entries(FIGURES)) {
    for (const { name, url } of targets) {
      await measure(url)
      const taken = []
      for (const until = performance.now() + seconds * 1000; performance.now() < until; ) taken.push(await measure(url))
      ;(measured[name][figure] ??= []).push(mean(taken))
    }
  }
}

if (values.json) {
  console.log(JSON.stringify(measured))
} else {
  const row = (cells) => console.log(`| ${cells.join(" | ")} |`)
  row(["server", ...Object.keys(FIGURES)])
  row(["---", ...Object.keys(FIGURES).map(() => "---")])
  const said = (figures) => [median(figures), Math.min(...figures), Math.max(...figures)].map((n) => n < 10 ? n.toFixed(2) : n.toFixed(0))
  for (const { name } of targets) {
    row([name, ...Object.values(measured[name]).map((of) => (([at, least, most]) => `${at} (${least}..${most})`)(said(of)))])
  }
}
process.exit(0)
