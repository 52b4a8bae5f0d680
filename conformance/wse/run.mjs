// Runs each check, every one against a broker of its own, and says how it went.
// `./run --help` tells the options.
import { parseArgs } from "node:util"

import { OPTIONS, OPTIONS_HELP, Score, randomOf, setUp } from "./checking.mjs"
import { checks } from "./checks.mjs"
import { World } from "./world.mjs"

const { values: options } = parseArgs({ options: OPTIONS })
if (options.help) {
  console.log(`run [options]: WSE's Python client against a broker\n${OPTIONS_HELP}`)
  process.exit(0)
}

setUp()
console.log(`seed ${options.seed}`)
const score = new Score()
const only = new RegExp(options.only ?? "")
const python = process.env.CLIENT_PYTHON.split(" ")
for (const { name, check, options: start } of checks.filter(({ name }) => only.test(name))) {
  await score.run(name, check, () => World.start(options.sennit, { random: randomOf(options.seed), python }, start))
}
score.end()
