// The visitor: a name, and an id that all tabs of the browser share. Kept in the browser alone.

const KEY = "chat.me"

/** What a name may be long, in characters. */
export const NAME_MAX = 40

export const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("")

/** A name as it is shown, whoever says it: one line, and not long. */
export const tidyName = (name) => String(name ?? "").replace(/[\s\p{Cc}]+/gu, " ").trim().slice(0, NAME_MAX)

/** The visitor, or undefined for one without a name. */
export function me() {
  try {
    const { person, name } = JSON.parse(localStorage.getItem(KEY))
    return person && name ? { person, name } : undefined
  } catch {
    return undefined
  }
}

export function call(name) {
  localStorage.setItem(KEY, JSON.stringify({ person: me()?.person ?? newId(), name: tidyName(name) }))
}

/** Tells of a name that another tab has given. */
export function onRenamed(tell) {
  addEventListener("storage", ({ key }) => key === KEY && me() && tell())
}
