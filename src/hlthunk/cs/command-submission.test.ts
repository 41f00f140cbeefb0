/** Raw submissions, waits, command buffers, hw blocks and events on the emulated cards. */

import { describe, expect, it } from 'vitest';
import { settle, useEmulatedDevice } from '../../../test/fixtures/driver/emulated-device.ts';
import {
  fenceCfg,
  GaudiQueueBase,
  HL_CS_CHUNK_FLAGS,
  HL_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  linDmaCtl,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeLinDma,
  writeMsgLong,
  writeNop,
} from '../../uapi/index.ts';
import { ManualClock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  type CommandChunk,
  commandSubmission,
  type Device,
  destroyCommandBuffer,
  GaudiErrorCode,
  getHwBlock,
  requestCommandBuffer,
  waitForCs,
  waitForCsAsync,
  waitForMultiCs,
} from '../index.ts';

const fixture = useEmulatedDevice();
const INVALID = expect.objectContaining({ code: GaudiErrorCode.INVALID_PARAMS });
const DENIED = expect.objectContaining({ code: GaudiErrorCode.PERMISSION_DENIED });
const NOP_CTL = packetCtl(PacketOpcode.NOP);

/** A chunk with packets in a buffer of the kind that the card executes. */
function chunkOf(device: Device, queueIndex: number, write: (words: Uint32Array) => number): CommandChunk {
  const isUser = device.info.profile.capabilities.userCbOnly;
  const buffer = requestCommandBuffer(device, 4096, { mapped: isUser });
  const cbSize = write(buffer.words) * 4;
  const cbHandle = buffer.deviceAddress ?? buffer.handle;
  return { queueIndex, cbHandle, cbSize, flags: isUser ? HL_CS_CHUNK_FLAGS.USER_ALLOC_CB : 0 };
}

describe.each(['gaudi2', 'gaudi'] as const)('submission on %s', (asic) => {
  it('runs packets and reports their completion', async () => {
    const device = fixture.setUp({ asic });
    const { memory, mapping } = fixture.pin(device, 4096);
    memory.words[0] = 42;
    const block = device.memory.allocate(4);
    const chunk = chunkOf(device, 0, (words) => {
      const { low, high } = mapping;
      const ctl = linDmaCtl(device.dma.asic);
      const next = writeLinDma(words, 0, ctl, 4, low, high, block.low, block.high);
      return writeMsgLong(words, next, msgLongCtl({ engBarrier: true, msgBarrier: true }), 7, low + 16, high);
    });
    const seq = commandSubmission(device, [chunk], { flags: HL_CS_FLAGS.TIMESTAMP })!;
    expect(seq).toBe(1n);
    const result = await waitForCsAsync(device, seq, 1e6);
    expect(result).toMatchObject({ status: HL_WAIT_CS_STATUS.COMPLETED, errno: 0, gone: false });
    expect(result.timestampNs).toBeGreaterThan(0n);
    expect(memory.words[4]).toBe(7);
    const got = new Uint8Array(4);
    expect(await settle(device, device.dma.getShort(got, 0, block, 0, 4))).toBe(Status.OK);
    expect(got).toEqual(new Uint8Array([42, 0, 0, 0]));
    expect(waitForCs(device, seq, 0).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
  });

  it('polls, waits and times out', () => {
    const clock = new ManualClock();
    const device = fixture.setUp({ asic, clock });
    fixture.log.allow(/cs_timeout/);
    const ctl = packetCtl(PacketOpcode.FENCE);
    const blocked = chunkOf(device, 0, (words) => writeFence(words, 0, ctl, fenceCfg(0, 1, 1)));
    const nop = chunkOf(device, 4, (words) => writeNop(words, 0, NOP_CTL));
    const seq = commandSubmission(device, [blocked], { timeoutSeconds: 3 })!;
    expect(waitForCs(device, seq, 0)).toMatchObject({ status: HL_WAIT_CS_STATUS.BUSY, errno: 0 });
    const other = commandSubmission(device, [nop])!;
    expect(waitForCs(device, other, 0).status).toBe(HL_WAIT_CS_STATUS.COMPLETED);
    const later = commandSubmission(device, [blocked])!;
    const seen: number[] = [];
    const subscription = device.events.register((mask) => seen.push(mask));
    expect([waitForCs(device, seq, 0).status, waitForCs(device, later, 0).status]).toEqual([1, 1]);
    clock.advance(4e9);
    expect(device.events.receive()).toBeGreaterThan(0);
    expect(device.events.receive()).toBe(0);
    expect(seen).toHaveLength(1);
    expect(device.events.lastFault?.csTimeout?.seq).toBe(seq);
    subscription.close();
    subscription.close();
  });

  it('rejects invalid submissions', () => {
    const device = fixture.setUp({ asic });
    const nop = chunkOf(device, 0, (words) => writeNop(words, 0, NOP_CTL));
    expect(() => commandSubmission(device, [])).toThrow(INVALID);
    expect(() => commandSubmission(device, [{ ...nop, queueIndex: 9999 }])).toThrow(INVALID);
    expect(() => commandSubmission(device, [{ ...nop, cbSize: 0.5 }])).toThrow(INVALID);
    expect(() => commandSubmission(device, [{ ...nop, cbHandle: -1n }])).toThrow(INVALID);
    expect(() => commandSubmission(device, new Array<CommandChunk>(513).fill(nop))).toThrow(INVALID);
    expect(() => waitForCs(device, 99n, 0)).toThrow(INVALID);
    expect(() => waitForCs(device, 1n, -1)).toThrow(INVALID);
    expect(() => waitForMultiCs(device, [], 0)).toThrow(INVALID);
  });

  it('returns undefined while the driver has no room', () => {
    const device = fixture.setUp({ asic });
    const nop = chunkOf(device, 0, (words) => writeNop(words, 0, NOP_CTL));
    fixture.node.inject(0, { kind: 'ioctl', ioctl: 'CS', errno: 11 });
    expect(commandSubmission(device, [nop])).toBeUndefined();
    expect(commandSubmission(device, [nop])).toBe(1n);
  });

  it('destroys a command buffer once', () => {
    const device = fixture.setUp({ asic });
    const buffer = requestCommandBuffer(device, 77);
    expect(buffer.byteLength).toBe(77);
    expect(buffer.words.byteLength).toBe(4096);
    expect(buffer.usageCount).toBe(0);
    destroyCommandBuffer(buffer);
    buffer.destroy();
    expect(() => destroyCommandBuffer(buffer)).toThrow(INVALID);
    expect(() => requestCommandBuffer(device, 0)).toThrow(INVALID);
    expect(() => requestCommandBuffer(device, 2 ** 21)).toThrow(INVALID);
  });
});

describe('differences between the generations', () => {
  it('waits for the first of several on gaudi', () => {
    const device = fixture.setUp({ asic: 'gaudi' });
    const nop = chunkOf(device, GaudiQueueBase.DMA_0, (words) => writeNop(words, 0, NOP_CTL));
    const fence = chunkOf(device, GaudiQueueBase.DMA_1, (words) =>
      writeFence(words, 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1)),
    );
    const blocked = commandSubmission(device, [fence])!;
    const done = commandSubmission(device, [nop])!;
    const result = waitForMultiCs(device, [blocked, done], 1000);
    expect(result).toMatchObject({ status: HL_WAIT_CS_STATUS.COMPLETED, completionMap: 2 });
  });

  it('rejects that on gaudi2, and mapped buffers on gaudi', () => {
    const device = fixture.setUp();
    expect(() => waitForMultiCs(device, [1n], 0)).toThrow(DENIED);
    const block = device.info.profile.userBlocks[0]!;
    const found = getHwBlock(device, block.address);
    expect(found.size).toBe(block.size);
    const mapping = found.map();
    expect(mapping.byteLength).toBe(block.size);
    mapping.close();
    mapping.close();
    found.map();
    expect(() => getHwBlock(device, 1n)).toThrow(INVALID);
  });

  it('has no mapped buffers and no blocks on gaudi', () => {
    const device = fixture.setUp({ asic: 'gaudi' });
    const refusal = expect.objectContaining({ code: GaudiErrorCode.OUT_OF_MEMORY });
    expect(() => requestCommandBuffer(device, 4096, { mapped: true })).toThrow(refusal);
    expect(() => getHwBlock(device, 1n)).toThrow(DENIED);
  });
});
