/** Hashes and signatures by the browser's own cryptography. */

/** A public key of Ed25519, to ask the browser whether it knows such keys. */
const ANY_KEY = '11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo='
const keys = new Map<string, CryptoKey>()

/** Whether this browser knows Ed25519; older ones do not. */
export async function canCheckSignatures(): Promise<boolean> {
  return imported(ANY_KEY).then(() => true, () => false)
}

/** Whether a signature over a text is by this key. All three come from the server; what cannot be read is not signed. */
export async function isSignedBy(key: string, text: string, signature: string): Promise<boolean> {
  try {
    return await crypto.subtle.verify('Ed25519', await keyOf(key), bytesOf(signature), new TextEncoder().encode(text))
  } catch {
    return false
  }
}

export async function sha256(text: string): Promise<string> {
  // Browsers hide their cryptography from pages that came over a line anybody can write to.
  if (!crypto.subtle) throw new Error('Open this page over https, or on the server itself: here the browser refuses to compute hashes')
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

async function keyOf(text: string): Promise<CryptoKey> {
  const key = keys.get(text) ?? (await imported(text))
  keys.set(text, key)
  return key
}

async function imported(text: string): Promise<CryptoKey> {
  return crypto.subtle.importKey('raw', bytesOf(text), 'Ed25519', false, ['verify'])
}

/** Reads base64 in its one spelling. */
function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text)
  if (btoa(binary) !== text) throw new Error('not base64')
  return Uint8Array.from(binary, (char) => char.charCodeAt(0))
}
