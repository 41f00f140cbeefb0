/** Contract cases: PDMA channels (gaudi3). Each case runs on a card that lets messages overtake data. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { allocateScratch, Errno } from '../../../src/sys/index.ts';
import {
  channelBlockA,
  channelBlockB,
  GAUDI3_PROFILE,
  HL_CB_FLAGS,
  HL_CB_OP,
  HL_INFO_ENGINE_ERR_EVENT,
  HL_INFO_HW_IDLE,
  HL_INFO_OP,
  HL_MEM_OP,
  HL_PAGE_FAULT_INFO,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  LIN_PDMA_COMPLETION_BYTES,
  LinPdmaCtl,
  PdmaChannelA,
  PdmaCommon,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../../src/uapi/index.ts';
import {
  CHANNELS,
  ChannelFixture,
  type ChannelProgram,
  COPY_BYTES,
  channelRegister,
  completedCopy,
  copyPacket,
  DATA_BYTES,
  FROM_DEVICE,
  fence,
  halves,
  message,
  RING_BYTES,
  registerAt,
  sobAt,
  TO_DEVICE,
} from './channel-fixture.ts';

const USER_CHANNELS: readonly number[] = Array.from({ length: 23 }, (_, channel) => channel);
/** A write of a sync object that adds. */
const ADD = 0x8000_0000;
/** MON_CONFIG: post to a completion queue, and send its message. */
const CQ_AND_MESSAGE = 0x110;
const NOP: readonly number[] = [0, 0x0a000000];
const HALF: bigint = BigInt(DATA_BYTES) / 2n;

export function channelCases(makeNode: () => DriverNode): void {
  describe('PDMA channels', () => {
    const fixture = new ChannelFixture(makeNode);

    it('copy in both directions, count in host memory, and raise the interrupt', () => {
      const sent = fixture.pattern(4096);
      const program = fixture.channel().setUp();
      program.submit(copyPacket(4096, TO_DEVICE, fixture.hostVa, fixture.deviceVa));
      program.await(1n);
      expect(program.registers.read(PdmaChannelA.MSQ_CI)).toBe(COPY_BYTES);
      program.submit(copyPacket(4096, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + HALF));
      program.await(2n);
      expect(fixture.host.u8.slice(Number(HALF), Number(HALF) + 4096)).toEqual(sent);
    });

    it('copy and fill from host to host', () => {
      const sent = fixture.pattern(300_000);
      const program = fixture.channel().setUp();
      const target = fixture.hostVa + HALF;
      program.submit(
        copyPacket(sent.length, FROM_DEVICE, fixture.hostVa, target + 1n),
        copyPacket(8, TO_DEVICE | LinPdmaCtl.MEMSET, 0x0807_0605_0403_0201n, target + 300_001n),
      );
      program.await(2n);
      const received = fixture.host.u8.subarray(Number(HALF), Number(HALF) + 300_010);
      expect(Buffer.compare(received.subarray(1, 300_001), sent)).toBe(0);
      expect([received[0], ...received.subarray(300_001)]).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    });

    it.each([1, 4, 28, 128, 4095, 1_000_001])('copy %i bytes at odd places, and no byte beside them', (byteLength) => {
      const sent = fixture.pattern(byteLength + 12);
      const program = fixture.channel(5).setUp();
      const back = fixture.hostVa + HALF;
      program.submit(
        copyPacket(byteLength, TO_DEVICE, fixture.hostVa + 5n, fixture.deviceVa + 3n),
        copyPacket(byteLength, FROM_DEVICE, fixture.deviceVa + 3n, back + 9n),
      );
      program.await(2n);
      const received = fixture.host.u8.slice(Number(HALF), Number(HALF) + byteLength + 20);
      expect(received.subarray(9, 9 + byteLength)).toEqual(sent.subarray(5, 5 + byteLength));
      expect([...received.subarray(0, 9), ...received.subarray(9 + byteLength)].every((byte) => byte === 0)).toBe(true);
    });

    it('fill memory with a pattern of 64 bits', () => {
      const program = fixture.channel(7).setUp();
      const packet = [20, TO_DEVICE | 0x10, 0x04030201, ...copyPacket(0, 0, 0n, fixture.deviceVa + 4n).slice(3, 4)];
      program.submit([...packet, 0x08070605, Number((fixture.deviceVa + 4n) >> 32n)]);
      program.submit(copyPacket(24, FROM_DEVICE, fixture.deviceVa, fixture.hostVa));
      program.await(2n);
      const filled = Array.from({ length: 20 }, (_, index) => (index % 8) + 1);
      expect([...fixture.host.u8.subarray(0, 24)]).toEqual([0, 0, 0, 0, ...filled]);
    });

    it('count a transfer of no bytes, and send its write completion', async () => {
      const program = fixture.channel(1).setUp();
      const objects = fixture.map(fixture.profile.sync.managers.find(({ name }) => name === 'HD1_0')!.sobObj);
      const sob = sobAt(1, 0, 40);
      program.submit(completedCopy(copyPacket(0, TO_DEVICE, 0n, 0n), sob, ADD | 3));
      program.await(1n);
      expect(objects.read(160)).toBe(3);
      expect(program.registers.read(PdmaChannelA.MSQ_CI)).toBe(LIN_PDMA_COMPLETION_BYTES);
    });

    it('continue a packet at the start of the ring', () => {
      const sent = fixture.pattern(64);
      const program = fixture.channel(2).setUp();
      program.submit(...Array.from({ length: RING_BYTES / 8 - 2 }, () => NOP));
      program.submit(copyPacket(64, TO_DEVICE, fixture.hostVa, fixture.deviceVa));
      program.await(1n);
      program.submit(copyPacket(64, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + HALF));
      program.await(2n);
      expect(fixture.host.u8.slice(Number(HALF), Number(HALF) + 64)).toEqual(sent);
      expect(program.registers.read(PdmaChannelA.MSQ_CI)).toBe(RING_BYTES - 16 + 2 * COPY_BYTES);
    });

    it('wait for the rest of a packet', () => {
      const sent = fixture.pattern(32);
      const program = fixture.channel(3).setUp();
      const packet = copyPacket(32, TO_DEVICE, fixture.hostVa, fixture.deviceVa);
      program.submit(packet.slice(0, 4));
      expect(program.registers.read(PdmaChannelA.MSQ_CI)).toBe(0);
      program.submit(packet.slice(4)).submit(copyPacket(32, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + HALF));
      program.await(2n);
      expect(fixture.host.u8.slice(Number(HALF), Number(HALF) + 32)).toEqual(sent);
    });

    it('have their own fences, which registers and write completions raise', async () => {
      const program = fixture.channel(4).setUp();
      program.submit(fence(2, 3, 1), copyPacket(8, TO_DEVICE, fixture.hostVa, fixture.deviceVa));
      program.registers.write(PdmaChannelA.FENCE_INC + 8, 2);
      expect(busyIds(fixture)).toEqual([124]);
      expect([program.counter, program.registers.read(PdmaChannelA.MSQ_CI)]).toEqual([0n, 0]);
      program.registers.write(PdmaChannelA.FENCE_INC + 8, 1);
      program.await(1n);
      expect(program.registers.read(PdmaChannelA.FENCE_CNT + 8)).toBe(2);
      expect(busyIds(fixture)).toEqual([]);
      // The fence of a transfer is its last word.
      const waiting = [...copyPacket(8, TO_DEVICE | 0x20, fixture.hostVa, fixture.deviceVa), 0, fence(1, 1, 1)[0]!];
      const raise = channelRegister(4, PdmaChannelA.FENCE_INC + 4);
      program.submit(completedCopy(copyPacket(0, TO_DEVICE, 0n, 0n), raise, 1), waiting);
      program.await(3n);
      expect(program.registers.read(PdmaChannelA.FENCE_CNT + 4)).toBe(0);
    });

    it('order a message behind data by a write completion and a fence', async () => {
      const sent = fixture.pattern(DATA_BYTES / 2);
      const program = fixture.channel(12).setUp();
      const objects = fixture.map(fixture.profile.sync.managers.find(({ name }) => name === 'HD2_1')!.sobObj);
      const raise = channelRegister(12, PdmaChannelA.FENCE_INC);
      const copies = [
        copyPacket(sent.length, TO_DEVICE & ~0x1000, fixture.hostVa, fixture.deviceVa),
        copyPacket(sent.length, FROM_DEVICE & ~0x1000, fixture.deviceVa, fixture.hostVa + HALF),
      ];
      program.submit(
        ...copies,
        completedCopy(copyPacket(0, TO_DEVICE & ~0x1000, 0n, 0n), raise, 1),
        fence(0, 1, 1),
        message(sobAt(2, 1, 9), 77),
      );
      await program.until(PdmaChannelA.MSQ_CI, 2 * COPY_BYTES + LIN_PDMA_COMPLETION_BYTES + 8 + 16);
      expect(objects.read(36)).toBe(77);
      expect(fixture.host.u8.slice(Number(HALF), DATA_BYTES)).toEqual(sent);
    });

    it('send short messages from the bases of their group', async () => {
      const program = fixture.channel(13).setUp();
      const objects = fixture.map(fixture.profile.sync.managers.find(({ name }) => name === 'HD3_0')!.sobObj);
      const base = CHANNELS.groups[2]!.common + PdmaCommon.CP_MSG_BASE_ADDR + 5 * 8;
      const sob = sobAt(3, 0, 0);
      program.submit(
        message(registerAt(base), Number(sob & 0xffff_ffffn)),
        message(registerAt(base + 4), Number(sob >> 32n)),
        [19, 0x04000000 | (5 << 16) | 400],
      );
      await program.until(PdmaChannelA.MSQ_CI, 40);
      expect(objects.read(400)).toBe(19);
    });

    it('write registers of their own blocks, one or many', async () => {
      const program = fixture.channel(14).setUp();
      const [index, first] = [PdmaChannelA.IDX, PdmaChannelA.SRC_BASE_LO];
      program.submit([41, 0x14000000 | (index << 6)], [2, 0x15000000 | (first << 6)], [1, 2, 3, 4]);
      await program.until(PdmaChannelA.MSQ_CI, 32);
      expect([index, first, first + 4, first + 8, first + 12].map((at) => program.registers.read(at))).toEqual([
        41, 1, 2, 3, 4,
      ]);
    });

    it.each(['host memory', 'a command buffer'] as const)(
      'arm a monitor whose queue counts in %s and wakes the waiter of its interrupt',
      async (place) => {
        const { client, host } = fixture;
        const interrupt = fixture.interrupt + 100;
        const queue = 7;
        const counter = counterIn(fixture, place);
        const program = fixture.channel(15).setUp();
        const sobs = [sobAt(4, 0, 40), sobAt(4, 0, 41)] as const;
        // The monitor waits for sync objects 40 and 41, those of group 5 that its mask leaves.
        const monitor = monitorAt(4, 12, { queue, arm: (1 << 17) | (0xfc << 8) | 5 });
        const packets = [...queueAt(4, queue, counter.va, interrupt), ...monitor];
        const block = allocateScratch(HL_WAIT_CS_ARGS.size);
        const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (interrupt << WAIT_CS_INTERRUPT_SHIFT) | counter.wait.flags) >>> 0;
        HL_WAIT_CS_ARGS.in.encode(
          { ...counter.wait, flags, target: 1n, interrupt_timeout_us: 60_000_000n },
          block.view,
        );
        const waiting = client.file.ioctlAsync(client.file.numbers.WAIT_CS, block);
        const raised = [...packets, message(sobs[0], ADD | 1)];
        program.submit(...raised);
        await program.until(PdmaChannelA.MSQ_CI, 4 * raised.flat().length);
        expect(counter.value()).toBe(0n);
        const sent = fixture.pattern(4096);
        const copy = copyPacket(sent.length, TO_DEVICE, fixture.hostVa, fixture.deviceVa);
        const back = copyPacket(sent.length, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + HALF);
        fixture
          .channel(3)
          .setUp()
          .submit(copy, completedCopy(back, sobs[1], ADD | 1));
        expect(await waiting).toBe(0);
        expect(HL_WAIT_CS_ARGS.out.decode(block.view).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
        block.free();
        expect(counter.value()).toBe(1n);
        expect(host.u8.slice(Number(HALF), Number(HALF) + sent.length)).toEqual(sent);
        // A monitor fires once.
        program.submit(message(sobs[0], ADD | 1));
        await program.until(PdmaChannelA.MSQ_CI, 4 * raised.flat().length + 16);
        expect(counter.value()).toBe(1n);
        counter.close();
      },
    );

    it('all of them move data, whatever the direction in the packet', () => {
      const sent = fixture.pattern(64 * USER_CHANNELS.length);
      const programs = USER_CHANNELS.map((channel) => fixture.channel(channel).setUp());
      for (const [index, program] of programs.entries()) {
        const at = BigInt(64 * index);
        program.submit(copyPacket(64, FROM_DEVICE, fixture.hostVa + at, fixture.deviceVa + at));
        program.submit(copyPacket(64, TO_DEVICE, fixture.deviceVa + at, fixture.hostVa + HALF + at));
      }
      for (const program of programs) program.await(2n);
      expect(fixture.host.u8.slice(Number(HALF), Number(HALF) + sent.length)).toEqual(sent);
    });

    it('are mapped as blocks of a page; what belongs to the driver is not', () => {
      const { client } = fixture;
      const place = (offset: number) => ({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: registerAt(offset) });
      const own = [channelBlockA(CHANNELS, 23), channelBlockB(CHANNELS, 0), CHANNELS.groups[0]!.common];
      for (const offset of [...own, channelBlockA(CHANNELS, 0) + 4]) {
        expect([offset, client.memory(place(offset)).result]).toEqual([offset, -Errno.EINVAL]);
      }
      const { out } = client.memory(place(channelBlockA(CHANNELS, 0)));
      for (const byteLength of [8192, 0]) {
        expect(() => client.file.mapRegisters(byteLength, out.block_handle)).toThrow(/EINVAL/);
      }
      expect(() => client.file.mapRegisters(4096, 0x1000n)).toThrow(/EINVAL/);
      // Two mappings of a block reach the same registers, until each is closed.
      const [first, second] = [fixture.channel(0).registers, fixture.channel(0).registers];
      first.write(PdmaChannelA.IDX, 5);
      expect(second.read(PdmaChannelA.IDX)).toBe(5);
      first.close();
      first.write(PdmaChannelA.IDX, 6);
      expect([first.read(PdmaChannelA.IDX), second.read(PdmaChannelA.IDX)]).toEqual([0, 5]);
      second.close();
    });

    it('are as new after the card was closed', async () => {
      const program = fixture.channel(6).setUp();
      program.submit(fence(0, 1, 1));
      program.registers.write(PdmaChannelA.IDX, 9);
      await fixture.reopen();
      const { registers } = fixture.channel(6);
      const at = [PdmaChannelA.IDX, PdmaChannelA.MSQ_PI, PdmaChannelA.DESC_SUBMIT_FIFO_CFG, PdmaChannelA.CP_PRED];
      expect(at.map((offset) => registers.read(offset))).toEqual([0, 0, 0, 1]);
      expect(registers.read(PdmaChannelA.WR_COMP0_ADDR_HI)).toBe(0x0300007f);
    });

    /** Errors, each with what makes it; none moves a byte. */
    const errors: readonly (readonly [string, (program: ChannelProgram) => void])[] = [
      ['an unknown opcode', (program) => program.setUp().submit([0, 0x1f000000])],
      ['STOP', (program) => program.setUp().submit([0, 0x0b000000])],
      ['a packet of unknown layout', (program) => program.setUp().submit([0, 0x12000000])],
      ['a transfer that is not committed', (program) => program.setUp().submit(whole(fixture, TO_DEVICE & ~0x800))],
      ['a ring whose size is not a power of two', (program) => program.setUp({ ringBytes: 4104 }).submit(NOP)],
      ['a ring of more than 1 GiB', (program) => program.setUp({ ringBytes: 2 ** 31 }).submit(NOP)],
      ['an unaligned ring', (program) => program.setUp({ ring: fixture.hostVa + 4n }).submit(NOP)],
      ['a producer index that is not a multiple of 8', (program) => program.setUp().submit([0])],
      [
        'a producer index that goes backwards',
        (program) => {
          program.setUp().submit(NOP, NOP);
          program.registers.write(PdmaChannelA.MSQ_PI, 8);
        },
      ],
      ['a message to host memory', (program) => program.setUp().submit(message(fixture.hostVa, 1))],
      ['a message to device memory', (program) => program.setUp().submit(message(fixture.deviceVa, 1))],
      ['a message to a sync object of the driver', (program) => program.setUp().submit(message(sobAt(0, 0, 18), 1))],
      ['a message to a register that is not for users', (program) => program.setUp().submit(message(registerAt(0), 1))],
      ['a fence that subtracts more than there is', (program) => program.setUp().submit(fence(0, 0, 1))],
      [
        'a fence that overflows',
        (program) => {
          program.registers.write(PdmaChannelA.FENCE_CNT, 0x3fff);
          program.registers.write(PdmaChannelA.FENCE_INC, 1);
        },
      ],
      ['an unmapped ring', (program) => program.setUp({ ring: fixture.unmapped }).submit(NOP)],
      [
        'an unmapped counter',
        (program) => program.setUp({ counter: fixture.unmapped }).submit(whole(fixture, TO_DEVICE, 0)),
      ],
      [
        'an unmapped source',
        (program) => program.setUp().submit(copyPacket(64, TO_DEVICE, fixture.unmapped, fixture.deviceVa)),
      ],
      [
        'an unmapped destination',
        (program) => program.setUp().submit(copyPacket(64, TO_DEVICE, fixture.hostVa, fixture.unmapped)),
      ],
    ];

    it.each(errors)('stop after %s, are reported, and work again after a reset', async (_what, provoke) => {
      const program = fixture.channel(11);
      provoke(program);
      await expect.poll(() => engineError(fixture)).toBe(131);
      const consumed = program.registers.read(PdmaChannelA.MSQ_CI);
      // Nothing more is executed, in whatever state the card is.
      program.submit(whole(fixture, TO_DEVICE));
      fixture.status();
      expect([program.counter, program.registers.read(PdmaChannelA.MSQ_CI)]).toEqual([0n, consumed]);
      await fixture.reopen();
      expect(engineError(fixture)).toBe(0);
      const sent = fixture.pattern(64);
      const next = fixture.channel(11).setUp();
      next.submit(copyPacket(64, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + HALF), whole(fixture, TO_DEVICE));
      next.submit(copyPacket(64, FROM_DEVICE, fixture.deviceVa, fixture.hostVa + HALF));
      next.await(3n);
      expect(fixture.host.u8.slice(Number(HALF), Number(HALF) + 64)).toEqual(sent);
    });

    it('report a page fault with the address as the MMU gives it, and the engine', async () => {
      const program = fixture.channel(9).setUp();
      program.submit(copyPacket(64, TO_DEVICE, fixture.unmapped + 0x1234n, fixture.deviceVa));
      await expect.poll(() => engineError(fixture)).toBe(129);
      const { out } = fixture.client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO);
      expect([out.addr, out.engine_id]).toEqual([(fixture.unmapped + 0x1234n) & ~0x7fn, 129]);
    });

    it('report a page fault of device memory by its mebibyte', async () => {
      const program = fixture.channel(9).setUp();
      const page = fixture.deviceVa + 2n ** 38n + 0x12_3456n;
      program.submit(copyPacket(64, TO_DEVICE, fixture.hostVa, page));
      await expect.poll(() => engineError(fixture)).toBe(129);
      const { out } = fixture.client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO);
      expect(out.addr).toBe(page & ~0xf_ffffn);
    });
  });
}

/** A copy of 64 bytes to the device. */
function whole(fixture: ChannelFixture, control: number, byteLength = 64): readonly number[] {
  return copyPacket(byteLength, control, fixture.hostVa, fixture.deviceVa);
}

/** The engine of the recorded error; 0 for none. */
function engineError({ client }: ChannelFixture): number {
  const { out } = client.info(HL_INFO_OP.USER_ENGINE_ERR_EVENT, HL_INFO_ENGINE_ERR_EVENT);
  return out.timestamp === 0n ? 0 : out.engine_id;
}

/** Ids of the busy engines. */
function busyIds({ client }: ChannelFixture): readonly number[] {
  const { out } = client.info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE);
  const words = out.busy_engines_mask_ext as readonly bigint[];
  const ids = words.flatMap((word, index) =>
    Array.from({ length: 64 }, (_, bit) => ((word >> BigInt(bit)) & 1n) === 1n && index * 64 + bit),
  );
  return ids.filter((id): id is number => id !== false);
}

/** A counter of 64 bits that the card and the process reach. */
interface Counter {
  readonly va: bigint;
  /** The fields of a wait for it. */
  readonly wait: {
    readonly flags: number;
    readonly addr?: bigint;
    readonly cq_counters_handle?: bigint;
    readonly cq_counters_offset?: bigint;
  };
  value(): bigint;
  close(): void;
}

function counterIn({ client, host, hostVa }: ChannelFixture, place: 'host memory' | 'a command buffer'): Counter {
  const at = DATA_BYTES + 2048;
  if (place === 'host memory') {
    return {
      va: hostVa + BigInt(at),
      wait: { flags: 0, addr: BigInt(host.address + at) },
      value: () => host.view.getBigUint64(at, true),
      close: () => {},
    };
  }
  const handle = client.createCommandBuffer(4096, HL_CB_FLAGS.MAP).out;
  const info = { op: HL_CB_OP.INFO, cb_handle: handle, flags: HL_CB_FLAGS.GET_DEVICE_VA };
  const mapping = client.file.mmap(4096, handle);
  const view = new DataView(mapping.buffer);
  return {
    va: client.commandBuffer(info).out.device_va + 64n,
    wait: { flags: HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ, cq_counters_handle: handle, cq_counters_offset: 8n },
    value: () => view.getBigUint64(64, true),
    close: () => mapping.close(),
  };
}

/** Messages that make completion queue `queue` of an hdcore a counter with an interrupt. */
function queueAt(hdcore: number, queue: number, counter: bigint, interrupt: number): readonly (readonly number[])[] {
  const { cqRegisters, managerStride } = GAUDI3_PROFILE.sync;
  const cq = cqRegisters!;
  const doorbell = GAUDI3_PROFILE.interrupts.msixDoorbell!;
  const write = (register: number, value: number): readonly number[] =>
    message(registerAt(register + hdcore * managerStride + 4 * queue), value);
  const [counterLow, counterHigh] = halves(counter);
  const [doorbellLow, doorbellHigh] = halves(doorbell);
  return [
    write(cq.baseAddrL, counterLow),
    write(cq.baseAddrH, counterHigh),
    write(cq.incMode, 1),
    write(cq.lbwAddrL, doorbellLow),
    write(cq.lbwAddrH, doorbellHigh),
    write(cq.lbwData, interrupt),
  ];
}

/** Messages that arm a monitor of group 0 of an hdcore, which adds 1 to a queue and sends the message of the queue. */
function monitorAt(
  hdcore: number,
  monitor: number,
  { queue, arm }: { readonly queue: number; readonly arm: number },
): readonly (readonly number[])[] {
  const manager = GAUDI3_PROFILE.sync.managers.find((each) => each.dcore === hdcore && each.group === 0)!;
  const write = (register: number, value: number): readonly number[] =>
    message(registerAt(register + 4 * monitor), value);
  return [
    write(manager.monPayAddrL, queue),
    write(manager.monPayAddrH, 0),
    write(manager.monPayData, 1),
    write(manager.monConfig, CQ_AND_MESSAGE),
    write(manager.monArm, arm),
  ];
}
