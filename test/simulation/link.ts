/** Pairs of endpoints, and the state of each end. The operations are in other files. */

import type { Endpoint } from '../../src/ucp/core/endpoint.ts';
import type { Status } from '../../src/ucs/type/status.ts';
import type { Actor } from './actor.ts';
import type { Entry } from './operation-checker.ts';

/** One end of a link. */
export class End {
  readonly id: number;
  readonly actor: Actor;
  readonly endpoint: Endpoint;
  /** The other end: itself if a worker communicates with itself; undefined if it has not been requested there. */
  peer: End | undefined = undefined;
  readonly peerActor: Actor;
  /** Operations that have not ended. */
  readonly open: Set<Entry> = new Set();
  readonly errors: Status[] = [];
  isClosing = false;
  isForced = false;
  isClosed = false;
  /** The hosts are separated. */
  isSevered = false;
  /** The peer has unmapped memory that operations may be accessing: the next flush may report it. */
  hasStale = false;
  /** Number of messages sent here. */
  sent = 0;

  constructor(id: number, actor: Actor, peerActor: Actor, endpoint: Endpoint) {
    this.id = id;
    this.actor = actor;
    this.peerActor = peerActor;
    this.endpoint = endpoint;
  }

  get isLoopback(): boolean {
    return this.actor === this.peerActor;
  }

  /** Whether operations can be started here. */
  get isUsable(): boolean {
    return this.actor.isActive && !this.isClosing;
  }

  /** Whether there is a reason for the connection to end without being closed here. */
  get mayBreak(): boolean {
    const { peerActor, peer } = this;
    return (
      this.isSevered || peerActor.host.isDead || peerActor.isClosing || (peer !== this && peer?.isClosing === true)
    );
  }

  /** Whether all messages sent here arrive. */
  get isReliable(): boolean {
    return !this.mayBreak && !this.isClosing && this.actor.isActive;
  }

  toString(): string {
    return `e${this.id}`;
  }
}
