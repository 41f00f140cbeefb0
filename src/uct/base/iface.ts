/**
 * Parts of interfaces that several transports share: random unique addresses of interfaces that are reachable in one context only, the list of open interfaces
 * of a memory domain, and a base class of endpoints without messages and atomic operations, whose calls return UNSUPPORTED.
 */

import { isBytes } from '../../ucs/memory/bytes.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Iface } from '../api/iface.ts';

/** Bytes of {@link uniqueAddress}. */
export const UNIQUE_ADDRESS_BYTES = 16;

/** Creates a unique address. */
export function uniqueAddress(): Uint8Array {
  return systemRandomBytes(UNIQUE_ADDRESS_BYTES);
}

/** The identity of an interface as text, as in {@link AmFrame.source}. */
export function identityText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

/** Whether two addresses have the same bytes; false if the first is not a Uint8Array. */
export function sameAddress(left: Uint8Array, right: Uint8Array): boolean {
  if (!isBytes(left)) return false;
  return left.byteLength === right.byteLength && left.every((byte, i) => byte === right[i]);
}

/** The error for an unreachable address. */
export function unreachable(transport: string, reason: string): UcxError {
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `${transport}: ${reason}`,
    details: { transport, reason },
  });
}

/** An interface that reports whether it is closed. */
export interface ClosableIface extends Iface {
  readonly closed: boolean;
}

/** The interfaces in the order in which they were opened. */
export class OpenIfaces<T extends ClosableIface> {
  #ifaces: T[] = [];

  /** Adds an interface, and releases those that have been closed: otherwise every closed worker would stay in memory. */
  add(iface: T): T {
    this.#ifaces = [...this.#ifaces.filter(({ closed }) => !closed), iface];
    return iface;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#ifaces[Symbol.iterator]();
  }

  close(): void {
    for (const iface of this.#ifaces) iface.close();
  }
}

/** Base class of endpoints that have only put and get. */
export abstract class RmaOnlyEndpoint {
  amShort(): Status {
    return Status.UNSUPPORTED;
  }

  amBcopy(): Status {
    return Status.UNSUPPORTED;
  }

  atomic(): Status {
    return Status.UNSUPPORTED;
  }

  /** The peer is this process, so it is always reachable. */
  check(): Status {
    return Status.OK;
  }
}
