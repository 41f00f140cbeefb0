/** A client of the store that connects again after the server has restarted. */

import { setTimeout } from 'node:timers/promises';
import { type Endpoint, isUcxError, type RemoteKey, Status, type Worker } from '../../src/index.ts';

/** Id of the active message that asks for the remote key. */
export const HELLO = 1;
/** Length of its header: the tag of the answer. */
export const HELLO_BYTES = 4;
export const STORE_BYTES: number = 2 ** 20;
const CONNECT_MS = 1000;
const PAUSE_MS = 50;
/** How operations end whose connection has. */
const ENDED: readonly Status[] = [Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT];
/** More than a packed remote key has. */
const KEY_BYTES = 4096;

/** What a connection consists of, and what is lost with it. */
interface Session {
  readonly endpoint: Endpoint;
  readonly store: RemoteKey;
}

/** Writes and reads the store. Several calls can be in flight; they share one connection. */
export class StoreClient {
  readonly #worker: Worker;
  readonly #port: number;
  #session: Promise<Session> | undefined;
  #hellos = 0;

  constructor(worker: Worker, port: number) {
    this.#worker = worker;
    this.#port = port;
  }

  /** Resolves when the bytes are in the store. */
  write(remoteOffset: number, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#run(signal, async ({ endpoint, store }) => {
      await endpoint.put(bytes, store, { remoteOffset, signal });
      await endpoint.flush({ signal }); // a put that was only started is lost with the connection
    });
  }

  /** Fills the bytes from the store. */
  read(remoteOffset: number, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    return this.#run(signal, async ({ endpoint, store }) => {
      await endpoint.get(bytes, store, { remoteOffset, signal });
    });
  }

  /** Repeats an operation on new connections until the signal fires. Writes and reads of the same bytes may be repeated. */
  async #run(signal: AbortSignal, operation: (session: Session) => Promise<void>): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      this.#session ??= this.#open();
      const used = this.#session;
      try {
        await operation(await used);
        return;
      } catch (error) {
        if (!(await isLost(error, used))) throw error;
        if (this.#session === used) this.#session = undefined;
        await setTimeout(PAUSE_MS);
      }
    }
  }

  /** Everything that a new process of the server needs: a connection to it, and the key of its memory, unpacked for that connection. */
  async #open(): Promise<Session> {
    const signal = AbortSignal.timeout(CONNECT_MS);
    const endpoint = await this.#worker.connect({ port: this.#port, host: '127.0.0.1', signal });
    try {
      const tag = ++this.#hellos;
      const header = Buffer.alloc(HELLO_BYTES);
      header.writeUInt32LE(tag);
      await endpoint.amSend(HELLO, new Uint8Array(0), { header, signal });
      const packed = new Uint8Array(KEY_BYTES);
      const { byteLength } = await this.#worker.tagRecv(packed, { tag, signal });
      return { endpoint, store: endpoint.unpackRkey(packed.subarray(0, byteLength)) };
    } catch (error) {
      await endpoint.close({ force: true });
      throw error;
    }
  }
}

/** Whether an operation failed because its connection was not established or has ended. One that has ended is closed, with its keys. */
async function isLost(error: unknown, session: Promise<Session>): Promise<boolean> {
  const opened = await session.catch(() => undefined);
  if (opened === undefined) return isUcxError(error) || (error as Error).name === 'TimeoutError';
  const { endpoint } = opened;
  // An operation may notice before the endpoint does.
  const isEnded = isUcxError(error) && ENDED.includes(error.status);
  if (!isEnded && !endpoint.closed && endpoint.status === Status.OK) return false;
  await endpoint.close({ force: true });
  return true;
}
