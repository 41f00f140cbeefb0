/** Contract cases: CS. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { Errno } from '../../../src/sys/index.ts';
import {
  fenceCfg,
  HL_CS_FLAGS,
  HL_INFO_CS_COUNTERS,
  HL_INFO_HW_IDLE,
  HL_INFO_OP,
  msgLongCtl,
  type PacketAsic,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeMsgLong,
  writeNop,
  writeShortPacket,
} from '../../../src/uapi/index.ts';
import { requires } from '../../fixtures/requires.ts';
import { callsUntilEagain, DriverFixture, halves } from './driver-fixture.ts';

const NO_SEQ = 0xffff_ffff_ffff_ffffn;

export function submissionCases(asic: PacketAsic, makeNode: () => DriverNode): void {
  describe('CS arguments', () => {
    const fixture = new DriverFixture(asic, makeNode);
    const counters = () => fixture.client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;

    it('checks its arguments like the driver, with the errno in the status', () => {
      const { client } = fixture;
      fixture.mapAll();
      const refused = (errno: number, answer: ReturnType<typeof client.cs>) => {
        expect(answer.result).toBe(-errno);
        expect(answer.out.seq).toBe(NO_SEQ);
        expect(answer.out.status | 0).toBe(-errno);
      };
      refused(Errno.EINVAL, client.cs({ pad: Uint8Array.of(1), num_chunks_execute: 1 }));
      refused(Errno.EINVAL, client.cs({ num_chunks_execute: 0 }));
      refused(Errno.EINVAL, client.cs({ num_chunks_execute: 513 }));
      refused(Errno.EFAULT, client.cs({ num_chunks_execute: 1, chunks_execute: 64n }));
      refused(Errno.EINVAL, client.cs({ cs_flags: HL_CS_FLAGS.SIGNAL | HL_CS_FLAGS.WAIT, num_chunks_execute: 1 }));
      refused(Errno.EINVAL, client.cs({ cs_flags: HL_CS_FLAGS.SIGNAL, num_chunks_execute: 2 }));
      const collective = { cs_flags: HL_CS_FLAGS.COLLECTIVE_WAIT, num_chunks_execute: 1 };
      refused(Errno.EFAULT, client.cs({ ...collective, chunks_execute: 64n }));
      refused(Errno.EINVAL, client.submit([{ queue: 0, cb: 0n, byteLength: 0 }], collective));
      for (const queue of [
        fixture.profile.queues.length,
        0xffff_ffff,
        asic === 'gaudi' ? 8 : 260,
        asic === 'gaudi' ? 73 : 156,
      ]) {
        refused(Errno.EINVAL, client.submit([{ queue, cb: fixture.hostVa, byteLength: 24 }]));
      }
    });

    it('checks command buffers', () => {
      const { client } = fixture;
      const hostVa = fixture.mapAll();
      if (asic === 'gaudi2') {
        expect(client.submit([{ queue: 0, cb: hostVa, byteLength: 8, flags: 0 }]).result).toBe(-Errno.EINVAL);
        expect(client.submit([{ queue: 0, cb: 0x1234n, byteLength: 8 }]).result).toBe(-Errno.EFAULT);
        const { host, hostHuge } = fixture.profile.va;
        expect(client.submit([{ queue: 0, cb: hostVa, byteLength: 0 }]).result).toBe(-Errno.EFAULT);
        expect(client.submit([{ queue: 0, cb: hostHuge.end - 8n, byteLength: 16 }]).result).toBe(-Errno.EFAULT);
        expect(client.submit([{ queue: 0, cb: host.start - 8n, byteLength: 16 }]).result).toBe(-Errno.EFAULT);
        return;
      }
      const { out } = client.createCommandBuffer(4096);
      expect(client.submit([{ queue: 0, cb: 0x1234n, byteLength: 8 }]).result).toBe(-Errno.EINVAL);
      expect(client.submit([{ queue: 0, cb: out, byteLength: 4 }]).result).toBe(-Errno.EINVAL);
      expect(client.submit([{ queue: 0, cb: out, byteLength: 4104 }]).result).toBe(-Errno.EINVAL);
      // An internal queue receives an address, and does not signal completion.
      expect(client.submit([{ queue: 9, cb: 0x7000_0000_0000_0000n, byteLength: 8 }]).result).toBe(-Errno.EFAULT);
      expect(client.submit([{ queue: 9, cb: hostVa, byteLength: 8 }]).result).toBe(-Errno.EINVAL);
    });

    it('rejects queues that the driver does not enable, when it parses their command buffers', () => {
      const { client, profile } = fixture;
      const hostVa = fixture.mapAll();
      // The streams of the PDMAs of gaudi2 other than these three, and the NICs (gaudi2_is_queue_enabled, gaudi_parse_cb_no_ext_queue, Linux 6.12).
      const enabled = asic === 'gaudi' ? [0, 1, 2, 3, 4, 5, 6, 7] : [0, 1, 4];
      const nic = profile.queues.find(({ engine }) => engine === 'nic')!.id;
      const disabled = [0, 1, 2, 3, 4, 5, 6, 7, nic].filter((queue) => !enabled.includes(queue));
      writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
      for (const queue of enabled) expect([queue, fixture.submitCommands(8, queue).result]).toEqual([queue, 0]);
      for (const queue of disabled) {
        // The queue is checked before the address.
        for (const cb of [hostVa, 0x1234n]) {
          expect([queue, client.submit([{ queue, cb, byteLength: 8 }]).result]).toEqual([queue, -Errno.EINVAL]);
        }
      }
      expect(counters()).toMatchObject({
        ctx_parsing_drop_cnt: BigInt(2 * disabled.length),
        ctx_validation_drop_cnt: 0n,
      });
    });

    it('counts rejected submissions by reason, which keep their sequence numbers', () => {
      const { client } = fixture;
      fixture.mapAll();
      writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
      const counts = () => {
        const { ctx_validation_drop_cnt, ctx_parsing_drop_cnt } = counters();
        return [ctx_validation_drop_cnt, ctx_parsing_drop_cnt];
      };
      const cs_flags = HL_CS_FLAGS.TIMESTAMP;
      expect(fixture.submitCommands(8).out.seq).toBe(1n);
      // These fail before they have a number.
      expect(client.cs({ num_chunks_execute: 513 }).result).toBe(-Errno.EINVAL);
      expect(client.cs({ num_chunks_execute: 1, chunks_execute: 64n }).result).toBe(-Errno.EFAULT);
      expect(counts()).toEqual([2n, 0n]);
      const nowhere = { queue: asic === 'gaudi' ? 41 : 0, cb: 0x7000_0000_0000_0000n, byteLength: 8 };
      expect(client.submit([{ ...nowhere, queue: 5000 }]).result).toBe(-Errno.EINVAL);
      expect(client.submit([nowhere], { cs_flags }).result).toBe(-Errno.EFAULT);
      expect(counts()).toEqual([3n, 1n]);
      expect(fixture.submitCommands(8).out.seq).toBe(4n);
      for (const seq of [2n, 3n]) expect(client.wait(seq)).toMatchObject({ result: 0, out: { status: 0, flags: 0 } });
    });

    if (asic === 'gaudi') {
      it('parses command buffers for external queues', () => {
        // Opcode, bytes of the command buffer, errno: a packet that extends past the end is that first (gaudi_validate_cb, Linux 6.12).
        const cases: [number, number, number][] = [
          [PacketOpcode.MSG_PROT, 16, Errno.EPERM],
          [PacketOpcode.MSG_PROT, 8, Errno.EINVAL],
          [PacketOpcode.CP_DMA, 16, Errno.EPERM],
          [PacketOpcode.CP_DMA, 8, Errno.EINVAL],
          [PacketOpcode.STOP, 8, Errno.EPERM],
          [PacketOpcode.WREG_BULK, 8, Errno.EPERM],
          [PacketOpcode.WAIT, 8, Errno.EINVAL],
          [0, 8, Errno.EINVAL],
          [PacketOpcode.LIN_DMA, 8, Errno.EINVAL],
          [PacketOpcode.LOAD_AND_EXE, 16, Errno.EPERM],
          [PacketOpcode.LOAD_AND_EXE, 8, Errno.EINVAL],
        ];
        for (const [opcode, byteLength, errno] of cases) {
          writeShortPacket(fixture.commands, 0, packetCtl(opcode), 1);
          const { result } = fixture.submitCommands(byteLength);
          expect([opcode, byteLength, result]).toEqual([opcode, byteLength, -errno]);
        }
        expect(counters()).toMatchObject({ ctx_parsing_drop_cnt: BigInt(cases.length), ctx_validation_drop_cnt: 0n });
      });
    } else {
      it('has no staged submissions', () => {
        fixture.mapAll();
        const cs_flags = HL_CS_FLAGS.STAGED_SUBMISSION | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST;
        expect(fixture.submitCommands(8, 0, { cs_flags }).result).toBe(-Errno.EPERM);
        // Without STAGED_SUBMISSION the other flags mean nothing (hl_cs_sanity_checks, Linux 6.12).
        writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));
        const ignored = { cs_flags: HL_CS_FLAGS.STAGED_SUBMISSION_FIRST | HL_CS_FLAGS.STAGED_SUBMISSION_LAST };
        const { result, out } = fixture.submitCommands(8, 0, ignored);
        expect([result, fixture.client.wait(out.seq, 1_000_000).out.status]).toEqual([0, 0]);
      });
    }
  });

  describe('CS execution', () => {
    const fixture = new DriverFixture(asic, makeNode);
    const counters = () => fixture.client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
    const nop = (): void => void writeNop(fixture.commands, 0, packetCtl(PacketOpcode.NOP));

    it('numbers submissions from 1 and completes one that does nothing', () => {
      fixture.mapAll();
      nop();
      for (const seq of [1n, 2n, 3n]) {
        const { result, out } = fixture.submitCommands(8);
        expect({ result, seq: out.seq, status: out.status }).toEqual({ result: 0, seq, status: 0 });
        expect(fixture.client.wait(seq).out.status).toBe(0);
      }
      expect(fixture.client.info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE).out.is_idle).toBe(1);
    });

    it('copies in every direction and fills', () => {
      const { host, hw } = fixture;
      const hostVa = fixture.mapAll();
      const device = fixture.deviceMemory(2);
      const sram = hw.sram_base_address;
      const bytes = 100_003;
      for (let i = 0; i < bytes; i++) host.u8[i] = i * 31;
      fixture.copy(hostVa, device + 13n, bytes);
      fixture.copy(device + 13n, device + 0x100000n, bytes);
      fixture.copy(device + 0x100000n, sram, bytes);
      fixture.copy(sram, hostVa + 0x200001n, bytes);
      const there = host.u8.subarray(0x200001, 0x200001 + bytes);
      expect(Buffer.compare(host.u8.subarray(0, bytes), there)).toBe(0);
      fixture.copy(0x0123_4567_89ab_cdefn, device, 20, true);
      fixture.copy(device, hostVa + 0x300000n, 24);
      const filled = new DataView(host.buffer, 0x300000, 24);
      expect(filled.getBigUint64(0, true)).toBe(0x0123_4567_89ab_cdefn);
      expect(filled.getUint32(16, true)).toBe(0x89ab_cdef);
    });

    it('writes words with messages, after earlier packets', () => {
      const { host } = fixture;
      const hostVa = fixture.mapAll();
      const at = writeMsgLong(fixture.commands, 0, msgLongCtl(), 0xdead_beef, ...halves(hostVa + 8n));
      writeNop(fixture.commands, at, packetCtl(PacketOpcode.NOP));
      const { out } = fixture.submitCommands(24);
      expect(fixture.client.wait(out.seq, 1_000_000).result).toBe(0);
      expect(host.words[2]).toBe(0xdead_beef);
    });

    it('blocks on a fence until another queue signals it', () => {
      const { client, profile } = fixture;
      fixture.mapAll();
      writeFence(fixture.commands, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
      const waiting = fixture.submitCommands(8, 0);
      expect(client.wait(waiting.out.seq).out.status).toBe(1);
      expect(client.info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE).out.is_idle).toBe(0);
      const fence = profile.cfg.start + BigInt(profile.fences[0]!.fence0);
      fixture.raiseFence(fence);
      expect(client.wait(waiting.out.seq, 1_000_000)).toMatchObject({ result: 0, out: { status: 0 } });
    });

    it('restores before it executes, and fails with the error of the restore phase', () => {
      const { client } = fixture;
      fixture.mapAll();
      nop();
      const { out } = fixture.submitCommands(8);
      expect(client.wait(out.seq, 1_000_000).out.status).toBe(0);
      const cs_flags = HL_CS_FLAGS.FORCE_RESTORE;
      const restored = { cs_flags, chunks_restore: BigInt(client.dataAddress), num_chunks_restore: 1 };
      // The hidden submission has its own sequence number.
      expect(fixture.submitCommands(8, 0, restored)).toMatchObject({ result: 0, out: { seq: out.seq + 2n } });
      expect(fixture.submitCommands(8, 0, { ...restored, chunks_restore: 64n }).result).toBe(-Errno.EFAULT);
      expect(fixture.submitCommands(8, 0, { ...restored, num_chunks_restore: 513 }).result).toBe(-Errno.EINVAL);
    });

    if (asic === 'gaudi') {
      it('answers EAGAIN when a queue has no room for the chunks', () => {
        const { client } = fixture;
        const hostVa = fixture.mapAll();
        writeFence(fixture.commands, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
        const { out } = client.createCommandBuffer(4096);
        const mapping = client.file.mmap(4096, out);
        new Uint32Array(mapping.buffer).set(fixture.commands.subarray(0, 2));
        mapping.close();
        // A queue of a TPC has 1024 entries; the fence on the external queue keeps the submissions open.
        const tpc = { queue: 41, cb: hostVa, byteLength: 8 };
        const chunks = [{ queue: 0, cb: out, byteLength: 8, flags: 0 }, ...Array.from({ length: 400 }, () => tpc)];
        expect([1, 2, 3].map(() => client.submit(chunks).result)).toEqual([0, 0, -Errno.EAGAIN]);
        const dropped = client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
        expect(dropped.ctx_queue_full_drop_cnt).toBe(callsUntilEagain(fixture));
      });
    }

    it('answers EAGAIN when a queue is full, counts it, and accepts more when it is not', () => {
      const { client, profile } = fixture;
      fixture.mapAll();
      const fence = fixture.chunk(0, (words) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1)));
      const noOperation = fixture.chunk(0, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
      const nops = (count: number) => Array.from({ length: count }, () => noOperation);
      // Each refusal uses a sequence number: repeated ones use up the window of gaudi2, whose oldest submission is blocked.
      const refused = () => {
        const { total_queue_full_drop_cnt, ctx_queue_full_drop_cnt, ...more } = counters();
        return [
          total_queue_full_drop_cnt + more.total_max_cs_in_flight_drop_cnt,
          ctx_queue_full_drop_cnt + more.ctx_max_cs_in_flight_drop_cnt,
        ];
      };
      const [before] = refused();
      const seq = client.submit([fence, ...nops(511)]).out.seq;
      for (let i = 512; i < profile.queues[0]!.length - 512; i += 512) expect(client.submit(nops(512)).result).toBe(0);
      expect(client.submit(nops(511)).result).toBe(0);
      expect(client.submit(nops(2)).result).toBe(-Errno.EAGAIN);
      const calls = callsUntilEagain(fixture);
      expect(refused()).toEqual([before! + calls, calls]);
      if (calls >= profile.maxPendingCs) return;
      expect([1, 2].map(() => client.submit(nops(1)).result)).toEqual([0, -Errno.EAGAIN]);
      fixture.raiseFence(profile.cfg.start + BigInt(profile.fences[0]!.fence0));
      expect(client.wait(seq, 10_000_000).out.status).toBe(0);
      expect(client.submit(nops(511)).result).toBe(0);
    });

    it('answers EAGAIN when all submissions are in flight', () => {
      const { client, profile } = fixture;
      requires(profile.maxPendingCs <= 1000, 'a bound of submissions in flight');
      fixture.mapAll();
      writeFence(fixture.commands, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(1, 1, 1));
      for (let i = 0; i < profile.maxPendingCs; i++) expect(fixture.submitCommands(8).result).toBe(0);
      expect(fixture.submitCommands(8).result).toBe(-Errno.EAGAIN);
      const dropped = client.info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS).out;
      expect(dropped.ctx_max_cs_in_flight_drop_cnt).toBe(callsUntilEagain(fixture));
    });
  });
}
