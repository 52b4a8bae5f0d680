// Serves with the npm package: `node node.mjs PORT LONG_POLL_MS [DATA]`; without a folder in memory.
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, longPollTimeout, dataDir] = process.argv.slice(2)
const options = { host: "127.0.0.1", port: Number(port), longPollTimeout: Number(longPollTimeout) }
await new DurableStreamTestServer({ ...options, dataDir, webhooks: true }).start()
