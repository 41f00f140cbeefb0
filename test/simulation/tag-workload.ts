/**
 * The workload of tagged messages: sends, synchronous sends, receives with every kind of mask, probes. It compares received messages with sent ones, and
 * with the rules of matching: no message overtakes another of the same sender, and no receive an earlier one.
 */

import type { Request } from '../../src/api/contract/request.ts';
import { Status, statusName } from '../../src/ucs/type/status.ts';
import type { Actor } from './actor.ts';
import type { End } from './link.ts';
import { LocalSpace } from './local-memory.ts';
import type { Entry } from './operation-checker.ts';
import { differenceOf, ID_BYTES, idOf, payload } from './payload.ts';
import type { Schedule } from './schedule.ts';

/** Messages whose tag has no number are short, so that they fit into every receive. */
const PLAIN_BYTES_MAX = 32;
const CLASSES = 3;
const CLASS_MASK = 0xffn;
const FULL_MASK = 0xffff_ffff_ffff_ffffn;
const ID_SHIFT = 32n;

interface Message {
  readonly id: number;
  readonly from: End;
  readonly tag: bigint;
  readonly byteLength: number;
  readonly order: number;
  readonly isSync: boolean;
  /** Status of the send. */
  status: Status | undefined;
  receive: Receive | undefined;
}

interface Receive {
  readonly actor: Actor;
  readonly tag: bigint;
  readonly mask: bigint;
  /** When it was posted, or its message was removed by a probe. */
  readonly order: number;
  entry: Entry | undefined;
  message: Message | undefined;
  status: Status | undefined;
  /** It was still posted at the end. */
  isLeft: boolean;
}

/** Tagged messages of one schedule. */
export class TagWorkload {
  readonly #schedule: Schedule;
  readonly #messages: Map<number, Message> = new Map();
  readonly #receives: Receive[] = [];
  #order = 0;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
  }

  send(end: End, byteLength: number): void {
    const schedule = this.#schedule;
    const id = schedule.newId();
    const kind = BigInt(schedule.random.below(CLASSES));
    const isPlain = byteLength >= ID_BYTES && byteLength <= PLAIN_BYTES_MAX && schedule.isOneOf(2);
    const isSync = schedule.isOneOf(4);
    const tag = isPlain ? kind : (BigInt(id) << ID_SHIFT) | kind;
    const message: Message = {
      id,
      from: end,
      tag,
      byteLength,
      order: end.sent++,
      isSync,
      status: undefined,
      receive: undefined,
    };
    this.#messages.set(id, message);
    const space = new LocalSpace(schedule, end.actor, byteLength, true);
    space.fill(payload(id, byteLength));
    const name = `tag ${isSync ? 'sync ' : ''}m${id} ${end} ${byteLength}${space.kind} ${tag.toString(16)}`;
    const onEnd = (status: Status): void => {
      message.status = status;
      if (status === Status.OK && isSync && space.isHost) this.#checkSync(message);
      space.spend();
    };
    schedule.start({ name, actor: end.actor, end, isWithdrawable: true, onEnd }, (params) => {
      const { endpoint } = end;
      const { local, offset, length } = space;
      return isSync
        ? endpoint.tagSendSyncNbx(local, offset, length, tag, params)
        : endpoint.tagSendNbx(local, offset, length, tag, params);
    });
  }

  receive(actor: Actor, wildcard = false): void {
    const schedule = this.#schedule;
    const kind = BigInt(schedule.random.below(CLASSES));
    const mask = wildcard ? 0n : schedule.pick([FULL_MASK, CLASS_MASK, CLASS_MASK, 0n]);
    const receive = this.#newReceive(actor, kind, mask);
    const byteLength = wildcard || schedule.random.below(4) > 0 ? schedule.variation.bytesMax : PLAIN_BYTES_MAX * 2;
    this.#post(receive, byteLength, `tag receive ${kind}/${mask.toString(16)}`, (space, params) =>
      actor.worker.tagRecvNbx(space.local, space.offset, space.length, kind, mask, params),
    );
  }

  /** Probes for a message, and removes it or not. */
  probe(actor: Actor): void {
    const schedule = this.#schedule;
    const kind = BigInt(schedule.random.below(CLASSES));
    const mask = schedule.pick([FULL_MASK, CLASS_MASK, 0n]);
    const takes = schedule.isOneOf(2);
    const found = actor.worker.tagProbe(kind, mask, takes);
    schedule.note(`${actor} probes ${kind}/${mask.toString(16)}: ${found?.senderTag.toString(16)}`);
    if (found === undefined) return;
    if ((found.senderTag & mask) !== (kind & mask))
      schedule.fail(`${actor} found ${found.senderTag} for ${kind}/${mask}`);
    if (!takes) return;
    const receive = this.#newReceive(actor, kind, mask);
    const room = found.byteLength + schedule.random.below(8);
    this.#post(receive, room, `tag receive of a probed message`, (space, params) =>
      actor.worker.tagMessageRecvNbx(space.local, space.offset, space.length, found, params),
    );
  }

  /** Whether there is a message that a live worker has not received and will receive. */
  expects(actor: Actor): boolean {
    const isAwaited = ({ from, receive, status }: Message): boolean =>
      receive === undefined && status === undefined && from.peerActor === actor && from.actor.isRunning;
    return this.#left(actor).length > 0 || [...this.#messages.values()].some(isAwaited);
  }

  /** Cancels the receives of a worker that have no message. */
  cancelReceives(actor: Actor): void {
    for (const receive of this.#receives) {
      const { entry, actor: owner, status } = receive;
      if (owner !== actor || status !== undefined || entry === undefined) continue;
      // A receive that a transport works on, also for a lost peer, cannot be cancelled; it ends with its transport.
      receive.isLeft = this.#schedule.checker.cancel(entry);
    }
  }

  /** Checks the matching of every live worker. */
  check(): void {
    for (const actor of this.#schedule.actors) {
      if (!actor.isActive) continue;
      const receives = this.#receives.filter((receive) => receive.actor === actor);
      for (const receive of receives) this.#checkReceive(receive, receives);
      for (const message of this.#left(actor)) this.#schedule.fail(`m${message.id} never came`);
    }
    for (const message of this.#messages.values()) {
      if (message.status === Status.OK && message.isSync) this.#checkSync(message);
    }
  }

  #newReceive(actor: Actor, tag: bigint, mask: bigint): Receive {
    const order = this.#order++;
    const receive = {
      actor,
      tag,
      mask,
      order,
      entry: undefined,
      message: undefined,
      status: undefined,
      isLeft: false,
    };
    this.#receives.push(receive);
    return receive;
  }

  #post(
    receive: Receive,
    byteLength: number,
    name: string,
    run: (space: LocalSpace, params: Parameters<Parameters<Schedule['start']>[1]>[0]) => Status | Request,
  ): void {
    const schedule = this.#schedule;
    const { actor } = receive;
    const space = new LocalSpace(schedule, actor, byteLength, true);
    const excuses = (status: Status): boolean => {
      const isBreak = status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
      // A failed sender unmaps its memory.
      const isLost = isBreak || status === Status.CANCELED || status === Status.INVALID_ADDR;
      if (isLost) return schedule.ends.some((end) => end.actor === actor && !end.isReliable) || this.#hasUnasked(actor);
      return status === Status.MESSAGE_TRUNCATED;
    };
    const onEnd = (status: Status, request: Request | undefined): void => {
      receive.status = status;
      this.#arrived(receive, status, request!, space);
      space.release();
    };
    const options = { name: `${name} ${byteLength}${space.kind}`, actor, excuses, needsRequest: true, onEnd };
    receive.entry = schedule.start(options, (params) => run(space, params));
  }

  /** Whether there may be a connection to the worker that it has not requested. */
  #hasUnasked(actor: Actor): boolean {
    return this.#schedule.ends.some(
      (end) => end.peerActor === actor && (end.hasStale || end.isClosing || !end.actor.isActive || end.isSevered),
    );
  }

  #arrived(receive: Receive, status: Status, request: Request, space: LocalSpace): void {
    if (status === Status.CANCELED) return;
    const schedule = this.#schedule;
    const { senderTag, receivedBytes } = request;
    if ((senderTag & receive.mask) !== (receive.tag & receive.mask)) {
      schedule.fail(`${receive.entry} got a message of tag ${senderTag.toString(16)}`);
    }
    const bytes = space.read();
    const plain = senderTag >> ID_SHIFT === 0n;
    const id = plain ? idOf(bytes) : Number(senderTag >> ID_SHIFT);
    const message = this.#messages.get(id);
    if (message === undefined) {
      if (status === Status.OK) schedule.fail(`${receive.entry} got message ${id}, which was not sent`);
      return;
    }
    schedule.note(`${receive.actor} got m${id}: ${statusName(status)}`);
    this.#match(receive, message);
    if (receivedBytes !== message.byteLength)
      schedule.fail(`m${id} of ${message.byteLength} bytes came as ${receivedBytes}`);
    const isTruncated = message.byteLength > space.byteLength;
    if (isTruncated !== (status === Status.MESSAGE_TRUNCATED) && status !== Status.CONNECTION_RESET) {
      if (status !== Status.ENDPOINT_TIMEOUT)
        schedule.fail(`m${id} came with ${statusName(status)} into ${space.byteLength}`);
    }
    if (status !== Status.OK) return;
    const difference = differenceOf(bytes.subarray(0, receivedBytes), payload(id, message.byteLength));
    if (difference !== undefined) schedule.fail(`m${id} from ${message.from} came wrong: ${difference}`);
    if (space.isTouchedBehind(receivedBytes)) schedule.fail(`m${id} was written beyond its end`);
  }

  #match(receive: Receive, message: Message): void {
    const schedule = this.#schedule;
    if (message.receive !== undefined) schedule.fail(`m${message.id} came twice`);
    if (message.from.peerActor !== receive.actor) schedule.fail(`m${message.id} came to ${receive.actor}`);
    if (message.status === Status.CANCELED && !message.from.isForced && !message.from.actor.isClosing) {
      schedule.fail(`m${message.id} was taken back, and came`);
    }
    message.receive = receive;
    receive.message = message;
  }

  #checkSync(message: Message): void {
    const { from, receive } = message;
    const { peerActor } = from;
    if (receive !== undefined || peerActor.host.isDead || peerActor.isClosing || this.#schedule.variation.hasCard)
      return;
    // A rendezvous may end at its sender before its receiver is notified; a receiver that closes the connection never is.
    const isMatched = this.#receives.some(({ actor, status, isLeft }) => {
      const isGivenUp = status !== undefined && status !== Status.OK && from.peer?.isForced === true && !isLeft;
      return actor === peerActor && (status === undefined || isGivenUp);
    });
    if (!isMatched) this.#schedule.fail(`m${message.id} ended at its sender, and was not received`);
  }

  #checkReceive(receive: Receive, receives: readonly Receive[]): void {
    const { message } = receive;
    if (message === undefined) return;
    const fits = ({ tag, mask }: Receive, { tag: sent }: Message): boolean => (tag & mask) === (sent & mask);
    for (const other of this.#messages.values()) {
      const isEarlier = other.from === message.from && other.order < message.order && fits(receive, other);
      if (!isEarlier || other.status === Status.CANCELED) continue;
      if (other.status !== undefined && other.status < 0) continue;
      if (other.receive === undefined && !message.from.isReliable) continue;
      if (other.receive === undefined || other.receive.order > receive.order) {
        this.#schedule.fail(`m${message.id} overtook m${other.id}`);
      }
    }
    for (const other of receives) {
      if (other.order >= receive.order || !fits(other, message)) continue;
      if (other.status === undefined || other.isLeft) this.#schedule.fail(`${receive.entry} overtook ${other.entry}`);
      const isLater = other.message?.from === message.from && other.message.order > message.order;
      if (isLater) this.#schedule.fail(`${receive.entry} got m${message.id} before ${other.entry}`);
    }
  }

  /** Messages that will certainly arrive at a worker. */
  #left(actor: Actor): Message[] {
    return [...this.#messages.values()].filter(({ from, receive, status }) => {
      const isSent = status === undefined || status === Status.OK;
      return receive === undefined && isSent && from.peerActor === actor && actor.isActive && from.isReliable;
    });
  }
}
