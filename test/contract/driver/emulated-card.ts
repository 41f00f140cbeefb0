/** One emulated gaudi2 card with a manual clock, its open file, and host memory that is mapped for it. For tests of the emulator. */

import { createEmulatedNode, type EmulatedNode, type EmulatedNodeOptions } from '../../../src/emulator/index.ts';
import { type MappedMemory, mapAnonymous } from '../../../src/sys/index.ts';
import {
  fenceCfg,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  HL_INFO_RESET_COUNT,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeMsgLong,
} from '../../../src/uapi/index.ts';
import { ManualClock } from '../../../src/ucs/sys/clock.ts';
import { type Answer, type Chunk, DriverClient } from './driver-client.ts';
import { halves } from './driver-fixture.ts';

const MIB = 2 ** 20;

/** The card of a test. */
export class EmulatedCard {
  readonly clock: ManualClock = new ManualClock(1e9);
  readonly node: EmulatedNode;
  client: DriverClient;
  readonly host: MappedMemory;
  hostVa: bigint;

  /** @param hostBytes bytes of host memory */
  constructor(options: EmulatedNodeOptions = {}, hostBytes: number = 4 * MIB) {
    this.node = createEmulatedNode({ cards: 1, dmaThreads: 0, strict: true, clock: this.clock, ...options });
    this.client = new DriverClient(this.node.open(0));
    this.host = mapAnonymous(hostBytes);
    this.hostVa = this.client.mapHost(this.host.address, hostBytes).out;
  }

  /** Words of the host memory from byte `offset` on. */
  words(offset: number): Uint32Array {
    return new Uint32Array(this.host.buffer, offset);
  }

  /** Submits the packets at byte `offset` of the host memory. */
  submit(
    offset: number,
    byteLength: number,
    queue = 0,
    values: Parameters<DriverClient['submit']>[1] = {},
  ): ReturnType<DriverClient['submit']> {
    return this.client.submit([{ queue, cb: this.hostVa + BigInt(offset), byteLength }], values);
  }

  /** Submits a command buffer at `offset` that blocks until {@link raise}. */
  block(offset: number, queue = 0, values: Parameters<DriverClient['submit']>[1] = {}): bigint {
    writeFence(this.words(offset), 0, packetCtl(PacketOpcode.FENCE), fenceCfg(0, 1, 1));
    return this.submit(offset, 8, queue, values).out.seq;
  }

  /** Opens the card again, after the file was closed. */
  reopen(): void {
    this.client = new DriverClient(this.node.open(0));
    this.hostVa = this.client.mapHost(this.host.address, this.host.byteLength).out;
  }

  /**
   * Submits a command buffer of the driver on the first queue, with more chunks behind it. Returns the sequence number.
   * @param write writes the packets and returns the number of words
   */
  run(
    write: (words: Uint32Array) => number,
    more: readonly Chunk[] = [],
    values: Parameters<DriverClient['submit']>[1] = {},
  ): bigint {
    if (this.node.config.profile.name !== 'gaudi') {
      return this.submit(2 * MIB, 4 * write(this.words(2 * MIB)), 0, values).out.seq;
    }
    const cb = this.client.createCommandBuffer(4096).out;
    const mapping = this.client.file.mmap(4096, cb);
    const byteLength = 4 * write(new Uint32Array(mapping.buffer));
    mapping.close();
    return this.client.submit([{ queue: 0, cb, byteLength, flags: 0 }, ...more], values).out.seq;
  }

  /** The address of the fence that {@link block} waits for. */
  fenceOf(queue: number): bigint {
    const { cfg, fences, queues } = this.node.config.profile;
    const { firstOfQman, stream } = queues[queue]!;
    return cfg.start + BigInt(fences.find(({ firstQueue }) => firstQueue === firstOfQman)!.fence0 + 4 * stream);
  }

  /** Continues one blocked command buffer of a queue, with packets at `offset`. */
  raise(offset: number, queue = 0): void {
    writeMsgLong(this.words(offset), 0, msgLongCtl(), 1, ...halves(this.fenceOf(queue)));
    this.submit(offset, 16, 8);
  }

  get status(): number {
    return this.client.info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS).out.status;
  }

  get hardResets(): number {
    return this.client.info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT).out.hard_reset_cnt;
  }

  /** A wait that does not block; its answer and status. */
  async waitAsync(seq: bigint, timeoutUs: bigint): Promise<Answer<number>> {
    const other = new DriverClient(this.client.file);
    other.block.view.setBigUint64(0, seq, true);
    other.block.view.setBigUint64(8, timeoutUs, true);
    const result = await this.client.file.ioctlAsync(this.client.file.numbers.WAIT_CS, other.block);
    const out = other.block.words[0]!;
    other.block.free();
    other.answer.free();
    return { result, out };
  }

  close(): void {
    this.client.close();
    this.host.close();
    this.node.close();
  }
}
