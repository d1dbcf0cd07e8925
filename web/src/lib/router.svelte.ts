/** Where we are, in the part of the address that never reaches the server. */
export const PLACES = ['inbox', 'sessions', 'history', 'grants', 'doubts', 'policy', 'tools', 'audit', 'insights'] as const
export type Place = (typeof PLACES)[number]
export type Route = { place: Place; id: string | undefined; query: URLSearchParams }

/** The secret of a one-time sign-in link, where the page was opened by one. */
export function linkIn(hash: string): string | undefined {
  return hash.length > 1 && !hash.startsWith('#/') ? hash.slice(1) : undefined
}

/** Reads an address such as `#/inbox/ID?risk=high`. Unknown places are the inbox. */
export function read(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  const [name = '', id] = path.split('/').map(decode)
  const place = PLACES.find((place) => place === name) ?? 'inbox'
  return { place, id: id || undefined, query: new URLSearchParams(search) }
}

/** The address of a place. */
export function link(place: Place, id?: string): string {
  return id === undefined ? `#/${place}` : `#/${place}/${encodeURIComponent(id)}`
}

class Router {
  route = $state.raw(read(location.hash))

  constructor() {
    addEventListener('hashchange', () => (this.route = read(location.hash)))
  }

  /** Whether the address is this one. It may have changed already while the word of that still waits its turn. */
  isAt(place: Place, id?: string): boolean {
    const now = read(location.hash)
    return now.place === place && now.id === id
  }

  go(place: Place, id?: string): void {
    location.hash = link(place, id)
  }

  /** Moves without a step in the history, as when one walks along the list. */
  replace(place: Place, id?: string): void {
    history.replaceState(null, '', link(place, id))
    this.route = read(location.hash)
  }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

export const router = new Router()
