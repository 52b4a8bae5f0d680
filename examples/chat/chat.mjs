// The server of the chat: it creates the rooms, which are durable streams of the broker, and hands out the page.
// What is said in them goes between browsers and broker; it sees none of it.
import { readFile } from "node:fs/promises"
import { createServer } from "node:http"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { setTimeout as wait } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"

const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "8081" },
    broker: { type: "string", default: "http://127.0.0.1:4437" },
    room: { type: "string", multiple: true, default: ["lobby", "ideas", "off-topic"] },
  },
})

/** The path of the broker where live connections begin. */
const LIVE_PATH = "/connection/websocket"

const here = dirname(fileURLToPath(import.meta.url))
const live = new URL(LIVE_PATH, options.broker)
live.protocol = live.protocol === "https:" ? "wss:" : "ws:"

/** What a browser may load, and from where: whatever somebody writes into a room, no script of theirs runs. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src data:",
  `connect-src 'self' ${live.origin}`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ")

const SCRIPT = "text/javascript; charset=utf-8"
const centrifuge = join(dirname(createRequire(import.meta.url).resolve("centrifuge")), "index.mjs")

/** Paths of the page, with the file and the type of each. */
const files = {
  "/": [join(here, "page/index.html"), "text/html; charset=utf-8"],
  "/style.css": [join(here, "page/style.css"), "text/css; charset=utf-8"],
  "/centrifuge.mjs": [centrifuge, SCRIPT],
}
for (const name of ["app", "here", "me", "message", "outbox", "room", "talk"]) {
  files[`/${name}.mjs`] = [join(here, `page/${name}.mjs`), SCRIPT]
}

/** A room is a durable stream. One that is there stays as it is; a broker that is away comes. */
async function createRoom(name) {
  const stream = `${options.broker}/v1/stream/${encodeURIComponent(`chat:${name}`)}`
  for (let pause = 50; ; pause = Math.min(pause * 2, 1000)) {
    const request = { method: "PUT", headers: { "Content-Type": "application/json" } }
    const reply = await fetch(stream, request).catch(() => undefined)
    if (reply?.ok) return
    if (reply && reply.status < 500 && reply.status !== 429) {
      console.error(`${stream}: ${await reply.text()}`)
      process.exit(1)
    }
    await wait(pause)
  }
}

const server = createServer(async (request, reply) => {
  const path = request.url.split("?")[0]
  reply.setHeader("Content-Security-Policy", POLICY)
  reply.setHeader("X-Content-Type-Options", "nosniff")
  reply.setHeader("Referrer-Policy", "no-referrer")
  reply.setHeader("Cache-Control", "no-cache")
  if (!["GET", "HEAD"].includes(request.method)) {
    reply.writeHead(405, { Allow: "GET, HEAD" }).end()
  } else if (path === "/settings.json") {
    reply.setHeader("Content-Type", "application/json").end(JSON.stringify({ broker: live.href, rooms: options.room }))
  } else if (Object.hasOwn(files, path)) {
    const [file, type] = files[path]
    reply.setHeader("Content-Type", type).end(await readFile(file))
  } else {
    reply.writeHead(404).end()
  }
})

await Promise.all(options.room.map(createRoom))
server.listen(Number(options.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`))
