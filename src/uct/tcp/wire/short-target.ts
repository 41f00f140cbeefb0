/** Where the bytes of a short get go: a buffer of the program that is not registered, so that nothing is received straight into it. */

import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { MdMemory } from '../../api/memory.ts';
import { TCP_NAME } from './tcp-key.ts';

/** The buffer. */
export class ShortTarget implements MdMemory {
  readonly mdName: string = TCP_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly address = 0n;
  /** Its bytes may move: they have no address for system calls. */
  readonly location = 0;
  readonly generation = 0;
  readonly live = true;
  readonly bytes: Uint8Array;
  inFlight = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  get byteLength(): number {
    return this.bytes.byteLength;
  }
}
