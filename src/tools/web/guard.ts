/** Access rules of the server of the page: a request must name a loopback host, come from the own page, and have the token of the URL. */

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Headers of every answer: nothing of another host is loaded, and no other page contains or reads this one. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** The names by which a browser of this machine reaches the server. */
const HOSTS = ['127.0.0.1', 'localhost'];

/** Refusal of a request: HTTP status and reason. */
export interface Refusal {
  readonly status: 401 | 403;
  readonly reason: string;
}

/**
 * Checks where a request comes from. A page of another host whose name was made to resolve to this machine (DNS rebinding) has that name as Host.
 * @param port of the server
 */
export function checkSource({ host, origin }: IncomingHttpHeaders, port: number): Refusal | undefined {
  if (host === undefined || !HOSTS.some((name) => host === `${name}:${port}`)) {
    return { status: 403, reason: `this server is reached as http://127.0.0.1:${port} only` };
  }
  if (origin !== undefined && origin !== `http://${host}`) {
    return { status: 403, reason: 'requests of other pages are not answered' };
  }
  return undefined;
}

/** Checks the token of a request. */
export function checkToken(given: string | null | undefined, token: string): Refusal | undefined {
  // Digests have one length, so that the comparison takes the same time for every token.
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  if (typeof given === 'string' && timingSafeEqual(digest(given), digest(token))) return undefined;
  return { status: 401, reason: 'the token is missing or wrong: use the whole address that gaudi-ucx web has printed' };
}
