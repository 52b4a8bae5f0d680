// Shows a key, if there is one, with each request of the suite to the server that has no credentials of its own, as a
// page would that wraps `fetch`; what acks a wake shows the token of that wake. Knows nothing of the tests.
const { CONFORMANCE_URL: server, CONFORMANCE_KEY: key } = process.env

if (key) {
  const bare = globalThis.fetch
  globalThis.fetch = async (resource, options) => {
    const url = resource instanceof Request ? resource.url : String(resource)
    const headers = new Headers(options?.headers ?? (resource instanceof Request ? resource.headers : {}))
    if (url.startsWith(`${server}/`) && !headers.has("authorization")) headers.set("authorization", `Bearer ${key}`)
    return bare(resource, { ...options, headers })
  }
}
