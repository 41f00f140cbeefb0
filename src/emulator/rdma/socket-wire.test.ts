/** The wire over sockets: two wires of one thread stand for two processes. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { fillPattern } from '../../../test/fixtures/pattern.ts';
import { type Completed, RdmaEnd } from '../../../test/fixtures/transports/rdma-end.ts';
import { allocateScratch, connectUnix, SocketType, type UnixSocket } from '../../sys/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { WcStatus } from '../../verbs/abi.ts';
import { EmulatedVerbs } from './emulated-verbs.ts';
import { NO_DMABUFS } from './memory/card-memory.ts';
import { Packet, PacketKind } from './queue/packet.ts';
import { decodePacket, encodePacket, MESSAGE_BYTES_MAX, SocketWire } from './socket-wire.ts';
import { LocalWire } from './wire.ts';

class Side {
  readonly wire: SocketWire = new SocketWire(new LocalWire());
  readonly verbs: EmulatedVerbs;
  readonly end: RdmaEnd;

  constructor(clock: ManualClock) {
    this.verbs = new EmulatedVerbs({ nics: 1, clock, dmabufs: NO_DMABUFS, wire: this.wire });
    this.end = new RdmaEnd(this.verbs.open('hca0'));
  }

  close(): void {
    this.end.close();
    this.verbs.close();
    this.wire.close();
  }
}

describe('SocketWire', () => {
  expectNoLeaks();
  let clock: ManualClock;
  let near: Side;
  let far: Side;

  beforeEach(() => {
    clock = new ManualClock();
    near = new Side(clock);
    far = new Side(clock);
    near.end.connect(far.end);
  });
  afterEach(() => {
    near.close();
    far.close();
    expect(clock.pendingTimers).toBe(0);
  });

  /** Polls both ends until the near one has completed `count` requests. */
  function completed(count: number): Completed[] {
    const all: Completed[] = [];
    for (let round = 0; all.length < count; round++) {
      if (round === 100_000) expect.fail(`${all.length} of ${count} requests have ended`);
      all.push(...near.end.poll());
      far.end.poll();
    }
    return all;
  }

  it('carries more than the sockets hold, in order', () => {
    const bytes = 60_000;
    fillPattern(near.end.memory.u8, 1);
    for (let i = 0; i < 60; i++) expect(near.end.write(i, 0, bytes, far.end, 0)).toBe(0);
    expect(near.end.poll()).toEqual([]);
    const all = completed(60);
    expect(all.map(({ id, status }) => [id, status])).toEqual(Array.from({ length: 60 }, (_, i) => [i, 0]));
    const written = near.end.memory.u8.slice(0, bytes);
    expect(Buffer.compare(far.end.memory.u8.subarray(0, bytes), written)).toBe(0);
    near.end.memory.u8.fill(0);
    expect(near.end.read(60, 0, bytes, far.end, 0)).toBe(0);
    expect(completed(1)).toMatchObject([{ id: 60, status: 0 }]);
    expect(Buffer.compare(near.end.memory.u8.subarray(0, bytes), written)).toBe(0);
  });

  it('a receiver that takes nothing ends the requests by their time, also those that were never sent', () => {
    for (let i = 0; i < 60; i++) near.end.write(i, 0, 60_000, far.end, 0);
    const all: Completed[] = [];
    for (let round = 0; all.length < 60; round++) {
      if (round === 1000) expect.fail('the requests do not end');
      if (clock.nextDeadlineNs !== undefined) clock.advance(Math.max(0, clock.nextDeadlineNs - clock.nowNs()));
      all.push(...near.end.poll());
    }
    expect(all.map(({ status }) => status)).toEqual([
      WcStatus.RETRY_EXC_ERR,
      ...new Array<number>(59).fill(WcStatus.WR_FLUSH_ERR),
    ]);
  });

  it('loses the packets to a port that has left', () => {
    far.verbs.close();
    near.end.write(1, 0, 8, far.end, 0);
    while (clock.nextDeadlineNs !== undefined) clock.advance(Math.max(0, clock.nextDeadlineNs - clock.nowNs()));
    expect(near.end.poll()).toMatchObject([{ status: WcStatus.RETRY_EXC_ERR }]);
  });

  it('closes a connection that sends anything but packets, and serves the others', () => {
    const name = `\0gaudi-ucx/rdma/${Buffer.from(far.end.gid).toString('hex')}`;
    const packet = new Packet();
    packet.begin(PacketKind.ACK, far.end.qp.qpNum, near.end.qp.qpNum, 0);
    const good = new Uint8Array(MESSAGE_BYTES_MAX);
    const view = new DataView(good.buffer);
    const byteLength = encodePacket(packet, near.end.gid, view);
    const changed = (at: number, value: number): Uint8Array => {
      const bytes = good.slice(0, byteLength);
      bytes[at] = value;
      return bytes;
    };
    const nan = good.slice(0, byteLength);
    new DataView(nan.buffer).setFloat64(32, Number.NaN, true);
    const wrong = [Uint8Array.of(1), good.slice(0, byteLength - 1), changed(0, 0), changed(4, 0), changed(4, 10)];
    wrong.push(changed(6, 9), changed(7, 32), nan, new Uint8Array(MESSAGE_BYTES_MAX + 1));
    const target = allocateScratch(64);
    for (const bytes of wrong) {
      const socket: UnixSocket = connectUnix(name, SocketType.SEQPACKET);
      expect(socket.sendmsg(bytes)).toBe(bytes.byteLength);
      // Accepted in the first turn, read in the second.
      far.wire.progress();
      far.wire.progress();
      expect(socket.recvmsg(target.u8, [])).toBe(0);
      socket.close();
    }
    target.free();
    expect(decodePacket(view, byteLength, packet)).toEqual(near.end.gid);
    packet.close();
    near.end.write(1, 0, 8, far.end, 0);
    expect(completed(1)).toMatchObject([{ status: 0 }]);
  });
});
