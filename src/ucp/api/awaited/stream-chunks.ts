/** A stream as an async iterable: one receive after the other, into memory that each chunk is copied out of. */

import { Status } from '../../../ucs/type/status.ts';

/** Bytes of the longest chunk. */
const CHUNK_BYTES_MAX = 65_536;

/** An endpoint, as far as its stream goes. */
export interface StreamSource {
  readonly status: Status;
  readonly closedByPeer: boolean | undefined;
  streamRecv(local: Uint8Array, options: { readonly signal?: AbortSignal }): Promise<number>;
}

/** Yields what arrives until the peer closes. Throws what the receive throws for every other end. */
export async function* streamChunks(
  source: StreamSource,
  options: { readonly signal?: AbortSignal },
): AsyncGenerator<Uint8Array, void, void> {
  const room = new Uint8Array(CHUNK_BYTES_MAX);
  for (;;) {
    let byteLength: number;
    try {
      byteLength = await source.streamRecv(room, options);
    } catch (error) {
      const isEnd = source.status === Status.CONNECTION_RESET && source.closedByPeer !== false;
      if (isEnd && options.signal?.aborted !== true) return;
      throw error;
    }
    yield room.slice(0, byteLength);
  }
}
