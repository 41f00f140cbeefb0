/**
 * The bytes that a client and a listener exchange through a connection manager: identity and worker address of the client, and the half of a connection that
 * the server has made for it. They are exchanged by socket-connections.ts.
 *
 * Layout, little-endian. Request: u8 version, u8 flags (1: has a client id), u16 0, u32 0, u64 client id, worker address. Acceptance: u8 version, u8 0,
 * u16 0, u32 id of the connection, u64 bytes that the client may send before the server asks for them, worker address.
 */

import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { unpackWorkerAddress } from '../lane/worker-address.ts';

const VERSION = 2;
const HAS_CLIENT_ID = 1;
const REQUEST_BYTES = 16;
const ACCEPTANCE_BYTES = 16;
const CONNECTION_ID_MAX = 0x7fff_ffff;

/** The data of a client. */
export interface ConnectData {
  readonly clientId: bigint | undefined;
  readonly workerAddress: Uint8Array;
}

/** The data of a server. */
export interface AcceptData {
  readonly connectionId: number;
  readonly windowBytes: number;
  readonly workerAddress: Uint8Array;
}

/** Writes the data of a client. */
export function packConnectData({ clientId, workerAddress }: ConnectData): Uint8Array {
  const packed = begin(REQUEST_BYTES, workerAddress);
  const view = new DataView(packed.buffer);
  view.setUint8(1, clientId === undefined ? 0 : HAS_CLIENT_ID);
  view.setBigUint64(8, clientId ?? 0n, true);
  return packed;
}

/**
 * Reads the data of a client, including its worker address.
 * @throws UcxError ERR_CONNECT_MALFORMED, ERR_ADDRESS_MALFORMED (INVALID_PARAM)
 */
export function unpackConnectData(packed: Uint8Array): ConnectData {
  const view = viewOf(packed, REQUEST_BYTES, 'request');
  const flags = view.getUint8(1);
  if (flags > HAS_CLIENT_ID) throw malformed('request', `has the flags ${flags}`);
  const workerAddress = new Uint8Array(packed.subarray(REQUEST_BYTES));
  unpackWorkerAddress(workerAddress);
  return { clientId: flags === HAS_CLIENT_ID ? view.getBigUint64(8, true) : undefined, workerAddress };
}

/** Writes the data of a server. */
export function packAcceptData({ connectionId, windowBytes, workerAddress }: AcceptData): Uint8Array {
  const packed = begin(ACCEPTANCE_BYTES, workerAddress);
  const view = new DataView(packed.buffer);
  view.setUint32(4, connectionId, true);
  view.setBigUint64(8, BigInt(windowBytes), true);
  return packed;
}

/** Reads the data of a server; throws like {@link unpackConnectData}. */
export function unpackAcceptData(packed: Uint8Array): AcceptData {
  const view = viewOf(packed, ACCEPTANCE_BYTES, 'acceptance');
  const connectionId = view.getUint32(4, true);
  if (connectionId === 0 || connectionId > CONNECTION_ID_MAX) {
    throw malformed('acceptance', `names the connection ${connectionId}`);
  }
  const workerAddress = new Uint8Array(packed.subarray(ACCEPTANCE_BYTES));
  unpackWorkerAddress(workerAddress);
  return { connectionId, windowBytes: Number(view.getBigUint64(8, true)), workerAddress };
}

function begin(headerBytes: number, workerAddress: Uint8Array): Uint8Array<ArrayBuffer> {
  const packed = new Uint8Array(headerBytes + workerAddress.byteLength);
  packed[0] = VERSION;
  packed.set(workerAddress, headerBytes);
  return packed;
}

function viewOf(packed: Uint8Array, headerBytes: number, what: string): DataView {
  if (packed.byteLength < headerBytes) throw malformed(what, `has only ${packed.byteLength} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const version = view.getUint8(0);
  if (version !== VERSION) throw malformed(what, `has version ${version}, this library reads ${VERSION}`);
  return view;
}

function malformed(what: string, rule: string): UcxError {
  return new UcxError({
    code: 'ERR_CONNECT_MALFORMED',
    status: Status.INVALID_PARAM,
    message: `${what} to connect ${rule}`,
    details: { rule },
  });
}
