// The module for JavaScript against the published vectors, and what WebCrypto makes of keys and messages of its own.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { KeyRing, ReplayGuard, generateKey, hpkeOpen, topicOf } from './sealed.mjs'

const vectors = JSON.parse(readFileSync(process.env.VECTORS, 'utf8'))
const bytes = (hex) => new Uint8Array(Buffer.from(hex, 'hex'))
const hex = (bytes) => Buffer.from(bytes).toString('hex')
const ringOf = (names) => KeyRing.parse(names.map((name) => `${vectors.keys[name].text} ${name}`).join('\n'))
const codeOf = (refused) => refused.then(() => 'opened', (error) => error.code)

test('keys have the ids of the vectors', async () => {
  for (const [name, { text, id }] of Object.entries(vectors.keys)) {
    const ring = await KeyRing.parse(text)
    assert.equal(ring.keys[0].id, id, name)
  }
})

for (const vector of vectors.opened) {
  test(`opens: ${vector.name}`, async () => {
    const ring = await ringOf(vector.open_with)
    const b64data = Buffer.from(vector.message, 'hex').toString('base64')
    for (const message of [bytes(vector.message), vector.json, JSON.parse(vector.json), { b64data }]) {
      const opened = await ring.open(vector.topic, message)
      assert.equal(hex(opened.payload), vector.payload)
      assert.equal(opened.id, vector.id)
      assert.equal(opened.sentAtMs, vector.sent_at_ms)
      assert.equal(opened.signedBy?.id ?? null, vector.signed_by)
    }
    const sealer = await ringOf(vector.seal_with)
    const again = await sealer.sealAs(vector.topic, bytes(vector.payload), vector.sent_at_ms, bytes(vector.id))
    if (vector.secret) assert.equal(hex(again), vector.message)
    assert.equal(hex((await ring.open(vector.topic, again)).payload), vector.payload)
  })
}

for (const vector of vectors.refused) {
  test(`refuses: ${vector.name}`, async () => {
    const ring = await ringOf(vector.open_with)
    assert.equal(await codeOf(ring.open(vector.topic, bytes(vector.message))), vector.code)
  })
}

test('HPKE is that of RFC 9180', async () => {
  const { info, aad, enc, ct, pt, skRm, pkRm } = vectors.hpke
  assert.equal(hex(await hpkeOpen(bytes(skRm + pkRm), bytes(info), bytes(aad), bytes(enc), bytes(ct))), pt)
})

test('new keys seal and open, and text is text', async () => {
  const [channel, shared] = [await generateKey('sennit-channel-key'), await generateKey('sennit-shared-signing-key')]
  const [signing, recipient] = [await generateKey('sennit-signing-key'), await generateKey('sennit-recipient-private-key')]
  for (const [seals, opens] of [
    [[channel.secret, signing.secret], [channel.secret, `${signing.public} ada`]],
    [[channel.secret, shared.secret], [channel.secret, `${shared.secret} ada`]],
    [[recipient.public, signing.secret], [recipient.secret, `${signing.public} ada`]],
  ]) {
    const message = await (await KeyRing.parse(seals.join('\n'))).sealJson('news', { text: 'größe' })
    const opened = await (await KeyRing.parse(opens.join('\n'))).open('news', message)
    assert.deepEqual(opened.json(), { text: 'größe' })
    assert.equal(opened.signedBy.label, 'ada')
  }
  await assert.rejects(KeyRing.parse('# a comment\nsennit-channel-key:AAAA'), /line 2: .* 3 bytes/)
  assert.equal(await codeOf((await KeyRing.parse(signing.secret)).seal('news', '')), 'no-audience')
  assert.equal(await codeOf((await KeyRing.parse(`${channel.secret}\n${recipient.public}`)).seal('news', '')), 'two-audiences')
})

test('a message is taken once while it is fresh and never after', async () => {
  const guard = new ReplayGuard(1000, 2)
  const codeAt = (id, sentAtMs, nowMs) => {
    try {
      guard.take({ id, sentAtMs }, nowMs)
    } catch (error) {
      return error.code
    }
  }
  assert.equal(codeAt('a', 5000, 5500), undefined)
  assert.equal(codeAt('a', 5000, 5500), 'replayed')
  assert.equal(codeAt('b', 5500, 5500), undefined)
  assert.equal(codeAt('c', 5600, 5600), 'full')
  assert.equal(codeAt('c', 5600, 6001), undefined)
  assert.equal(codeAt('a', 5000, 6001), 'too-old')
  assert.equal(codeAt('b', 5500, 6001), 'replayed')
  assert.equal(codeAt('d', 70_000, 6001), 'from-the-future')
})

test('a channel has the topic that the broker gives it', () => {
  for (const [channel, topic] of [
    ['news', 'news'], ['chat:index', 'chat%3Aindex'], ['$private', '%24private'], ['a/b.c', 'a/b.c'],
    ['a..b', 'a%2E%2Eb'], ['100%', '100%25'], ['größe', 'gr%C3%B6%C3%9Fe'],
  ]) assert.equal(topicOf(channel), topic)
})
