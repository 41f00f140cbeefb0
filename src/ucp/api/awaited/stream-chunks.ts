/** A stream as an async iterable: consecutive receives into one buffer, from which each chunk is copied. */

import { Status } from '../../../ucs/type/status.ts';

/** Bytes of the longest chunk. */
const CHUNK_BYTES_MAX = 65_536;

/** The part of an endpoint that reads its stream. */
export interface StreamSource {
  readonly status: Status;
  readonly closedByPeer: boolean | undefined;
  streamRecv(local: Uint8Array, options: { readonly signal?: AbortSignal | undefined }): Promise<number>;
}

/** Yields received bytes until the peer closes. Throws the failure of a receive in all other cases. */
export async function* streamChunks(
  source: StreamSource,
  options: { readonly signal?: AbortSignal | undefined },
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
