// What the visitor has written and the broker has not confirmed. It is kept in the browser, so that it outlives a
// reload, and shared by all tabs, of which one at a time sends.

const PREFIX = "chat.outbox."

/** Milliseconds until a broker is asked again that is there, and has not taken a message. */
const AGAIN_MS = 1000

/** Error codes below this are of the SDK: the message has perhaps not arrived. */
const BROKER_CODES_MIN = 100

export class Outbox extends EventTarget {
  /** The rooms for which this tab waits for its turn. */
  #asked = new Set()

  constructor() {
    super()
    addEventListener("storage", ({ key }) => (key === null || key.startsWith(PREFIX)) && this.#changed())
  }

  /** The messages for a room, in the order in which they were written. */
  of(room) {
    const waiting = []
    for (const key of Object.keys(localStorage)) {
      if (!key.startsWith(PREFIX)) continue
      const letter = letterOf(localStorage.getItem(key))
      if (letter?.room === room) waiting.push(letter)
    }
    return waiting.sort((a, b) => a.order - b.order)
  }

  /** A message that is to be sent behind all that wait for the room. */
  add(room, message) {
    const last = this.of(room).at(-1)?.order ?? 0
    this.put({ room, message, order: Math.max(Date.now(), last + 1) })
  }

  put(letter) {
    localStorage.setItem(PREFIX + letter.message.id, JSON.stringify(letter))
    this.#changed()
  }

  remove({ id }) {
    if (!localStorage.getItem(PREFIX + id)) return
    localStorage.removeItem(PREFIX + id)
    this.#changed()
  }

  /** Sends what waits for a room, one after the other, until the room is not live any more. */
  async send(room) {
    if (this.#asked.has(room.name)) return
    this.#asked.add(room.name)
    await alone(`${PREFIX}${room.name}`, async () => {
      this.#asked.delete(room.name)
      for (;;) {
        const letter = this.of(room.name).find(({ refusal }) => !refusal)
        if (!letter || !room.isLive) return
        await this.#sendOne(room, letter)
      }
    })
  }

  /** A room that is live has everything up to now: a message that is not in it has not arrived, and may be sent again. */
  async #sendOne(room, letter) {
    if (room.has(letter.message)) return this.remove(letter.message)
    try {
      await room.publish(letter.message)
      this.remove(letter.message)
    } catch (error) {
      if (error.code >= BROKER_CODES_MIN && !error.temporary) this.put({ ...letter, refusal: error.message })
      else if (room.isLive) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS))
    }
  }

  #changed() {
    this.dispatchEvent(new Event("change"))
  }
}

function letterOf(text) {
  try {
    const letter = JSON.parse(text)
    return letter?.message?.id ? letter : undefined
  } catch {
    return undefined
  }
}

/** One tab at a time; where the browser has no locks, the ids of messages do. */
function alone(name, work) {
  return navigator.locks ? navigator.locks.request(name, work) : work()
}
