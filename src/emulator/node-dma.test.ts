import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DriverClient } from '../../test/contract/driver/driver-client.ts';
import { addressOf, type MappedMemory, mapAnonymous } from '../sys/index.ts';
import { HL_INFO_HW_IP_INFO, HL_INFO_OP, LIN_DMA_BYTES, linDmaCtl, writeLinDma } from '../uapi/index.ts';
import { createEmulatedNode, type EmulatedNode } from './index.ts';

/** Bytes of each memory that the transfers use. */
const AREA = 300_000;
const COMMANDS_OFFSET = 2 ** 20;
/** Host memory, device memory across the border of two pages, SRAM, and host memory that only the kernel accesses, as that of another process. */
const MEMORIES = ['host', 'device', 'sram', 'array'] as const;
const ARRAY = 3;

const TRANSFER = fc.record({
  from: fc.nat(ARRAY),
  to: fc.nat(ARRAY),
  source: fc.nat(AREA - 1),
  destination: fc.nat(AREA - 1),
  byteLength: fc.oneof(fc.integer({ min: 1, max: 64 }), fc.integer({ min: 1, max: AREA })),
  memset: fc.boolean(),
  pattern: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
});

interface Transfer {
  readonly from: number;
  readonly to: number;
  readonly source: number;
  readonly destination: number;
  readonly byteLength: number;
  readonly memset: boolean;
  readonly pattern: bigint;
}

/** True for transfers that hardware executes, except overlapping ranges, whose result is undefined. */
function isSensible({ from, to, source, destination, byteLength, memset }: Transfer): boolean {
  if (destination + byteLength > AREA) return false;
  if (memset) return true;
  if (source + byteLength > AREA) return false;
  return from !== to || source + byteLength <= destination || destination + byteLength <= source;
}

function applyToOracle(oracle: readonly Uint8Array[], transfer: Transfer): void {
  const { from, to, source, destination, byteLength, memset, pattern } = transfer;
  const target = oracle[to]!.subarray(destination, destination + byteLength);
  if (!memset) {
    target.set(oracle[from]!.subarray(source, source + byteLength));
    return;
  }
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, pattern, true);
  for (let i = 0; i < byteLength; i++) target[i] = bytes[i % 8]!;
}

for (const dmaThreads of [0, 1]) {
  describe(`any transfers on one queue (${dmaThreads} threads)`, () => {
    let node: EmulatedNode;
    let client: DriverClient;
    let host: MappedMemory;
    const array = new Uint8Array(AREA);
    let hostVa = 0n;
    let bases: readonly bigint[] = [];

    const submit = (transfers: readonly Transfer[]): void => {
      const words = new Uint32Array(host.buffer, COMMANDS_OFFSET);
      let at = 0;
      for (const { from, to, source, destination, byteLength, memset, pattern } of transfers) {
        const src = memset ? pattern : bases[from]! + BigInt(source);
        const dst = bases[to]! + BigInt(destination);
        const low = (value: bigint): number => Number(value & 0xffff_ffffn);
        const high = (value: bigint): number => Number(value >> 32n);
        const ctl = linDmaCtl('gaudi2', { memset });
        at = writeLinDma(words, at, ctl, byteLength, low(src), high(src), low(dst), high(dst));
      }
      const byteLength = transfers.length * LIN_DMA_BYTES;
      const { out } = client.submit([{ queue: 0, cb: hostVa + BigInt(COMMANDS_OFFSET), byteLength }]);
      expect(client.wait(out.seq, 10_000_000)).toMatchObject({ result: 0, out: { status: 0 } });
    };

    /** The contents of a memory, copied through host memory. */
    const contents = (memory: number): Uint8Array => {
      if (memory === 0) return host.u8.slice(0, AREA);
      if (memory === ARRAY) return array.slice();
      const staging = 2 * 2 ** 20;
      const zero = { source: 0, destination: staging, byteLength: AREA, memset: false, pattern: 0n };
      submit([{ ...zero, from: memory, to: 0 }]);
      return host.u8.slice(staging, staging + AREA);
    };

    beforeAll(() => {
      node = createEmulatedNode({ cards: 1, dmaThreads });
      client = new DriverClient(node.open(0));
      host = mapAnonymous(4 * 2 ** 20);
      hostVa = client.mapHost(host.address, host.byteLength).out;
      const hw = client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out;
      const device = client.mapDevice(client.allocate(hw.dram_page_size * 2n).out).out;
      const arrayVa = client.mapHost(addressOf(array), AREA).out;
      bases = [hostVa, device + hw.dram_page_size - BigInt(AREA / 2), hw.sram_base_address, arrayVa];
    });

    afterAll(() => {
      client.close();
      host.close();
      node.close();
    });

    it('produce the same bytes as copies in a byte array', () => {
      const oracle = MEMORIES.map((_, memory) => contents(memory));
      fc.assert(
        fc.property(fc.array(TRANSFER, { minLength: 1, maxLength: 24 }), (drawn) => {
          const transfers = drawn.filter(isSensible);
          if (transfers.length === 0) return;
          submit(transfers);
          for (const transfer of transfers) applyToOracle(oracle, transfer);
          for (const [memory, expected] of oracle.entries()) {
            expect(Buffer.compare(contents(memory), expected)).toBe(0);
          }
        }),
        { numRuns: 60, endOnFailure: true },
      );
    });
  });
}
