/** Socket addresses: checking, printing, and name resolution. It does not connect. */

import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { AbortError, awaitedHere, invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { SocketAddress } from '../../uct/api/connection-manager.ts';
import { addAbortListener } from './abort-listeners.ts';

const PORT_MAX = 65_535;
const HOST_LENGTH_MAX = 253;
/** fe80::/10. The kernel refuses such an address without an interface (EINVAL). */
const LINK_LOCAL = /^fe[89ab][0-9a-f]:/i;

/** Both addresses of the connection by which client and listener found each other. */
export interface SocketAddresses {
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
}

/**
 * Checks an address.
 * @param portMin 0 if the system may choose the port, else 1
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkSocketAddress({ address, port }: SocketAddress, portMin: 0 | 1): void {
  if (typeof address !== 'string' || isIP(address) === 0) {
    throw invalidParam('address', 'must be a numeric IPv4 or IPv6 address', address);
  }
  if (LINK_LOCAL.test(address) && !address.includes('%')) {
    throw invalidParam('address', 'must name its interface, as in fe80::1%eth0, because it is link-local', address);
  }
  if (!Number.isInteger(port) || port < portMin || port > PORT_MAX) {
    throw invalidParam('port', `must be an integer from ${portMin} to ${PORT_MAX}`, port);
  }
}

/** `127.0.0.1:7`, `[::1]:7`. */
export function printSocketAddress({ address, port }: SocketAddress): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/**
 * The numeric addresses of a host, at least one, in the order of the system.
 * @throws UcxError ERR_INVALID_PARAM; ERR_UNREACHABLE for an unknown name; AbortError if `signal` fires
 */
export async function addressesOf(host: string, signal: AbortSignal | undefined): Promise<readonly string[]> {
  if (typeof host !== 'string' || host === '' || host.length > HOST_LENGTH_MAX || host.includes('\0')) {
    throw invalidParam('host', `must be a name of 1 to ${HOST_LENGTH_MAX} characters`, host);
  }
  if (isIP(host) !== 0) return [host];
  if (/^[^:]*:\d*$/.test(host)) throw invalidParam('host', 'must be a name without the port, which is an option', host);
  const found = lookup(host, { all: true }).then(
    (addresses) => addresses.map(({ address }) => address),
    (error: unknown) => {
      throw statusError(Status.UNREACHABLE, `look up host ${host}`, error);
    },
  );
  return await awaitedHere(signal === undefined ? found : untilAborted(found, signal));
}

/** Resolves like the promise, or rejects when the signal fires: name resolution may be slow. */
async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    promise.catch(() => undefined);
    throw new AbortError(signal);
  }
  let listener: Disposable | undefined;
  const aborted = new Promise<never>((_, reject) => {
    listener = addAbortListener(signal, () => reject(new AbortError(signal)));
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    listener?.[Symbol.dispose]();
  }
}
