/** Remote keys in messages of a peer: unpacked once, for lanes only. */

import type { ProtocolContext } from '../base/protocol-host.ts';
import type { Connection } from '../base/request/request.ts';
import type { RemoteKey } from '../mem/remote-key.ts';

/** A key of the peer, kept or unpacked now; `connection.rkeys.release` gives it back. Undefined for one that no lane can use. */
export function acquirePeerKey(
  context: ProtocolContext,
  connection: Connection,
  packed: Uint8Array,
): RemoteKey | undefined {
  try {
    return connection.rkeys.acquire(packed, (kept) => context.unpackRkey(kept, connection, { messages: false }));
  } catch {
    // Without a usable key, the bytes still come in messages.
    return undefined;
  }
}
