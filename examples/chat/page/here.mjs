// Who is in a room, and who is typing: a channel beside it, in the broker's memory, of which nothing is kept.
import { tidyName } from "./me.mjs"

/** A tab that types says so this often, and others show it this long. */
const TYPING_EVERY_MS = 2000
const TYPING_SHOWN_MS = 5000

export class Here extends EventTarget {
  /** The tabs that are here: what each says of its visitor, by the id of its connection. */
  #clients = new Map()
  /** The tabs that type, with the timers that end it. */
  #typing = new Map()
  /** Who came and went since the others were asked for, until they are known. */
  #told
  #saidAt = 0
  /** Notices up to this offset were said before this tab came back. */
  #old = Infinity

  constructor(client, room, { person, name }) {
    super()
    const options = { joinLeave: true, data: { person, name } }
    this.subscription = client.newSubscription(`chat:${room}:here`, options)
    this.subscription.on("subscribed", () => this.#ask())
    this.subscription.on("subscribing", () => (this.#old = Infinity))
    this.subscription.on("join", ({ info }) => this.#came(info))
    this.subscription.on("leave", ({ info }) => this.#went(info))
    this.subscription.on("publication", (publication) => this.#heard(publication))
    this.subscription.subscribe()
  }

  /** Each person once, however many tabs: `{ person, name, tabs, isTyping }`, by name. */
  people() {
    const people = new Map()
    for (const [client, { person, name }] of this.#clients) {
      const known = people.get(person) ?? { person, tabs: 0, isTyping: false }
      people.set(person, { person, name, tabs: known.tabs + 1, isTyping: known.isTyping || this.#typing.has(client) })
    }
    return [...people.values()].sort((a, b) => a.name.localeCompare(b.name))
  }

  /** Says that the visitor types, or has stopped. One that gets lost is of no account. */
  say(isTyping) {
    if (isTyping && Date.now() - this.#saidAt < TYPING_EVERY_MS) return
    if (!isTyping && !this.#saidAt) return
    this.#saidAt = isTyping ? Date.now() : 0
    if (this.subscription.state === "subscribed") this.subscription.publish({ typing: isTyping }).catch(() => {})
  }

  end(client) {
    for (const timer of this.#typing.values()) clearTimeout(timer)
    this.subscription.unsubscribe()
    client.removeSubscription(this.subscription)
  }

  /**
   * Once subscribed, whoever comes and goes is told; who was there before has to be asked for. What is told while the
   * answer is awaited is newer than the answer.
   */
  async #ask() {
    const told = (this.#told = new Map())
    try {
      const [{ clients }, { offset }] = await Promise.all([this.subscription.presence(), this.subscription.history({ limit: 0 })])
      if (this.#told !== told) return
      this.#told = undefined
      this.#old = offset
      this.#clients.clear()
      for (const info of Object.values(clients)) this.#came(info)
      for (const [client, info] of told) info ? this.#came(info) : this.#went({ client })
      for (const client of this.#typing.keys()) if (!this.#clients.has(client)) this.#stopped(client)
    } catch {
      // The connection has ended: it is asked for with the next.
    }
    this.#changed()
  }

  /** What a tab says of itself is shown, and nothing else is done with it. */
  #came(info) {
    const { client, chanInfo } = info
    this.#told?.set(client, info)
    const person = typeof chanInfo?.person === "string" ? chanInfo.person.slice(0, 100) : client
    this.#clients.set(client, { person, name: tidyName(chanInfo?.name) || "somebody" })
    this.#changed()
  }

  #went({ client }) {
    this.#told?.set(client, undefined)
    this.#clients.delete(client)
    this.#stopped(client)
    this.#changed()
  }

  /** The broker says which connection has published: nobody types in another's name. */
  #heard({ data, info, offset }) {
    if (offset <= this.#old || !info?.client) return
    this.#stopped(info.client)
    if (data?.typing === true) {
      const end = () => {
        this.#stopped(info.client)
        this.#changed()
      }
      this.#typing.set(info.client, setTimeout(end, TYPING_SHOWN_MS))
    }
    this.#changed()
  }

  #stopped(client) {
    clearTimeout(this.#typing.get(client))
    this.#typing.delete(client)
  }

  #changed() {
    this.dispatchEvent(new Event("change"))
  }
}
