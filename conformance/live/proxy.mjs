// A proxy on the loopback through which clients reach a broker, and which does to their connections what networks do:
// it cuts them, cuts them in the middle of a message, lets nobody through, or goes silent. It knows only bytes.
import { connect, createServer } from "node:net"

export class Proxy {
  /** Connections that were cut. */
  cuts = 0
  #pairs = new Set()
  #isShut = false
  /** Whether requests for a WebSocket are let through. */
  letsUpgrade = true

  /** A proxy to the port that `port()` says at each connection. */
  static async start(port) {
    const proxy = new Proxy()
    proxy.server = createServer((near) => proxy.#join(near, port()))
    await new Promise((resolve) => proxy.server.listen(0, "127.0.0.1", resolve))
    proxy.port = proxy.server.address().port
    return proxy
  }

  #join(near, port) {
    if (this.#isShut) return near.destroy()
    const far = connect(port, "127.0.0.1")
    const pair = { near, far, left: Infinity, isSilent: false }
    this.#pairs.add(pair)
    const end = () => {
      this.#pairs.delete(pair)
      near.destroy()
      far.destroy()
    }
    for (const socket of [near, far]) socket.setNoDelay(true).on("error", end).on("close", end)
    near.on("data", (bytes) => {
      if (!this.letsUpgrade && /^upgrade: websocket/im.test(bytes.toString("latin1"))) return end()
      if (!pair.isSilent) far.write(bytes)
    })
    far.on("data", (bytes) => {
      if (pair.isSilent) return
      if (bytes.length < pair.left) {
        pair.left -= bytes.length
        return near.write(bytes)
      }
      // The client gets the beginning of a frame, or of several, and no more.
      this.cuts += 1
      this.#pairs.delete(pair)
      far.destroy()
      near.end(bytes.subarray(0, pair.left))
    })
  }

  get connections() {
    return this.#pairs.size
  }

  /** Cuts every connection, at once. */
  cut() {
    for (const { near, far } of [...this.#pairs]) {
      this.cuts += 1
      near.destroy()
      far.destroy()
    }
  }

  /** Cuts each connection once its client has got so many bytes more. */
  cutAfter(bytes) {
    for (const pair of this.#pairs) pair.left = bytes()
  }

  /** Cuts all, and lets nobody through until `open`. */
  shut() {
    this.#isShut = true
    this.cut()
  }

  open() {
    this.#isShut = false
  }

  /** The connections that there are stay, and carry nothing any more. */
  silence() {
    for (const pair of this.#pairs) pair.isSilent = true
  }

  stop() {
    this.#isShut = true
    this.cut()
    this.server.close()
  }
}
