/** The route over a PDMA channel: packets, ring, counter, sleep, time-out, teardown; against registers and a driver that a test answers. */

import { afterEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import type { ArgumentBlock, RegisterMapping } from '../../driver/port.ts';
import { Errno, viewAt } from '../../sys/index.ts';
import {
  DRM_IOCTLS,
  HL_DEVICE_STATUS,
  HL_INFO_ARGS,
  HL_WAIT_CS_ARGS,
  PdmaChannelA,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { ChannelRoute, type ChannelRouteOptions } from './channel-route.ts';
import { DmaRequestPool } from './request.ts';
import { Batches } from './submission.ts';

expectNoLeaks();

const LOW = -4096;
const HIGH = 0x7000;
const TO_DEVICE = 0x09002900;
const FROM_DEVICE = 0x09000900;
const COUNTED = 0x1000;
const NOP = 0x0a000000;
const DOORBELL = 0x0300007f_fc417000n;

/** Registers that keep what is written, and the log of writes by their names. */
class Registers implements RegisterMapping {
  readonly byteLength = 4096;
  readonly words: Int32Array = new Int32Array(1024);
  readonly writes: [string, number][] = [];
  closes = 0;

  read(offset: number): number {
    return this.words[offset / 4]!;
  }

  write(offset: number, value: number): void {
    const name = Object.entries(PdmaChannelA).find(([, at]) => at === offset)![0];
    this.words[offset / 4] = value;
    // The effect of the real register.
    if (offset === PdmaChannelA.DESC_SUBMIT_FIFO_CFG) this.words[PdmaChannelA.MSQ_CI / 4] = 0;
    this.writes.push([name, value]);
  }

  close(): void {
    this.closes += 1;
  }
}

/** The routes of a test, which are closed after it. */
const routes: ChannelRoute[] = [];
afterEach(() => {
  for (const route of routes.splice(0)) route.close();
});

function open(options: Partial<ChannelRouteOptions> = {}) {
  const clock = new ManualClock();
  const registers = new Registers();
  const state = { status: HL_DEVICE_STATUS.OPERATIONAL as number, result: 0, memory: new Uint32Array(0), unmaps: 0 };
  const waits: { readonly words: Uint32Array; readonly end: (result: number) => void }[] = [];
  const file = {
    numbers: DRM_IOCTLS,
    ioctl: (_request: number, { words }: ArgumentBlock): number => {
      const at = HL_INFO_ARGS.words;
      const answer = words[at.return_pointer]! + words[at.return_pointer + 1]! * 2 ** 32;
      new Uint32Array(viewAt(answer, 4))[0] = state.status;
      return state.result;
    },
    ioctlAsync: (_request: number, { words }: ArgumentBlock): Promise<number> =>
      new Promise((end) => waits.push({ words: words.slice(), end })),
  };
  const device = {
    clock,
    file,
    checkFaults: () => undefined,
    mapHost: (address: number, byteLength: number) => {
      state.memory = new Uint32Array(viewAt(address, byteLength));
      const unmap = (): void => {
        state.unmaps += 1;
      };
      return { low: LOW, high: HIGH, unmap };
    },
  };
  const route = new ChannelRoute(device as never, {
    channel: 7,
    engineId: 127,
    registers,
    toDevice: true,
    interrupt: { id: 326, doorbell: DOORBELL },
    slots: 2,
    timeoutNs: 1000,
    ...options,
  });
  routes.push(route);
  const watched: number[] = [];
  route.listen((result) => watched.push(result));
  const batches = new Batches(route.slots, options.batchesBefore);
  /** Submits a batch of transfers, or returns false if the ring lacks space for it. */
  const submit = (transfers = 1, byteLength = 64): boolean => {
    if (route.begin(batches) < transfers) return false;
    for (let n = 0; n < transfers; n++) {
      const request = new DmaRequestPool({}, 1).get()!;
      request.begin(byteLength);
      request.setSource(0x1000, 1);
      request.setDestination(0x2000, 2);
      route.add(request, 0, byteLength);
    }
    expect(route.submit(batches.nextSlot)).toBe(0);
    batches.submitted = batches.next;
    return true;
  };
  /** The card executes everything up to a batch. */
  const complete = (batch = batches.submitted): void => {
    state.memory[0] = batch;
    registers.words[PdmaChannelA.MSQ_CI / 4] = registers.words[PdmaChannelA.MSQ_PI / 4]!;
    while (batches.retired !== batch) batches.retire();
  };
  return { route, registers, clock, state, waits, watched, batches, submit, complete };
}

type Opened = ReturnType<typeof open>;

/** The words of the ring. */
function ringOf({ state, registers }: Opened): Uint32Array {
  const [low, high] = [PdmaChannelA.MSQ_BASE_L, PdmaChannelA.MSQ_BASE_H].map((at) => registers.read(at));
  const offset = (high! - HIGH) * 2 ** 32 + (low! >>> 0) - (LOW >>> 0);
  return state.memory.subarray(offset / 4, (offset + registers.read(PdmaChannelA.MSQ_SIZE) + 1) / 4);
}

describe('the registers of a route', () => {
  it('are written in the order of the vendor: the completion, then the ring', () => {
    const { registers } = open();
    expect(registers.writes.map(([name]) => name)).toEqual([
      'ECMPLTN_Q_CH_CFG',
      'ECMPLTN_Q_BASE_LO',
      'ECMPLTN_Q_BASE_HI',
      'ECMPLTN_Q_SIZE',
      'ECMPLTN_Q_LBW_ADDR_L',
      'ECMPLTN_Q_LBW_ADDR_H',
      'ECMPLTN_Q_LBW_PAYLD',
      'ECMPLTN_Q_CH_CFG',
      'DESC_SUBMIT_FIFO_CFG',
      'MSQ_BASE_H',
      'MSQ_BASE_L',
      'MSQ_SIZE',
    ]);
    expect(registers.writes.map(([, value]) => value).slice(0, 9)).toEqual([
      0,
      LOW,
      HIGH,
      8,
      0xfc417000,
      0x0300007f,
      326,
      7,
      1,
    ]);
    expect(registers.read(PdmaChannelA.MSQ_SIZE)).toBe(4095);
  });

  it('send no message without user interrupts', () => {
    const { registers } = open({ interrupt: undefined });
    expect(registers.writes.map(([name]) => name)).not.toContain('ECMPLTN_Q_LBW_PAYLD');
    expect(registers.read(PdmaChannelA.ECMPLTN_Q_CH_CFG)).toBe(3);
  });

  it('are stopped and unmapped once, before the memory is released', () => {
    const { route, registers, state } = open();
    registers.writes.length = 0;
    route.disconnect();
    expect([registers.writes, registers.closes, state.unmaps]).toEqual([
      [
        ['ECMPLTN_Q_CH_CFG', 0],
        ['DESC_SUBMIT_FIFO_CFG', 0],
      ],
      1,
      0,
    ]);
    route.disconnect();
    routes.length = 0;
    route.close();
    expect([registers.closes, state.unmaps]).toEqual([1, 1]);
  });
});

describe('the packets of a batch', () => {
  it.each([
    [true, TO_DEVICE],
    [false, FROM_DEVICE],
  ])('have source, destination and direction (to the device: %s), and only the last counts', (toDevice, control) => {
    const opened = open({ toDevice });
    opened.submit(2);
    const first = [64, control, 0x1000, 0x2000, 1, 2];
    expect([...ringOf(opened).subarray(0, 12)]).toEqual([...first, 64, control | COUNTED, ...first.slice(2)]);
    expect(opened.registers.writes.at(-1)).toEqual(['MSQ_PI', 48]);
  });

  it('never cross the end of the ring: NOPs fill it', () => {
    const opened = open();
    // 170 packets of 24 bytes leave 16 of 4096.
    for (let batch = 0; batch < 170; batch++) {
      expect(opened.submit()).toBe(true);
      opened.complete();
    }
    expect(opened.submit()).toBe(true);
    const ring = ringOf(opened);
    expect([...ring.subarray(1020, 1024)]).toEqual([0, NOP, 0, NOP]);
    expect([ring[0], ring[1]]).toEqual([64, TO_DEVICE | COUNTED]);
    expect(opened.registers.writes.at(-1)).toEqual(['MSQ_PI', 4096 + 24]);
  });

  it('are limited by what batches in flight occupy', () => {
    const opened = open();
    const { route, batches } = opened;
    expect(route.begin(batches)).toBe(170);
    expect(opened.submit(100)).toBe(true);
    expect(route.begin(batches)).toBe(70);
    expect(opened.submit(70)).toBe(true);
    opened.complete(batches.retired + 1);
    expect(route.begin(batches)).toBe(100);
    opened.complete();
    expect(route.begin(batches)).toBe(170);
  });
});

describe('the producer index', () => {
  it('starts anew with an empty ring beyond a limit, and is not changed while a batch is in flight', () => {
    const opened = open({ restart: { empty: 48, always: 96 } });
    const { registers } = opened;
    opened.submit();
    opened.submit();
    opened.complete(opened.batches.retired + 1);
    expect(opened.submit()).toBe(true);
    expect(registers.read(PdmaChannelA.MSQ_PI)).toBe(72);
    opened.complete();
    registers.writes.length = 0;
    opened.submit();
    const names = registers.writes.map(([name]) => name);
    // A write of MSQ_CI before the mode would submit the old packets again.
    expect(names).toEqual(['DESC_SUBMIT_FIFO_CFG', 'MSQ_BASE_H', 'MSQ_BASE_L', 'MSQ_SIZE', 'MSQ_PI']);
    expect(registers.read(PdmaChannelA.MSQ_PI)).toBe(24);
  });

  it('does not start anew before the channel has written its consumer index', () => {
    const { submit, complete, registers } = open({ restart: { empty: 24, always: 2 ** 31 } });
    submit();
    complete();
    registers.words[PdmaChannelA.MSQ_CI / 4] = 0;
    submit();
    expect(registers.read(PdmaChannelA.MSQ_PI)).toBe(48);
    complete();
    submit();
    expect(registers.read(PdmaChannelA.MSQ_PI)).toBe(24);
  });

  it('never comes near to 2^32: at the second limit, batches wait until the ring is empty', () => {
    const opened = open({ restart: { empty: 48, always: 48 } });
    opened.submit(2);
    expect(opened.submit()).toBe(false);
    opened.complete();
    expect(opened.submit()).toBe(true);
    expect(opened.registers.read(PdmaChannelA.MSQ_PI)).toBe(24);
  });

  it('continues where the hardware has it, if the mode does not clear it', () => {
    const opened = open({ restart: { empty: 24, always: 2 ** 31 } });
    opened.submit();
    opened.complete();
    const { write } = opened.registers;
    // Another register than the real one: the consumer index stays.
    opened.registers.write = (offset, value) => {
      write.call(opened.registers, offset, value);
      if (offset === PdmaChannelA.DESC_SUBMIT_FIFO_CFG) opened.registers.words[PdmaChannelA.MSQ_CI / 4] = 24;
    };
    opened.submit();
    expect(opened.registers.read(PdmaChannelA.MSQ_PI)).toBe(48);
    expect([...ringOf(opened).subarray(6, 8)]).toEqual([64, TO_DEVICE | COUNTED]);
  });
});

describe('the end of a batch', () => {
  it('is a read of the counter, whose values continue beyond 2^32', () => {
    const { route, submit, complete, state, batches } = open({ batchesBefore: -1 });
    expect(route.completed).toBe(-1);
    submit();
    complete(0);
    submit();
    expect([route.completed, route.seqOf(0), route.seqOf(batches.oldestSlot)]).toEqual([0, 2 ** 32 + 1, 2 ** 32 + 1]);
    expect(state.memory[0]).toBe(0);
  });

  it('is awaited by one interrupt at a time, for the value of the counter', async () => {
    const { route, submit, waits, watched, state, batches } = open();
    submit();
    submit();
    route.watch(batches.oldestSlot, 1500);
    route.watch(batches.oldestSlot, 9000);
    const view = new DataView(waits[0]!.words.buffer);
    const given = HL_WAIT_CS_ARGS.in.decode(view);
    expect(new Uint32Array(viewAt(Number(given.addr), 4))[0]).toBe(state.memory[0]);
    expect([given.target, given.interrupt_timeout_us, given.flags]).toEqual([
      1n,
      2n,
      ((326 << WAIT_CS_INTERRUPT_SHIFT) | 2) >>> 0,
    ]);
    waits[0]!.end(0);
    await new Promise((resolve) => setImmediate(resolve));
    expect([watched, waits.length]).toEqual([[0], 1]);
  });

  it('fails at the end of a wait if the card is in reset', async () => {
    const { route, submit, waits, watched, state, batches } = open();
    submit();
    route.watch(batches.oldestSlot, 1500);
    state.status = HL_DEVICE_STATUS.IN_RESET;
    waits[0]!.end(0);
    await new Promise((resolve) => setImmediate(resolve));
    expect(watched).toEqual([-Errno.EBUSY]);
  });

  it.each([
    ['without interrupts', undefined],
    ['while the driver accepts no waits', { id: 326, doorbell: DOORBELL }],
  ])('%s is checked every millisecond', async (_what, interrupt) => {
    const { route, submit, waits, watched, clock, batches } = open({ interrupt });
    submit();
    route.watch(batches.oldestSlot, 1e9);
    for (const { end } of waits) end(-Errno.EBUSY);
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(999_999);
    expect(watched).toEqual([]);
    route.watch(batches.oldestSlot, 1e9);
    for (const { end } of waits.slice(1)) end(-Errno.EBUSY);
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(1);
    expect(watched).toEqual([0]);
    clock.advance(1e9);
    expect(watched).toEqual([0]);
  });

  it('does not come on a card that was removed or is in reset, and may on one that waits to be closed', () => {
    const { route, submit, state } = open();
    submit();
    expect(route.poll()).toBe(0);
    state.status = HL_DEVICE_STATUS.IN_RESET;
    expect(route.poll()).toBe(-Errno.EBUSY);
    state.status = HL_DEVICE_STATUS.OPERATIONAL;
    for (const [result, expected] of [
      [-Errno.ENODEV, -Errno.ENODEV],
      [-Errno.EBADF, -Errno.EBADF],
      [-Errno.EINTR, 0],
    ] as const) {
      state.result = result;
      expect(route.poll()).toBe(expected);
    }
    expect([route.isStoppedBy([126, 127]), route.isStoppedBy([126])]).toEqual([true, false]);
  });

  it('times out without progress only, and the channel fetches nothing more', () => {
    const { route, submit, complete, clock, registers, batches } = open();
    clock.advance(5000);
    submit();
    submit();
    expect(route.poll()).toBe(0);
    clock.advance(999);
    expect(route.poll()).toBe(0);
    complete(batches.retired + 1);
    clock.advance(1);
    expect(route.poll()).toBe(0);
    clock.advance(1000);
    registers.writes.length = 0;
    expect(route.poll()).toBe(-Errno.ETIMEDOUT);
    expect(registers.writes).toEqual([['DESC_SUBMIT_FIFO_CFG', 0]]);
  });

  it('comes at most a second later on a card that the driver will reset', () => {
    const { route, submit, clock, registers } = open({ timeoutNs: 30e9 });
    submit();
    expect(route.poll()).toBe(0);
    route.lose();
    clock.advance(1e9 - 1);
    expect(route.poll()).toBe(0);
    clock.advance(1);
    registers.writes.length = 0;
    expect(route.poll()).toBe(-Errno.EIO);
    expect(registers.writes).toEqual([['DESC_SUBMIT_FIFO_CFG', 0]]);
  });

  it('has its time from its own start, after a pause', () => {
    const { route, submit, complete, clock } = open();
    submit();
    expect(route.poll()).toBe(0);
    complete();
    // The completion has been seen, and then nothing for a long time.
    expect(route.poll()).toBe(0);
    clock.advance(1e9);
    submit();
    expect(route.poll()).toBe(0);
    clock.advance(1000);
    expect(route.poll()).toBe(-Errno.ETIMEDOUT);
  });
});

describe('short transfers', () => {
  it('have a data area for each slot, in the mapped memory', () => {
    const { route, state } = open();
    const [first, second] = [route.dataOffset(0), route.dataOffset(1)];
    expect([first, second - first]).toEqual([4096, 1024]);
    route.data[first] = 9;
    expect(state.memory[first / 4]).toBe(9);
    expect([route.dataLow(first), route.dataHigh(first)]).toEqual([0, HIGH + 1]);
  });
});
