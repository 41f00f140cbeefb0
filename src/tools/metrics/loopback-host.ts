/** Names of this machine in the Host header of requests to a server on loopback. */

/** The names by which a program of this machine reaches such a server. */
export const LOOPBACK_NAMES: readonly string[] = ['127.0.0.1', 'localhost', '[::1]'];

/** Whether a server at this address is on loopback. */
export function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.');
}

/**
 * Whether a Host header names a server on loopback, at any port: a forwarded one differs. A page whose own name leads to this machine (DNS rebinding) has that
 * name as Host.
 * @param address of the server
 */
export function namesLoopback(host: string | undefined, address: string): boolean {
  const name = host?.replace(/:\d{1,5}$/, '').toLowerCase() ?? '';
  return name === address || LOOPBACK_NAMES.includes(name);
}
