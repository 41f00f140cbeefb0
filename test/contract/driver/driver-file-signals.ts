/** Contract cases: signals between queues, and reservations of signals. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { Errno } from '../../../src/sys/index.ts';
import {
  fenceCfg,
  HL_CS_FLAGS,
  HL_INFO_CS_COUNTERS,
  HL_INFO_OP,
  msgLongCtl,
  type PacketAsic,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeMsgLong,
  writeNop,
} from '../../../src/uapi/index.ts';
import { callsUntilEagain, DriverFixture, halves } from './driver-fixture.ts';

const NO_SEQ = 0xffff_ffff_ffff_ffffn;
/** A write to a sync object that adds the lower bits. */
const ADD = 0x8000_0000;
/** The largest number of signals of one reservation. */
const SIGNALS_MAX = 0x7fff;

export function signalCases(asic: PacketAsic, makeNode: () => DriverNode): void {
  describe('CS SIGNAL and WAIT', () => {
    const fixture = new DriverFixture(asic, makeNode);
    const reserveOn = (queue: number, count: number) => {
      const cs_flags = HL_CS_FLAGS.RESERVE_SIGNALS_ONLY;
      return fixture.client.cs({ cs_flags, encaps_signals_count: count, encaps_signals_q_idx: queue });
    };
    const unreserve = (id: number) => {
      const answer = fixture.client.cs({ cs_flags: HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY, encaps_sig_handle_id: id });
      expect(answer.out.seq).toBe(NO_SEQ);
      return answer.result;
    };
    const signalOn = (queue: number) => {
      return fixture.client.submit([{ queue, cb: 0n, byteLength: 0 }], { cs_flags: HL_CS_FLAGS.SIGNAL });
    };
    const waitFor = (seq: bigint, queue = 4) => {
      const { client } = fixture;
      client.data.setBigUint64(512, seq, true);
      const chunk = { queue, cb: BigInt(client.dataAddress + 512), byteLength: 1 };
      return client.submit([chunk], { cs_flags: HL_CS_FLAGS.WAIT });
    };
    /** The fence 0 of a queue. */
    const fenceOf = (queue: number): bigint => {
      const { cfg, fences, queues } = fixture.profile;
      const { firstOfQman, stream } = queues[queue]!;
      return cfg.start + BigInt(fences.find(({ firstQueue }) => firstQueue === firstOfQman)!.fence0 + 4 * stream);
    };
    const fence = (words: Uint32Array) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    /** Blocks a queue until {@link raise}. */
    const block = (queue: number) => fixture.client.submit([fixture.chunk(queue, fence)]).out.seq;
    const raise = (queue: number) => {
      fixture.run(1, (words) => writeMsgLong(words, 0, msgLongCtl(), 1, ...halves(fenceOf(queue))));
    };

    it('signals and waits between queues', () => {
      const { client } = fixture;
      fixture.mapAll();
      const signal = signalOn(0);
      expect(signal.result).toBe(0);
      // The driver reports the count after the signal.
      expect(signal.out.sob_count_before_submission).toBe(1);
      expect(client.wait(signal.out.seq, 1_000_000).out.status).toBe(0);
      expect(waitFor(signal.out.seq)).toMatchObject({ result: 0, out: { seq: NO_SEQ } });
      const two = { queue: 4, cb: BigInt(client.dataAddress + 512), byteLength: 2 };
      expect(client.submit([two], { cs_flags: HL_CS_FLAGS.WAIT }).result).toBe(-Errno.EINVAL);
      expect(waitFor(1000n).result).toBe(-Errno.EINVAL);
    });

    it('counts what it rejects', () => {
      const { client } = fixture;
      fixture.mapAll();
      const { seq } = client.submit([fixture.chunk(0, fence)]).out;
      const rejected = [
        client.cs({ cs_flags: HL_CS_FLAGS.SIGNAL, num_chunks_execute: 1, chunks_execute: 64n }).result,
        signalOn(5000).result,
        client.submit([{ queue: 4, cb: 64n, byteLength: 1 }], { cs_flags: HL_CS_FLAGS.WAIT }).result,
        client.submit([{ queue: 4, cb: 0n, byteLength: 2 }], { cs_flags: HL_CS_FLAGS.WAIT }).result,
        waitFor(1000n).result,
        waitFor(seq).result,
      ];
      const { EFAULT, EINVAL } = Errno;
      expect(rejected).toEqual([-EFAULT, -EINVAL, -EFAULT, -EINVAL, -EINVAL, -EINVAL]);
      const counters = client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
      expect(counters).toMatchObject({ ctx_validation_drop_cnt: 6n, ctx_parsing_drop_cnt: 0n });
    });

    it('blocks a wait until its signal, which follows a fence', () => {
      const { client } = fixture;
      fixture.mapAll();
      const blocked = block(0);
      const signal = signalOn(0);
      expect(waitFor(blocked).result).toBe(-Errno.EINVAL);
      const wait = waitFor(signal.out.seq);
      expect(wait.result).toBe(0);
      expect(client.wait(wait.out.seq).out.status).toBe(1);
      raise(0);
      expect(client.wait(wait.out.seq, 1_000_000)).toMatchObject({ result: 0, out: { status: 0 } });
    });

    it('reserves signals, and cancels the last reservation only', () => {
      expect(reserveOn(0, 0x8000).result).toBe(-Errno.EINVAL);
      expect(reserveOn(0, 0xffff_ffff).result).toBe(-Errno.EINVAL);
      // The answer of a rejected reservation has no sequence number, but a handle and a count of 0.
      expect(reserveOn(5000, 4)).toMatchObject({ result: -Errno.EINVAL, out: { seq: 0n } });
      const [one, two] = [reserveOn(0, 4), reserveOn(0, 3)];
      // The next value after the reserved signals; the first value is 1.
      expect([one.result, one.out.count, two.out.count]).toEqual([0, 5, 8]);
      expect(two.out.sob_count_before_submission).toBe(0);
      expect(unreserve(one.out.handle_id)).toBe(-Errno.EINVAL);
      expect(unreserve(two.out.handle_id)).toBe(0);
      expect(unreserve(one.out.handle_id)).toBe(0);
      expect(unreserve(one.out.handle_id)).toBe(-Errno.EINVAL);
    });

    it('refuses to switch sync objects while the other one has references, reservations included', () => {
      fixture.mapAll();
      // Every such reservation needs a whole sync object.
      const [one, two] = [reserveOn(0, SIGNALS_MAX), reserveOn(0, SIGNALS_MAX)];
      expect([one.result, two.result]).toEqual([0, 0]);
      expect(Math.abs(one.out.sob_base_addr_offset - two.out.sob_base_addr_offset)).toBe(4);
      expect(reserveOn(0, 1).result).toBe(-Errno.EINVAL);
      expect(signalOn(0).result).toBe(-Errno.EINVAL);
      expect(reserveOn(4, SIGNALS_MAX).result).toBe(0);
      expect(unreserve(one.out.handle_id)).toBe(-Errno.EINVAL);
      expect(unreserve(two.out.handle_id)).toBe(0);
      expect(reserveOn(0, SIGNALS_MAX).result).toBe(-Errno.EINVAL);
      expect(reserveOn(0, SIGNALS_MAX - 1)).toMatchObject({ result: 0, out: { count: SIGNALS_MAX } });
    });

    it('refuses to switch sync objects while a signal or a wait uses the other one', () => {
      const { client } = fixture;
      fixture.mapAll();
      block(0);
      const signal = signalOn(0);
      const { sob_base_addr_offset } = signal.out;
      block(4);
      const wait = waitFor(signal.out.seq);
      const whole = reserveOn(0, SIGNALS_MAX);
      expect(whole.out.sob_base_addr_offset).toBe(sob_base_addr_offset + 4);
      expect(reserveOn(0, SIGNALS_MAX).result).toBe(-Errno.EINVAL);
      raise(0);
      expect(client.wait(signal.out.seq, 1_000_000).out.status).toBe(0);
      expect(reserveOn(0, SIGNALS_MAX).result).toBe(-Errno.EINVAL);
      raise(4);
      expect(client.wait(wait.out.seq, 1_000_000).out.status).toBe(0);
      expect(reserveOn(0, SIGNALS_MAX)).toMatchObject({ result: 0, out: { sob_base_addr_offset } });
    });

    it('continues with the other sync object after the value 0x7fff, from 1 on', () => {
      const { client, profile } = fixture;
      fixture.mapAll();
      const reserved = reserveOn(0, SIGNALS_MAX - 2).out;
      expect(reserved.count).toBe(SIGNALS_MAX - 1);
      const sob = profile.cfg.start + BigInt(reserved.sob_base_addr_offset);
      const value = (ADD | (SIGNALS_MAX - 2)) >>> 0;
      fixture.run(4, (words) => writeMsgLong(words, 0, msgLongCtl(), value, ...halves(sob)));
      expect(signalOn(0).out).toMatchObject({
        sob_base_addr_offset: reserved.sob_base_addr_offset,
        sob_count_before_submission: SIGNALS_MAX - 1,
      });
      block(0);
      // The last signal of the sync object: the answer describes the next one.
      const last = signalOn(0);
      const after = { sob_base_addr_offset: reserved.sob_base_addr_offset + 4, sob_count_before_submission: 0 };
      expect(last.out).toMatchObject(after);
      const first = signalOn(0);
      expect(first.out).toMatchObject({ ...after, sob_count_before_submission: 1 });
      const waits = [waitFor(last.out.seq).out.seq, waitFor(first.out.seq, 5).out.seq];
      expect(waits.map((seq) => client.wait(seq).out.status)).toEqual([1, 1]);
      raise(0);
      expect(waits.map((seq) => client.wait(seq, 1_000_000).out.status)).toEqual([0, 0]);
    });

    if (asic === 'gaudi') {
      reservedCases();
    } else {
      it('raises no reserved signals: that takes staged submissions', () => {
        const { client } = fixture;
        fixture.mapAll();
        block(0);
        const cs_flags = HL_CS_FLAGS.ENCAP_SIGNALS;
        const encaps_sig_handle_id = reserveOn(0, 2).out.handle_id;
        const plain = client.submit([fixture.chunk(0, fence)], { cs_flags, encaps_sig_handle_id });
        expect(plain.result).toBe(0);
        const chunk = { queue: 4, cb: plain.out.seq, byteLength: 1 };
        const wait = client.submit([chunk], { cs_flags: HL_CS_FLAGS.WAIT | cs_flags });
        expect(wait).toMatchObject({ result: 0, out: { seq: NO_SEQ } });
        expect(unreserve(encaps_sig_handle_id)).toBe(0);
      });
    }

    /** Cases of generations that have staged submissions. */
    function reservedCases(): void {
      const FIRST = HL_CS_FLAGS.STAGED_SUBMISSION | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST | HL_CS_FLAGS.ENCAP_SIGNALS;

      it('waits for signals that a staged submission raises itself', () => {
        const { client, profile } = fixture;
        fixture.mapAll();
        const reserved = reserveOn(0, 2).out;
        const sob = profile.cfg.start + BigInt(reserved.sob_base_addr_offset);
        const raising = fixture.chunk(0, (words) =>
          writeMsgLong(words, fence(words), msgLongCtl(), ADD + 2, ...halves(sob)),
        );
        expect(client.submit([raising], { cs_flags: FIRST, encaps_sig_handle_id: 77 }).result).toBe(-Errno.EINVAL);
        const first = client.submit([raising], { cs_flags: FIRST, encaps_sig_handle_id: reserved.handle_id });
        expect(first.result).toBe(0);
        expect(unreserve(reserved.handle_id)).toBe(-Errno.EINVAL);
        const wait = (offset: number, queue: number) => {
          const chunk = { queue, cb: first.out.seq, byteLength: offset };
          return client.submit([chunk], { cs_flags: HL_CS_FLAGS.WAIT | HL_CS_FLAGS.ENCAP_SIGNALS });
        };
        expect(wait(3, 4).result).toBe(-Errno.EINVAL);
        const waits = [wait(1, 4), wait(2, 5)].map(({ out }) => out.seq);
        expect(waits.map((seq) => client.wait(seq).out.status)).toEqual([1, 1]);
        raise(0);
        expect(waits.map((seq) => client.wait(seq, 1_000_000).out.status)).toEqual([0, 0]);
        // The reservation exists until the staged submission is complete; then nothing is left to wait for.
        expect(wait(2, 4).out.seq).not.toBe(NO_SEQ);
        const nop = fixture.chunk(0, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
        const cs_flags = HL_CS_FLAGS.STAGED_SUBMISSION | HL_CS_FLAGS.STAGED_SUBMISSION_LAST;
        client.submit([nop], { cs_flags, seq: first.out.seq });
        expect(client.wait(first.out.seq, 1_000_000).out.status).toBe(0);
        expect(wait(2, 4)).toMatchObject({ result: 0, out: { seq: NO_SEQ } });
      });

      it('answers EAGAIN to a signal of a full queue, and takes a wait there for complete', () => {
        const { client, profile } = fixture;
        fixture.mapAll();
        block(4);
        const pending = signalOn(4).out.seq;
        const waiting = block(0);
        const nop = fixture.chunk(0, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
        const fill = (count: number) => client.submit(Array.from({ length: count }, () => nop)).result;
        for (let left = profile.queues[0]!.length - 1; left > 0; left -= 512) expect(fill(Math.min(512, left))).toBe(0);
        expect([fill(1), signalOn(0).result]).toEqual([-Errno.EAGAIN, -Errno.EAGAIN]);
        expect(waitFor(pending, 0)).toMatchObject({ result: 0, out: { seq: NO_SEQ } });
        // The wait is not repeated: it is answered.
        const dropped = 1n + 2n * callsUntilEagain(fixture);
        expect(client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out.ctx_queue_full_drop_cnt).toBe(dropped);
        raise(0);
        expect(client.wait(waiting, 10_000_000).out.status).toBe(0);
      });
    }
  });
}
