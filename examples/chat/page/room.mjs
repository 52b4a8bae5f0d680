// A room: one durable channel, followed from its newest messages on. What was missed comes from the broker's log,
// and what cannot come any more is told.
import { read } from "./message.mjs"

/** Messages of a page of history. */
const PAGE = 50

/** Messages that a room holds; older ones are a page of history again. */
const HELD_MAX = 1000

export class Room extends EventTarget {
  /** In the order of the log, each once. */
  messages = []
  /** Whether the room is followed, and nothing is missing up to now. */
  isLive = false
  hasEarlier = false
  /** Why the broker does not let the visitor in, if it does not. */
  refusal
  /** What became of the last absence: `{ missed, areMore }`, or `{ gap: true }`. */
  back
  /** The offset of the last publication that came, message or not, and the topic that it is of. */
  #last = 0
  #epoch
  #keys = new Set()
  /** Counts subscriptions: what was asked in one that has ended is not looked at. */
  #round = 0

  constructor(client, name) {
    super()
    this.name = name
    this.subscription = client.newSubscription(`chat:${name}`, { recoverable: true, positioned: true })
    this.subscription.on("publication", (publication) => this.#arrived(publication))
    this.subscription.on("subscribed", (how) => this.#subscribed(how))
    this.subscription.on("subscribing", () => this.#left())
    this.subscription.on("unsubscribed", ({ code, reason }) => {
      // Code 0 is our own doing.
      if (code) this.refusal = reason
      this.#left()
    })
    this.subscription.subscribe()
  }

  get position() {
    return { offset: this.#last, epoch: this.#epoch }
  }

  has(message) {
    return this.#keys.has(keyOf(message))
  }

  publish(message) {
    return this.subscription.publish(message)
  }

  /** The page of history before what is held. */
  async earlier() {
    const [oldest] = this.messages
    if (!oldest || !this.isLive || !this.hasEarlier) return
    const round = this.#round
    const since = { offset: oldest.offset, epoch: this.#epoch }
    const { publications } = await this.subscription.history({ limit: PAGE, reverse: true, since })
    if (round !== this.#round) return
    this.#take(publications)
  }

  async #subscribed({ wasRecovering, recovered, streamPosition }) {
    const round = ++this.#round
    this.refusal = undefined
    const before = this.#last
    try {
      if (wasRecovering && recovered) await this.#catchUp(round, before)
      else await this.#begin(round, streamPosition, wasRecovering)
    } catch {
      // The connection has ended meanwhile, or the answer took too long: the subscription begins again.
      if (round === this.#round && !this.isLive) this.#again()
    }
  }

  /** What was missed comes by itself, in order. How much that is says where the log ends now. */
  async #catchUp(round, before) {
    const { offset: top } = await this.subscription.history({ limit: 0 })
    while (round === this.#round && this.#last < top) await this.#next()
    if (round !== this.#round) return
    const missed = this.messages.filter(({ offset }) => offset > before && offset <= top)
    // Of very many, only the newest are held.
    this.back = { missed, areMore: missed.length === HELD_MAX }
    this.#live()
  }

  /** The first time, or something is missing: what is shown is what the broker has. */
  async #begin(round, { offset, epoch }, isGap) {
    this.messages = []
    this.#keys.clear()
    this.#last = offset
    this.#epoch = epoch
    const { publications } = await this.subscription.history({ limit: PAGE, reverse: true })
    if (round !== this.#round) return
    this.#take(publications)
    if (isGap) this.back = { gap: true }
    this.#live()
  }

  #live() {
    this.isLive = true
    this.#changed("live")
    this.back = undefined
  }

  #left() {
    this.#round += 1
    this.isLive = false
    this.#changed("left")
  }

  #again() {
    this.subscription.unsubscribe()
    this.subscription.subscribe()
  }

  #arrived(publication) {
    this.#last = Math.max(this.#last, publication.offset)
    const message = this.#put(publication)
    if (this.messages.length > HELD_MAX) {
      this.#keys.delete(keyOf(this.messages.shift()))
      this.hasEarlier = true
    }
    this.dispatchEvent(new Event("arrived"))
    if (message) this.#changed("message", message)
  }

  #take(publications) {
    for (const publication of publications) this.#put(publication)
    this.messages.sort((a, b) => a.offset - b.offset)
    this.hasEarlier = publications.length === PAGE
    this.#changed()
  }

  #put({ data, offset }) {
    const message = read(data)
    if (!message) return undefined
    message.offset = offset
    message.id ??= `at ${offset}`
    if (this.has(message)) return undefined
    this.#keys.add(keyOf(message))
    this.messages.push(message)
    return message
  }

  #next() {
    return new Promise((resolve) => {
      for (const event of ["arrived", "left"]) this.addEventListener(event, resolve, { once: true })
    })
  }

  #changed(kind, message) {
    if (kind) this.dispatchEvent(new CustomEvent(kind, { detail: message }))
    this.dispatchEvent(new Event("change"))
  }
}

const keyOf = ({ person, id }) => `${person} ${id}`
