/** The hellos of an interface: what it states about itself, and whether it accepts what a peer states. The connector sends them; the interface decides which link they are for. */

import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import { Status } from '../../../ucs/type/status.ts';
import { sameSecret } from '../../base/key/keys.ts';
import { sendBytesMax, type TcpConfig } from '../config.ts';
import { Answer, type Hello } from './hello.ts';
import { Identity, isProven } from './identity.ts';

const NO_PROOF: Uint8Array = new Uint8Array(0);

/** Why an answer to a hello is not accepted. */
export interface HelloObjection {
  readonly status: Status;
  readonly reason: string;
}

/** The hellos of one interface. */
export class HelloPolicy {
  readonly #config: TcpConfig;
  readonly #warnings: LimitedLog;
  /** Created at first use, because generating the key pair takes time. */
  #identity: Identity | undefined = undefined;

  constructor(config: TcpConfig, warnings: LimitedLog) {
    this.#config = config;
    this.#warnings = warnings;
  }

  get #self(): Identity {
    this.#identity ??= new Identity();
    return this.#identity;
  }

  /** The id of the interface. */
  get id(): Uint8Array {
    return this.#self.id;
  }

  /** Whether the interface has connected to itself: the two ends are two links. */
  isOwn(peer: Hello): boolean {
    return sameSecret(peer.sender, this.#self.id);
  }

  /** Whether a connection of this interface is used if both ends have connected at the same time. The order of their ids determines that. */
  precedes(peer: Hello): boolean {
    return Buffer.compare(this.#self.id, peer.sender) < 0;
  }

  /** A hello to the interface `receiver`. */
  hello(receiver: Uint8Array, status: number): Hello {
    const { id: sender, publicKey } = this.#self;
    // A rejected peer has not proved its identity, so it receives no proof for that interface.
    const proof = status >= 0 ? this.#self.prove(receiver) : NO_PROOF;
    return { sender, receiver, status, messageBytesMax: this.#config.RX_SEG_SIZE, publicKey, proof };
  }

  /** WELCOME, or the status of the rejection of a peer that has connected. */
  acceptDecisionOn(peer: Hello): number {
    if (!sameSecret(peer.receiver, this.#self.id)) return Status.UNREACHABLE;
    if (!isProven(peer)) {
      this.#warnings.warn(
        'a connection from a peer is closed: it does not prove that it is the interface that it names',
      );
      return Status.REJECTED;
    }
    return peer.messageBytesMax < sendBytesMax(this.#config) ? Status.UNSUPPORTED : Answer.WELCOME;
  }

  /** The objection to the answer of a peer that must be the interface `peerId`; undefined if there is none. */
  objectionTo(peer: Hello, peerId: Uint8Array): HelloObjection | undefined {
    const isWanted = sameSecret(peer.sender, peerId) && isProven(peer);
    if (!isWanted) return { status: Status.UNREACHABLE, reason: 'another interface answers' };
    const { messageBytesMax } = peer;
    if (messageBytesMax >= sendBytesMax(this.#config)) return undefined;
    return { status: Status.UNSUPPORTED, reason: `it takes messages of ${messageBytesMax} bytes only` };
  }
}
