/**
 * Peers of `gaudi-ucx explain --peer <address>`: `explain --serve` on another host sends the remote key of its memory to every worker that requests it. The
 * request and the reply are active messages.
 */

import { isIPv6 } from 'node:net';
import type { Endpoint } from '../../api/contract/endpoint.ts';
import { type ConnectionRequest, printSocketAddress } from '../../api/contract/listener.ts';
import type { MemoryHandle } from '../../api/contract/memory.ts';
import type { Worker } from '../../api/contract/worker.ts';
import type { Context } from '../../assembly/context.ts';
import { invalidParam, isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** Active message ids of the request and the reply. */
const QUESTION_ID = 1;
const ANSWER_ID = 2;
const TIMEOUT_MS = 5000;
const PORT_MAX = 65_535;
/** Minimum length of a string that is parsed as a worker address. */
const ADDRESS_LENGTH_MIN = 64;

/** Address of a peer: a listener, or a worker address. */
export type PeerPlace = { readonly host: string; readonly port: number } | { readonly workerAddress: Uint8Array };

/** Reads `host:port`, `[::1]:port` or a worker address in base64url; undefined for any other string. */
export function peerPlaceOf(text: string): PeerPlace | undefined {
  const { host, port } = splitAddress(text) ?? {};
  if (host !== undefined && port !== undefined) return port >= 1 && port <= PORT_MAX ? { host, port } : undefined;
  const isAddress = text.length >= ADDRESS_LENGTH_MIN && /^[\w-]+$/.test(text);
  return isAddress ? { workerAddress: new Uint8Array(Buffer.from(text, 'base64url')) } : undefined;
}

/** A numeric address and a port, 0 for any free port. @throws UcxError ERR_INVALID_PARAM */
export function servedAt(text: string): { readonly address: string; readonly port: number } {
  const { host: address, port = 0 } = splitAddress(text) ?? {};
  if (address === undefined || port > PORT_MAX)
    throw invalidParam('serve', 'must be a numeric address, with or without a port', text);
  return { address, port };
}

/** The host without its brackets, and the port if there is one (for IPv6 only after brackets); undefined for any other string. */
function splitAddress(text: string): { readonly host: string; readonly port?: number } | undefined {
  if (isIPv6(text)) return { host: text };
  const match = /^(\[[^\]]+\]|[^:[\]]+)(?::(\d{1,5}))?$/.exec(text);
  if (match === null) return undefined;
  const host = match[1]!.replace(/^\[|\]$/g, '');
  return match[2] === undefined ? { host } : { host, port: Number(match[2]) };
}

/** Accepts a client until it leaves. If that fails, the client gets the reason, and the others stay connected. */
function accept(request: ConnectionRequest): void {
  try {
    request.accept({ onError: (client) => void client.close() });
  } catch (error) {
    if (!isUcxError(error)) throw error;
  }
}

/**
 * Replies to requests for the remote key until the signal fires.
 * @param tell called with one line for each address of this peer
 */
export async function serveMemory(
  context: Context,
  memory: MemoryHandle,
  at: { readonly address: string; readonly port: number },
  { signal, tell }: { readonly signal: AbortSignal; readonly tell: (line: string) => void },
): Promise<void> {
  const worker = context.worker();
  const key = context.packRkey(memory);
  worker.setAmHandler(QUESTION_ID, (message) => {
    // A client that has closed its endpoint needs no reply.
    message.replyEndpoint.amSend(ANSWER_ID, key).catch(() => {});
  });
  const listener = worker.listener({ ...at, onConnection: accept });
  tell(`--peer ${printSocketAddress(listener.query())}`);
  tell(`--peer ${Buffer.from(worker.address()).toString('base64url')}`);
  await worker.serve(signal);
  await listener.close();
}

/**
 * Connects to a peer and requests the remote key of its memory.
 * @throws UcxError ERR_UNREACHABLE with the reason of every transport; TIMED_OUT without a reply, as from any other program; errors of connecting
 */
export async function askPeer(
  worker: Worker,
  place: PeerPlace,
): Promise<{ readonly endpoint: Endpoint; readonly key: Uint8Array }> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const answers = worker.messages(ANSWER_ID, { signal });
  try {
    const endpoint =
      'workerAddress' in place ? worker.endpoint(place.workerAddress) : await worker.connect({ ...place, signal });
    await endpoint.amSend(QUESTION_ID, new Uint8Array(0), { signal });
    for await (const message of answers) return { endpoint, key: await message.bytes({ signal }) };
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  const advice = 'run gaudi-ucx explain --serve <address> there';
  throw statusError(Status.TIMED_OUT, `no reply from the peer within ${TIMEOUT_MS / 1000} s: ${advice}`);
}
