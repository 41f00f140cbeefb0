/** The common part of the cases of the driver contract: a card opened for one case, with host memory, and a leak check. */

import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import { EAGAIN_RETRIES_MAX } from '../../../src/driver/kernel/kernel-file.ts';
import type { DriverNode } from '../../../src/driver/port.ts';
import {
  MadviseAdvice,
  type MappedMemory,
  madvise,
  mapAnonymous,
  mappedMemoryStatistics,
  openFileDescriptors,
  scratchStatistics,
} from '../../../src/sys/index.ts';
import {
  ASIC_PROFILES,
  type AsicName,
  type AsicProfile,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  LinPdmaCtl,
  linDmaCtl,
  MSG_LONG_BYTES,
  msgLongCtl,
  type PacketAsic,
  type StructValues,
  writeLinDma,
  writeMsgLong,
} from '../../../src/uapi/index.ts';
import { requires } from '../../fixtures/requires.ts';
import { ChannelClient } from './channel-client.ts';
import { type Chunk, DriverClient } from './driver-client.ts';

/** Bytes of host memory of a case: enough for an aligned huge page. */
export const HOST_BYTES: number = 4 * 2 ** 20;
/** Offset of command buffers in it. */
const COMMANDS_OFFSET: number = HOST_BYTES - 65536;
/** Offset of the programs of {@link DriverFixture.chunk}, and bytes of one. */
const PROGRAMS_OFFSET: number = COMMANDS_OFFSET + 8192;
const PROGRAM_BYTES = 1024;
/** Offsets of the counter and the ring of the channel. */
const COUNTER_OFFSET: number = HOST_BYTES - 8192;
const RING_OFFSET: number = HOST_BYTES - 4096;
/** The channel: the last one of the first group, which the vendor's software does not use for copies. */
const CHANNEL = 5;

/** Bytes of a chunk of scratch memory. */
const SCRATCH_CHUNK_BYTES = 65536;

type HwIpInfo = typeof HL_INFO_HW_IP_INFO extends { decode(view: DataView): infer V } ? V : never;

/** The low and high words of an address. */
export function halves(address: bigint): [number, number] {
  return [Number(address & 0xffff_ffffn), Number(address >> 32n)];
}

/** Live mappings, without the chunks of scratch memory, which stay. */
function mappings(): number {
  return mappedMemoryStatistics().liveMappings - scratchStatistics().arenaBytes / SCRATCH_CHUNK_BYTES;
}

/** One card, opened for every case. */
export class DriverFixture {
  readonly asic: AsicName;
  readonly profile: AsicProfile;
  node!: DriverNode;
  client!: DriverClient;
  host!: MappedMemory;
  hw!: HwIpInfo;
  /** Device address of `host`, once {@link mapAll} was called. */
  hostVa = 0n;
  #handle: bigint | undefined;
  #commandHandle: bigint | undefined;
  #programs = 0;
  #channel: ChannelClient | undefined;
  /** Device memory of the transfers of {@link raiseCounter}. */
  #target: bigint | undefined;

  constructor(asic: AsicName, makeNode: () => DriverNode) {
    this.asic = asic;
    this.profile = ASIC_PROFILES[asic];
    let before = { fds: 0, mappings: 0 };
    beforeAll(() => {
      // One for all cases: V8 counts views of mapped memory as external, and collects garbage for every 64 MiB of new ones.
      this.host = mapAnonymous(HOST_BYTES);
      before = { fds: openFileDescriptors(), mappings: mappings() };
    });
    beforeEach(() => {
      this.node = makeNode();
      this.open();
    });
    afterEach(async () => {
      // A card that is closed with a mapped block is reset as a whole.
      this.#channel?.close();
      this.client.close();
      // The next case finds zeros.
      expect(madvise(this.host.address, HOST_BYTES, MadviseAdvice.DONTNEED)).toBe(0);
      this.node.close();
      // Threads close their descriptors asynchronously after they were told to end.
      await vi.waitFor(() => expect(openFileDescriptors()).toBeLessThanOrEqual(before.fds), {
        timeout: 10_000,
        interval: 2,
      });
      expect(mappings()).toBe(before.mappings);
      // Vitest keeps this fixture until the end of the run: a node in it would make every garbage collection of later files longer.
      this.node = undefined as never;
      this.client = undefined as never;
    });
    afterAll(() => this.host.close());
  }

  /** Whether the card is an emulated one behind a device node, whose mappings the kernel makes: the handles of timestamp buffers differ. */
  get isDeviceNode(): boolean {
    return this.node.kind === 'kernel' && this.node.emulated;
  }

  /** Opens the card, after the previous file was closed. */
  open(): void {
    this.client = new DriverClient(this.node.open(0));
    this.hw = this.client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO).out as StructValues<never> & HwIpInfo;
    this.#handle = undefined;
    this.#commandHandle = undefined;
    this.#channel = undefined;
    this.#target = undefined;
  }

  /** Maps all of the host memory for the card. */
  mapAll(): bigint {
    const mapped = this.client.mapHost(this.host.address, HOST_BYTES);
    expect(mapped.result).toBe(0);
    this.hostVa = mapped.out;
    return mapped.out;
  }

  /** Device memory of `pages` pages, mapped if the generation has device addresses. */
  deviceMemory(pages = 1): bigint {
    const { result, out } = this.client.allocate(this.hw.dram_page_size * BigInt(pages));
    expect(result).toBe(0);
    if (!this.profile.capabilities.dramMmu) return this.hw.dram_base_address;
    this.#handle = out;
    const mapped = this.client.mapDevice(out);
    expect(mapped.result).toBe(0);
    return mapped.out;
  }

  /** The handle of the last {@link deviceMemory}. */
  get handle(): bigint {
    return this.#handle ?? 0n;
  }

  /** Words for packets: a part of the host memory, or the source of a command buffer of the driver. */
  get commands(): Uint32Array {
    return new Uint32Array(this.host.buffer, COMMANDS_OFFSET, 1024);
  }

  /** The channel of this fixture, on a generation without queues of users; the host memory is mapped. */
  get channel(): ChannelClient {
    this.#channel ??= new ChannelClient(this.client, this.profile, CHANNEL, {
      ring: new Uint32Array(this.host.buffer, RING_OFFSET, 1024),
      ringVa: this.hostVa + BigInt(RING_OFFSET),
      counter: new Uint32Array(this.host.buffer, COUNTER_OFFSET, 2),
      counterAddress: this.host.address + COUNTER_OFFSET,
      counterVa: this.hostVa + BigInt(COUNTER_OFFSET),
    });
    return this.#channel;
  }

  /** The generation, for packets that users submit. Skips the test on one without queues of users. */
  get packets(): PacketAsic {
    const { capabilities, name } = this.profile;
    requires(capabilities.submits, 'command submissions');
    return name as PacketAsic;
  }

  /** Submits {@link commands} in the form that the ASIC requires; `queue` accepts kernel buffers on gaudi. */
  submitCommands(
    byteLength: number,
    queue = 0,
    values: Parameters<DriverClient['submit']>[1] = {},
  ): ReturnType<DriverClient['submit']> {
    if (this.packets === 'gaudi2') {
      const cb = this.hostVa + BigInt(COMMANDS_OFFSET);
      return this.client.submit([{ queue, cb, byteLength }], values);
    }
    this.#commandHandle ??= this.client.createCommandBuffer(65536).out;
    const mapping = this.client.file.mmap(65536, this.#commandHandle);
    new Uint8Array(mapping.buffer).set(this.host.u8.subarray(COMMANDS_OFFSET, COMMANDS_OFFSET + byteLength));
    mapping.close();
    return this.client.submit([{ queue, cb: this.#commandHandle, byteLength, flags: 0 }], values);
  }

  /** Adds 1 to a fence from a queue that is not 0, with packets after those of {@link commands}. */
  raiseFence(fence: bigint): void {
    const at = 512;
    writeMsgLong(this.commands, at, msgLongCtl(), 1, ...halves(fence));
    if (this.asic === 'gaudi2') {
      const cb = this.hostVa + BigInt(COMMANDS_OFFSET + at * 4);
      expect(this.client.submit([{ queue: 8, cb, byteLength: MSG_LONG_BYTES }]).result).toBe(0);
      return;
    }
    this.commands.copyWithin(0, at, at + MSG_LONG_BYTES / 4);
    expect(this.submitCommands(MSG_LONG_BYTES, 1).result).toBe(0);
  }

  /**
   * Writes packets into a command buffer of the kind that the queue takes, and returns the chunk for them; up to 56 live at the same time.
   * @param write writes the packets and returns the number of words
   */
  chunk(queue: number, write: (words: Uint32Array) => number): Chunk {
    requires(this.profile.capabilities.submits, 'command submissions');
    const offset = PROGRAMS_OFFSET + (this.#programs++ % 56) * PROGRAM_BYTES;
    const words = new Uint32Array(this.host.buffer, offset, PROGRAM_BYTES / 4);
    const byteLength = write(words) * 4;
    if (this.profile.queues[queue]!.kind !== 'external') return { queue, cb: this.hostVa + BigInt(offset), byteLength };
    const cb = this.client.createCommandBuffer(PROGRAM_BYTES).out;
    const mapping = this.client.file.mmap(4096, cb);
    new Uint32Array(mapping.buffer).set(words.subarray(0, byteLength / 4));
    mapping.close();
    return { queue, cb, byteLength, flags: 0 };
  }

  /** Submits packets on a queue that signals completion, and waits for them. */
  run(queue: number, write: (words: Uint32Array) => number): void {
    const { result, out } = this.client.submit([this.chunk(queue, write)]);
    expect(result).toBe(0);
    expect(this.client.wait(out.seq, 10_000_000)).toMatchObject({ result: 0, out: { status: 0 } });
  }

  /**
   * Lets the card raise a counter at a device address, and then an interrupt of the user.
   * @param from the value of the counter, which the caller knows
   */
  raiseCounter(counter: bigint, from: number, to: number, interrupt: number): void {
    if (this.profile.channels === undefined) {
      const doorbell = this.profile.interrupts.virtualDoorbell!;
      const at = writeMsgLong(this.commands, 0, msgLongCtl(), to, ...halves(counter));
      const { result } = this.submitCommands(
        4 * writeMsgLong(this.commands, at, msgLongCtl(), interrupt, ...halves(doorbell)),
      );
      expect(result).toBe(0);
      return;
    }
    const { channel, hostVa } = this;
    channel.count(counter, interrupt);
    // Each transfer adds 1.
    if (from < to) this.#target ??= this.deviceMemory();
    for (let value = from; value < to; value++) channel.transfer(hostVa + 16n, this.#target!, 8);
    if (from === to) channel.raise(interrupt);
    channel.submit();
  }

  /** Copies `byteLength` bytes between device addresses and waits for it. */
  copy(source: bigint, destination: bigint, byteLength: number, memset = false): void {
    if (this.profile.channels !== undefined) {
      this.channel.copy(source, destination, byteLength, memset ? LinPdmaCtl.MEMSET : 0);
      return;
    }
    const [sourceLow, sourceHigh] = halves(source);
    const [low, high] = halves(destination);
    writeLinDma(this.commands, 0, linDmaCtl(this.packets, { memset }), byteLength, sourceLow, sourceHigh, low, high);
    const { result, out } = this.submitCommands(24);
    expect(result).toBe(0);
    expect(this.client.wait(out.seq, 10_000_000)).toMatchObject({ result: 0, out: { status: 0 } });
  }
}

/** Number of refused calls of the driver for one EAGAIN: the port over the kernel repeats the call before it returns that. */
export function callsUntilEagain({ node }: DriverFixture): bigint {
  return node.kind === 'kernel' ? BigInt(1 + EAGAIN_RETRIES_MAX) : 1n;
}
