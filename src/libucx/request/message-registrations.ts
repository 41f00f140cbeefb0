/**
 * Memory handles for messages in memory that the program has not mapped. Without a handle, some versions of libucp end the process: they register such
 * memory for a rendezvous, and if the peer fails, search for the registration in their cache, which is off (openucx/ucx issue 11467).
 */

import { isUcxError } from '../../ucs/type/error.ts';
import type { Libucp } from '../c/library.ts';
import { mapByUcp } from '../mem/memory-map.ts';

/** Minor versions with this bug: from the first one that registers messages by its cache. 1.21 was seen to end the process; 1.13 and 1.22 were not. */
const FIRST_MINOR = 14;
const FIXED_MINOR = 22;
/** Shorter messages use a rendezvous only if a setting of the sender demands it. */
const BYTES_MIN = 1024;

/** The context of libucp. */
export interface RegistrationOwner {
  readonly libucp: Pick<Libucp, 'functions' | 'minor'>;
  readonly handle: number;
}

/** A memory handle for one message. */
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

export class MessageRegistrations {
  readonly #owner: RegistrationOwner;
  readonly #isNeeded: boolean;

  constructor(owner: RegistrationOwner) {
    this.#owner = owner;
    const { minor } = owner.libucp;
    this.#isNeeded = minor >= FIRST_MINOR && minor < FIXED_MINOR;
  }

  /** Whether a message in unmapped memory needs a handle. */
  needs(byteLength: number): boolean {
    return this.#isNeeded && byteLength >= BYTES_MIN;
  }

  /** Registers memory until its message ends; undefined if a device rejects it: libucp then does not use a rendezvous over that device either. */
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
