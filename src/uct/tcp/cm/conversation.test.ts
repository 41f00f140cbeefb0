/** Frames over a channel whose results the test chooses, and the deadlines and descriptors of an event set. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { expectNoLeaks } from '../../../../test/fixtures/leak-check.ts';
import { Errno, EventFd, ReadyFor } from '../../../sys/index.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Channel } from './channel.ts';
import { type CmTarget, Conversation, Watch } from './conversation.ts';
import { CmFrameType, packFrame } from './layout.ts';

expectNoLeaks();
let clock: ManualClock;
let watch: Watch;
let eventFd: EventFd;
beforeEach(() => {
  clock = new ManualClock();
  watch = new Watch(clock);
  eventFd = new EventFd();
});
afterEach(() => {
  watch.close();
  eventFd.close();
});

/** A handler that notes when its deadline expired. */
class Target implements CmTarget {
  deadlineNs: number;
  readonly expiredNs: number[] = [];

  constructor(deadlineNs = Number.POSITIVE_INFINITY) {
    this.deadlineNs = deadlineNs;
  }

  onReady(): number {
    return 0;
  }

  onDeadline(): number {
    this.expiredNs.push(clock.nowNs());
    this.deadlineNs = Number.POSITIVE_INFINITY;
    return 1;
  }
}

/** A channel whose writes have the given results, and afterwards succeed; reads find nothing. */
class FakeChannel implements Channel {
  readonly fd: number = eventFd.fd;
  readonly hasOutput = false;
  readonly hasReceived = false;
  readonly failure = '';
  readonly written: number[] = [];
  isClosed = false;
  readonly #results: number[];

  constructor(...results: number[]) {
    this.#results = results;
  }

  handshake(): Status {
    return Status.OK;
  }

  read(): number {
    return -Errno.EAGAIN;
  }

  write(source: Uint8Array): number {
    const result = this.#results.shift() ?? source.byteLength;
    if (result > 0) this.written.push(...source.subarray(0, result));
    return result;
  }

  close(): void {
    this.isClosed = true;
  }
}

const FRAME = packFrame(CmFrameType.ACCEPT, Status.OK, Uint8Array.of(1, 2, 3));

describe('a conversation', () => {
  it('is watched for writability only while a frame waits, of which each byte is sent once', () => {
    const modify = vi.spyOn(watch, 'modify');
    const channel = new FakeChannel(5, -Errno.EAGAIN, 7, -Errno.EAGAIN);
    const conversation = new Conversation(watch, channel, new Target());
    expect(conversation.open()).toBeUndefined();
    conversation.send(FRAME);
    conversation.flush();
    expect(conversation.isFlushed).toBe(false);
    conversation.flush();
    expect(conversation.isFlushed).toBe(true);
    expect(channel.written).toEqual([...FRAME]);
    expect(modify.mock.calls.map(([, events]) => events)).toEqual([ReadyFor.READ | ReadyFor.WRITE, ReadyFor.READ]);
    conversation.close();
    expect(channel.isClosed).toBe(true);
  });

  it('over a connection that cannot be written has ended once all that arrived was read', () => {
    const conversation = new Conversation(watch, new FakeChannel(-Errno.EPIPE), new Target());
    conversation.open();
    expect(conversation.receive(new Uint8Array(64))).toBe('waiting');
    conversation.send(FRAME);
    const fault = { status: Status.CONNECTION_RESET, reason: expect.stringMatching(/broken pipe/i) };
    expect(conversation.receive(new Uint8Array(64))).toEqual(fault);
    expect(conversation.silence(new Uint8Array(64))).toEqual(fault);
    conversation.close();
  });
});

describe('an event set', () => {
  it('ends a sleep for a deadline that is earlier than those before', async () => {
    watch.due(5e9);
    const ends = [watch.wait(9e9).then(() => 'awake'), new Promise(setImmediate).then(() => 'asleep')];
    watch.due(6e9);
    watch.due(1e9);
    expect(await Promise.race(ends)).toBe('awake');
  });

  it('calls each handler at its deadline, whatever expires before it', () => {
    const targets = [3, 1, 2].map((seconds) => new Target(seconds * 1e9));
    const others = [eventFd, new EventFd(), new EventFd()];
    for (const [i, target] of targets.entries()) watch.add(others[i]!.fd, ReadyFor.READ, target);
    for (let step = 0; step < 8; step++) {
      watch.poll();
      clock.advance(0.5e9);
    }
    expect(targets.map(({ expiredNs }) => expiredNs)).toEqual([[3e9], [1e9], [2e9]]);
    for (const other of others.slice(1)) other.close();
  });

  it('does not call the handler of a descriptor that cannot be watched', () => {
    const [failed, watched] = [new Target(1e9), new Target(1e9)];
    expect(() => watch.add(-1, ReadyFor.READ, failed)).toThrow(expect.objectContaining({ errno: Errno.EBADF }));
    watch.add(eventFd.fd, ReadyFor.READ, watched);
    clock.advance(1e9);
    expect(watch.poll()).toBe(1);
    expect([failed.expiredNs, watched.expiredNs]).toEqual([[], [1e9]]);
  });
});
