/** What watches the sockets of tcp: a set whose tokens are used again, room that is awaited once, batches, heartbeats, and the reserve of a listener. */

import { afterEach, describe, expect, it } from 'vitest';
import { withoutDescriptors } from '../../../test/fixtures/processes/no-descriptors.ts';
import {
  Errno,
  EventFd,
  familyOf,
  openFileDescriptors,
  tcpClose,
  tcpConnect,
  tcpListen,
  tcpLocalAddress,
  tcpSocket,
} from '../../sys/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Batches, Heartbeats, ReadySet, ReserveDescriptor, Room, type SocketHandler } from './sockets.ts';

let closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.reverse()) close();
  closing = [];
});

/** A member over an event fd, which always has room. */
class Member implements SocketHandler {
  token = -1;
  wantsWrite = false;
  calls = 0;
  readonly event: EventFd = new EventFd();
  onCall: () => void = () => undefined;

  get fd(): number {
    return this.event.fd;
  }

  onReady(): number {
    this.calls += 1;
    this.event.tryRead();
    this.onCall();
    return 1;
  }
}

function open(count: number) {
  const set = new ReadySet();
  const members = Array.from({ length: count }, () => new Member());
  closing.push(() => {
    set.close();
    for (const { event } of members) event.close();
  });
  return { set, members };
}

describe('a set of sockets', () => {
  it('uses tokens again, and removes a socket once', () => {
    const { set, members } = open(3);
    const [first, second, third] = members as [Member, Member, Member];
    set.add(first);
    set.add(second);
    const { token } = first;
    set.remove(first);
    set.remove(first);
    expect(set.size).toBe(1);
    set.add(third);
    expect([third.token, set.size]).toEqual([token, 2]);
    // A stale removal does not end the watch of the socket that has the token now.
    set.remove(first);
    third.event.signal();
    expect([set.poll(), third.calls, first.calls, set.size]).toEqual([1, 1, 0, 2]);
  });

  it('watches for room only while there is something to send', () => {
    const { set, members } = open(1);
    const [member] = members as [Member];
    member.wantsWrite = true;
    set.add(member);
    member.onCall = () => {
      member.wantsWrite = false;
    };
    expect([set.poll(), set.poll(), member.calls]).toEqual([1, 0, 1]);
    member.wantsWrite = true;
    set.update(member);
    expect(set.poll()).toBe(1);
  });
});

describe('room', () => {
  it('is reported once each time it is awaited', () => {
    const set = new ReadySet();
    const event = new EventFd();
    let calls = 0;
    const room = new Room(event.fd, set, () => {
      calls += 1;
      return 1;
    });
    expect(set.poll()).toBe(0);
    room.await();
    room.await();
    expect([set.poll(), set.poll(), calls]).toEqual([1, 0, 1]);
    room.await();
    expect([set.poll(), calls]).toEqual([1, 2]);
    room.close();
    expect(set.size).toBe(0);
    set.close();
    event.close();
  });

  it('that is awaited already makes no call of the kernel', () => {
    const set = new ReadySet();
    const event = new EventFd();
    const room = new Room(event.fd, set, () => 0);
    let watches = 0;
    const watch = set.watch.bind(set);
    Object.assign(set, {
      watch(...args: Parameters<ReadySet['watch']>) {
        watches += 1;
        watch(...args);
      },
    });
    room.await();
    room.await();
    expect(watches).toBe(1);
    room.close();
    set.close();
    event.close();
  });
});

describe('batches', () => {
  it('end with the running job, and those that begin meanwhile with the next call', async () => {
    const batches = new Batches();
    const ended: number[] = [];
    batches.add(() => {
      ended.push(1);
      batches.add(() => ended.push(2));
    });
    batches.end();
    expect(ended).toEqual([1]);
    batches.end();
    expect(ended).toEqual([1, 2]);
    for (const value of [3, 4]) {
      batches.add(() => ended.push(value));
      await Promise.resolve();
      expect(ended.at(-1)).toBe(value);
    }
    batches.close();
  });
});

describe('heartbeats', () => {
  it('go on while there are peers, and end with the interface', () => {
    const clock = new ManualClock();
    let beats = 0;
    let hasPeers = true;
    const heartbeats = new Heartbeats(clock, 10, () => {
      beats += 1;
      return hasPeers;
    });
    for (let i = 0; i < 2; i++) heartbeats.start();
    for (let i = 0; i < 3; i++) clock.advance(10);
    expect(beats).toBe(3);
    hasPeers = false;
    for (let i = 0; i < 3; i++) clock.advance(10);
    expect(beats).toBe(4);
    heartbeats.start();
    heartbeats.close();
    heartbeats.start();
    for (let i = 0; i < 3; i++) clock.advance(10);
    expect(beats).toBe(4);
  });

  it('that never began do not begin after the end of the interface', () => {
    const clock = new ManualClock();
    const heartbeats = new Heartbeats(clock, 10, () => true);
    heartbeats.close();
    heartbeats.start();
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('the reserve of a listener', () => {
  it('accepts and closes a connection when the process has no other descriptor, and is one descriptor', async () => {
    const listener = tcpListen({ address: '127.0.0.1', port: 0 }, 8, false);
    const before = openFileDescriptors();
    const reserve = new ReserveDescriptor(listener);
    reserve.reclaim();
    expect(openFileDescriptors()).toBe(before + 1);
    const clients = [0, 1].map(() => {
      const fd = tcpSocket(familyOf('127.0.0.1')!);
      tcpConnect(fd, tcpLocalAddress(listener));
      return fd;
    });
    const results = await withoutDescriptors(() => [0, 1].map(() => reserve.acceptAndClose()));
    expect(results.every((fd) => fd >= 0)).toBe(true);
    expect([-Errno.EAGAIN, openFileDescriptors()]).toEqual([reserve.acceptAndClose(), before + 1 + clients.length]);
    reserve.close();
    reserve.close();
    for (const fd of [...clients, listener]) tcpClose(fd);
  });
});
