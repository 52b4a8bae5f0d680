// An "AI" that has one answer to everything. It serves the page, and says its answer piece by piece into a
// stream of its own for each question. Who listens, how many, and since when, it does not know.
import { randomUUID } from "node:crypto"
import { readFile } from "node:fs/promises"
import { createServer } from "node:http"
import { setTimeout as wait } from "node:timers/promises"
import { parseArgs } from "node:util"

const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "8080" },
    broker: { type: "string", default: "http://127.0.0.1:4437" },
    pace: { type: "string", default: "45" }, // milliseconds from piece to piece
  },
})

/** What a question may be long, in bytes. */
const QUESTION_MAX = 4096

const page = await readFile(new URL("index.html", import.meta.url))
const pieces = (await readFile(new URL("answer.txt", import.meta.url), "utf8")).trim().match(/\s*\S{1,7}/gu)

/** Asks the broker until it says yes: one that is away comes back, and what is sent twice counts once. */
async function insist(method, stream, headers, message) {
  for (let pause = 50; ; pause = Math.min(pause * 2, 1000)) {
    const request = { method, headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(message) }
    const reply = await fetch(stream, request).catch(() => undefined)
    if (reply?.ok) return
    if (reply && reply.status < 500 && reply.status !== 429) throw new Error(await reply.text())
    await wait(pause)
  }
}

/** Says the answer: piece 0, 1, 2 ... of one producer, and the last of them closes the stream. */
async function answer(stream) {
  for (const [number, text] of pieces.entries()) {
    await wait(Number(options.pace))
    const headers = { "Producer-Id": "ai", "Producer-Epoch": "0", "Producer-Seq": String(number) }
    if (number === pieces.length - 1) headers["Stream-Closed"] = "true"
    await insist("POST", stream, headers, { text })
  }
}

/** A stream for the question, which is its first message. It is gone a day after it was last of use. */
async function ask(question) {
  const stream = `${options.broker}/v1/stream/answers/${randomUUID()}`
  await insist("PUT", stream, { "Stream-TTL": "86400" }, { question })
  answer(stream).catch((error) => console.error(`${stream}: ${error.message}`))
  return { stream }
}

async function body(request) {
  let text = ""
  for await (const chunk of request.setEncoding("utf8")) {
    text += chunk
    if (Buffer.byteLength(text) > QUESTION_MAX) return
  }
  return text
}

const server = createServer(async (request, reply) => {
  if (request.method === "GET" && request.url === "/") {
    reply.setHeader("Content-Type", "text/html; charset=utf-8").end(page)
  } else if (request.method === "POST" && request.url === "/ask") {
    const question = await body(request)
    if (!question?.trim()) return reply.writeHead(400).end()
    reply.setHeader("Content-Type", "application/json").end(JSON.stringify(await ask(question.trim())))
  } else {
    reply.writeHead(404).end()
  }
})
server.listen(Number(options.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`))
