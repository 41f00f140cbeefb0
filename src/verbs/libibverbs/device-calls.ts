/** What the objects of an open device share: its functions, scratch memory for their arguments, the check of their results. The objects are in modules of their own. */

import { fcntl, lastErrno, type ScratchBlock, SyscallError } from '../../sys/index.ts';
import type { VerbsObject } from '../port.ts';
import type { LibibverbsFunctions } from './library.ts';

const F_GETFL = 3;
const F_SETFL = 4;
const O_NONBLOCK = 0o4000;

/** A function of the data path, from the table of the device. */
export type DataPathCall = (object: number, address: number, other: number) => number;

/** State that the objects of a device share. */
export interface Device {
  readonly functions: LibibverbsFunctions;
  readonly context: number;
  readonly scratch: ScratchBlock;
  readonly postSend: DataPathCall;
  readonly postReceive: DataPathCall;
  readonly postSrqReceive: DataPathCall;
  /** Arguments: the queue, the maximum number of completions, and the address where they are written. */
  readonly pollCq: DataPathCall;
  readonly requestNotify: (cq: number, solicitedOnly: number) => number;
}

/** Checks a pointer that a function has returned. @throws SyscallError with the errno of the function if the pointer is 0 */
export function pointerOf(result: number, call: string, what: string): number {
  if (result === 0) throw new SyscallError(call, lastErrno(), what);
  return result;
}

/** @throws SyscallError with the errno that a function has returned, unless it is 0 */
export function check(errno: number, call: string, what: string): void {
  if (errno !== 0) throw new SyscallError(call, errno < 0 ? -errno : errno, what);
}

/** An object of the library, destroyed once. */
export class Destroyable implements VerbsObject {
  readonly pointer: number;
  readonly #destroy: (pointer: number) => number;
  #closed = false;

  constructor(pointer: number, destroy: (pointer: number) => number) {
    this.pointer = pointer;
    this.#destroy = destroy;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#destroy(this.pointer);
  }
}

/** Makes a descriptor of the library non-blocking. */
export function setNonblocking(fd: number): void {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
}
