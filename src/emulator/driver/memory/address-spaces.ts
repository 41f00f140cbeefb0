/**
 * The address spaces of the processes that pin memory through one file: a descriptor for each, open until nothing of it is pinned any more. It copies nothing.
 */

import { close, Errno, isSyscallError, openAddressSpace, SyscallError } from '../../../sys/index.ts';

/** An address space in use. */
export interface AddressSpace {
  /** For readAddressSpace and writeAddressSpace. */
  readonly space: number;
  /** Gives it back. */
  release(): void;
}

/** One that is open. */
interface OpenSpace {
  readonly space: number;
  users: number;
}

/** The open address spaces, by process. */
export class AddressSpaces {
  readonly #known: Map<number, OpenSpace> = new Map();

  /**
   * The address space of a process, until `release`.
   * @param tid the running thread that pins
   * @param isThere whether the memory to pin is accessible in a space: in the one known of this process it is not, if the process has started another program
   * or has the number of an earlier one
   * @returns undefined if the process refuses access: EFAULT
   * @throws SyscallError ENOMEM if this process has no descriptor for it
   */
  acquire(process: number, tid: number, isThere: (space: number) => boolean): AddressSpace | undefined {
    let open = this.#known.get(process);
    if (open === undefined || !isThere(open.space)) {
      const space = openSpace(tid);
      if (space === undefined) return undefined;
      open = { space, users: 0 };
      this.#known.set(process, open);
    }
    const used = open;
    used.users += 1;
    return { space: used.space, release: () => this.#release(process, used) };
  }

  #release(process: number, open: OpenSpace): void {
    open.users -= 1;
    if (open.users > 0) return;
    if (this.#known.get(process) === open) this.#known.delete(process);
    close(open.space);
  }
}

function openSpace(tid: number): number | undefined {
  try {
    return openAddressSpace(tid);
  } catch (error) {
    if (!isSyscallError(error, Errno.EMFILE) && !isSyscallError(error, Errno.ENFILE)) return undefined;
    throw new SyscallError('pin', Errno.ENOMEM, `the memory of thread ${tid}`, error);
  }
}
