// A message, as it is published: JSON that anybody may have written. It becomes one of ours, or nothing.
import { newId, tidyName } from "./me.mjs"

/** What a message may be long, in characters; what is longer is cut. */
export const TEXT_MAX = 4000

/** A message of the visitor. Its id is said with it, so that one that was sent twice is shown once. */
export function write({ person, name }, text) {
  return { id: newId(), person, name, text: text.slice(0, TEXT_MAX), at: Date.now() }
}

/** What a publication says, if it is a message; text from elsewhere (`sennit publish`, curl) is one of nobody's. */
export function read(data) {
  const said = typeof data === "string" ? { text: data } : data
  if (typeof said?.text !== "string" || !said.text.trim()) return undefined
  const at = new Date(said.at)
  return {
    id: typeof said.id === "string" ? said.id.slice(0, 100) : undefined,
    person: typeof said.person === "string" ? said.person.slice(0, 100) : "",
    name: tidyName(said.name) || "somebody",
    text: said.text.slice(0, TEXT_MAX),
    at: Number.isNaN(at.getTime()) || said.at === undefined ? undefined : at,
  }
}
