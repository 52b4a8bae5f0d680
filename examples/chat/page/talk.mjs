// Messages as they are seen. Whatever they say becomes text: nothing here takes markup.

/** Messages of one person that follow each other within this time stand together. */
const TOGETHER_MS = 5 * 60_000

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" })
const day = new Intl.DateTimeFormat([], { weekday: "long", day: "numeric", month: "long" })

/** An element with classes, and with what is in it: elements or text. */
export function element(name, classes, ...inside) {
  const made = document.createElement(name)
  if (classes) made.className = classes
  made.append(...inside.filter((each) => each !== undefined))
  return made
}

/** A person's colour, always the same one. */
function hueOf(person) {
  let hash = 7
  for (const letter of person) hash = (hash * 31 + letter.codePointAt(0)) % 3600
  return (hash * 47) % 360
}

export function tint(it, person) {
  it.style.setProperty("--hue", hueOf(person))
  return it
}

export function avatar(person, name) {
  const words = name.split(" ")
  const letters = [...words[0]].slice(0, 1).concat(words.length > 1 ? [...words.at(-1)].slice(0, 1) : [])
  const made = tint(element("span", "avatar", letters.join("").toUpperCase()), person)
  made.ariaHidden = "true"
  return made
}

/** Text, in which addresses of the web are links. */
function* linked(text) {
  let end = 0
  for (const { 0: found, index } of text.matchAll(/https?:\/\/[^\s<>"']*[^\s<>"'.,;:!?)\]]/giu)) {
    if (!URL.canParse(found)) continue
    yield text.slice(end, index)
    const link = element("a", "", found)
    Object.assign(link, { href: found, target: "_blank", rel: "noopener noreferrer nofollow" })
    yield link
    end = index + found.length
  }
  yield text.slice(end)
}

function dayOf(at) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000)
  return days === 0 ? "Today" : days === 1 ? "Yesterday" : day.format(at)
}

function follows(before, message) {
  if (before?.person !== message.person || before.name !== message.name) return false
  return before.at && message.at ? message.at - before.at < TOGETHER_MS : before.at === message.at
}

export class Talk {
  /** What is shown, by key. */
  #shown = new Map()

  constructor(log, { onAgain, onDiscard }) {
    Object.assign(this, { log, onAgain, onDiscard })
  }

  /**
   * Shows `messages`, then `waiting` letters. `newFrom` is the offset of the first that is new to the visitor, with
   * `newSays` above it; `gap` is said above all.
   */
  show({ messages, waiting, person, isLive, newFrom, newSays, gap }) {
    const lines = new Map()
    const line = (key, make) => lines.set(key, this.#shown.get(key) ?? make())
    if (gap) line("gap", () => element("li", "gap", gap))
    let before
    const add = (message, letter) => {
      if (message.at && (!before?.at || dayOf(before.at) !== dayOf(message.at))) {
        line(`day ${message.at.toDateString()}`, () => element("li", "rule", dayOf(message.at)))
        before = undefined
      }
      if (!letter && newFrom && message.offset >= newFrom && !lines.has("new")) {
        line("new", () => element("li", "rule new")).get("new").textContent = newSays
        before = undefined
      }
      const key = `${message.person} ${message.id}`
      const item = line(key, () => this.#message(message, person)).get(key)
      item.classList.toggle("follows", follows(before, message))
      this.#note(item, letter, isLive)
      before = message
    }
    for (const message of messages) add(message)
    for (const letter of waiting) add({ ...letter.message, at: new Date(letter.message.at) }, letter)
    this.#replace(lines)
  }

  /** Puts the lines where they belong, and leaves those alone that are there already. */
  #replace(lines) {
    for (const [key, item] of this.#shown) if (lines.get(key) !== item) item.remove()
    let place = this.log.firstChild
    for (const item of lines.values()) {
      if (item === place) place = place.nextSibling
      else this.log.insertBefore(item, place)
    }
    this.#shown = lines
  }

  #message({ person, name, text, at }, visitor) {
    const by = element("p", "by", element("bdi", "", name))
    if (at) by.append(Object.assign(element("time", "", clock.format(at)), { dateTime: at.toISOString() }))
    const words = element("p", "text", ...linked(text))
    words.dir = "auto"
    const bubble = element("div", "bubble", by, words)
    if (at) bubble.title = at.toLocaleString()
    const item = element("li", "message", avatar(person || name, name), bubble)
    if (person === visitor) item.classList.add("mine")
    return tint(item, person || name)
  }

  /** What is to be said of a message that is not confirmed. */
  #note(item, letter, isLive) {
    const says = !letter ? "" : letter.refusal ? `not sent: ${letter.refusal}` : isLive ? "sending" : "waits for the connection"
    item.classList.toggle("waits", Boolean(letter))
    item.classList.toggle("refused", Boolean(letter?.refusal))
    if ((item.dataset.note ?? "") === says) return
    item.dataset.note = says
    item.querySelector(".note")?.remove()
    if (!says) return
    const note = element("p", "note", says)
    if (letter.refusal) {
      for (const [label, act] of [["again", this.onAgain], ["discard", this.onDiscard]]) {
        const button = element("button", "", label)
        button.type = "button"
        button.onclick = () => act(letter)
        note.append(" ", button)
      }
    }
    item.querySelector(".bubble").append(note)
  }
}
