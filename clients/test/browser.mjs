// The module for JavaScript in a real browser: opens a page that runs the vectors, and reads from it how that went. The page
// comes from localhost, as browsers have WebCrypto only there and over HTTPS.
//   node browser.mjs CHROMIUM MODULE VECTORS
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const [chromium, module, vectors] = process.argv.slice(2)

const page = `<!doctype html><title>vectors</title><script type="module">
import { KeyRing, generateKey } from './sealed.mjs'
const vectors = await (await fetch('./vectors.json')).json()
const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16))
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
const ringOf = (names) => KeyRing.parse(names.map((name) => vectors.keys[name].text).join('\\n'))
const wrong = []
const check = async (name, is) => {
  try {
    if (!(await is())) wrong.push(name)
  } catch (error) {
    wrong.push(name + ': ' + error)
  }
}
for (const { name, open_with, topic, message, payload } of vectors.opened) {
  await check(name, async () => hex((await (await ringOf(open_with)).open(topic, bytes(message))).payload) === payload)
}
for (const { name, open_with, topic, message, code } of vectors.refused) {
  await check(name, async () => {
    const ring = await ringOf(open_with)
    return ring.open(topic, bytes(message)).then(() => false, (error) => error.code === code)
  })
}
for (const kind of ['sennit-recipient-private-key', 'sennit-channel-key']) {
  await check('a new ' + kind, async () => {
    const [key, signing] = [await generateKey(kind), await generateKey('sennit-signing-key')]
    const sealed = await (await KeyRing.parse((key.public ?? key.secret) + '\\n' + signing.secret)).sealJson('news', 'hello')
    const opened = await (await KeyRing.parse(key.secret + '\\n' + signing.public)).open('news', sealed)
    return opened.text() === 'hello' && opened.signedBy !== undefined
  })
}
const all = vectors.opened.length + vectors.refused.length + 2
await fetch('./done', { method: 'POST', body: JSON.stringify({ all, wrong }) })
</script>`

const files = {
  '/': ['text/html', page],
  '/sealed.mjs': ['text/javascript', readFileSync(module)],
  '/vectors.json': ['application/json', readFileSync(vectors)],
}
const profile = mkdtempSync(join(tmpdir(), 'sealed-'))
const done = new Promise((resolve, reject) => {
  const server = createServer((request, response) => {
    if (request.url === '/done') {
      let body = ''
      request.on('data', (part) => (body += part)).on('end', () => {
        response.end()
        resolve(JSON.parse(body))
      })
      return
    }
    const [type, content] = files[request.url] ?? [undefined, undefined]
    response.writeHead(type ? 200 : 404, { 'content-type': type ?? 'text/plain' }).end(content)
  })
  server.listen(0, '127.0.0.1', () => {
    const url = `http://localhost:${server.address().port}/`
    const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', `--user-data-dir=${profile}`, url]
    const browser = spawn(chromium, flags, { stdio: 'ignore' })
    browser.on('error', reject)
    const late = setTimeout(() => reject(new Error('the page does not end within 60 s')), 60_000)
    const end = () => {
      clearTimeout(late)
      server.close()
      server.closeAllConnections()
      browser.kill('SIGKILL')
      browser.on('exit', () => rmSync(profile, { recursive: true, force: true, maxRetries: 5 }))
    }
    done.then(end, end)
  })
})
const { all, wrong } = await done
for (const name of wrong) console.log(`not ok in the browser: ${name}`)
console.log(`browser: ${all - wrong.length} of ${all} checks passed`)
process.exitCode = wrong.length === 0 ? 0 : 1
