import { afterEach, describe, expect, it } from 'vitest';
import { halves } from '../../test/contract/driver/driver-fixture.ts';
import { EmulatedCard } from '../../test/contract/driver/emulated-card.ts';
import { mapAnonymous } from '../sys/index.ts';
import {
  ARB_POINT_RELEASE,
  Gaudi2QueueBase,
  HL_CS_FLAGS,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_PAGE_FAULT_INFO,
  HL_WAIT_CS_STATUS_FLAG,
  LIN_DMA_BYTES,
  linDmaCtl,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  STREAMS_PER_QMAN,
  wreg32Ctl,
  writeArbPoint,
  writeFence,
  writeLinDma,
  writeMsgLong,
  writeNop,
  writeWreg32,
} from '../uapi/index.ts';
import { HUGE_PAGE_BYTES } from './driver/memory/address-blocks.ts';

const PAGE = 4096;
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const COMMANDS = MIB;

let card: EmulatedCard;
afterEach(() => card.close());

function linDma(offset: number, at: number, byteLength: number, source: bigint, destination: bigint): number {
  const words = card.words(offset);
  return writeLinDma(words, at, linDmaCtl('gaudi2'), byteLength, ...halves(source), ...halves(destination));
}

function hardware() {
  return card.client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out;
}

describe('a full channel', () => {
  it('defers the completion time stamp and loses neither it nor a copy', () => {
    card = new EmulatedCard({ inlineBytesMax: 0 });
    const copies = 512;
    const sram = hardware().sram_base_address;
    for (let i = 0; i < copies; i++) card.host.words[i] = i + 1;
    let at = 0;
    for (let i = 0; i < copies; i++) at = linDma(COMMANDS, at, 4, card.hostVa + BigInt(4 * i), sram + BigInt(4 * i));
    const { out } = card.submit(COMMANDS, copies * LIN_DMA_BYTES, 0, { cs_flags: HL_CS_FLAGS.TIMESTAMP });
    const done = card.client.wait(out.seq, 1000).out;
    expect(done).toMatchObject({
      status: 0,
      flags: HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD,
      timestamp_nsec: 1_000_000_000n,
    });
    linDma(COMMANDS, 0, 4 * copies, sram, card.hostVa + BigInt(PAGE));
    expect(card.client.wait(card.submit(COMMANDS, 24).out.seq, 10_000_000).out.status).toBe(0);
    expect([...card.host.words.subarray(1024, 1024 + copies)]).toEqual([...card.host.words.subarray(0, copies)]);
  });

  it('executes a transfer of more pieces than slots in several steps', () => {
    card = new EmulatedCard();
    const pages = 1200;
    const scattered = mapAnonymous(pages * PAGE);
    for (let i = 0; i < pages; i++) scattered.words[(i * PAGE) / 4] = i + 1;
    // Pages in reverse order at consecutive device addresses. An address hint of 2 MiB would be honoured.
    const mapped = Array.from({ length: pages }, (_, i) => {
      return card.client.mapHost(scattered.address + (pages - 1 - i) * PAGE + 8, PAGE - 8).out;
    });
    const addresses = mapped.map((address) => address - 8n);
    expect(addresses).toEqual(addresses.map((_, i) => addresses[0]! + BigInt(i * PAGE)));
    const device = card.client.mapDevice(card.client.allocate(1).out).out;
    linDma(COMMANDS, 0, pages * PAGE, addresses[0]!, device);
    expect(card.client.wait(card.submit(COMMANDS, 24).out.seq, 10_000_000).out.status).toBe(0);
    for (const page of [0, 511, 512, 513, 1199]) {
      linDma(COMMANDS, 0, 4, device + BigInt(page * PAGE), card.hostVa);
      card.client.wait(card.submit(COMMANDS, 24).out.seq, 10_000_000);
      expect(card.host.words[0]).toBe(pages - page);
    }
    // One page is missing: nothing moves.
    expect(card.client.unmap(mapped[1100]!)).toBe(0);
    scattered.words[((pages - 1) * PAGE) / 4] = 77;
    linDma(COMMANDS, 0, pages * PAGE, addresses[0]!, device);
    card.client.wait(card.submit(COMMANDS, 24).out.seq, 10_000_000);
    const fault = card.client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out;
    expect(fault.addr).toBe(addresses[1100]!);
    linDma(COMMANDS, 0, 4, device, card.hostVa);
    card.client.wait(card.submit(COMMANDS, 24).out.seq, 10_000_000);
    expect(card.host.words[0]).toBe(pages);
    scattered.close();
  });

  it('continues the pattern of a fill at an offset that is not a multiple of the pattern', () => {
    card = new EmulatedCard();
    const memory = mapAnonymous(2 * PAGE);
    const first = card.client.mapHost(memory.address, PAGE).out;
    card.client.mapHost(memory.address + PAGE, PAGE);
    const words = card.words(COMMANDS);
    const pattern = 0x0807_0605_0403_0201n;
    writeLinDma(words, 0, linDmaCtl('gaudi2', { memset: true }), 16, ...halves(pattern), ...halves(first + 4093n));
    card.client.wait(card.submit(COMMANDS, 24).out.seq, 10_000_000);
    expect([...memory.u8.subarray(4093, 4109)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    memory.close();
  });
});

describe('a command buffer', () => {
  it('may lie in a large host mapping', () => {
    card = new EmulatedCard({}, 20 * MIB);
    const at = 17 * MIB;
    writeMsgLong(card.words(at), 0, msgLongCtl(), 42, ...halves(card.hostVa));
    expect(card.client.wait(card.submit(at, 16).out.seq, 10_000_000)).toMatchObject({ result: 0, out: { status: 0 } });
    expect(card.host.words[0]).toBe(42);
  });

  it('may have a packet across 1 GiB of device memory', () => {
    card = new EmulatedCard();
    const { dram_page_size } = hardware();
    const device = card.client.mapDevice(card.client.allocate(dram_page_size * 2n).out).out;
    // Device addresses begin one page into the memory of the card.
    const border = device + BigInt(GIB) - dram_page_size;
    for (const before of [4, 8, 16, 20]) {
      writeMsgLong(card.words(COMMANDS), 0, msgLongCtl(), before, ...halves(card.hostVa));
      writeNop(card.words(COMMANDS), 4, packetCtl(PacketOpcode.NOP));
      linDma(2 * COMMANDS, 0, 24, card.hostVa + BigInt(COMMANDS), border - BigInt(before));
      card.client.wait(card.submit(2 * COMMANDS, 24).out.seq, 10_000_000);
      const { out } = card.client.submit([{ queue: 4, cb: border - BigInt(before), byteLength: 24 }]);
      expect(card.client.wait(out.seq, 1000).out.status).toBe(0);
      expect(card.host.words[0]).toBe(before);
    }
  });

  it('may lie across two mappings', () => {
    card = new EmulatedCard();
    const memory = mapAnonymous(4 * PAGE);
    // Neither page at a border of huge pages, at which the driver would align the device address.
    const isAtBorder = [0, PAGE].some((offset) => (memory.address + offset) % HUGE_PAGE_BYTES === 0);
    const begin = isAtBorder ? 2 * PAGE : 0;
    // The second page comes first in memory: the packet is not contiguous there.
    const first = card.client.mapHost(memory.address + begin + PAGE, PAGE).out;
    const second = card.client.mapHost(memory.address + begin, PAGE).out;
    expect(second - first).toBe(BigInt(PAGE));
    const packets = new Uint32Array(8);
    const at = writeMsgLong(packets, 0, msgLongCtl(), 99, ...halves(card.hostVa));
    writeMsgLong(packets, at, msgLongCtl(), 98, ...halves(card.hostVa + 4n));
    memory.words.set(packets.subarray(0, 2), (begin + 2 * PAGE) / 4 - 2);
    memory.words.set(packets.subarray(2), begin / 4);
    const { out } = card.client.submit([{ queue: 0, cb: second - 8n, byteLength: 32 }]);
    expect(card.client.wait(out.seq, 1000).out.status).toBe(0);
    expect([...card.host.words.subarray(0, 2)]).toEqual([99, 98]);
    memory.close();
  });

  for (const mappedBytes of [0, 8]) {
    it(`faults at its fetch where it is not mapped, after ${mappedBytes} bytes, and hangs its queue until the time-out`, () => {
      card = new EmulatedCard();
      card.words(4 * MIB - 8).set([1, msgLongCtl()]);
      writeNop(card.words(COMMANDS), 0, packetCtl(PacketOpcode.NOP));
      const end = card.hostVa + BigInt(4 * MIB);
      const { result, out } = card.client.submit([{ queue: 0, cb: end - BigInt(mappedBytes), byteLength: 16 }]);
      expect(result).toBe(0);
      const behind = card.submit(COMMANDS, 8);
      expect(card.client.wait(out.seq).out.status).toBe(1);
      expect(card.client.wait(behind.out.seq).out.status).toBe(1);
      expect(card.client.info(HL_INFO_OP.PAGE_FAULT_EVENT, HL_PAGE_FAULT_INFO).out.addr).toBe(end);
      card.clock.advance(30e9);
      expect(card.status).toBe(1);
    });
  }
});

describe('packets of the queue manager', () => {
  it('WREG_32 writes a register of the own engine', () => {
    card = new EmulatedCard();
    const blocked = card.block(COMMANDS);
    const { fence0 } = card.node.config.profile.fences[0]!;
    // The fence of stream 0, written by stream 1 of the same engine, and a register without effect.
    const words = card.words(2 * COMMANDS);
    const at = writeWreg32(words, 0, wreg32Ctl(fence0 & 0xffff), 1);
    writeWreg32(words, at, wreg32Ctl(0x7000), 5);
    expect(card.client.wait(card.submit(2 * COMMANDS, 16, 1).out.seq).out.status).toBe(0);
    expect(card.client.wait(blocked).out.status).toBe(0);
    expect(card.node.card(0).device.registers.readRegister(fence0 - (fence0 & 0xffff) + 0x7000)).toBe(5);
  });

  it('ARB_POINT lets the stream of higher priority go first, and the other one after the release', () => {
    card = new EmulatedCard();
    const order = 2 * MIB;
    const counter = card.hostVa;
    // An EDMA: the driver does not enable three streams of a PDMA.
    const first = Gaudi2QueueBase.DCORE0_EDMA_0 + STREAMS_PER_QMAN;
    /** Waits for a fence, takes the arbiter, signals that, waits for another fence, releases the arbiter. */
    const program = (stream: number, priority: number): bigint => {
      const words = card.words(order + stream * PAGE);
      let at = writeFence(words, 0, packetCtl(PacketOpcode.FENCE), 0x1_0001);
      at = writeArbPoint(words, at, packetCtl(PacketOpcode.ARB_POINT), priority);
      at = writeMsgLong(words, at, msgLongCtl(), stream + 1, ...halves(counter + BigInt(4 * stream)));
      at = writeFence(words, at, packetCtl(PacketOpcode.FENCE), 0x1_0001);
      at = writeArbPoint(words, at, packetCtl(PacketOpcode.ARB_POINT), ARB_POINT_RELEASE);
      return card.submit(order + stream * PAGE, at * 4, first + stream).out.seq;
    };
    const seqs = [program(0, 1), program(1, 3), program(2, 2)];
    const words = card.words(COMMANDS);
    let at = 0;
    for (let stream = 0; stream < 3; stream++) {
      at = writeMsgLong(words, at, msgLongCtl(), 1, ...halves(card.fenceOf(first + stream)));
    }
    card.submit(COMMANDS, at * 4, 8);
    const seen = (): number[] => {
      card.client.wait(seqs[0]!);
      return [...card.host.words.subarray(0, 3)];
    };
    expect(seen()).toEqual([0, 2, 0]);
    card.raise(COMMANDS, first + 1);
    expect(seen()).toEqual([0, 2, 3]);
    card.raise(COMMANDS, first + 2);
    expect(seen()).toEqual([1, 2, 3]);
    card.raise(COMMANDS, first);
    expect(seqs.map((seq) => card.client.wait(seq).out.status)).toEqual([0, 0, 0]);
  });
});
