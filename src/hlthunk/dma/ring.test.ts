/** The memory of a DMA queue and its ioctls: areas that do not overlap, addresses that carry, units of time-outs, blocks that are released. */

import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import type { ArgumentBlock, DriverFile } from '../../driver/port.ts';
import { Errno, openFileDescriptors, scratchStatistics } from '../../sys/index.ts';
import {
  DRM_IOCTLS,
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_CHUNK_FLAGS,
  HL_WAIT_CS_ARGS,
  msgLongCtl,
} from '../../uapi/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { CommandRing } from './command-ring.ts';
import { deliver } from './queue.ts';
import { DmaRequestPool } from './request.ts';
import { BatchIoctls, CompletionWait } from './submission.ts';

expectNoLeaks();

const PACKET_BYTES = 1024;
const LONG_BYTES = 32_768;
/** The mapping begins so low that slots are beyond the next 4 GiB. */
const LOW = -8192;
const HIGH = 0x7000;

function open(slots = 4, kernel = false) {
  const state = { unmaps: 0, destroys: 0, descriptors: 0 };
  const count = (what: 'unmaps' | 'destroys'): void => {
    state[what] += 1;
  };
  const words = new Uint32Array(LONG_BYTES / 4);
  const before = openFileDescriptors();
  const ring = new CommandRing(
    {
      asic: 'gaudi2',
      mapHost: () => {
        // A driver in another process maps the file now.
        state.descriptors = openFileDescriptors() - before;
        return { low: LOW, high: HIGH, unmap: () => count('unmaps') };
      },
      createKernelBuffer: kernel
        ? () =>
            ({ handle: 0x5_0000_0007n, words, destroy: () => count('destroys') }) as unknown as ReturnType<
              NonNullable<ConstructorParameters<typeof CommandRing>[0]['createKernelBuffer']>
            >
        : undefined,
    },
    slots,
  );
  return { ring, state, words, left: () => openFileDescriptors() - before };
}

describe('the memory of a ring', () => {
  it('is mapped while its file is open, and unmapped with the ring', () => {
    const { ring, state, left } = open();
    expect([state.descriptors, left()]).toEqual([1, 0]);
    ring.close();
    expect(state.unmaps).toBe(1);
  });

  it('has an area for the packets and the data of each slot, and two long ones, which do not overlap', () => {
    const { ring } = open();
    const areas = [0, 1, 2, 3].flatMap((slot) => [
      [ring.packetWord(slot) * 4, PACKET_BYTES],
      [ring.dataOffset(slot), 1024],
    ]);
    for (const area of [4, 5]) areas.push([ring.packetWord(area) * 4, LONG_BYTES]);
    const ranges = areas.map(([from, length]) => [from!, from! + length!]).sort((a, b) => a[0]! - b[0]!);
    for (let i = 1; i < ranges.length; i++) expect(ranges[i]![0]).toBeGreaterThanOrEqual(ranges[i - 1]![1]!);
    expect(ranges[0]![0]).toBeGreaterThanOrEqual(4);
    expect(ranges.at(-1)![1]).toBeLessThanOrEqual(ring.data.byteLength);
    ring.close();
  });

  it('holds as many packets as fit with the message of the completion', () => {
    const { ring } = open();
    expect([ring.transfersMax(0), ring.transfersMax(4)]).toEqual([42, 1364]);
    expect(42 * 24 + 16).toBeLessThanOrEqual(PACKET_BYTES);
    ring.close();
  });

  it('gives long areas to batches that need them, each until its batch has retired, over the wrap of numbers', () => {
    const { ring } = open();
    expect([ring.areaFor(2, 42, 0), ring.areaFor(2, 43, 0)]).toEqual([2, 4]);
    ring.useArea(4, 0x7fff_ffff);
    expect(ring.areaFor(2, 43, 0x7fff_fffd)).toBe(5);
    ring.useArea(5, -0x8000_0000);
    expect(ring.areaFor(2, 43, 0x7fff_fffe)).toBe(2);
    expect(ring.areaFor(2, 43, 0x7fff_ffff)).toBe(4);
    ring.useArea(4, -0x7fff_ffff);
    expect([ring.areaFor(2, 43, 0x7fff_ffff), ring.areaFor(2, 43, -0x8000_0000)]).toEqual([2, 5]);
    ring.useArea(1, -0x8000_0000);
    ring.close();
  });

  it('has device addresses that carry into their high word', () => {
    const { ring } = open();
    const data = ring.dataOffset(2);
    expect([ring.dataLow(4096), ring.dataHigh(4096)]).toEqual([-4096, HIGH]);
    expect([ring.dataLow(data), ring.dataHigh(data)]).toEqual([data + LOW, HIGH + 1]);
    expect([ring.handleLow(0), ring.handleHigh(0)]).toEqual([-4096, HIGH]);
    const area = ring.packetWord(4) * 4;
    expect([ring.handleLow(4), ring.handleHigh(4)]).toEqual([area + LOW, HIGH + 1]);
    expect([ring.completionLow, ring.completionHigh]).toEqual([LOW, HIGH]);
    ring.close();
  });

  it('has packets whose addresses carry, and a completion behind the transfers of its engine', () => {
    const { ring } = open();
    const request = new DmaRequestPool({}, 1).get()!;
    request.setSource(-4096, 5);
    request.setDestination(-8192, 6);
    const next = ring.writeTransfer(0, request, 8192, 100);
    expect([...ring.words.subarray(2, 6)]).toEqual([4096, 6, 0, 7]);
    const end = ring.writeCompletion(next, -5);
    expect([ring.words[next], ring.words[next + 2]! | 0, ring.words[next + 3]]).toEqual([2 ** 32 - 5, LOW, HIGH]);
    expect(ring.words[next + 1]).toBe(msgLongCtl({ engBarrier: true, msgBarrier: true }) >>> 0);
    expect(end - next).toBe(4);
    ring.close();
  });

  it('delivers the bytes of a short get to a target that still has room for them', () => {
    const { ring } = open();
    const request = new DmaRequestPool({}, 1).get()!;
    request.begin(4);
    const target = new Uint8Array(12);
    Object.assign(request, { target, targetOffset: 8, dataOffset: ring.dataOffset(1) });
    ring.data.set([1, 2, 3, 4, 5], ring.dataOffset(1));
    expect([deliver(ring.data, request), ...target.subarray(7)]).toEqual([Status.OK, 0, 1, 2, 3, 4]);
    request.targetOffset = 9;
    expect(deliver(ring.data, request)).toBe(Status.INVALID_ADDR);
    ring.close();
  });

  it('of gaudi is one command buffer of the driver for all slots', () => {
    const { ring, state, words } = open(4, true);
    expect(ring.words).toBe(words);
    expect([ring.packetWord(3), ring.areaFor(3, 2000, 0), ring.transfersMax(3)]).toEqual([0, 3, 1364]);
    expect([ring.handleLow(3), ring.handleHigh(3), ring.chunkFlags]).toEqual([7, 5, 0]);
    ring.close();
    expect(state).toMatchObject({ unmaps: 1, destroys: 1 });
    const user = open();
    expect(user.ring.chunkFlags).toBe(HL_CS_CHUNK_FLAGS.USER_ALLOC_CB);
    user.ring.close();
  });
});

/** A driver file that keeps the words of each call. */
function fileOf() {
  const calls: { request: number; words: number[] }[] = [];
  const ends: ((result: number) => void)[] = [];
  const state = { result: 0, seq: 0n };
  const note = (request: number, { words }: ArgumentBlock): void => {
    calls.push({ request: request >>> 0, words: [...words] });
  };
  const file = {
    numbers: DRM_IOCTLS,
    ioctl: (request: number, block: ArgumentBlock): number => {
      note(request, block);
      // The answer overwrites the arguments.
      block.words.fill(0xffff_ffff);
      HL_CS_ARGS.out.encode({ seq: state.seq }, new DataView(block.words.buffer, block.words.byteOffset));
      return state.result;
    },
    ioctlAsync: (request: number, block: ArgumentBlock): Promise<number> => {
      note(request, block);
      return new Promise((resolve) => ends.push(resolve));
    },
  } as unknown as DriverFile;
  return { file, calls, ends, state };
}

const waitOf = (words: readonly number[]) => HL_WAIT_CS_ARGS.in.decode(new DataView(Uint32Array.from(words).buffer));

describe('the ioctls of a queue', () => {
  it('submit one chunk with all of its arguments, whatever the answer before left, and keep the numbers by slot', () => {
    const { ring } = open();
    const { file, calls, state } = fileOf();
    const before = scratchStatistics().liveBlocks;
    const ioctls = new BatchIoctls(file, ring, 9);
    state.seq = 2n ** 33n + 3n;
    expect(ioctls.submit(2, 4, 240)).toBe(0);
    state.seq = 5n;
    expect(ioctls.submit(3, 3, 48)).toBe(0);
    state.result = -Errno.EINVAL;
    state.seq = 7n;
    expect(ioctls.submit(2, 2, 48)).toBe(-Errno.EINVAL);
    expect([ioctls.seqOf(2), ioctls.seqOf(3)]).toEqual([2 ** 33 + 3, 5]);
    const areas = [4, 3];
    for (const [index, packetBytes] of [240, 48].entries()) {
      const view = new DataView(Uint32Array.from(calls[index]!.words).buffer);
      expect(HL_CS_ARGS.in.decode(view)).toMatchObject({
        num_chunks_execute: 1,
        num_chunks_restore: 0,
        chunks_restore: 0n,
        cs_flags: 0,
        timeout: 0,
      });
      const area = areas[index]!;
      expect(HL_CS_CHUNK.decode(view, 64)).toMatchObject({
        queue_index: 9,
        cb_size: packetBytes,
        cs_chunk_flags: HL_CS_CHUNK_FLAGS.USER_ALLOC_CB,
        cb_handle: BigInt.asUintN(64, (BigInt(ring.handleHigh(area)) << 32n) + BigInt(ring.handleLow(area) >>> 0)),
      });
    }
    state.result = -Errno.EIO;
    expect(ioctls.poll(2 ** 33 + 3)).toBe(-Errno.EIO);
    expect(waitOf(calls.at(-1)!.words)).toMatchObject({ seq: 2n ** 33n + 3n, timeout_us: 0n, flags: 0 });
    ioctls.close();
    expect(scratchStatistics().liveBlocks).toBe(before);
    ring.close();
  });

  it('wait in microseconds, rounded up, one at a time, and not after the end', async () => {
    const { file, calls, ends } = fileOf();
    const results: number[] = [];
    const wait = new CompletionWait(file, (result) => results.push(result));
    wait.start(2 ** 32 + 1, 1500);
    wait.start(9, 1e9);
    expect(calls.map(({ words }) => waitOf(words))).toMatchObject([{ seq: 2n ** 32n + 1n, timeout_us: 2n }]);
    ends[0]!(-7);
    await new Promise((resolve) => setImmediate(resolve));
    wait.start(9, 2 ** 33 * 1000);
    expect(waitOf(calls[1]!.words)).toMatchObject({ seq: 9n, timeout_us: 2n ** 33n });
    const { liveBlocks } = scratchStatistics();
    wait.close();
    wait.start(10, 1);
    expect([results, calls.length, scratchStatistics().liveBlocks]).toEqual([[-7], 2, liveBlocks]);
    ends[1]!(0);
    await new Promise((resolve) => setImmediate(resolve));
    expect([results, scratchStatistics().liveBlocks]).toEqual([[-7], liveBlocks - 1]);
    wait.start(11, 1);
    expect(calls).toHaveLength(2);
  });
});
