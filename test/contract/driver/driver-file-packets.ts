/** Contract cases: packets that command processors execute. */

import { beforeEach, describe, expect, it, vi } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import {
  CP_DMA_UPPER_CP,
  fenceCfg,
  Gaudi2QueueBase,
  GaudiQueueBase,
  HL_INFO_OP,
  HL_INFO_UNDEFINED_OPCODE_EVENT,
  HL_PAGE_FAULT_INFO,
  LoadAndExeCfg,
  msgLongCtl,
  msgShortCtl,
  type PacketAsic,
  PacketOpcode,
  packetCtl,
  type SyncManagerProfile,
  WregCtl,
  wreg32Ctl,
  wregBulkCtl,
  writeArbPoint,
  writeCbList,
  writeCpDma,
  writeFence,
  writeLoadAndExe,
  writeMsgLong,
  writeMsgShort,
  writeNop,
  writeShortPacket,
  writeWreg32,
} from '../../../src/uapi/index.ts';
import type { Chunk } from './driver-client.ts';
import { DriverFixture, halves } from './driver-fixture.ts';

/** A write to a sync object that adds 1. */
const ADD_ONE = 0x8000_0001;
/** CP_MSG_BASE registers: monitors and sync objects, of the manager of {@link managerOf}. */
const MONITORS = 0;
const OBJECTS = 1;

/** The sync manager of message bases 0 and 1: E_N of gaudi, that of dcore 0 of gaudi2. */
function managerOf({ profile }: DriverFixture): SyncManagerProfile {
  return profile.sync.managers.find(({ sobObj }) => sobObj === profile.cpMsgBase[OBJECTS])!;
}

/** Packets that arm a monitor for "the sync object is at least `target`", which adds 1 to fence 0 of the queue, and wait there. */
function waitForObject(fixture: DriverFixture, words: Uint32Array, queue: number, sob: number, target = 1): number {
  const { profile } = fixture;
  const manager = managerOf(fixture);
  const { firstOfQman, stream } = profile.queues[queue]!;
  const fence0 = profile.fences.find(({ firstQueue }) => firstQueue === firstOfQman)!.fence0;
  const [low, high] = halves(profile.cfg.start + BigInt(fence0 + 4 * stream));
  const monitor = manager.firstUserMonitor + (sob - manager.firstUserSob);
  const offsetOf = (register: number): number => register - manager.monPayAddrL + monitor * 4;
  const group = Math.floor(sob / 8);
  const arm = ((target << 17) | ((0xff & ~(1 << (sob % 8))) << 8) | (group & 0xff)) >>> 0;
  const writes: [number, number][] = [
    [manager.monPayAddrL, low],
    [manager.monPayAddrH, high],
    [manager.monPayData, 1],
  ];
  if (manager.monConfig !== 0) writes.push([manager.monConfig, (group >>> 8) << 16]);
  writes.push([manager.monArm, arm]);
  let at = 0;
  for (const [register, value] of writes)
    at = writeMsgShort(words, at, msgShortCtl(MONITORS, offsetOf(register)), value);
  return writeFence(words, at, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
}

/** Stores words in host memory, at a chosen offset. */
function store(fixture: DriverFixture, offset: number, values: readonly number[]): bigint {
  new Uint32Array(fixture.host.buffer, offset, values.length).set(values);
  return fixture.hostVa + BigInt(offset);
}

/** The words of one packet. */
function packet(write: (words: Uint32Array) => number): number[] {
  const words = new Uint32Array(8);
  return [...words.subarray(0, write(words))];
}

/** Writes a LOAD_AND_EXE. */
function loadAndExecute(words: Uint32Array, at: number, configuration: number, address = 0n): number {
  return writeLoadAndExe(words, at, packetCtl(PacketOpcode.LOAD_AND_EXE), configuration, ...halves(address));
}

const { DST, PMAP, LOAD, EXE, ETYPE } = LoadAndExeCfg;

/** Packets with predicate n. */
const withPredicate = (ctl: number, predicate: number): number => (ctl | predicate) >>> 0;

export function packetCases(asic: PacketAsic, makeNode: () => DriverNode): void {
  describe('packets', () => {
    const fixture = new DriverFixture(asic, makeNode);
    /** A QMAN whose queues take command buffers of the user, which are not parsed. */
    const base: number = asic === 'gaudi' ? GaudiQueueBase.DMA_2 : Gaudi2QueueBase.DCORE1_EDMA_0;
    let signals = 0;
    beforeEach(() => {
      signals = 0;
    });
    const sob = (): number => managerOf(fixture).firstUserSob;
    const signal = (words: Uint32Array, at: number) =>
      writeMsgShort(words, at, msgShortCtl(OBJECTS, sob() * 4), ADD_ONE);
    /** Starts packets on a queue of the user; they end with a signal. Returns a wait for `count` signals more than before. */
    const start = (programs: readonly Chunk[], count: number): bigint => {
      signals += count;
      const target = signals;
      const waiting = fixture.chunk(4, (words) => waitForObject(fixture, words, 4, sob(), target));
      const { result, out } = fixture.client.submit([...programs, waiting]);
      expect(result).toBe(0);
      return out.seq;
    };
    const program = (write: (words: Uint32Array) => number, queue = base): Chunk => {
      return fixture.chunk(queue, (words) => signal(words, write(words)));
    };
    /** Runs packets that are not parsed, and waits for them. */
    const run = (write: (words: Uint32Array) => number): void => {
      expect(fixture.client.wait(start([program(write)], 1), 10_000_000).out.status).toBe(0);
    };
    const status = (seq: bigint) => fixture.client.wait(seq).out.status;
    const message = (words: Uint32Array, at: number, value: number, predicate = 0) => {
      const ctl = withPredicate(msgLongCtl(), predicate);
      return writeMsgLong(words, at, ctl, value, ...halves(fixture.hostVa));
    };

    it('MSG_SHORT reaches every register behind its base: its low bits are no predicate', () => {
      const { client } = fixture;
      fixture.mapAll();
      const { firstUserSob } = managerOf(fixture);
      for (let object = firstUserSob; object < firstUserSob + 9; object++) {
        const waiting = client.submit([fixture.chunk(4, (words) => waitForObject(fixture, words, 4, object))]).out;
        expect([object, client.wait(waiting.seq).out.status]).toEqual([object, 1]);
        fixture.run(0, (words) => writeMsgShort(words, 0, msgShortCtl(OBJECTS, object * 4), ADD_ONE));
        expect([object, client.wait(waiting.seq, 1_000_000).out.status]).toEqual([object, 0]);
      }
    });

    it('LOAD_AND_EXE loads predicates, a word each or a bit each, and never predicate 0', () => {
      fixture.mapAll();
      const { words: host } = fixture.host;
      const maps = asic === 'gaudi' ? [0] : [0, PMAP];
      for (const map of maps) {
        for (const set of [0, 1, 10, 31]) {
          const values = map === 0 ? Array.from({ length: 32 }, (_, n) => (n === set ? 1 : 0)) : [(1 << set) >>> 0];
          const predicates = store(fixture, 4096, values);
          const seen = [1, 10, 31].map((predicate) => {
            host[0] = 0;
            run((words) => {
              let at = loadAndExecute(words, 0, LOAD | map, predicates);
              at = message(words, at, 7, predicate);
              return writeNop(words, at, packetCtl(PacketOpcode.NOP));
            });
            return host[0] === 7 ? predicate : 0;
          });
          expect([map, set, seen]).toEqual([map, set, [1, 10, 31].map((predicate) => (predicate === set ? set : 0))]);
        }
      }
      // All are clear but predicate 0.
      run((words) => message(words, loadAndExecute(words, 0, LOAD, store(fixture, 4096, new Array(32).fill(0))), 8));
      expect(host[0]).toBe(8);
    });

    it('predicates skip every packet that has one', () => {
      fixture.mapAll();
      const { words: host } = fixture.host;
      const { firstOfQman } = fixture.profile.queues[base]!;
      const fence0 = fixture.profile.fences.find(({ firstQueue }) => firstQueue === firstOfQman)!.fence0 & 0xffff;
      const nothing = store(
        fixture,
        8192,
        packet((words) => message(words, 0, 666)),
      );
      run((words) => {
        const ctl = (opcode: number) => withPredicate(packetCtl(opcode), 3);
        let at = message(words, 0, 1, 3);
        at = writeFence(words, at, ctl(PacketOpcode.FENCE), fenceCfg(1, 1, 1));
        at = writeWreg32(words, at, withPredicate(wreg32Ctl(fence0), 3), 1);
        at = writeShortPacket(words, at, withPredicate(wregBulkCtl(fence0), 3), 1);
        words.set([5, 5], at);
        at = writeCpDma(words, at + 2, ctl(PacketOpcode.CP_DMA), 16, ...halves(nothing));
        at = writeArbPoint(words, at, ctl(PacketOpcode.ARB_POINT), 1);
        at = writeLoadAndExe(words, at, ctl(PacketOpcode.LOAD_AND_EXE), LOAD | DST | EXE, ...halves(nothing));
        at = writeShortPacket(words, at, ctl(PacketOpcode.REPEAT), 1);
        if (asic === 'gaudi2') at = writeCbList(words, at, ctl(PacketOpcode.CB_LIST), [64, 0], [64, 0]);
        return message(words, at, 2);
      });
      expect(host[0]).toBe(2);
      // The skipped writes would have raised fence 0.
      const blocked = start(
        [program((words) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1)))],
        1,
      );
      expect(status(blocked)).toBe(1);
      const raising = fixture.chunk(base + 1, (words) => writeWreg32(words, 0, wreg32Ctl(fence0), 1));
      const carrier = fixture.chunk(0, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
      expect(fixture.client.submit([raising, carrier]).result).toBe(0);
      expect(fixture.client.wait(blocked, 10_000_000).out.status).toBe(0);
    });

    it('LOAD_AND_EXE executes scalars: one packet of 16 bytes, or one or two of 8', () => {
      const { client } = fixture;
      fixture.mapAll();
      const { words: host } = fixture.host;
      const long = store(
        fixture,
        4096,
        packet((words) => message(words, 0, 41)),
      );
      run((words) => loadAndExecute(words, 0, LOAD | DST | EXE, long));
      expect(host[0]).toBe(41);
      host[0] = 0;
      run((words) => loadAndExecute(words, loadAndExecute(words, 0, LOAD | DST, long), EXE));
      expect(host[0]).toBe(41);
      const add = packet((words) => signal(words, 0));
      /** Signals of a LOAD_AND_EXE: those that arrive before a wait for one more than `count` blocks. */
      const signalsOf = (values: readonly number[], configuration: number, count: number): void => {
        const scalars = store(fixture, 8192, values);
        const more = start(
          [program((words) => loadAndExecute(words, 0, LOAD | DST | EXE | configuration, scalars))],
          count + 1,
        );
        expect(client.wait(more, 10_000_000).out.status).toBe(0);
        expect(status(start([], 1))).toBe(1);
        fixture.run(0, (words) => signal(words, 0));
      };
      signalsOf([...add, 0, 0], 0, 1);
      signalsOf([...add, ...add], 0, 2);
      signalsOf([0, 0, ...add], ETYPE, 1);
      signalsOf([...add, ...add], ETYPE, 1);
    });

    it('LOAD_AND_EXE faults at an address that is not mapped, and stops its queue', () => {
      const { client } = fixture;
      fixture.mapAll();
      const nowhere = fixture.hostVa + 2n ** 30n;
      const bad = start([program((words) => loadAndExecute(words, 0, LOAD, nowhere))], 1);
      expect(status(bad)).toBe(1);
      expect(client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out.addr).toBe(nowhere);
    });

    it('LOAD_AND_EXE stops its queue if the scalars are no packets', () => {
      const { client } = fixture;
      fixture.mapAll();
      const scalars = store(fixture, 4096, [0, packetCtl(PacketOpcode.LIN_DMA), 0, 0]);
      const bad = start([program((words) => loadAndExecute(words, 0, LOAD | DST | EXE, scalars))], 1);
      expect(status(bad)).toBe(1);
      const record = client.info(HL_INFO_OP.UNDEFINED_OPCODE_EVENT, HL_INFO_UNDEFINED_OPCODE_EVENT).out;
      expect(record.timestamp).toBeGreaterThan(0n);
    });

    it('WREG_BULK writes two registers for each of its values', () => {
      const { client, profile } = fixture;
      fixture.mapAll();
      const fence0 = profile.fences.find(({ firstQueue }) => firstQueue === base)!.fence0 & 0xffff;
      const fence = (words: Uint32Array) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 2, 2));
      const blocked = start(
        [0, 1, 2].map((stream) => program(fence, base + stream)),
        3,
      );
      expect(status(blocked)).toBe(1);
      const bulk = program((words) => {
        const at = writeShortPacket(words, 0, wregBulkCtl(fence0), 2);
        words.set([2, 2, 2, 0], at);
        return at + 4;
      }, base + 3);
      const all = start([bulk], 1);
      expect([blocked, all].map((seq) => client.wait(seq, 10_000_000).out.status)).toEqual([0, 0]);
    });

    it('REPEAT goes back to the start of its loop while its predicate holds', () => {
      const { client } = fixture;
      fixture.mapAll();
      // The loop reads its predicate, and clears it in memory: a second round finds it clear.
      const values = new Array<number>(32).fill(0);
      values[5] = 1;
      const predicates = store(fixture, 4096, values);
      const looping = program((words) => {
        let at = writeShortPacket(words, 0, packetCtl(PacketOpcode.REPEAT), 0);
        at = signal(words, at);
        at = loadAndExecute(words, at, LOAD, predicates);
        at = writeMsgLong(words, at, msgLongCtl(), 0, ...halves(predicates + 20n));
        return writeShortPacket(words, at, withPredicate(packetCtl(PacketOpcode.REPEAT), 5), 1);
      });
      const twice = start([looping], 3);
      expect(client.wait(twice, 10_000_000).out.status).toBe(0);
      expect(status(start([], 1))).toBe(1);
    });

    it('a loop without end does not stop the driver', () => {
      const { client } = fixture;
      fixture.mapAll();
      const endless = program((words) => {
        const at = writeShortPacket(words, 0, packetCtl(PacketOpcode.REPEAT), 0);
        return writeShortPacket(words, at, packetCtl(PacketOpcode.REPEAT), 1);
      });
      const seq = start([endless], 1);
      expect(client.wait(seq, 1000).out.status).toBe(1);
      fixture.run(0, (words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
      expect(status(seq)).toBe(1);
    });

    it('CB_LIST runs the command buffers of its table one after the other, in the same queue', () => {
      const { client } = fixture;
      fixture.mapAll();
      const length = 10;
      const [index, table] = [4096, 8192];
      const at = (offset: number) => fixture.hostVa + BigInt(offset);
      const list = (words: Uint32Array, from: number) =>
        writeCbList(words, from, packetCtl(PacketOpcode.CB_LIST), halves(at(index)), halves(at(table)));
      if (asic === 'gaudi') {
        expect(status(start([program((words) => list(words, 0))], 1))).toBe(1);
        const record = client.info(HL_INFO_OP.UNDEFINED_OPCODE_EVENT, HL_INFO_UNDEFINED_OPCODE_EVENT).out;
        expect(record.timestamp).toBeGreaterThan(0n);
        return;
      }
      const upper = packetCtl(PacketOpcode.CP_DMA) | CP_DMA_UPPER_CP;
      for (let entry = 0; entry < length; entry++) {
        const words = new Uint32Array(32);
        let end = signal(words, 0);
        if (entry < length - 1) {
          end = writeMsgLong(words, end, msgLongCtl(), entry + 1, ...halves(at(index)));
          end = list(words, end);
        }
        const place = store(fixture, 16384 + entry * 256, [...words.subarray(0, end)]);
        store(
          fixture,
          table + entry * 16,
          packet((packets) => writeCpDma(packets, 0, upper, end * 4, ...halves(place))),
        );
      }
      for (let round = 0; round < 2; round++) {
        // The signal of the program itself comes before those of the list: the list continues behind its buffer.
        const first = program((words) => list(words, writeMsgLong(words, 0, msgLongCtl(), 0, ...halves(at(index)))));
        const behind = program((words) => writeNop(words, 0, packetCtl(PacketOpcode.NOP)));
        const all = start([first, behind], length + 2);
        expect(client.wait(all, 10_000_000).out.status).toBe(0);
      }
      expect(status(start([], 1))).toBe(1);
    });

    it('CP_DMA runs a buffer in the lower command processor, which has none below it', async () => {
      const { client, host } = fixture;
      fixture.mapAll();
      const inner = store(
        fixture,
        4096,
        packet((words) => message(words, 0, 5)),
      );
      const fetch = (words: Uint32Array, buffer: bigint) =>
        writeCpDma(words, 0, packetCtl(PacketOpcode.CP_DMA), 16, ...halves(buffer));
      run((words) => fetch(words, inner));
      await vi.waitFor(() => expect(host.words[0]).toBe(5));
      const nested = store(
        fixture,
        8192,
        packet((words) => fetch(words, inner)),
      );
      start([program((words) => fetch(words, nested))], 1);
      const record = client.info(HL_INFO_OP.UNDEFINED_OPCODE_EVENT, HL_INFO_UNDEFINED_OPCODE_EVENT).out;
      expect(record.timestamp).toBeGreaterThan(0n);
    });

    if (asic === 'gaudi2') {
      it('CP_DMA with upper_cp runs a buffer behind its own one', () => {
        fixture.mapAll();
        const { words: host } = fixture.host;
        const inner = store(
          fixture,
          4096,
          packet((words) => message(words, 0, 5)),
        );
        const upper = packetCtl(PacketOpcode.CP_DMA) | CP_DMA_UPPER_CP;
        fixture.run(base, (words) => message(words, writeCpDma(words, 0, upper, 16, ...halves(inner)), 4));
        expect(host[0]).toBe(5);
      });

      it('WREG_32 writes a scalar if it names one', () => {
        const { client, profile } = fixture;
        fixture.mapAll();
        const fence0 = profile.fences.find(({ firstQueue }) => firstQueue === base)!.fence0 & 0xffff;
        const fence = (words: Uint32Array) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 9, 9));
        const blocked = start([program(fence)], 1);
        const scalars = store(fixture, 4096, [1, 2, 9, 4]);
        const scalar = program((words) => {
          const at = loadAndExecute(words, 0, LOAD | DST, scalars);
          return writeWreg32(words, at, wreg32Ctl(fence0) | WregCtl.REG, 2);
        }, base + 1);
        const both = start([scalar], 1);
        expect([blocked, both].map((seq) => client.wait(seq, 10_000_000).out.status)).toEqual([0, 0]);
      });
    }
  });
}
