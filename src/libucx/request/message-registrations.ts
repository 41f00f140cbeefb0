/**
 * Memory handles for messages in memory that the program has not mapped. Some versions of libucp end the process otherwise: they register such memory for a
 * rendezvous themselves, and if its peer fails, they look for the registration in their cache, which is off (openucx/ucx issue 11467).
 */

import { isUcxError } from '../../ucs/type/error.ts';
import type { Libucp } from '../c/library.ts';
import { mapByUcp } from '../mem/memory-map.ts';

/** Minor versions with this fault: from the one that registers messages by its cache on. 1.21 was seen to end the process, 1.13 and 1.22 were not. */
const FIRST_MINOR = 14;
const FIXED_MINOR = 22;
/** Shorter messages go by rendezvous only if a setting of the sender demands it. */
const BYTES_MIN = 1024;

/** The context of libucp. */
export interface RegistrationOwner {
  readonly libucp: Pick<Libucp, 'functions' | 'minor'>;
  /** The handle of libucp. */
  readonly handle: number;
}

/** A handle for one message. */
export class Registration {
  readonly memh: number;
  readonly #owner: RegistrationOwner;

  constructor(owner: RegistrationOwner, memh: number) {
    this.#owner = owner;
    this.memh = memh;
  }

  free(): void {
    const { libucp, handle } = this.#owner;
    libucp.functions.ucp_mem_unmap(handle, this.memh);
  }
}

/** The registrations of one worker. */
export class MessageRegistrations {
  readonly #owner: RegistrationOwner;
  readonly #isNeeded: boolean;

  constructor(owner: RegistrationOwner) {
    this.#owner = owner;
    const { minor } = owner.libucp;
    this.#isNeeded = minor >= FIRST_MINOR && minor < FIXED_MINOR;
  }

  /** Whether a message in memory without a handle needs one. */
  needs(byteLength: number): boolean {
    return this.#isNeeded && byteLength >= BYTES_MIN;
  }

  /** Registers memory until the end of its message; undefined if a device does not accept it: libucp then does not use a rendezvous of that device either. */
  register(address: number, byteLength: number): Registration | undefined {
    const { libucp, handle } = this.#owner;
    try {
      return new Registration(this.#owner, mapByUcp(libucp.functions, handle, { address, byteLength }));
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return undefined;
    }
  }
}
