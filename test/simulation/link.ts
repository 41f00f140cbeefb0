/** Pairs of endpoints, and what each end knows of itself. What runs over them is in the files of the operations. */

import type { Endpoint } from '../../src/ucp/core/endpoint.ts';
import type { Status } from '../../src/ucs/type/status.ts';
import type { Entry } from './ledger.ts';
import type { Player } from './player.ts';

/** One end of a link. */
export class End {
  readonly id: number;
  readonly player: Player;
  readonly endpoint: Endpoint;
  /** The other end: itself where a worker speaks with itself; undefined where nobody there has asked for it. */
  peer: End | undefined = undefined;
  readonly peerPlayer: Player;
  /** What runs here and has not ended. */
  readonly open: Set<Entry> = new Set();
  readonly errors: Status[] = [];
  isClosing = false;
  isForced = false;
  isClosed = false;
  /** The hosts do not hear of each other any more. */
  isSevered = false;
  /** The peer has taken back memory that operations may be on their way to: whoever flushes next may be told. */
  hasStale = false;
  /** Order of what is sent here. */
  sent = 0;

  constructor(id: number, player: Player, peerPlayer: Player, endpoint: Endpoint) {
    this.id = id;
    this.player = player;
    this.peerPlayer = peerPlayer;
    this.endpoint = endpoint;
  }

  get isLoopback(): boolean {
    return this.player === this.peerPlayer;
  }

  /** Whether operations can be started here. */
  get isUsable(): boolean {
    return this.player.isActive && !this.isClosing;
  }

  /** Whether there is a reason for the connection to end without being closed here. */
  get mayBreak(): boolean {
    const { peerPlayer, peer } = this;
    return (
      this.isSevered || peerPlayer.host.isDead || peerPlayer.isClosing || (peer !== this && peer?.isClosing === true)
    );
  }

  /** Whether everything that is sent here arrives. */
  get isReliable(): boolean {
    return !this.mayBreak && !this.isClosing && this.player.isActive;
  }

  toString(): string {
    return `e${this.id}`;
  }
}
