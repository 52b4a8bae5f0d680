// The example as its reader has it: a browser, two tabs, a broker that is killed. Waits for what is to be
// seen, never for time to pass.
import assert from "node:assert/strict"
import { mkdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { after, before, test } from "node:test"

import { chromium } from "playwright-core"

import { Broker, launch, sennit } from "./broker.mjs"

/** How long what has to be seen may take to be seen. */
const SEEN_MS = 60_000

/** Milliseconds from piece to piece: time enough to reload and kill in the middle. */
const PACE_MS = "120"

const { SENNIT, EXAMPLE, SCREENSHOTS } = process.env
const whole = (await readFile(join(EXAMPLE, "answer.txt"), "utf8")).trim()
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS.push("--disable-background-networking", "--disable-component-update", "--disable-sync")

let broker, ai, browser, context

before(async () => {
  broker = await Broker.start(sennit(SENNIT, "file-durable"))
  ai = await answerer(broker.url)
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS })
  context = await browser.newContext({ viewport: { width: 1100, height: 780 }, deviceScaleFactor: 2 })
  await context.addInitScript(watchTheAnswer, whole)
})

after(async () => {
  await browser?.close()
  ai?.child.kill()
  await broker?.stop()
})

/** The example's program, and where it listens. */
async function answerer(url) {
  const flags = ["--port", "0", "--broker", url, "--pace", PACE_MS]
  const child = launch([process.execPath, join(EXAMPLE, "ai.mjs"), ...flags], { stdio: ["ignore", "pipe", "inherit"] })
  const address = await new Promise((resolve) => createInterface({ input: child.stdout }).once("line", resolve))
  return { child, address }
}

/** In the page, before anything else: whatever stands there at any moment has to be the answer's beginning. */
function watchTheAnswer(whole) {
  window.wrong = []
  const look = () => {
    if (document.body?.dataset.state === "idle") return
    const text = document.getElementById("answer")?.textContent ?? ""
    if (!whole.startsWith(text)) window.wrong.push(text)
  }
  new MutationObserver(look).observe(document, { childList: true, characterData: true, subtree: true })
}

const said = (page) => page.locator("#answer").evaluate((answer) => answer.textContent)
const state = (page) => page.locator("body").getAttribute("data-state")

/** Waits until the page is in a state, with so many characters of the answer or more. */
function seen(page, state, length = 0) {
  const is = ([state, length]) =>
    document.body.dataset.state === state && document.getElementById("answer").textContent.length >= length
  return page.waitForFunction(is, [state, length], { timeout: SEEN_MS })
}

async function picture(page, name) {
  if (!SCREENSHOTS) return
  await mkdir(SCREENSHOTS, { recursive: true })
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) })
}

async function asked(question) {
  const page = await context.newPage()
  await page.goto(ai.address)
  await picture(page, "empty")
  await page.getByPlaceholder("Why is the sky blue?").fill(question)
  await page.getByRole("button", { name: "Ask" }).click()
  await page.waitForURL(/#http/)
  return page
}

test("an answer is whole, once and in order, through a reload, a second tab and a killed broker", async () => {
  const question = "Where does an answer live while it is being said?"
  const first = await asked(question)
  await seen(first, "live", 200)
  await picture(first, "live")

  const before = await said(first)
  await first.reload()
  await seen(first, "live", before.length)
  const second = await context.newPage()
  await second.goto(first.url())
  await seen(second, "live", before.length)

  await broker.killAndStartAgain(async () => {
    await Promise.all([seen(first, "away"), seen(second, "away")])
    await picture(first, "away")
    for (const page of [first, second]) assert.ok((await said(page)).length < whole.length, "killed in the middle")
  })
  for (const page of [first, second]) {
    await seen(page, "ended")
    assert.equal(await said(page), whole)
    assert.equal(await page.locator("h1").textContent(), question)
    assert.deepEqual(await page.evaluate(() => window.wrong), [])
  }
  await picture(first, "ended")

  const kept = await fetch(decodeURIComponent(new URL(first.url()).hash.slice(1)))
  assert.equal(kept.headers.get("stream-closed"), "true")
  assert.equal((await kept.json()).map(({ text }) => text ?? "").join(""), whole)
})

test("who comes when all is said sees all of it, and that it has ended", async () => {
  const [page] = context.pages()
  await page.reload()
  await seen(page, "ended", whole.length)
  assert.equal(await said(page), whole)
  await page.emulateMedia({ colorScheme: "dark" })
  await picture(page, "dark")
  await page.setViewportSize({ width: 390, height: 760 })
  await picture(page, "narrow")
})

test("an answer that is not kept says so", async () => {
  const page = await asked("What?")
  const stream = new URL(page.url()).hash.slice(1)
  await seen(page, "live", 1)
  assert.equal((await fetch(stream, { method: "DELETE" })).status, 204)
  await seen(page, "gone")
  assert.equal(await state(page), "gone")
})
