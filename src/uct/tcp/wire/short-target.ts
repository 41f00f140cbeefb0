/** The destination of a short get: a buffer of the program that is not registered, so its bytes are copied and not received directly. */

import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { IovEntry } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { TCP_NAME } from './tcp-key.ts';

const NO_BYTES: Uint8Array = new Uint8Array(0);

/** The buffer, which later gets set anew. */
export class ShortTarget implements MdMemory {
  readonly mdName: string = TCP_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly address = 0n;
  /** The buffer may move, so it has no address for system calls. */
  readonly location = 0;
  readonly generation = 0;
  readonly live = true;
  bytes: Uint8Array = NO_BYTES;
  inFlight = 0;

  get byteLength(): number {
    return this.bytes.byteLength;
  }
}

/** An entry of the local side of a put or get that the peer answers. */
export interface TcpIovEntry extends IovEntry {
  readonly memory: HostMemory | ShortTarget;
}
