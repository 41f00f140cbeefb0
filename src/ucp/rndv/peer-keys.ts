/** Keys that messages of a peer bring: unpacked once, for the lanes alone. */

import type { ProtocolContext } from '../base/protocol-host.ts';
import type { Connection } from '../base/request.ts';
import type { RemoteKey } from '../mem/remote-key.ts';

/** A key of the peer, from before or unpacked now; `connection.rkeys.release` gives it back. Undefined for one that no lane can use. */
export function acquirePeerKey(
  context: ProtocolContext,
  connection: Connection,
  packed: Uint8Array,
): RemoteKey | undefined {
  try {
    return connection.rkeys.acquire(packed, () => context.unpackRkey(packed, connection, { messages: false }));
  } catch {
    // Whatever is wrong with the key of the peer: the bytes can still come in messages.
    return undefined;
  }
}
