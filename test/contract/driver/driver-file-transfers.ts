/** Contract cases: transfers that are not plain copies: byte order, and those of the registers of DMA cores. */

import { describe, expect, it } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { addressOf, type MappedMemory, mapAnonymous } from '../../../src/sys/index.ts';
import {
  fenceCfg,
  linDmaCtl,
  type PacketAsic,
  PacketOpcode,
  packetCtl,
  wreg32Ctl,
  writeFence,
  writeLinDma,
  writeWreg32,
} from '../../../src/uapi/index.ts';
import type { DriverClient } from './driver-client.ts';
import { DriverFixture, halves } from './driver-fixture.ts';

const PAGE = 4096;
const HUGE_PAGE = 2 ** 21;

/** Registers of a DMA core, from the block of its engine: dma0_core_regs.h and pdma0_core_ctx_regs.h, Linux 6.12. */
const CORES = {
  gaudi: {
    SRC_BASE: 0x14,
    DST_BASE: 0x1c,
    SRC_TSIZE_1: 0x2c,
    SRC_TSIZE_0: 0x4c,
    DST_TSIZE_1: 0x54,
    DST_TSIZE_0: 0x74,
    COMMIT: 0x78,
    WR_COMP_WDATA: 0x7c,
    WR_COMP_ADDR_LO: 0x80,
    WR_COMP_ADDR_HI: 0x84,
    LIN: 0x8,
    // Its bit of COMMIT.
    TRANSPOSE: [0x78, 0x2],
  },
  gaudi2: {
    SRC_TSIZE_0: 0xb878,
    SRC_TSIZE_1: 0xb87c,
    DST_TSIZE_1: 0xb89c,
    WR_COMP_ADDR_HI: 0xb8bc,
    WR_COMP_ADDR_LO: 0xb8c0,
    WR_COMP_WDATA: 0xb8c4,
    SRC_BASE: 0xb8d8,
    DST_BASE: 0xb8e0,
    DST_TSIZE_0: 0xb8e8,
    COMMIT: 0xb8ec,
    LIN: 0x8000_0000,
    // That of CTRL.
    TRANSPOSE: [0xb874, 0x1],
  },
} as const;
const WR_COMP_EN = 0x1;
const MEM_SET = 0x10;
/** Of gaudi2: SRC_SIZE0_FROM_DST_SIZE0, SRC_SIZE1_FROM_DST_SIZE1, SRC_STRD1_FROM_DST_STRD1, DISABLE_DIM2 to 4. */
const LIKE_DESTINATION = 0x11_e400;

export function transferCases(asic: PacketAsic, makeNode: () => DriverNode): void {
  describe('transfers', () => {
    const fixture = new DriverFixture(asic, makeNode);
    hostCases(fixture);
    if (asic === 'gaudi2') swapCases(fixture);
    coreCases(asic, fixture);
  });
}

/** Pages of {@link mapReversed}. */
const PAGES = 4;

/**
 * Maps pages in reverse order at consecutive device addresses: the first of the address space, which has no gaps yet.
 * @param whole twice as many pages
 */
function mapReversed(
  client: DriverClient,
  whole: MappedMemory,
): { readonly bytes: Uint8Array; readonly mapped: readonly bigint[] } {
  // The address of a huge page has its own device address: none of these pages is at one.
  const toHuge = (HUGE_PAGE - (whole.address % HUGE_PAGE)) % HUGE_PAGE;
  const skipped = toHuge < PAGES * PAGE ? PAGES * PAGE : 0;
  const mapped = Array.from(
    { length: PAGES },
    (_, i) => client.mapHost(whole.address + skipped + (PAGES - 1 - i) * PAGE, PAGE).out,
  );
  expect(mapped).toEqual(mapped.map((_, i) => mapped[0]! + BigInt(i * PAGE)));
  return { bytes: whole.u8.subarray(skipped, skipped + PAGES * PAGE), mapped };
}

/** The bytes of {@link mapReversed} in the order of their device addresses. */
function inReverse(bytes: Uint8Array): number[] {
  return [3, 2, 1, 0].flatMap((page) => [...bytes.subarray(page * PAGE, (page + 1) * PAGE)]);
}

function hostCases(fixture: DriverFixture): void {
  it('LIN_DMA copies from host to host, across mappings on both sides', () => {
    const { client, host } = fixture;
    using whole = mapAnonymous(2 * PAGES * PAGE);
    const { bytes, mapped } = mapReversed(client, whole);
    const hostVa = fixture.mapAll();
    for (let i = 0; i < 3 * PAGE; i++) host.u8[i] = (i * 7) ^ (i >>> 8);
    const sent = [...host.u8.subarray(5, 3 * PAGE)];
    fixture.copy(hostVa + 5n, mapped[0]! + 3n, sent.length);
    expect(inReverse(bytes)).toEqual([0, 0, 0, ...sent, ...new Array(PAGE + 2).fill(0)]);
    fixture.copy(mapped[0]! + 3n, hostVa + 0x100000n, sent.length);
    expect([...host.u8.subarray(0x100000, 0x100000 + sent.length + 1)]).toEqual([...sent, 0]);
    for (const address of mapped) expect(client.unmap(address)).toBe(0);
  });

  it('LIN_DMA copies between host memory of which the driver has the address only', () => {
    const { client } = fixture;
    fixture.mapAll();
    const [source, target] = [new Uint8Array(300_000), new Uint8Array(300_000).fill(1)];
    for (let i = 0; i < source.length; i++) source[i] = (i * 11) ^ (i >>> 8);
    const [from, to] = [source, target].map((bytes) => client.mapHost(addressOf(bytes), bytes.length).out);
    for (const byteLength of [1, 64, 4096, 200_000]) {
      target.fill(1);
      fixture.copy(from! + 7n, to! + 9n, byteLength);
      expect(Buffer.compare(target.subarray(9, 9 + byteLength), source.subarray(7, 7 + byteLength))).toBe(0);
      expect([target[8], target[9 + byteLength]]).toEqual([1, 1]);
    }
    // Overlapping ranges arrive somehow, and nothing beside them changes.
    fixture.copy(to!, to! + 1000n, 250_000);
    expect([target[251_000], target[299_999]]).toEqual([1, 1]);
    for (const address of [from!, to!]) expect(client.unmap(address)).toBe(0);
  });
}

function swapCases(fixture: DriverFixture): void {
  const swap = (source: bigint, destination: bigint, byteLength: number, swapBytes: 2 | 4 | 8) => {
    fixture.run(0, (words) => {
      const ctl = linDmaCtl('gaudi2', { swapBytes });
      return writeLinDma(words, 0, ctl, byteLength, ...halves(source), ...halves(destination));
    });
  };
  /** The bytes of a transfer: those of every whole element reversed. */
  const reversed = (bytes: Uint8Array, elementBytes: number): Uint8Array => {
    const result = bytes.slice();
    for (let at = 0; at + elementBytes <= result.length; at += elementBytes)
      result.subarray(at, at + elementBytes).reverse();
    return result;
  };

  it('LIN_DMA reverses the bytes of elements of 16, 32 and 64 bits, up to the last whole one', () => {
    const { host } = fixture;
    const hostVa = fixture.mapAll();
    const device = fixture.deviceMemory();
    const byteLength = 200_003;
    for (let i = 0; i < byteLength; i++) host.u8[i] = (i * 7) ^ (i >>> 8);
    const source = host.u8.slice(0, byteLength);
    for (const swapBytes of [2, 4, 8] as const) {
      swap(hostVa, device + 5n, byteLength, swapBytes);
      fixture.copy(device + 5n, hostVa + 0x100000n, byteLength);
      expect(host.u8.slice(0x100000, 0x100000 + byteLength)).toEqual(reversed(source, swapBytes));
      // And back.
      swap(device + 5n, hostVa + 0x200001n, byteLength, swapBytes);
      expect(host.u8.slice(0x200001, 0x200001 + byteLength)).toEqual(source);
    }
  });

  it('LIN_DMA reverses elements across pages that are not contiguous', () => {
    const { client } = fixture;
    using whole = mapAnonymous(2 * PAGES * PAGE);
    const { bytes, mapped } = mapReversed(client, whole);
    fixture.mapAll();
    const device = fixture.deviceMemory();
    for (let i = 0; i < bytes.byteLength; i++) bytes[i] = i * 13;
    const order = inReverse(bytes);
    for (const [offset, swapBytes] of [
      [3, 8],
      [1, 4],
      [5, 2],
    ] as const) {
      const byteLength = 3 * PAGE;
      swap(mapped[0]! + BigInt(offset), device, byteLength, swapBytes);
      fixture.copy(device, fixture.hostVa, byteLength);
      const expected = reversed(Uint8Array.from(order.slice(offset, offset + byteLength)), swapBytes);
      expect(fixture.host.u8.slice(0, byteLength)).toEqual(expected);
    }
    for (const address of mapped) expect(client.unmap(address)).toBe(0);
  });
}

function coreCases(asic: PacketAsic, fixture: DriverFixture): void {
  const CORE = CORES[asic];
  /** Packets that write registers of the DMA core of their queue. */
  const writes = (words: Uint32Array, registers: readonly (readonly [number, number])[]): number => {
    let at = 0;
    for (const [register, value] of registers)
      at = writeWreg32(words, at, wreg32Ctl(register, { regBarrier: true }), value);
    return at;
  };
  const address = (register: number, value: bigint): [number, number][] => {
    const [low, high] = halves(value);
    return [
      [register, low],
      [register + 4, high],
    ];
  };
  /** Counts and strides of four dimensions, from TSIZE_1 on. */
  const dimensions = (first: number, shape: readonly (readonly [number, number])[]): [number, number][] => {
    return [...shape, [1, 0], [1, 0], [1, 0], [1, 0]].slice(0, 4).flatMap(([count, stride], i): [number, number][] => [
      [first + 8 * i, count!],
      [first + 8 * i + 4, stride!],
    ]);
  };
  /** A completion message that raises fence 0 of queue 4, where a submission waits: its sequence number. */
  const completion = (): { readonly seq: bigint; readonly registers: [number, number][] } => {
    const { cfg, fences } = fixture.profile;
    const fence = cfg.start + BigInt(fences.find(({ firstQueue }) => firstQueue === 4)!.fence0);
    const waiting = fixture.chunk(4, (words) => writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1)));
    const { seq } = fixture.client.submit([waiting]).out;
    expect(fixture.client.wait(seq).out.status).toBe(1);
    const [low, high] = halves(fence);
    return {
      seq,
      registers: [
        [CORE.WR_COMP_ADDR_LO, low],
        [CORE.WR_COMP_ADDR_HI, high],
        [CORE.WR_COMP_WDATA, 1],
      ],
    };
  };

  it('COMMIT of a DMA core copies rows with strides, and sends the completion message behind them', () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    const device = fixture.deviceMemory();
    const [rowBytes, rows, stride] = [4096, 10, 8192];
    for (let i = 0; i < rowBytes; i++) host.u8[i] = i * 3;
    const { seq, registers } = completion();
    fixture.run(0, (words) =>
      writes(words, [
        ...address(CORE.SRC_BASE, hostVa),
        ...address(CORE.DST_BASE, device),
        ...dimensions(CORE.SRC_TSIZE_1, [[rows, 0]]),
        [CORE.SRC_TSIZE_0, rowBytes],
        ...dimensions(CORE.DST_TSIZE_1, [[rows, stride]]),
        [CORE.DST_TSIZE_0, rowBytes],
        ...registers,
        [CORE.COMMIT, WR_COMP_EN],
      ]),
    );
    expect(client.wait(seq, 10_000_000).out.status).toBe(0);
    host.u8.fill(0xff, 0x100000, 0x100000 + rows * stride);
    fixture.copy(device, hostVa + 0x100000n, rows * stride - rowBytes);
    const row = host.u8.slice(0, rowBytes);
    for (let i = 0; i < rows; i++) {
      const at = 0x100000 + i * stride;
      expect(host.u8.slice(at, at + rowBytes)).toEqual(row);
    }
  });

  it('COMMIT copies rows from host to host, and leaves the bytes between them', () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    // The shape of test_strided_dma of hl-thunk (tests/gaudi/gaudi_dma.c).
    const [rowBytes, rows, at] = [65_536, 10, 0x100000];
    for (let i = 0; i < rowBytes; i++) host.u8[i] = (i * 3) ^ (i >>> 8);
    host.u8.fill(0xff, at, at + 2 * rows * rowBytes);
    const rest: [number, number][] = [1, 2, 3].map(() => [1, rowBytes]);
    const { seq, registers } = completion();
    fixture.run(0, (words) =>
      writes(words, [
        ...address(CORE.SRC_BASE, hostVa),
        ...address(CORE.DST_BASE, hostVa + BigInt(at)),
        ...dimensions(CORE.SRC_TSIZE_1, [[rows, 0], ...rest]),
        [CORE.SRC_TSIZE_0, rowBytes],
        ...dimensions(CORE.DST_TSIZE_1, [[rows, 2 * rowBytes], ...rest]),
        [CORE.DST_TSIZE_0, rowBytes],
        ...registers,
        [CORE.COMMIT, WR_COMP_EN],
      ]),
    );
    expect(client.wait(seq, 10_000_000).out.status).toBe(0);
    const expected = Buffer.concat([host.u8.subarray(0, rowBytes), Buffer.alloc(rowBytes, 0xff)]);
    for (let row = 0; row < rows; row++) {
      const from = at + 2 * row * rowBytes;
      expect(Buffer.compare(host.u8.subarray(from, from + 2 * rowBytes), expected)).toBe(0);
    }
  });

  it('COMMIT gathers and scatters rows of different shapes', () => {
    const { host } = fixture;
    const hostVa = fixture.mapAll();
    const device = fixture.deviceMemory();
    for (let i = 0; i < 4096; i++) host.u8[i] = i ^ (i >>> 8);
    // 3 planes of 4 rows of 6 bytes, to rows of 8 bytes at a distance of 10.
    const source: number[] = [];
    for (let plane = 0; plane < 3; plane++) {
      for (let row = 0; row < 4; row++)
        source.push(...host.u8.subarray(plane * 100 + row * 16, plane * 100 + row * 16 + 6));
    }
    fixture.run(0, (words) =>
      writes(words, [
        ...address(CORE.SRC_BASE, hostVa),
        ...address(CORE.DST_BASE, device),
        ...dimensions(CORE.SRC_TSIZE_1, [
          [4, 16],
          [3, 100],
        ]),
        [CORE.SRC_TSIZE_0, 6],
        ...dimensions(CORE.DST_TSIZE_1, [[9, 10]]),
        [CORE.DST_TSIZE_0, 8],
        [CORE.COMMIT, 0],
      ]),
    );
    fixture.copy(device, hostVa + 0x100000n, 90);
    const seen = Array.from({ length: 9 }, (_, i) => [
      ...host.u8.subarray(0x100000 + i * 10, 0x100000 + i * 10 + 8),
    ]).flat();
    expect(seen).toEqual(source);
  });

  it('COMMIT copies and fills linearly, by the size of the destination', () => {
    const { host } = fixture;
    const hostVa = fixture.mapAll();
    const device = fixture.deviceMemory();
    host.u8.fill(9, 0, 1000);
    const linear = (source: bigint, destination: bigint, byteLength: number, commit: number) => {
      fixture.run(0, (words) =>
        writes(words, [
          ...address(CORE.SRC_BASE, source),
          ...address(CORE.DST_BASE, destination),
          [CORE.DST_TSIZE_0, byteLength],
          [CORE.COMMIT, commit],
        ]),
      );
    };
    linear(hostVa, device, 1000, CORE.LIN);
    linear(0x0807_0605_0403_0201n, device + 1000n, 16, CORE.LIN | MEM_SET);
    fixture.copy(device, hostVa + 4096n, 1016);
    const expected = [...new Array<number>(1000).fill(9), 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    expect([...host.u8.subarray(4096, 4096 + 1016)]).toEqual(expected);
  });

  it('LIN_DMA with wr_comp_en sends the completion message of the engine', () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    const device = fixture.deviceMemory();
    host.u8.fill(3, 0, 4096);
    const { seq, registers } = completion();
    fixture.run(0, (words) => {
      const at = writes(words, registers);
      const ctl = linDmaCtl(asic, { wrComp: true });
      return writeLinDma(words, at, ctl, 4096, ...halves(hostVa), ...halves(device));
    });
    expect(client.wait(seq, 10_000_000).out.status).toBe(0);
    fixture.copy(device, hostVa + 4096n, 4096);
    expect(host.u8[8191]).toBe(3);
  });

  it('COMMIT moves nothing without rows, and stops its queue for a transposition', () => {
    const { client, host } = fixture;
    const hostVa = fixture.mapAll();
    const device = fixture.deviceMemory();
    host.u8.fill(5, 0, 64);
    const shape = [...address(CORE.SRC_BASE, hostVa), ...address(CORE.DST_BASE, device)];
    const counts = [...dimensions(CORE.SRC_TSIZE_1, [[0xffff_ffff, 0]]), ...dimensions(CORE.DST_TSIZE_1, [[0, 8]])];
    const sizes: [number, number][] = [
      [CORE.SRC_TSIZE_0, 8],
      [CORE.DST_TSIZE_0, 8],
    ];
    fixture.run(0, (words) => writes(words, [...shape, ...counts, ...sizes, [CORE.COMMIT, 0]]));
    const transposed = fixture.chunk(0, (words) => writes(words, [CORE.TRANSPOSE, [CORE.COMMIT, CORE.TRANSPOSE[1]]]));
    const { seq } = client.submit([transposed]).out;
    expect(client.wait(seq).out.status).toBe(1);
  });

  if (asic === 'gaudi2') {
    it('COMMIT takes the shape of the source from the destination, without the dimensions that it disables', () => {
      const { host } = fixture;
      const hostVa = fixture.mapAll();
      const device = fixture.deviceMemory();
      for (let i = 0; i < 4096; i++) host.u8[i] = i * 5;
      fixture.run(0, (words) =>
        writes(words, [
          ...address(CORE.SRC_BASE, hostVa),
          ...address(CORE.DST_BASE, device),
          ...dimensions(CORE.SRC_TSIZE_1, [[0, 0]]),
          [CORE.SRC_TSIZE_0, 0],
          ...dimensions(CORE.DST_TSIZE_1, [
            [4, 32],
            [0, 0],
          ]),
          [CORE.DST_TSIZE_0, 16],
          [CORE.COMMIT, LIKE_DESTINATION],
        ]),
      );
      fixture.copy(device, hostVa + 0x100000n, 128);
      for (let row = 0; row < 4; row++) {
        const at = 0x100000 + row * 32;
        expect(host.u8.slice(at, at + 16)).toEqual(host.u8.slice(row * 32, row * 32 + 16));
      }
    });
  }
}
