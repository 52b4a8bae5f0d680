// The chat as its visitors have it: several people, several tabs, no network, a broker that is killed. Waits for
// what is to be seen, never for time to pass.
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { after, before, test } from "node:test"
import { promisify } from "node:util"

import { chromium } from "playwright-core"

import { Broker, launch, sennit } from "./broker.mjs"

/** How long what has to be seen may take to be seen. */
const SEEN_MS = 60_000

const { SENNIT, EXAMPLE, SCREENSHOTS } = process.env
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS.push("--disable-background-networking", "--disable-component-update", "--disable-sync")
const MARKUP = `<img src=x onerror="window.wrong.push('it ran')"><script>window.wrong.push('it ran')</script>`

let broker, chat, browser
/** Two people: each has a browser of their own. Ada has two tabs. */
let ada, adaToo, ben

before(async () => {
  broker = await Broker.start(sennit(SENNIT, "file-durable"))
  const flags = ["--port", "0", "--broker", broker.url]
  const child = launch([process.execPath, join(EXAMPLE, "chat.mjs"), ...flags], { stdio: ["ignore", "pipe", "inherit"] })
  const address = await new Promise((resolve) => createInterface({ input: child.stdout }).once("line", resolve))
  chat = { child, address }
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS })
  ada = await visitor("Ada Lovelace")
  ben = await visitor("Ben")
  adaToo = await tab(ada.context())
  await live(adaToo)
})

after(async () => {
  await browser?.close()
  chat?.child.kill()
  await broker?.stop()
})

/** In the page, before anything else: no message may stand there twice at any moment. */
function watchTheLog() {
  window.wrong = []
  const look = () => {
    const texts = [...document.querySelectorAll("#log .text")].map(({ textContent }) => textContent)
    if (new Set(texts).size < texts.length) window.wrong.push(texts.join(" | "))
  }
  new MutationObserver(look).observe(document, { childList: true, subtree: true })
}

async function tab(context, room = "") {
  const page = await context.newPage()
  page.on("pageerror", (error) => page.evaluate((words) => window.wrong.push(words), String(error)))
  await page.goto(chat.address + room)
  return page
}

/** A person with a browser of their own, who has come in. */
async function visitor(name, options = {}, room = "") {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, deviceScaleFactor: 2, ...options })
  context.setDefaultTimeout(SEEN_MS)
  await context.addInitScript(watchTheLog)
  const page = await tab(context, room)
  await picture(page, "naming")
  await page.getByPlaceholder("Ada").fill(name)
  await page.getByRole("button", { name: "Come in" }).click()
  await live(page)
  return page
}

const seen = (page, is, argument) => page.waitForFunction(is, argument, { timeout: SEEN_MS })
/** What is said of the connection, and that somebody types: neither for long, so it is waited for beforehand. */
const says = (page, words) => seen(page, (words) => document.getElementById("status").textContent === words, words)
const showsTyping = (page, name) => seen(page, (words) => document.getElementById("typing").textContent === words, `${name} is typing`)
const inState = (page, state) => seen(page, (state) => document.body.dataset.state === state, state)
const live = (page) => inState(page, "live")

/** Many messages at once, of which none is confirmed yet. */
const sayAtOnce = (page, texts) =>
  page.evaluate((texts) => {
    for (const text of texts) {
      document.getElementById("text").value = text
      document.getElementById("composer").requestSubmit()
    }
  }, texts)

async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text)
  await page.getByLabel("Message", { exact: true }).press("Enter")
}

/** The page shows a message that the broker has. */
const shows = (page, text) =>
  seen(page, (text) => [...document.querySelectorAll(".message:not(.waits) .text")].some((each) => each.textContent === text), text)

/** The page shows these last of what waits. */
const waits = (page, ...wanted) =>
  seen(
    page,
    (wanted) => [...document.querySelectorAll(".message.waits .text")].slice(-wanted.length).map(({ textContent }) => textContent).join() === wanted.join(),
    wanted,
  )

/** What stands there that is confirmed. */
const texts = (page) => page.locator(".message:not(.waits) .text").allTextContents()
const shownPeople = (page, ...wanted) =>
  seen(
    page,
    (wanted) => [...document.querySelectorAll("#people-list .who")].map(({ innerText }) => innerText.replace("\n", " · ")).join() === wanted,
    wanted.join(),
  )
const badge = (page, room, count) =>
  seen(page, ([room, count]) => [...document.querySelectorAll("#room-list a")].some((a) => a.hash === `#${room}` && a.querySelector("b").textContent === count), [room, count])

const streamOf = (room) => `${broker.url}/v1/stream/${encodeURIComponent(`chat:${room}`)}`
const kept = async (room) => (await fetch(`${streamOf(room)}?offset=-1`)).json()
const publish = (room, message) =>
  fetch(streamOf(room), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(message) })

const command = (...flags) => promisify(execFile)(SENNIT, [...flags, "--server", `127.0.0.1:${broker.listenPort}`])

async function picture(page, name) {
  if (!SCREENSHOTS) return
  await mkdir(SCREENSHOTS, { recursive: true })
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) })
}

test("people see each other, each once, and who types", async () => {
  await say(ada, "The engine weaves algebraic patterns, as the loom weaves flowers and leaves.")
  await say(ada, "Who has read the note on Bernoulli numbers?")
  await shows(ben, "Who has read the note on Bernoulli numbers?")
  await shownPeople(ben, "Ada Lovelace · 2 tabs", "Ben · you")
  await shownPeople(adaToo, "Ada Lovelace · you · 2 tabs", "Ben")

  const shown = [showsTyping(ada, "Ben"), shownPeople(ada, "Ada Lovelace · you · 2 tabs", "Ben · typing")]
  await ben.getByLabel("Message", { exact: true }).pressSequentially("I have, ")
  await Promise.all(shown)
  await picture(ada, "first")
  assert.equal(await ben.locator("#typing").textContent(), "")
  await say(ben, "I have: https://example.com/notes?g=1.")
  await shows(ada, "I have: https://example.com/notes?g=1.")
  await seen(ada, () => document.getElementById("typing").textContent === "")
  assert.equal(await ada.locator(".text a").getAttribute("href"), "https://example.com/notes?g=1")

  const third = await tab(ada.context())
  await shownPeople(ben, "Ada Lovelace · 3 tabs", "Ben · you")
  await third.close()
  await shownPeople(ben, "Ada Lovelace · 2 tabs", "Ben · you")
})

test("a name that is changed in one tab is changed in all, and for others", async () => {
  await adaToo.getByRole("button", { name: "change name" }).click()
  await adaToo.getByPlaceholder("Ada").fill("Ada")
  await adaToo.getByRole("button", { name: "Come in" }).click()
  await shownPeople(ada, "Ada · you · 2 tabs", "Ben")
  await shownPeople(ben, "Ada · 2 tabs", "Ben · you")
})

test("markup is text, in messages, names and whatever else somebody publishes", async () => {
  await say(ben, MARKUP)
  await shows(ada, MARKUP)
  await publish("lobby", { id: "1", person: "<b>", name: MARKUP, text: `by HTTP ${MARKUP}`, at: MARKUP })
  for (const odd of [7, null, [], { text: 7 }, { text: "" }, { name: {}, text: {} }]) await publish("lobby", odd)
  await publish("lobby", "just text")
  for (const page of [ada, adaToo, ben]) {
    await shows(page, "just text")
    assert.deepEqual((await texts(page)).slice(-3), [MARKUP, `by HTTP ${MARKUP}`, "just text"])
    assert.equal(await page.locator("#log :is(img, script)").count(), 0)
  }
  const mallory = await visitor(MARKUP)
  await shows(mallory, "just text")
  await seen(ada, () => document.querySelectorAll("#people-list li").length === 3)
  assert.equal(await ada.locator(":is(#people-list, #faces) :is(img, script)").count(), 0)
  await mallory.context().close()
  await shownPeople(ada, "Ada · you · 2 tabs", "Ben")
})

test("what is said while the broker is dead is sent once when it is back, from tabs that were reloaded too", async () => {
  const typing = showsTyping(ada, "Ben")
  await ben.getByLabel("Message", { exact: true }).pressSequentially("in the middle of")
  await typing
  const many = Array.from({ length: 20 }, (_, n) => `on its way ${n}`)
  await sayAtOnce(ada, many)
  await broker.killAndStartAgain(async () => {
    for (const page of [ada, adaToo, ben]) await inState(page, "away")
    assert.equal(await ben.getByLabel("Message", { exact: true }).inputValue(), "in the middle of")
    await say(ben, "in the middle of the sentence")
    await say(ada, "is anybody there?")
    await say(ada, "hello?")
    await waits(adaToo, "is anybody there?", "hello?")
    await adaToo.reload()
    await waits(adaToo, "is anybody there?", "hello?")
    await waits(ben, "in the middle of the sentence")
    await says(ben, "connection lost, trying again · 1 to send")
    await picture(ben, "away")
  })
  const said = [...many, "is anybody there?", "hello?", "in the middle of the sentence"]
  for (const page of [ada, adaToo, ben]) {
    await live(page)
    for (const text of said) await shows(page, text)
    await seen(page, () => !document.querySelector(".message.waits"))
  }
  const all = (await kept("lobby")).filter((each) => each?.text)
  for (const text of said) assert.equal(all.filter((each) => each.text === text).length, 1, text)
  const byAda = all.filter(({ name }) => name === "Ada").map(({ text }) => text)
  assert.deepEqual(byAda.slice(-22), [...many, "is anybody there?", "hello?"])
  assert.deepEqual(await texts(ben), await texts(ada))
  assert.deepEqual(await texts(adaToo), await texts(ada))
  await shownPeople(ben, "Ada · 2 tabs", "Ben · you")
})

test("who was offline is told what came meanwhile, and what they wrote is sent", async () => {
  await ben.context().setOffline(true)
  await inState(ben, "away")
  await says(ben, "this device is offline")
  await shownPeople(ada, "Ada · you · 2 tabs")
  for (const text of ["Ben?", "He must be on a train.", "In a tunnel."]) await say(ada, text)
  await shows(ada, "In a tunnel.")
  await say(ben, "It was a long tunnel.")
  await waits(ben, "It was a long tunnel.")
  const told = says(ben, "back · 3 messages came meanwhile")
  await ben.context().setOffline(false)
  await told
  await shows(ben, "It was a long tunnel.")
  await shows(ada, "It was a long tunnel.")
  const lines = (await ben.locator("#log > li").allInnerTexts()).map((line) => line.split("\n").at(-1))
  assert.deepEqual(lines.slice(-5), ["While you were away", "Ben?", "He must be on a train.", "In a tunnel.", "It was a long tunnel."])
})

test("a message that is refused says so, keeps no other from being sent, and may be sent again", async () => {
  const script = join(broker.data, "polite.lua")
  await writeFile(script, `function on_publish(msg)
    if string.find(msg.payload(), "darned") then return { refuse = "mind your tongue" } end
  end`)
  await command("hook", "set", "chat%3Alobby", script)
  await say(ben, "A darned tunnel.")
  await say(ben, "I mean, it was long.")
  await shows(ada, "I mean, it was long.")
  const refused = ben.locator(".message.refused")
  assert.match(await refused.locator(".note").textContent(), /^not sent: .*mind your tongue again discard$/)
  await picture(ben, "refused")
  await refused.getByRole("button", { name: "discard" }).click()
  await seen(ben, () => !document.querySelector(".message.waits"))
  await say(ben, "A darned long one.")
  await refused.waitFor()
  await command("hook", "delete", "chat%3Alobby")
  await refused.getByRole("button", { name: "again" }).click()
  await shows(ada, "A darned long one.")
  assert.ok(!(await texts(ada)).includes("A darned tunnel."))
})

test("what is unread is counted, and read in all tabs at once", async () => {
  await ben.getByRole("link", { name: "ideas" }).click()
  await say(ben, "A room for the engine, with a view.")
  await say(ben, "And tea.")
  await Promise.all([badge(ada, "ideas", "2"), badge(adaToo, "ideas", "2")])
  assert.equal(await ada.title(), "(2) #lobby · Chat")
  await ada.reload()
  await badge(ada, "ideas", "2")
  await picture(ada, "light")
  await ada.getByRole("link", { name: "ideas" }).click()
  await shows(ada, "And tea.")
  assert.equal((await ada.locator("#log .new").textContent()).trim(), "New")
  await Promise.all([badge(ada, "ideas", ""), badge(adaToo, "ideas", "")])
  await shownPeople(ada, "Ada · you", "Ben")
  await ada.keyboard.press("Alt+ArrowUp")
  await shows(ada, "A darned long one.")
  await ben.getByRole("link", { name: "lobby" }).click()
})

test("all that was said is there for who comes later, by pages", async () => {
  const before = await texts(ada)
  const batch = Array.from({ length: 120 }, (_, n) => ({ id: `n${n}`, person: "counter", name: "Counter", text: `number ${n}` }))
  for (const message of batch) assert.ok((await publish("off-topic", message)).ok)
  const carl = await visitor("Carl", {}, "#off-topic")
  await shows(carl, "number 119")
  assert.equal((await texts(carl)).length, 50)
  for (const count of [100, 120]) {
    await carl.getByRole("button", { name: "Earlier messages" }).click()
    await seen(carl, (count) => document.querySelectorAll(".message").length === count, count)
  }
  assert.deepEqual(await texts(carl), batch.map(({ text }) => text))
  assert.equal(await carl.getByRole("button", { name: "Earlier messages" }).isVisible(), false)
  // Who reads further up stays there, and is told that there is more below.
  await carl.locator("#scroll").evaluate((scroll) => scroll.scrollTo(0, 200))
  await publish("off-topic", { id: "last", person: "counter", name: "Counter", text: "the last one" })
  await carl.getByRole("button", { name: "1 new" }).click()
  await seen(carl, () => document.getElementById("to-end").hidden)
  // Of a thousand and more that were missed, the newest are shown, and the others are pages.
  await carl.context().setOffline(true)
  await inState(carl, "away")
  await publish("off-topic", Array.from({ length: 1500 }, (_, n) => ({ id: `m${n}`, name: "Counter", text: `missed ${n}` })))
  const told = says(carl, "back · more than 1000 messages came meanwhile")
  await carl.context().setOffline(false)
  await told
  await shows(carl, "missed 1499")
  assert.deepEqual(await texts(carl), Array.from({ length: 1000 }, (_, n) => `missed ${n + 500}`))
  await carl.getByRole("button", { name: "Earlier messages" }).click()
  await shows(carl, "missed 450")
  await carl.getByRole("link", { name: "lobby" }).click()
  await shows(carl, before.at(-1))
  assert.deepEqual(await texts(carl), before)
  await carl.context().close()
})

test("a gap is told", async () => {
  await ben.getByRole("link", { name: "ideas" }).click()
  await shows(ben, "And tea.")
  // Nobody may be there: a subscriber who comes back would create the channel.
  for (const page of [ada, ben]) await page.context().setOffline(true)
  for (const page of [ada, adaToo, ben]) await inState(page, "away")
  assert.equal((await fetch(streamOf("ideas"), { method: "DELETE" })).status, 204)
  assert.equal((await fetch(streamOf("ideas"), { method: "PUT", headers: { "Content-Type": "application/json" } })).status, 201)
  for (const text of ["a new room", "of the same name", "with more in it"]) await publish("ideas", { id: text, person: "p", name: "Program", text })
  for (const page of [ada, ben]) await page.context().setOffline(false)
  for (const page of [ada, adaToo, ben]) await live(page)
  await shows(ben, "with more in it")
  assert.deepEqual(await texts(ben), ["a new room", "of the same name", "with more in it"])
  assert.match(await ben.locator("#log .gap").textContent(), /Something is missing here/)
  await badge(ada, "ideas", "3")
  await picture(ben, "gap")
  await ben.getByRole("link", { name: "lobby" }).click()
})

test("it is whole on a narrow screen, in the dark, and by keyboard", async () => {
  await ben.getByLabel("Message", { exact: true }).fill("")
  await say(ben, "What are the numbers up to B7?")
  await ada.emulateMedia({ colorScheme: "dark" })
  const typing = showsTyping(ada, "Ben")
  await ben.getByLabel("Message", { exact: true }).pressSequentially("I think")
  await typing
  await picture(ada, "dark")
  await ada.setViewportSize({ width: 390, height: 760 })
  const isWhole = () =>
    document.documentElement.scrollWidth <= innerWidth && document.getElementById("composer").getBoundingClientRect().bottom <= innerHeight
  assert.ok(await ada.evaluate(isWhole))
  await picture(ada, "narrow-dark")
  await ada.emulateMedia({ colorScheme: "light" })
  await picture(ada, "narrow")
  for (const [button, panel] of [["#show-rooms", "#rooms"], ["#show-people", "#people"]]) {
    await ada.locator(button).press("Enter")
    await ada.locator(panel).waitFor({ state: "visible" })
    await seen(ada, (panel) => document.querySelector(panel).getAnimations().length === 0, panel)
    await picture(ada, `narrow-${panel.slice(1)}`)
    await ada.keyboard.press("Escape")
    await ada.locator(panel).waitFor({ state: "hidden" })
  }
  assert.ok(await ada.evaluate(() => document.activeElement.id === "show-people"))
})

test("nothing went wrong in any page on the way", async () => {
  for (const page of [ada, adaToo, ben]) assert.deepEqual(await page.evaluate(() => window.wrong), [])
})
