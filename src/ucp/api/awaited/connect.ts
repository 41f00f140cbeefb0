/** Connecting to listeners: checking the options, and trying the addresses of a host in turn. The engine connects to a single address. */

import { isIP } from 'node:net';
import { invalidParam, isUcxError, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { SocketAddress } from '../../../uct/api/connection-manager.ts';
import { checkSignal } from '../abort-listeners.ts';
import type { Endpoint } from '../endpoint.ts';
import { checkErrorHandling } from '../error-handling.ts';
import { addressesOf, checkSocketAddress } from '../socket-address.ts';
import type { ConnectNbxOptions, ConnectOptions } from '../worker.ts';

/** Failures after which the next address of the same host is tried. */
const TRY_NEXT: readonly Status[] = [Status.UNREACHABLE, Status.TIMED_OUT, Status.CONNECTION_RESET];

/** Names of the options besides those of endpoints; the engines pass the options of connect to connectNbx. */
const CONNECT_OPTIONS = ['address', 'host', 'port', 'sendClientId', 'signal'];

/**
 * Checks options.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkConnectOptions(options: ConnectNbxOptions): void {
  checkErrorHandling(options, [...CONNECT_OPTIONS, 'onConnected']);
  checkSocketAddress(options, 1);
  const { sendClientId = false, onConnected } = options;
  if (typeof sendClientId !== 'boolean') throw invalidParam('sendClientId', 'must be a boolean', sendClientId);
  if (typeof onConnected !== 'function') throw invalidParam('onConnected', 'must be a function', onConnected);
}

/**
 * Connects to the first address that answers.
 * @param connect connects to one address
 * @throws UcxError ERR_INVALID_PARAM, ERR_UNREACHABLE; the error of `connect` for the last address, or an error that does not depend on the address
 */
export async function connectToFirst(
  options: ConnectOptions,
  connect: (address: SocketAddress) => Promise<Endpoint>,
): Promise<Endpoint> {
  if (typeof options === 'string')
    throw invalidParam('options', 'must be { host, port } or { address, port }', options);
  checkErrorHandling(options, CONNECT_OPTIONS);
  const { address, host, port, signal } = options;
  if ((address === undefined) === (host === undefined)) {
    throw invalidParam('address', 'must be given, or host instead of it', address);
  }
  if (signal !== undefined) checkSignal(signal);
  if (typeof address === 'string' && isIP(address) === 0) {
    throw invalidParam('address', 'must be a numeric IPv4 or IPv6 address (a name is the option host)', address);
  }
  if (address !== undefined) checkSocketAddress({ address, port }, 1);
  const addresses = address === undefined ? await addressesOf(host!, signal) : [address];
  for (const [index, candidate] of addresses.entries()) {
    checkSocketAddress({ address: candidate, port }, 1);
    try {
      return await connect({ address: candidate, port });
    } catch (error) {
      const isLast = index === addresses.length - 1;
      if (isLast || !isUcxError(error) || !TRY_NEXT.includes(error.status)) throw error;
    }
  }
  throw statusError(Status.UNREACHABLE, `connect to ${host}: it has no address`);
}
