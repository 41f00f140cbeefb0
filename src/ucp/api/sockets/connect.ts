/** Connecting to listeners: the options, and trying the addresses of a host in turn. The engine connects to a single address. */

import { invalidParam, isUcxError, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { SocketAddress } from '../../../uct/api/connection-manager.ts';
import { checkSignal } from '../awaited/promise-tier.ts';
import type { Endpoint, EndpointOptions } from '../endpoint.ts';
import { checkErrorHandling } from '../error-handling.ts';
import { addressesOf, checkSocketAddress } from './socket-address.ts';

/** Failures after which the next address of the same host is tried. */
const TRY_NEXT: readonly Status[] = [Status.UNREACHABLE, Status.TIMED_OUT, Status.CONNECTION_RESET];

/** Address of a listener, and options of the endpoint to its worker. */
export interface ConnectNbxOptions extends SocketAddress, EndpointOptions {
  /** Sends the client id of this worker to the listener (UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID). Default false. */
  readonly sendClientId?: boolean;
  /** Called with the endpoint, inside progress, just before the request ends with OK. */
  readonly onConnected: (endpoint: Endpoint) => void;
}

/** Options of the awaited connect: those of {@link ConnectNbxOptions}, with either `address` or `host`. */
export interface ConnectOptions extends EndpointOptions {
  /** Numeric address of the listener. */
  readonly address?: string;
  /** Name of the machine: its addresses are tried in turn. */
  readonly host?: string;
  /** Port of the listener, 1 to 65535. */
  readonly port: number;
  /** Sends the client id of the worker to the listener. Default false. */
  readonly sendClientId?: boolean;
  /** Cancels the operation: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal;
}

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
  checkErrorHandling(options, CONNECT_OPTIONS);
  const { address, host, port, signal } = options;
  if ((address === undefined) === (host === undefined)) {
    throw invalidParam('address', 'must be given, or host instead of it', address);
  }
  if (signal !== undefined) checkSignal(signal);
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
