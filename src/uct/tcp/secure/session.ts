/** What two ends have agreed on: the keys of both directions, and how each shows that what it says first is its own. No socket. */

import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Security } from './security.ts';

const MAC_BYTES = 32;

/** Bytes of the keys of one direction. */
export const SESSION_KEY_BYTES: number = MAC_BYTES;

/** The keys of what one end sends. */
export interface DirectionKeys {
  /** For the introduction. */
  readonly mac: Buffer;
}

/** What was agreed on for one connection. */
export class Session {
  readonly level: Security['level'];
  readonly #own: DirectionKeys;
  readonly #peer: DirectionKeys;

  constructor(level: Security['level'], own: DirectionKeys, peer: DirectionKeys) {
    this.level = level;
    this.#own = own;
    this.#peer = peer;
  }

  /** Cuts {@link SESSION_KEY_BYTES} into keys. */
  static cut(bytes: Buffer): DirectionKeys {
    return { mac: bytes.subarray(0, MAC_BYTES) };
  }

  /** Bytes that an introduction becomes longer by. */
  get overheadBytes(): number {
    return MAC_BYTES;
  }

  /** The first message of this end as it is sent: nobody else can have made it, and it fits no other connection. */
  sealIntroduction(introduction: Uint8Array): Uint8Array {
    return Buffer.concat([introduction, macOf(this.#own, introduction)]);
  }

  /** The first message of the peer; undefined where it is not the peer's. */
  openIntroduction(sealed: Uint8Array): Uint8Array | undefined {
    const introduction = sealed.subarray(0, sealed.byteLength - MAC_BYTES);
    const mac = Buffer.from(sealed.subarray(introduction.byteLength));
    const expected = macOf(this.#peer, introduction);
    return mac.byteLength === MAC_BYTES && timingSafeEqual(mac, expected) ? introduction : undefined;
  }
}

function macOf({ mac }: DirectionKeys, introduction: Uint8Array): Buffer {
  return createHmac('sha256', mac).update(introduction).digest();
}
