// Runs the official conformance suite against a broker in each storage mode, beside each other where
// cores allow, and says what passed. `./run --help` tells the options.
import { appendFile, mkdir, readFile, rm, writeFile } from "node:fs/promises"
import { availableParallelism } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"

import { Broker, LONG_POLL_MS, launch, other, sennit } from "./broker.mjs"

const MODES = ["memory", "file-fast", "file-durable", "acid", "file-durable+identity"]

/** Tests that the suite has, those of subscriptions with them: fewer would mean that some were not run. */
const TESTS = 338

/** Seconds that the suite may take in one mode: some times what it takes on a busy machine. */
const DEADLINE_S = 900

/** Failures that are printed of each mode; the report has them all. */
const SHOWN = 30

const HELP = `run [options]: the official Durable Streams conformance suite

  --sennit FILE     the broker (default: $SENNIT, else target/debug/sennit)
  --modes LIST      storage modes, MODE+identity with credentials
                    (default: ${MODES.join(",")})
  --jobs N          modes at a time (default: a core each)
  --only PATTERN    only tests whose name matches
  --deadline N      seconds after which the suite of a mode is given up (default: ${DEADLINE_S})
  --base-url URL    a server that runs already, instead
  --server COMMAND  a server that COMMAND starts with PORT, DATA and LONG_POLL_MS set, instead
  --report FILE     where the JSON report goes (default: report.json where this was installed)

$CONFORMANCE_KEY is shown to the server, if it is set, and not the key that a broker with credentials has made.`

const here = dirname(fileURLToPath(import.meta.url))
const { values: options } = parseArgs({
  options: {
    sennit: { type: "string", default: process.env.SENNIT },
    modes: { type: "string", default: MODES.join(",") },
    jobs: { type: "string", default: String(availableParallelism()) },
    only: { type: "string" },
    deadline: { type: "string", default: String(DEADLINE_S) },
    "base-url": { type: "string" },
    server: { type: "string" },
    report: { type: "string", default: join(here, "report.json") },
    help: { type: "boolean", default: false },
  },
})

/** The suite against `url`, with a key if one is needed: how many passed, and the names of the tests that did not. */
async function suite(name, url, key) {
  const json = join(here, "results", `${name.replaceAll(/[^a-z0-9-]/gi, "_")}.json`)
  await rm(json, { force: true })
  const flags = ["run", "--config", "vitest.config.mjs", "--reporter=json", `--outputFile=${json}`]
  if (options.only) flags.push("-t", options.only)
  // Not BASE_URL, which vitest sets to something of its own.
  const env = { CONFORMANCE_URL: url, CONFORMANCE_LONG_POLL_MS: String(LONG_POLL_MS), NO_COLOR: "1" }
  env.CONFORMANCE_KEY = process.env.CONFORMANCE_KEY ?? key
  const begun = Date.now()
  const { said, isLate } = await ended(launch([process.execPath, join(here, "node_modules/vitest/vitest.mjs"), ...flags], {
    cwd: here, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"],
  }))
  if (isLate) throw new Error(`not done after ${options.deadline} s, and given up:\n${said}`)
  const report = await readFile(json, "utf8").then(JSON.parse, () => {
    throw new Error(`vitest wrote no report:\n${said}`)
  })
  const tests = report.testResults.flatMap((file) => file.assertionResults)
  const of = (status) => tests.filter((test) => test.status === status)
  const failures = of("failed").map((test) => ({ name: test.fullName, why: test.failureMessages[0] ?? "" }))
  const notRun = tests.length - of("passed").length - failures.length
  const missing = options.only ? 0 : Math.max(0, TESTS - tests.length) + notRun
  return { mode: name, passed: of("passed").length, failed: failures.length, missing, failures, seconds: (Date.now() - begun) / 1000 }
}

/** What a process says until it ends, or is late and killed. */
function ended(child) {
  return new Promise((resolve) => {
    let said = ""
    for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (bytes) => (said += bytes))
    const late = setTimeout(() => {
      child.kill("SIGKILL")
      // Whoever it has started may hold its pipes open: they are not waited for.
      resolve({ said, isLate: true })
    }, Number(options.deadline) * 1000)
    child.on("close", () => {
      clearTimeout(late)
      resolve({ said, isLate: false })
    })
  })
}

async function measure(kind) {
  const nothing = { mode: kind.name, passed: 0, failed: 0, missing: TESTS, failures: [], seconds: 0 }
  if (kind.url) return suite(kind.name, kind.url)
  const broker = await Broker.start(kind).catch((error) => ({ error }))
  if (broker.error) return { ...nothing, error: broker.error.message }
  try {
    return await suite(kind.name, broker.url, broker.key)
  } catch (error) {
    return { ...nothing, error: error.message }
  } finally {
    await broker.stop()
  }
}

function kinds() {
  if (options["base-url"]) return [{ name: "base-url", url: options["base-url"] }]
  if (options.server) return [other(options.server)]
  if (!options.sennit) throw new Error("no broker: --sennit FILE or $SENNIT")
  return options.modes.split(",").map((mode) => sennit(options.sennit, mode))
}

/** All of them, `jobs` at a time. */
async function all(waiting, jobs) {
  const results = []
  const next = async (index) => {
    if (index >= waiting.length) return
    results[index] = await measure(waiting[index])
    process.stdout.write(line(results[index]))
    await next((begun += 1) - 1)
  }
  let begun = Math.min(jobs, waiting.length)
  await Promise.all(Array.from({ length: begun }, (_, index) => next(index)))
  return results
}

function line({ mode, passed, failed, missing, seconds }) {
  const counts = [passed, failed, missing].map((count) => String(count).padStart(8))
  return `${mode.padEnd(23)}${counts.join("")}${seconds.toFixed(0).padStart(6)} s\n`
}

if (options.help) {
  console.log(HELP)
  process.exit(0)
}
await mkdir(join(here, "results"), { recursive: true })
console.log("mode                     passed  failed not run    took")
const results = await all(kinds(), Number(options.jobs))
for (const { mode, error, failures } of results) {
  if (error) console.log(`${mode}: ${error}`)
  for (const { name, why } of failures.slice(0, SHOWN)) console.log(`${mode}: ${name}\n    ${why.split("\n")[0]}`)
  if (failures.length > SHOWN) console.log(`${mode}: and ${failures.length - SHOWN} more, in ${options.report}`)
}
const counts = results.map(({ passed, failed, missing }) => `${passed} ${failed + missing}\n`)
if (process.env.TEST_COUNTS) await appendFile(process.env.TEST_COUNTS, counts.join(""))
await writeFile(options.report, JSON.stringify(results, null, 2) + "\n")
const whole = results.every(({ failed, missing, error }) => failed === 0 && missing === 0 && !error)
process.exit(whole ? 0 : 1)
