// The page: one connection, the rooms, and what of them is to be seen.
import { Centrifuge } from "./centrifuge.mjs"
import { Here } from "./here.mjs"
import { call, me, onRenamed } from "./me.mjs"
import { write } from "./message.mjs"
import { Outbox } from "./outbox.mjs"
import { Room } from "./room.mjs"
import { Talk, avatar, element, tint } from "./talk.mjs"

/** Milliseconds for which it is said what became of an absence. */
const BACK_SHOWN_MS = 8000

/** Milliseconds from one drawing to the next. */
const FRAME_MS = 16

/** Pixels from the end of the messages that still count as the end. */
const AT_END_PX = 60

const by = (id) => document.getElementById(id)
const [log, scroll, text, status, dialog] = ["log", "scroll", "text", "status", "naming"].map(by)
const settings = await (await fetch("settings.json")).json()

const client = new Centrifuge(settings.broker, { minReconnectDelay: 300, maxReconnectDelay: 5000 })
const outbox = new Outbox()
const talk = new Talk(log, {
  onAgain: ({ refusal, ...letter }) => outbox.put(letter),
  onDiscard: ({ message }) => outbox.remove(message),
})

/** The rooms by name, the one that is shown, and who is in it. */
const rooms = new Map()
let room, here
/** Of the room that is shown: what is new to the visitor, and what is to be said of the last absence. */
let news = {}
let hasBeenLive = false
let isAtEnd = true
/** Why the connection has ended for good, if it has. */
let end

const countOf = (count) => (count > 99 ? "99+" : String(count))
const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`

// ---------------------------------------------------------------- what has been read

const readKey = (name) => `chat.read.${name}`

/** The offset up to which the visitor has read a room, in whatever tab; null for who is new to it. */
function readUpTo({ name, position }) {
  const read = JSON.parse(localStorage.getItem(readKey(name)))
  return read && (read.epoch === position.epoch ? read.offset : 0)
}

function markRead({ name, position }) {
  if (!position.epoch) return
  const read = JSON.parse(localStorage.getItem(readKey(name)))
  if (read?.epoch === position.epoch && read.offset >= position.offset) return
  localStorage.setItem(readKey(name), JSON.stringify(position))
}

function unread(room) {
  const upTo = readUpTo(room)
  return upTo === null ? [] : room.messages.filter(({ offset, person }) => offset > upTo && person !== me().person)
}

// ---------------------------------------------------------------- what is seen

let isAsked = false

/** Draws what has changed, once for all that happens within a frame: thousands of messages may be recovered at once. */
function draw() {
  if (isAsked || !room) return
  isAsked = true
  setTimeout(() => {
    isAsked = false
    drawTalk()
    drawRooms()
    drawPeople()
    drawStatus()
  }, FRAME_MS)
}

function drawTalk() {
  const waiting = outbox.of(room.name).filter(({ message }) => !room.has(message))
  const { height, top } = { height: scroll.scrollHeight, top: scroll.scrollTop }
  const first = log.querySelector(".message")
  talk.show({ messages: room.messages, waiting, person: me().person, isLive: room.isLive, ...news })
  log.ariaBusy = String(!room.isLive)
  by("earlier").hidden = !room.hasEarlier || !room.isLive
  document.body.dataset.empty = String(room.isLive && !room.messages.length && !waiting.length)
  if (isAtEnd) scroll.scrollTop = scroll.scrollHeight
  // What came above moves nothing.
  else if (first?.isConnected && first !== log.querySelector(".message")) scroll.scrollTop = top + scroll.scrollHeight - height
  if (room.isLive && isAtEnd && document.visibilityState === "visible") markRead(room)
  const below = unread(room).length
  by("to-end").hidden = isAtEnd
  by("to-end").textContent = below ? `${countOf(below)} new ↓` : "to the end ↓"
}

function drawRooms() {
  let elsewhere = 0
  let all = 0
  for (const { link, badge, ...each } of entries) {
    const count = unread(rooms.get(each.name)).length
    all += count
    if (each.name !== room.name) elsewhere += count
    badge.textContent = count ? countOf(count) : ""
    badge.ariaLabel = count ? `${count} unread` : ""
    if (each.name === room.name) link.ariaCurrent = "page"
    else link.removeAttribute("aria-current")
  }
  by("unread-elsewhere").hidden = !elsewhere
  by("unread-elsewhere").textContent = countOf(elsewhere)
  by("room-name").textContent = room.name
  document.title = `${all ? `(${countOf(all)}) ` : ""}#${room.name} · Chat`
  const { person, name } = me()
  const [face, who] = [by("me").querySelector(".avatar"), by("me").querySelector("bdi")]
  if (who.textContent !== name) {
    face.replaceWith(avatar(person, name))
    who.textContent = name
  }
}

let drawnPeople

function drawPeople() {
  const people = here.people()
  const mine = me().person
  const now = JSON.stringify([people, mine])
  if (now === drawnPeople) return
  drawnPeople = now
  by("count").textContent = String(people.length)
  by("show-people").title = people.map(({ name }) => name).join(", ")
  by("faces").replaceChildren(...people.slice(0, 3).map(({ person, name }) => avatar(person, name)))
  by("people-list").replaceChildren(
    ...people.map(({ person, name, tabs, isTyping }) => {
      const note = [person === mine ? "you" : "", tabs > 1 ? `${tabs} tabs` : "", isTyping && person !== mine ? "typing" : ""]
      const who = element("span", "who", element("bdi", "", name), element("small", "", note.filter(Boolean).join(" · ")))
      return tint(element("li", "", avatar(person, name), who), person)
    }),
  )
  const typing = people.filter(({ person, isTyping }) => isTyping && person !== mine).map(({ name }) => element("bdi", "", name))
  const says =
    typing.length > 2 ? [`${typing.length} people are typing`]
    : typing.length === 2 ? [typing[0], " and ", typing[1], " are typing"]
    : typing.length ? [typing[0], " is typing"]
    : []
  by("typing").replaceChildren(...says)
}

/** What the connection is, and no better than it is. */
function stateOf() {
  if (end) return ["ended", end]
  if (!navigator.onLine) return ["away", "this device is offline"]
  if (client.state !== "connected") return hasBeenLive ? ["away", "connection lost, trying again"] : ["connecting", "connecting"]
  if (room.refusal) return ["ended", room.refusal]
  if (!room.isLive) return ["connecting", hasBeenLive ? "back, catching up" : "entering"]
  return ["live", news.says ?? "live"]
}

function drawStatus() {
  const [state, words] = stateOf()
  const waiting = outbox.of(room.name).filter(({ refusal }) => !refusal).length
  document.body.dataset.state = state
  const says = state !== "live" && waiting ? `${words} · ${waiting} to send` : words
  if (status.textContent !== says) status.textContent = says
  text.placeholder = state === "away" ? "Write; it is sent once the connection is back" : `Message #${room.name}`
}

// ---------------------------------------------------------------- rooms

/** A room is live again: says what the visitor has missed, and sends what it could not. */
function cameBack(it) {
  hasBeenLive = true
  if (it === room && it.back) {
    const { gap, missed = [], areMore } = it.back
    const others = missed.filter(({ person }) => person !== me().person)
    const says = gap ? "back, with a gap" : others.length ? `back · ${areMore ? "more than " : ""}${plural(others.length, "message", "messages")} came meanwhile` : "back, nothing missed"
    const from = gap ? {} : { newFrom: news.newFrom ?? others[0]?.offset, newSays: news.newSays ?? "While you were away" }
    const told = gap && "Something is missing here: the room was emptied or made anew while you were away. This is what the broker has."
    news = { gap: told || news.gap, ...from, says }
    const these = news
    setTimeout(() => {
      these.says = undefined
      draw()
    }, BACK_SHOWN_MS)
  } else if (it === room && !news.newFrom) enterNews()
  if (readUpTo(it) === null) markRead(it)
  outbox.send(it)
}

/** Of a room that is entered: from where on it is new. */
function enterNews() {
  const [first] = unread(room)
  if (first) news = { ...news, newFrom: first.offset, newSays: "New" }
}

function join(name) {
  const it = new Room(client, name)
  it.addEventListener("live", () => cameBack(it))
  it.addEventListener("message", ({ detail }) => outbox.remove(detail))
  it.addEventListener("change", draw)
  rooms.set(name, it)
}

function enter() {
  const { name } = entries.find(({ link }) => link.hash === location.hash) ?? entries[0]
  const next = rooms.get(name)
  openPanel()
  if (next === room) return
  here?.say(false)
  drafts.set(room?.name, text.value)
  room = next
  text.value = drafts.get(room.name) ?? ""
  isAtEnd = true
  news = {}
  enterNews()
  meet()
  // A keyboard that covers half of the page comes when it is asked for.
  if (matchMedia("(hover: hover)").matches) text.focus()
}

/** Is there, under the name that the visitor has now. */
function meet() {
  here?.end(client)
  here = new Here(client, room.name, me())
  here.addEventListener("change", draw)
  draw()
}

const drafts = new Map()
const entries = settings.rooms.map((name) => {
  const badge = element("b", "badge")
  const link = element("a", "", element("span", "", name), badge)
  link.href = `#${encodeURIComponent(name)}`
  by("room-list").append(element("li", "", link))
  return { name, link, badge }
})

// ---------------------------------------------------------------- what the visitor does

function openPanel(panel) {
  document.body.dataset.open = panel ?? ""
  by("shade").hidden = !panel
  document.querySelector("main").inert = Boolean(panel)
  for (const id of ["rooms", "people"]) by(`show-${id}`).ariaExpanded = String(id === panel)
}

for (const id of ["rooms", "people"]) {
  by(`show-${id}`).onclick = () => {
    const isOpen = document.body.dataset.open === id
    openPanel(isOpen ? undefined : id)
    if (!isOpen) by(id).querySelector("a, button")?.focus()
  }
}
by("shade").onclick = () => openPanel()
matchMedia("(max-width: 62rem)").onchange = () => openPanel()

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.dataset.open) {
    const opener = by(`show-${document.body.dataset.open}`)
    openPanel()
    opener.focus()
  }
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key]
  if (event.altKey && step && room) {
    event.preventDefault()
    const names = settings.rooms
    location.hash = encodeURIComponent(names[(names.indexOf(room.name) + step + names.length) % names.length])
  }
})

by("composer").onsubmit = (event) => {
  event.preventDefault()
  if (!text.value.trim() || !room) return
  outbox.add(room.name, write(me(), text.value.trim()))
  text.value = ""
  here.say(false)
  news = { says: news.says }
  isAtEnd = true
  outbox.send(room)
  draw()
}

text.onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
  event.preventDefault()
  by("composer").requestSubmit()
}
text.oninput = () => here?.say(Boolean(text.value.trim()))

scroll.onscroll = () => {
  const wasAtEnd = isAtEnd
  isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < AT_END_PX
  if (wasAtEnd !== isAtEnd) draw()
}
new ResizeObserver(() => isAtEnd && (scroll.scrollTop = scroll.scrollHeight)).observe(scroll)
by("to-end").onclick = () => {
  isAtEnd = true
  draw()
  text.focus()
}
by("earlier").onclick = () => {
  isAtEnd = false
  room.earlier().catch(() => {})
}

by("me").onclick = () => {
  by("name").value = me().name
  dialog.showModal()
}
dialog.oncancel = (event) => me() || event.preventDefault()
dialog.onclose = () => {
  if (by("name").value.trim()) call(by("name").value)
  if (!me()) return dialog.showModal()
  if (room) meet()
  else begin()
  text.focus()
}

// ---------------------------------------------------------------- the beginning

function begin() {
  if (room) return
  settings.rooms.forEach(join)
  enter()
  client.connect()
}

// The first name may be given in another tab.
onRenamed(() => {
  if (room) return meet()
  by("name").value = ""
  dialog.close()
})
outbox.addEventListener("change", () => {
  draw()
  for (const it of rooms.values()) if (it.isLive) outbox.send(it)
})
client.on("disconnected", ({ reason }) => {
  end = `${reason}; reload to try again`
  draw()
})
for (const event of ["connected", "connecting"]) client.on(event, draw)
for (const event of ["online", "offline", "storage"]) addEventListener(event, draw)
addEventListener("visibilitychange", draw)
addEventListener("hashchange", enter)

if (me()) begin()
else dialog.showModal()
