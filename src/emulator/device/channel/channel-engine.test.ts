/** The channels of one card, on memory of the test, with DMA engines that move data when the test says so. */

import { afterEach, describe, expect, it } from 'vitest';
import {
  CHANNELS,
  completedCopy,
  copyPacket,
  FROM_DEVICE,
  fence,
  halves,
  message,
  registerAt,
  TO_DEVICE,
} from '../../../../test/contract/driver/channel-fixture.ts';
import { type MappedMemory, mapAnonymous, OWN_ADDRESS_SPACE } from '../../../sys/index.ts';
import {
  channelBlockA,
  EcmpltnCfg,
  GAUDI3_PROFILE,
  PdmaChannelA,
  PdmaCommon,
  PQM_NOP_CTL,
  RING_IN_MEMORY,
} from '../../../uapi/index.ts';
import { createLog, LogLevel } from '../../../ucs/debug/log.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { createRandom } from '../../../ucs/sys/random.ts';
import { DmaEngines } from '../engine/dma-engines.ts';
import { AddressMap, AddressRegion } from '../memory/address-map.ts';
import { WordAccess } from '../memory/memory-access.ts';
import { HOST_MEMORY, PhysicalMemory } from '../memory/physical-memory.ts';
import { CardTraffic, LinkTraffic } from '../memory/traffic.ts';
import { ChannelEngine } from './channel-engine.ts';

const BYTES = 65_536;
const RING_BYTES = 4096;
const COUNTER_AT = RING_BYTES;
const DATA_AT = 8192;
const HOST = 0xff70_0000_0000_0000n;
const HBM = GAUDI3_PROFILE.dram.base;
/** A register outside the channels, to which packets may write. */
const OTHER_REGISTER = 0x1000;
/** The message of each completion. */
const DOORBELL = 0x2000;

/** A card with the ring, the counter and data in host memory. */
class Bench {
  readonly host: MappedMemory = mapAnonymous(BYTES);
  readonly hbm: MappedMemory = mapAnonymous(BYTES);
  readonly engines: DmaEngines;
  readonly channels: ChannelEngine;
  /** Writes to registers outside the channels, by offset. */
  readonly written: [number, number][] = [];
  /** Faults as they were reported, with the engine. */
  readonly faults: [string, number][] = [];
  /** Passes that were requested. */
  passes = 0;
  /** Called after a write to a register outside the channels. */
  onWrite: (value: number) => void = () => {};
  readonly #block: number;
  #submitted = 0;

  /** @param isForeign whether system calls read and write the host memory, like that of another process */
  constructor(isStrict: boolean, isForeign = false) {
    const clock = new ManualClock();
    const log = createLog('test', LogLevel.FATAL, () => {});
    const words = new WordAccess();
    this.engines = new DmaEngines({ threads: 0, spinNs: 0, clock, log, random: createRandom(1) });
    const hostRange = { address: this.host.address, byteLength: BYTES, space: OWN_ADDRESS_SPACE };
    const memory = (name: string, { address, u8 }: MappedMemory): PhysicalMemory =>
      new PhysicalMemory(name, { address, byteLength: BYTES }, (offset, length) =>
        u8.subarray(offset, offset + length),
      );
    const record =
      (name: string) =>
      ({ engineId }: { readonly engineId: number }): void => {
        this.faults.push([name, engineId]);
      };
    this.channels = new ChannelEngine({
      channels: CHANNELS,
      addressMap: new AddressMap([
        new AddressRegion(HOST_MEMORY, HOST, BYTES, {
          memory: isForeign ? new PhysicalMemory(HOST_MEMORY, hostRange) : memory(HOST_MEMORY, this.host),
        }),
        new AddressRegion('hbm', HBM, BYTES, { memory: memory('hbm', this.hbm) }),
        new AddressRegion('registers', GAUDI3_PROFILE.cfg.start, 0x1000_0000, {}),
      ]),
      engines: this.engines,
      words,
      faults: {
        pageFault: record('page fault'),
        razwi: record('razwi'),
        undefinedOpcode: record('undefined opcode'),
        engineError: record('error'),
      },
      clock,
      inlineBytesMax: 0,
      traffic: new CardTraffic(0, new LinkTraffic(1), 0),
      isStrict,
      writeRegister: (offset, value) => {
        if (this.channels.write(offset, value)) return true;
        this.written.push([offset, value]);
        this.onWrite(value);
        return offset === OTHER_REGISTER || offset === DOORBELL;
      },
      onSubmission: () => {},
      onWorkLeft: () => {
        this.passes += 1;
      },
    });
    this.#block = channelBlockA(CHANNELS, 0);
    const [counterLow, counterHigh] = halves(HOST + BigInt(COUNTER_AT));
    const [ringLow, ringHigh] = halves(HOST);
    const [doorbellLow, doorbellHigh] = halves(registerAt(DOORBELL));
    const both = EcmpltnCfg.ENABLE | EcmpltnCfg.COUNTER | EcmpltnCfg.LBW_WRITE;
    for (const [register, value] of [
      [PdmaChannelA.ECMPLTN_Q_BASE_LO, counterLow],
      [PdmaChannelA.ECMPLTN_Q_BASE_HI, counterHigh],
      [PdmaChannelA.ECMPLTN_Q_LBW_ADDR_L, doorbellLow],
      [PdmaChannelA.ECMPLTN_Q_LBW_ADDR_H, doorbellHigh],
      [PdmaChannelA.ECMPLTN_Q_LBW_PAYLD, 71],
      [PdmaChannelA.ECMPLTN_Q_CH_CFG, both],
      [PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY],
      [PdmaChannelA.MSQ_BASE_H, ringHigh],
      [PdmaChannelA.MSQ_BASE_L, ringLow],
      [PdmaChannelA.MSQ_SIZE, RING_BYTES - 1],
    ] as const) {
      this.write(register, value | 0);
    }
  }

  write(register: number, value: number): void {
    expect(this.channels.write(this.#block + register, value)).toBe(true);
  }

  read(register: number): number | undefined {
    return this.channels.read(this.#block + register);
  }

  get counter(): number {
    return this.host.words[COUNTER_AT / 4]!;
  }

  get consumed(): number {
    return this.read(PdmaChannelA.MSQ_CI)!;
  }

  submit(...packets: readonly (readonly number[])[]): void {
    for (const word of packets.flat()) {
      this.host.words[(this.#submitted % RING_BYTES) / 4] = word;
      this.#submitted += 4;
    }
    this.write(PdmaChannelA.MSQ_PI, this.#submitted);
  }

  /** Moves data, and runs what waited for it. */
  run(): void {
    for (let pass = 0; pass < 3; pass++) {
      this.engines.pump();
      this.channels.pump();
    }
  }

  close(): void {
    this.channels.close();
    this.engines.close();
    this.host.close();
    this.hbm.close();
  }
}

let bench: Bench;
afterEach(() => bench.close());

function open(isStrict = false): Bench {
  bench = new Bench(isStrict);
  bench.host.u8.fill(9, DATA_AT, DATA_AT + 100);
  return bench;
}

const COPY = copyPacket(100, TO_DEVICE, HOST + BigInt(DATA_AT), HBM);
const other = (value: number): readonly number[] => message(registerAt(OTHER_REGISTER), value);

describe('a transfer', () => {
  it('has its effects in order: data, write completion, counter, message', () => {
    const { hbm, engines, channels } = open();
    bench.submit(completedCopy(COPY, registerAt(OTHER_REGISTER), 5));
    expect([bench.counter, bench.written, bench.consumed]).toEqual([0, [], 0]);
    expect(bench.passes).toBe(1);
    engines.pump();
    expect([hbm.u8[99], bench.written]).toEqual([9, []]);
    channels.pump();
    expect(bench.written).toEqual([
      [OTHER_REGISTER, 5],
      [DOORBELL, 71],
    ]);
    expect([bench.counter, bench.consumed]).toEqual([1, 40]);
    expect([...channels.busyChannels()]).toEqual([]);
  });

  it('counts behind its data, and its message follows the count', () => {
    const { engines, channels } = open();
    bench.submit(COPY, COPY);
    expect([bench.consumed, bench.counter, bench.written]).toEqual([48, 0, []]);
    engines.pump();
    expect([bench.counter, bench.written]).toEqual([2, []]);
    channels.pump();
    expect(bench.written).toEqual([
      [DOORBELL, 71],
      [DOORBELL, 71],
    ]);
  });

  it('carries into the high word of the counter', () => {
    open();
    bench.host.words[COUNTER_AT / 4] = 0xffff_ffff;
    bench.submit(COPY);
    bench.run();
    expect([bench.counter, bench.host.words[COUNTER_AT / 4 + 1]]).toEqual([0, 1]);
    bench.submit(copyPacket(0, TO_DEVICE, 0n, 0n));
    expect([bench.counter, bench.host.words[COUNTER_AT / 4 + 1]]).toEqual([1, 1]);
  });

  it('adds to the counter that memory has, if nothing is on its way there', () => {
    open();
    bench.submit(COPY);
    bench.run();
    bench.host.words[COUNTER_AT / 4] = 7;
    bench.submit(COPY, COPY);
    bench.run();
    expect(bench.counter).toBe(9);
  });

  it('that cannot be executed stops the channel and counts nothing', () => {
    // Without the commit bit, with bits that are not public, and to an address without translation.
    for (const [packet, faults] of [
      [copyPacket(8, TO_DEVICE & ~0x800, HOST + BigInt(DATA_AT), HBM), [['error', 120]]],
      [copyPacket(8, TO_DEVICE | 0x80, HOST + BigInt(DATA_AT), HBM), [['error', 120]]],
      [copyPacket(8, TO_DEVICE | 0x200, HOST + BigInt(DATA_AT), HBM), [['error', 120]]],
      [copyPacket(8, TO_DEVICE | 0x400, HOST + BigInt(DATA_AT), HBM), [['error', 120]]],
      [
        copyPacket(8, FROM_DEVICE, HBM, 0x10n),
        [
          ['page fault', 120],
          ['error', 120],
        ],
      ],
    ] as const) {
      open();
      bench.submit(packet, other(1));
      bench.run();
      expect([bench.faults, bench.counter, bench.written, bench.consumed]).toEqual([faults, 0, [], 0]);
      bench.close();
    }
    open();
  });
});

describe('a message', () => {
  it.each([true, false])('waits for data unless the card is strict (%s)', (isStrict) => {
    open(isStrict);
    bench.submit(COPY, other(3));
    expect(bench.written).toEqual(isStrict ? [[OTHER_REGISTER, 3]] : []);
    bench.run();
    expect(bench.written).toContainEqual([OTHER_REGISTER, 3]);
    expect(bench.consumed).toBe(40);
  });

  it('goes to the base that its group has, or to a fence of another channel', () => {
    open();
    const [low, high] = halves(registerAt(OTHER_REGISTER - 0x10));
    const base = CHANNELS.groups[0]!.common + PdmaCommon.CP_MSG_BASE_ADDR + 3 * 8;
    const raise = registerAt(channelBlockA(CHANNELS, 7) + PdmaChannelA.FENCE_INC);
    bench.submit(message(registerAt(base), low), message(registerAt(base + 4), high));
    bench.submit([8, 0x04000000 | (3 << 16) | 0x10], message(raise, 2));
    expect(bench.written).toEqual([[OTHER_REGISTER, 8]]);
    expect(bench.channels.read(channelBlockA(CHANNELS, 7) + PdmaChannelA.FENCE_CNT)).toBe(2);
    expect(bench.channels.read(base)).toBe(low | 0);
  });

  it('that no register takes stops the channel', () => {
    open();
    bench.submit(message(registerAt(0x3000), 1), other(2));
    expect([bench.faults, bench.consumed]).toEqual([
      [
        ['razwi', 120],
        ['error', 120],
      ],
      0,
    ]);
  });
});

describe('the ring', () => {
  it('executes a packet when all of it is submitted', () => {
    open();
    bench.submit(COPY.slice(0, 4));
    expect([bench.consumed, [...bench.channels.busyChannels()].length]).toEqual([0, 1]);
    bench.submit(COPY.slice(4));
    bench.run();
    expect([bench.counter, bench.consumed, bench.faults]).toEqual([1, 24, []]);
  });

  it('may get packets while it runs, from another process that shares the registers', () => {
    bench = new Bench(false, true);
    const registers = new Int32Array(1024);
    bench.channels.moveBlock(channelBlockA(CHANNELS, 0), registers, true);
    bench.onWrite = (value) => {
      if (value !== 1) return;
      bench.host.words.set(other(2), 4);
      registers[PdmaChannelA.MSQ_PI / 4] = 32;
    };
    bench.submit(other(1));
    expect([bench.faults, bench.written, bench.consumed]).toEqual([
      [],
      [
        [OTHER_REGISTER, 1],
        [OTHER_REGISTER, 2],
      ],
      32,
    ]);
  });

  it('whose producer index goes backwards is an error', () => {
    open();
    // Valid packets follow, which would be executed again and again.
    for (let word = 0; word < RING_BYTES / 4; word += 2) bench.host.words.set([0, PQM_NOP_CTL], word);
    bench.submit(other(1), other(2));
    bench.write(PdmaChannelA.MSQ_PI, 8);
    expect([bench.faults, bench.consumed]).toEqual([[['error', 120]], 32]);
  });

  it('waits for a fence, which a write of its register raises', () => {
    open();
    bench.submit(fence(1, 2, 2), other(4));
    bench.write(PdmaChannelA.FENCE_INC + 4, 1);
    expect(bench.written).toEqual([]);
    bench.write(PdmaChannelA.FENCE_INC + 4, 1);
    expect([bench.written, bench.consumed]).toEqual([[[OTHER_REGISTER, 4]], 24]);
  });
});

describe('a bulk of register writes', () => {
  it.each([true, false])('includes its values, whether its predicate holds (%s) or not', (holds) => {
    open();
    bench.write(PdmaChannelA.CP_PRED, holds ? 0b11 : 0b01);
    // As packets, its values would write another register.
    const values = other(7);
    bench.submit([2, 0x15000001 | (PdmaChannelA.SRC_BASE_LO << 6)], values, other(3));
    expect([bench.written, bench.faults, bench.consumed]).toEqual([[[OTHER_REGISTER, 3]], [], 40]);
    expect(bench.read(PdmaChannelA.SRC_BASE_LO)).toBe(holds ? 7 : 0);
  });
});

describe('an error', () => {
  it('is reported when the channel moves no more data', () => {
    open();
    bench.submit(COPY, [0, 0x0b000000], other(1));
    expect([bench.faults, bench.channels.drained]).toEqual([[], false]);
    bench.run();
    expect([bench.faults, bench.counter, bench.written]).toEqual([[['error', 120]], 1, []]);
  });

  it('ends with a reset; a halted card runs nothing', () => {
    open();
    bench.channels.halt();
    bench.submit(other(1));
    bench.run();
    expect([bench.written, [...bench.channels.busyChannels()]]).toEqual([[], []]);
    bench.channels.reset();
    expect(bench.read(PdmaChannelA.MSQ_PI)).toBe(0);
  });
});

it('registers outside the blocks of channels are not its own', () => {
  open();
  for (const offset of [0, CHANNELS.groups[0]!.common + 0x1000, CHANNELS.groups[3]!.common + 0x1000]) {
    expect([bench.channels.write(offset, 1), bench.channels.read(offset)]).toEqual([false, undefined]);
  }
});
