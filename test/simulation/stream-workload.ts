/** The workload of streams. It checks that bytes arrive in order for all sizes of sends and receives. */

import type { Request } from '../../src/api/contract/request.ts';
import { Request as NativeRequest } from '../../src/ucp/base/request/request.ts';
import { Status } from '../../src/ucs/type/status.ts';
import type { End } from './link.ts';
import { LocalSpace } from './local-memory.ts';
import { differenceOf, streamBytes } from './payload.ts';
import type { Schedule } from './schedule.ts';

/** The bytes of one send. */
interface Part {
  readonly from: number;
  readonly byteLength: number;
  received: number;
  wasTakenBack: boolean;
}

/** One direction of a link. */
interface Flow {
  readonly id: number;
  /** Sends whose bytes have not all arrived, in order, and the total number of bytes. */
  readonly parts: Part[];
  sent: number;
  /** A send has failed: later bytes are unknown. */
  isBroken: boolean;
  /** Sends that have not ended. */
  sending: number;
  /** The most bytes of each pending receive, in order. */
  readonly waiting: Map<object, number>;
}

/** The streams of one schedule. */
export class StreamWorkload {
  readonly #schedule: Schedule;
  /** By the sending end. */
  readonly #flows: Map<End, Flow> = new Map();

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
  }

  /** Whether both ends of a stream exist. */
  canSend(end: End): boolean {
    return end.peer !== undefined;
  }

  send(end: End, byteLength: number): void {
    const schedule = this.#schedule;
    const flow = this.#flowOf(end);
    if (flow.isBroken) return;
    const space = new LocalSpace(schedule, end.actor, byteLength, true);
    space.fill(streamBytes(flow.id, flow.sent, byteLength));
    const part: Part = { from: flow.sent, byteLength, received: 0, wasTakenBack: false };
    flow.parts.push(part);
    flow.sent += byteLength;
    flow.sending += 1;
    const onEnd = (status: Status): void => {
      flow.sending -= 1;
      if (status === Status.CANCELED && !end.isClosing && end.actor.isActive) part.wasTakenBack = true;
      else if (status !== Status.OK) flow.isBroken = true;
      space.spend();
    };
    const name = `stream send ${end} ${byteLength}${space.kind} to ${flow.sent}`;
    schedule.start({ name, actor: end.actor, end, onEnd }, (params) =>
      end.endpoint.streamSendNbx(space.local, space.offset, space.length, params),
    );
  }

  receive(end: End, byteLength: number, waitAll: boolean = this.#schedule.isOneOf(3)): void {
    const schedule = this.#schedule;
    const flow = this.#flowOf(end.peer!);
    const space = new LocalSpace(schedule, end.actor, byteLength, true);
    const token = {};
    flow.waiting.set(token, byteLength);
    const onEnd = (status: Status, request: Request | undefined): void => {
      const [first] = flow.waiting.keys();
      if (status === Status.OK && first !== token) schedule.fail(`a stream receive of ${end} overtook another`);
      flow.waiting.delete(token);
      if (status === Status.OK) this.#arrived(end, flow, space, request!.receivedBytes, waitAll);
      // A receive that was ended early may have consumed bytes.
      else if (request instanceof NativeRequest && request.done > 0) flow.isBroken = true;
      space.release();
    };
    const name = `stream receive ${end} ${byteLength}${space.kind}${waitAll ? ' all' : ''}`;
    schedule.start({ name, actor: end.actor, end, needsRequest: true, isOrdered: true, onEnd }, (params) =>
      end.endpoint.streamRecvNbx(space.local, space.offset, space.length, { ...params, waitAll }),
    );
  }

  /** Reads available bytes, without a receive. */
  take(end: End): void {
    const flow = this.#flowOf(end.peer!);
    const bytes = end.endpoint.streamRecvData();
    this.#schedule.note(`${end} takes ${bytes?.byteLength} of the stream`);
    if (bytes === undefined) return;
    if (flow.waiting.size > 0) this.#schedule.fail(`${end} took bytes that a receive waits for`);
    this.#compare(end, flow, bytes);
  }

  /** Bytes that will arrive at an end and have no receive. */
  missing(end: End): number {
    if (end.peer === undefined || !end.isReliable) return 0;
    const flow = this.#flowOf(end.peer);
    if (flow.isBroken) return 0;
    return flow.parts.reduce((sum, part) => sum + (part.wasTakenBack ? 0 : part.byteLength - part.received), 0);
  }

  /** Whether an end that is being closed waits for its peer to receive. */
  isHeldUp(end: End): boolean {
    return end.isClosing && this.#flowOf(end).sending > 0;
  }

  isWaiting(end: End): boolean {
    return end.peer !== undefined && this.#flowOf(end.peer).waiting.size > 0;
  }

  /** Whether receives wait for more bytes than were sent: bytes that wait for credit need time, and no others behind them. */
  isStarved(end: End): boolean {
    if (end.peer === undefined) return false;
    let wanted = 0;
    for (const byteLength of this.#flowOf(end.peer).waiting.values()) wanted += byteLength;
    return wanted > this.missing(end);
  }

  /** Whether the bytes sent from an end are known. */
  isWhole(end: End): boolean {
    return !this.#flowOf(end).isBroken;
  }

  #arrived(end: End, flow: Flow, space: LocalSpace, byteLength: number, waitAll: boolean): void {
    const schedule = this.#schedule;
    if (byteLength > space.byteLength) schedule.fail(`${end} got ${byteLength} bytes into ${space.byteLength}`);
    if (waitAll && byteLength < space.byteLength)
      schedule.fail(`${end} got ${byteLength} of all ${space.byteLength} bytes`);
    if (byteLength === 0) schedule.fail(`${end} got nothing of the stream`);
    if (space.isTouchedBehind(byteLength)) schedule.fail(`the stream at ${end} was written beyond its end`);
    this.#compare(end, flow, space.read().subarray(0, byteLength));
  }

  #compare(end: End, flow: Flow, bytes: Uint8Array): void {
    if (flow.isBroken) return;
    for (let done = 0; done < bytes.byteLength; ) {
      const part = flow.parts[0];
      if (part === undefined) {
        this.#schedule.fail(`the stream at ${end} has more bytes than were sent`);
        return;
      }
      const byteLength = part.wasTakenBack ? 0 : Math.min(bytes.byteLength - done, part.byteLength - part.received);
      const from = part.from + part.received;
      const difference = differenceOf(bytes.subarray(done, done + byteLength), streamBytes(flow.id, from, byteLength));
      if (difference !== undefined) this.#schedule.fail(`the stream at ${end} is wrong from ${from}: ${difference}`);
      part.received += byteLength;
      done += byteLength;
      if (part.wasTakenBack || part.received === part.byteLength) flow.parts.shift();
    }
  }

  #flowOf(sender: End): Flow {
    let flow = this.#flows.get(sender);
    if (flow === undefined) {
      flow = { id: 1_000_000 + sender.id, parts: [], sent: 0, isBroken: false, sending: 0, waiting: new Map() };
      this.#flows.set(sender, flow);
    }
    return flow;
  }
}
