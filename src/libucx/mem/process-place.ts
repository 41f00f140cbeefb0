/** Where a process runs, in addresses and keys of this engine: the boot of its machine, its namespaces, its identity. It grants no permission. */

import {
  bootId,
  hasEnded,
  ipcNamespace,
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  unpackIdentity,
} from '../../sys/index.ts';

/** 16 bytes boot id, u32 namespace of System V segments, 4 bytes of zeros, then the identity. */
const AT = { BOOT: 0, IPC_NAMESPACE: 16, IDENTITY: 24 } as const;

/** Bytes of a packed place. */
export const PLACE_BYTES: number = AT.IDENTITY + PROCESS_IDENTITY_BYTES;

let own: Uint8Array | undefined;

/** The packed place of this process. Throws SyscallError without /proc, or EMFILE the first time. */
export function ownPlace(): Uint8Array {
  if (own === undefined) {
    const bytes = new Uint8Array(PLACE_BYTES);
    bytes.set(bootId(), AT.BOOT);
    new DataView(bytes.buffer).setUint32(AT.IPC_NAMESPACE, ipcNamespace(), true);
    packIdentity(ownIdentity(), bytes, AT.IDENTITY);
    own = bytes;
  }
  return own;
}

/** The place of a process. */
export class ProcessPlace {
  readonly process: ProcessIdentity;
  /** Whether it runs on this machine, and its process id means the same here. */
  readonly isNear: boolean;
  /** Whether it also has the same System V segments. */
  readonly sharesSegments: boolean;

  /** @param packed {@link PLACE_BYTES} */
  constructor(packed: Uint8Array) {
    const mine = ownPlace();
    const isSame = (begin: number, end: number): boolean =>
      Buffer.compare(packed.subarray(begin, end), mine.subarray(begin, end)) === 0;
    this.process = unpackIdentity(packed, AT.IDENTITY);
    this.isNear = isSame(AT.BOOT, AT.IPC_NAMESPACE) && this.process.pidNamespace === ownIdentity().pidNamespace;
    this.sharesSegments = this.isNear && isSame(AT.IPC_NAMESPACE, AT.IDENTITY);
  }

  /** Whether the process has certainly ended. */
  get hasEnded(): boolean {
    return this.isNear && hasEnded(this.process);
  }
}
