// Sealed messages for browsers and Node: payloads that only those with a key can read, signed by who sent them. One module
// without dependencies, on WebCrypto. The format: docs/reference/sealed-messages.md; the tests: crates/seal/vectors.json.
//
//   const ring = await KeyRing.parse(textOfAKeyFile)
//   await news.publish(await ring.sealJson('news', 'hello'))                    // news: a subscription of npm's centrifuge
//   news.on('publication', async ({ data }) => show((await ring.open('news', data)).text()))
//
// A page has crypto.subtle only where it came by HTTPS or from localhost.

const { subtle } = globalThis.crypto
const encoder = new TextEncoder()

const MAGIC = 0xf8
const VERSION = 1
const FIXED_BYTES = 28
const ID_BYTES = 8
const POINT_BYTES = 65
const WRAPPED_BYTES = 48
const RECIPIENT_BYTES = ID_BYTES + POINT_BYTES + WRAPPED_BYTES
const TAG_BYTES = 16

/** Most recipients of a message. */
export const RECIPIENTS_MAX = 64
/** How far the clock of a sender may be ahead of a receiver's, in milliseconds. */
export const CLOCK_SKEW_MAX_MS = 60_000

const KINDS = {
  'sennit-channel-key': { hashed: 'channel', bytes: 32 },
  'sennit-recipient-private-key': { hashed: 'recipient', bytes: 32 + POINT_BYTES },
  'sennit-recipient-key': { hashed: 'recipient', bytes: POINT_BYTES },
  'sennit-signing-key': { hashed: 'signing', bytes: 32 },
  'sennit-verifying-key': { hashed: 'signing', bytes: 32 },
  'sennit-shared-signing-key': { hashed: 'shared-signing', bytes: 32 },
}

/** Why a message is refused: `code` for programs, the same as in the vectors; `message` for people. */
export class SealError extends Error {
  constructor(code, message) {
    super(message)
    this.name = 'SealError'
    this.code = code
  }
}

const refuse = (code, message) => { throw new SealError(code, message) }

// --- bytes

const concat = (...parts) => {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    bytes.set(part, at)
    at += part.length
  }
  return bytes
}
const utf8 = (text) => encoder.encode(text)
const u16 = (number) => new Uint8Array([number >> 8, number & 255])
const u32 = (number) => new Uint8Array([number >>> 24, number >>> 16, number >>> 8, number].map((byte) => byte & 255))
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
const asBytes = (data) => {
  if (typeof data === 'string') return utf8(data)
  if (data instanceof ArrayBuffer) return new Uint8Array(data)
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  return utf8(JSON.stringify(data))
}
const toBase64Url = (bytes) => {
  let text = ''
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}
/** Strict: no padding, no other letters, no bits that say nothing. */
const fromBase64Url = (text) => {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return undefined
  const bytes = Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0))
  return toBase64Url(bytes) === text ? bytes : undefined
}

// --- HMAC, HKDF, HPKE (RFC 9180) in base mode: P-256, HKDF-SHA256, AES-256-GCM

const hmacKey = (key, uses) => subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, uses)
const hmac = async (key, ...parts) =>
  // A key of no bytes is one of zeros, which WebCrypto takes.
  new Uint8Array(await subtle.sign('HMAC', await hmacKey(key.length ? key : new Uint8Array(32), ['sign']), concat(...parts)))

const KEM_SUITE = concat(utf8('KEM'), u16(0x0010))
const HPKE_SUITE = concat(utf8('HPKE'), u16(0x0010), u16(0x0001), u16(0x0002))
const NOTHING = new Uint8Array()

const labeledExtract = (suite, salt, label, ikm) => hmac(salt, utf8('HPKE-v1'), suite, utf8(label), ikm)
// Lengths are at most that of one block.
const labeledExpand = async (suite, prk, label, info, length) =>
  (await hmac(prk, u16(length), utf8('HPKE-v1'), suite, utf8(label), info, new Uint8Array([1]))).subarray(0, length)

const P256 = { name: 'ECDH', namedCurve: 'P-256' }
const importPoint = (point) => subtle.importKey('raw', point, P256, false, [])
const importPair = (bytes) => {
  const [d, x, y] = [[0, 32], [33, 65], [65, 97]].map(([from, to]) => toBase64Url(bytes.subarray(from, to)))
  return subtle.importKey('jwk', { kty: 'EC', crv: 'P-256', d, x, y }, P256, false, ['deriveBits'])
}
const agreed = async (privateKey, publicKey) =>
  new Uint8Array(await subtle.deriveBits({ name: 'ECDH', public: publicKey }, privateKey, 256))

/** The cipher of a shared secret: its key and nonce. */
const hpkeSchedule = async (dh, encapsulated, recipient, info) => {
  const eaePrk = await labeledExtract(KEM_SUITE, NOTHING, 'eae_prk', dh)
  const shared = await labeledExpand(KEM_SUITE, eaePrk, 'shared_secret', concat(encapsulated, recipient), 32)
  const context = concat(
    new Uint8Array([0]),
    await labeledExtract(HPKE_SUITE, NOTHING, 'psk_id_hash', NOTHING),
    await labeledExtract(HPKE_SUITE, NOTHING, 'info_hash', info),
  )
  const secret = await labeledExtract(HPKE_SUITE, shared, 'secret', NOTHING)
  return {
    key: await labeledExpand(HPKE_SUITE, secret, 'key', context, 32),
    nonce: await labeledExpand(HPKE_SUITE, secret, 'base_nonce', context, 12),
  }
}

const gcm = async (direction, { key, nonce }, additionalData, bytes) => {
  const cipher = await subtle.importKey('raw', key, 'AES-GCM', false, [direction])
  return new Uint8Array(await subtle[direction]({ name: 'AES-GCM', iv: nonce, additionalData, tagLength: 128 }, cipher, bytes))
}

/** HPKE's SealBase; for tests `pair` is an ephemeral one of theirs. */
export const hpkeSeal = async (recipient, info, aad, bytes, pair) => {
  const ephemeral = pair ?? (await subtle.generateKey(P256, false, ['deriveBits']))
  const encapsulated = new Uint8Array(await subtle.exportKey('raw', ephemeral.publicKey))
  const dh = await agreed(ephemeral.privateKey, await importPoint(recipient))
  const cipher = await hpkeSchedule(dh, encapsulated, recipient, info)
  return concat(encapsulated, await gcm('encrypt', cipher, aad, bytes))
}

/** HPKE's OpenBase, with a private number and its point. */
export const hpkeOpen = async (pair, info, aad, encapsulated, wrapped) => {
  const dh = await agreed(await importPair(pair), await importPoint(encapsulated))
  const cipher = await hpkeSchedule(dh, encapsulated, pair.subarray(32), info)
  return gcm('decrypt', cipher, aad, wrapped)
}

// --- what a message is bound to

const label = (name) => utf8(`sennit sealed v1 ${name}\0`)
const long = (bytes) => concat(u32(bytes.length), bytes)
const contentAad = (topic, head) => concat(label('content'), long(utf8(topic)), head)
const signedBytes = (topic, head, payload) => concat(label('signature'), long(utf8(topic)), long(head), payload)
const recipientInfo = (id, topic) => concat(label('recipient'), id, utf8(topic))

/** The key of one message, with which nothing else is encrypted, and its nonce. */
const messageCipher = async (secret, id, topic) => {
  const base = await subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits'])
  const info = concat(label('key'), utf8(topic))
  const bytes = new Uint8Array(await subtle.deriveBits({ name: 'HKDF', hash: 'SHA-256', salt: id, info }, base, 44 * 8))
  return { key: bytes.subarray(0, 32), nonce: bytes.subarray(32) }
}

// --- Ed25519

const ED25519_PREFIX = new Uint8Array([48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32])
const importSeed = (seed) =>
  subtle.importKey('pkcs8', concat(ED25519_PREFIX, seed), { name: 'Ed25519' }, true, ['sign'])
const publicOfSeed = async (seed) => fromBase64Url((await subtle.exportKey('jwk', await importSeed(seed))).x)

// --- keys

const idOf = async (kind, bytes) => {
  const hashed = concat(utf8('sennit key id v1\0'), utf8(KINDS[kind].hashed), new Uint8Array([0]), bytes)
  return hex(new Uint8Array(await subtle.digest('SHA-256', hashed)).subarray(0, ID_BYTES))
}

/** A key: `kind`, `id` in hex, `label`, and its bytes. */
const keyOf = async (kind, bytes, label = '') => {
  const wrong = (why) => refuse('no-key', `the ${kind} ${why}`)
  if (bytes.length !== KINDS[kind].bytes) wrong(`has ${bytes.length} bytes, not ${KINDS[kind].bytes}`)
  let hashed = bytes
  try {
    if (kind === 'sennit-recipient-key') await importPoint(bytes)
    if (kind === 'sennit-recipient-private-key') {
      await importPair(bytes)
      hashed = bytes.subarray(32)
    }
    if (kind === 'sennit-signing-key') hashed = await publicOfSeed(bytes)
  } catch {
    wrong('is not one: no such point or number exists, or its halves do not fit')
  }
  return { kind, bytes, id: await idOf(kind, hashed), label, hashed }
}

/** The keys of a file, `KEY [LABEL]` on each line. The first of a kind seals or signs. */
export class KeyRing {
  constructor(keys = []) {
    this.keys = keys
  }

  /** Reads the lines of a file of keys. */
  static async parse(text) {
    const keys = []
    for (const [at, whole] of text.split('\n').entries()) {
      const line = whole.trim()
      if (line === '' || line.startsWith('#')) continue
      const [, key, label] = /^(\S+)\s*(.*)$/.exec(line)
      try {
        keys.push(await keyFromText(key, label))
      } catch (error) {
        refuse('no-key', `line ${at + 1}: ${error.message}`)
      }
    }
    return new KeyRing(keys)
  }

  ofKind(kind) {
    return this.keys.filter((key) => key.kind === kind)
  }

  /** Seals a payload (text, bytes, or what becomes JSON) for the readers of a topic: the bytes of a sealed message. */
  async seal(topic, payload, nowMs = Date.now()) {
    return this.sealAs(topic, payload, nowMs, crypto.getRandomValues(new Uint8Array(16)))
  }

  /** The same with a given id, which may never be given again. */
  async sealAs(topic, payload, nowMs, id) {
    const channel = this.ofKind('sennit-channel-key')[0]
    const recipients = this.ofKind('sennit-recipient-key')
    if (channel && recipients.length) {
      refuse('two-audiences', 'there are channel keys and keys of recipients: seal for a channel or for recipients')
    }
    if (!channel && !recipients.length) {
      refuse('no-audience', 'there is neither a channel key nor the key of a recipient among the keys')
    }
    if (recipients.length > RECIPIENTS_MAX) {
      refuse('too-many-recipients', `there are ${recipients.length} recipients, and ${RECIPIENTS_MAX} may be at most`)
    }
    const time = new Uint8Array(8)
    new DataView(time.buffer).setBigUint64(0, BigInt(nowMs))
    let head = concat(new Uint8Array([MAGIC, VERSION, recipients.length, 0]), time, id)
    let secret
    if (channel) {
      secret = channel.bytes
      head = concat(head, fromHex(channel.id))
    } else {
      secret = crypto.getRandomValues(new Uint8Array(32))
      for (const { bytes, id: key } of recipients) {
        head = concat(head, fromHex(key), await hpkeSeal(bytes, recipientInfo(id, topic), NOTHING, secret))
      }
    }
    const bytes = asBytes(payload)
    const content = concat(await this.#signature(signedBytes(topic, head, bytes)), bytes)
    const cipher = await messageCipher(secret, id, topic)
    return concat(head, await gcm('encrypt', cipher, contentAad(topic, head), content))
  }

  /** The same as a value for JSON: `{ sealed: '...' }`, for clients that publish JSON. */
  async sealJson(topic, payload, nowMs = Date.now()) {
    return { sealed: toBase64Url(await this.seal(topic, payload, nowMs)) }
  }

  async #signature(signed) {
    const signer = this.keys.find(({ kind }) => kind === 'sennit-signing-key' || kind === 'sennit-shared-signing-key')
    if (!signer) return new Uint8Array([0])
    if (signer.kind === 'sennit-shared-signing-key') {
      return concat(new Uint8Array([2]), fromHex(signer.id), await hmac(signer.bytes, signed))
    }
    const signature = await subtle.sign({ name: 'Ed25519' }, await importSeed(signer.bytes), signed)
    return concat(new Uint8Array([1]), fromHex(signer.id), new Uint8Array(signature))
  }

  /**
   * Opens a message of a topic: bytes, the data of a publication (`{ sealed }` or `{ b64data }`), or the text of either. If the
   * ring has keys that check signatures, the message has to be signed with one of them. Throws a SealError.
   */
  async open(topic, message) {
    const envelope = read(bytesOfMessage(message))
    const { head, id, sentAtMs, ciphertext } = envelope
    const secret = await this.#secret(topic, envelope)
    let content
    try {
      content = await gcm('decrypt', await messageCipher(secret, id, topic), contentAad(topic, head), ciphertext)
    } catch {
      refuse('altered', 'the sealed message was altered, or it was sealed for another topic')
    }
    const { signature, payload } = takeSignature(content)
    let signedBy
    const checking = await this.#checkingKeys()
    if (checking.length) {
      if (!signature) refuse('not-signed', 'the message is not signed')
      const key = checking.find((key) => key.id === signature.signer && key.hmac === signature.hmac)
      if (!key) refuse('unknown-signer', `the message is signed with the key ${signature.signer}, which is not among the keys`)
      const signed = signedBytes(topic, head, payload)
      const good = key.hmac
        ? subtle.verify('HMAC', await hmacKey(key.bytes, ['verify']), signature.bytes, signed)
        : subtle.verify({ name: 'Ed25519' }, await subtle.importKey('raw', key.bytes, { name: 'Ed25519' }, false, ['verify']), signature.bytes, signed)
      if (!(await good)) refuse('wrong-signature', `the signature with the key ${key.id} is wrong`)
      signedBy = { id: key.id, label: this.keys.find((known) => known.id === key.id && known.label)?.label ?? '' }
    }
    return new Opened(payload, hex(id), sentAtMs, signedBy)
  }

  /** Who signs trusts its own signatures. */
  async #checkingKeys() {
    const keys = []
    for (const { kind, id, bytes } of this.keys) {
      if (kind === 'sennit-verifying-key') keys.push({ id, bytes, hmac: false })
      if (kind === 'sennit-signing-key') keys.push({ id, bytes: await publicOfSeed(bytes), hmac: false })
      if (kind === 'sennit-shared-signing-key') keys.push({ id, bytes, hmac: true })
    }
    return keys
  }

  async #secret(topic, { channel, recipients, id }) {
    if (channel) {
      const key = this.ofKind('sennit-channel-key').find((key) => key.id === channel)
      return key?.bytes ?? refuse('no-channel-key', `the message is sealed for the channel key ${channel}, which is not among the keys`)
    }
    for (const { key, encapsulated, wrapped } of recipients) {
      const pair = this.ofKind('sennit-recipient-private-key').find((pair) => pair.id === key)
      if (!pair) continue
      try {
        return await hpkeOpen(pair.bytes, recipientInfo(id, topic), NOTHING, encapsulated, wrapped)
      } catch {
        refuse('altered', 'the sealed message was altered, or it was sealed for another topic')
      }
    }
    return refuse('no-recipient', `the message is sealed for others: none of its ${recipients.length} recipients is among the keys`)
  }
}

const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16))

const keyFromText = async (text, label) => {
  const at = text.indexOf(':')
  const kind = text.slice(0, Math.max(at, 0))
  if (!Object.hasOwn(KINDS, kind)) refuse('no-key', `it is no key: a key is KIND:BASE64URL, and KIND one of ${Object.keys(KINDS).join(', ')}`)
  const bytes = fromBase64Url(text.slice(at + 1)) ?? refuse('no-key', `the ${kind} is not in base64url without padding`)
  return keyOf(kind, bytes, label)
}

const textOfKey = (kind, bytes) => `${kind}:${toBase64Url(bytes)}`

/** A new secret key as text, and its public half if it has one. `kind` is that of the secret key. */
export const generateKey = async (kind) => {
  if (kind === 'sennit-recipient-private-key') {
    const pair = await subtle.generateKey(P256, true, ['deriveBits'])
    const { d } = await subtle.exportKey('jwk', pair.privateKey)
    const point = new Uint8Array(await subtle.exportKey('raw', pair.publicKey))
    return { secret: textOfKey(kind, concat(fromBase64Url(d), point)), public: textOfKey('sennit-recipient-key', point) }
  }
  if (!Object.hasOwn(KINDS, kind) || kind.endsWith('verifying-key') || kind.endsWith('recipient-key')) {
    refuse('no-key', `${kind} is no kind of a secret key`)
  }
  const bytes = crypto.getRandomValues(new Uint8Array(32))
  const half = kind === 'sennit-signing-key' ? textOfKey('sennit-verifying-key', await publicOfSeed(bytes)) : undefined
  return { secret: textOfKey(kind, bytes), public: half }
}

/** A message that was opened. `signedBy` is `{ id, label }` of the key whose signature was checked. */
export class Opened {
  constructor(payload, id, sentAtMs, signedBy) {
    Object.assign(this, { payload, id, sentAtMs, signedBy })
  }

  text() {
    return new TextDecoder().decode(this.payload)
  }

  json() {
    return JSON.parse(this.text())
  }
}

// --- the bytes of a message

const bytesOfMessage = (message) => {
  const ofBase64 = (text) => fromBase64Url(text) ?? refuse('not-base64', 'the sealed message is not in base64url without padding')
  if (message instanceof ArrayBuffer || ArrayBuffer.isView(message)) {
    const bytes = asBytes(message)
    if (bytes[0] === MAGIC) return bytes
    return bytesOfMessage(new TextDecoder().decode(bytes))
  }
  let value = message
  if (typeof message === 'string') {
    try {
      value = JSON.parse(message)
    } catch {
      refuse('not-sealed', 'the message is not sealed')
    }
  }
  const members = value && typeof value === 'object' ? Object.keys(value) : []
  if (members.length === 1 && typeof value.sealed === 'string') return ofBase64(value.sealed)
  // What the broker makes of bytes for clients that speak JSON: base64 with padding.
  if (members.length === 1 && typeof value.b64data === 'string') {
    return ofBase64(value.b64data.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, ''))
  }
  return refuse('not-sealed', 'the message is not sealed')
}

const read = (message) => {
  if (message[0] !== MAGIC) refuse('not-sealed', 'the message is not sealed')
  let at = 0
  const take = (count) => {
    if (message.length - at < count) refuse('truncated', 'the sealed message is cut off')
    at += count
    return message.subarray(at - count, at)
  }
  const [, version] = take(2)
  if (version !== VERSION) refuse('unknown-version', `the message is sealed in version ${version}, and this program opens version 1`)
  const fixed = take(FIXED_BYTES - 2)
  const [count, flags] = fixed
  if (flags !== 0) refuse('unknown-flags', `the sealed message has flags that have no meaning: ${flags}`)
  if (count > RECIPIENTS_MAX) refuse('too-many-recipients', `the message is sealed for ${count} recipients, and may be for ${RECIPIENTS_MAX} at most`)
  const sentAtMs = Number(new DataView(fixed.buffer, fixed.byteOffset + 2, 8).getBigUint64(0))
  const id = fixed.subarray(10)
  const channel = count === 0 ? hex(take(ID_BYTES)) : undefined
  const recipients = Array.from({ length: count }, () => {
    const bytes = take(RECIPIENT_BYTES)
    return {
      key: hex(bytes.subarray(0, ID_BYTES)),
      encapsulated: bytes.subarray(ID_BYTES, ID_BYTES + POINT_BYTES),
      wrapped: bytes.subarray(ID_BYTES + POINT_BYTES),
    }
  })
  const ciphertext = message.subarray(at)
  if (ciphertext.length <= TAG_BYTES) refuse('truncated', 'the sealed message is cut off')
  return { head: message.subarray(0, at), sentAtMs, id, channel, recipients, ciphertext }
}

const takeSignature = (content) => {
  const unknown = () => refuse('unknown-signature', 'the sealed message has no signature of a known kind in it')
  const kind = content[0]
  if (kind === 0) return { payload: content.subarray(1) }
  const length = { 1: 64, 2: 32 }[kind] ?? unknown()
  const at = 1 + ID_BYTES + length
  if (content.length < at) unknown()
  const signer = hex(content.subarray(1, 1 + ID_BYTES))
  return { signature: { signer, hmac: kind === 2, bytes: content.subarray(1 + ID_BYTES, at) }, payload: content.subarray(at) }
}

/** Refuses messages that came before, and those that are too old to know. Remembers at most `idsMax` of them. */
export class ReplayGuard {
  #ids = new Map()

  constructor(ageMaxMs, idsMax = 100_000) {
    Object.assign(this, { ageMaxMs, idsMax })
  }

  /** Takes a message that was opened, once. Throws a SealError. */
  take({ id, sentAtMs }, nowMs = Date.now()) {
    if (sentAtMs > nowMs + CLOCK_SKEW_MAX_MS) {
      refuse('from-the-future', `the message was sealed ${sentAtMs - nowMs} ms from now: the clock of its sender is wrong, or this one`)
    }
    const age = Math.max(nowMs - sentAtMs, 0)
    if (age > this.ageMaxMs) refuse('too-old', `the message was sealed ${age} ms ago, and may be ${this.ageMaxMs} ms old at most`)
    if (this.#ids.has(id)) refuse('replayed', `the message ${id} came before`)
    if (this.#ids.size >= this.idsMax) {
      // What is older than the age is refused for that.
      for (const [known, sent] of this.#ids) if (sent < nowMs - this.ageMaxMs) this.#ids.delete(known)
      if (this.#ids.size >= this.idsMax) refuse('full', `${this.idsMax} messages came that may not come again: no more are remembered`)
    }
    this.#ids.set(id, sentAtMs)
  }
}

/** The topic of a channel of live connections, to which its messages are bound: `chat:index` is `chat%3Aindex`. */
export const topicOf = (channel) => {
  const bytes = utf8(channel)
  let topic = ''
  for (const [at, byte] of bytes.entries()) {
    const char = String.fromCharCode(byte)
    const isBound = (other) => other === undefined || other === 0x2e
    const stands = char === '.' ? !isBound(bytes[at - 1]) && !isBound(bytes[at + 1]) : /[A-Za-z0-9_~/-]/.test(char)
    topic += stands ? char : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
  }
  return topic
}
