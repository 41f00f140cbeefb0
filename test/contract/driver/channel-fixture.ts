/** The common part of the cases of PDMA channels: a card, memory on both sides, and a program that writes packets into a ring. */

import { afterEach, beforeEach, expect, vi } from 'vitest';
import type { DriverNode, RegisterMapping } from '../../../src/driver/port.ts';
import { type MappedMemory, mapAnonymous } from '../../../src/sys/index.ts';
import {
  type AsicProfile,
  channelBlockA,
  EcmpltnCfg,
  GAUDI3_PROFILE,
  HL_DEVICE_STATUS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_MEM_OP,
  HL_WAIT_CS_FLAGS,
  LIN_PDMA_BYTES,
  PdmaChannelA,
  type PdmaChannels,
  RING_IN_MEMORY,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../../src/uapi/index.ts';
import { DriverClient } from './driver-client.ts';

/** Host memory of a case: data, counters in its own page, rings. */
export const DATA_BYTES: number = 2 * 2 ** 20;
const COUNTERS_AT: number = DATA_BYTES;
const RINGS_AT: number = COUNTERS_AT + 4096;
export const RING_BYTES = 4096;
const HOST_BYTES: number = RINGS_AT + 24 * RING_BYTES;
const WAIT_US = 10_000_000n;
const FAR_ADDRESS = 0xff70700000000000n;

/** Control words of copies that advance the counter (worked example of the reference). */
export const TO_DEVICE = 0x09003900;
export const FROM_DEVICE = 0x09001900;

export const CHANNELS: PdmaChannels = GAUDI3_PROFILE.channels!;

/** Low and high word of an address. */
export function halves(address: bigint): readonly [number, number] {
  return [Number(address & 0xffff_ffffn), Number(address >> 32n)];
}

/** A LIN_PDMA without write completion. */
export function copyPacket(bytes: number, control: number, from: bigint, to: bigint): readonly number[] {
  const [fromLow, fromHigh] = halves(from);
  const [toLow, toHigh] = halves(to);
  return [bytes, control, fromLow, toLow, fromHigh, toHigh];
}

/** A LIN_PDMA whose write completion writes `data` to a register. */
export function completedCopy(packet: readonly number[], register: bigint, data: number): readonly number[] {
  const [low, high] = halves(register);
  return [packet[0]!, packet[1]! | 1, ...packet.slice(2), low, data, high, 0];
}

/** A MSG_LONG. */
export function message(register: bigint, value: number): readonly number[] {
  return [value, 0x03000000, ...halves(register)];
}

/** A FENCE on counter 0 to 3. */
export function fence(id: number, target: number, decrement: number): readonly number[] {
  return [((id << 30) | (target << 16) | decrement) >>> 0, 0x08000000];
}

/** Device address of a register. */
export function registerAt(offset: number): bigint {
  return GAUDI3_PROFILE.cfg.start + BigInt(offset);
}

/** Device address of a register of block A of a channel. */
export function channelRegister(channel: number, offset: number): bigint {
  return registerAt(channelBlockA(CHANNELS, channel) + offset);
}

/** Device address of a sync object. */
export function sobAt(hdcore: number, group: number, index: number): bigint {
  const manager = GAUDI3_PROFILE.sync.managers.find((each) => each.dcore === hdcore && each.group === group)!;
  return registerAt(manager.sobObj + 4 * index);
}

/** A channel as a program uses it: its registers, its ring, and its counter. */
export class ChannelProgram {
  readonly channel: number;
  readonly registers: RegisterMapping;
  readonly #fixture: ChannelFixture;
  #written = 0;

  constructor(fixture: ChannelFixture, channel: number, registers: RegisterMapping) {
    this.#fixture = fixture;
    this.channel = channel;
    this.registers = registers;
  }

  get ringOffset(): number {
    return RINGS_AT + this.channel * RING_BYTES;
  }

  get counterOffset(): number {
    return COUNTERS_AT + this.channel * 8;
  }

  get counter(): bigint {
    return this.#fixture.host.view.getBigUint64(this.counterOffset, true);
  }

  /** Configures completion and ring in the order of the vendor's software. */
  setUp(options: { readonly ring?: bigint; readonly ringBytes?: number; readonly counter?: bigint } = {}): this {
    const { registers } = this;
    const { hostVa, interrupt, doorbell } = this.#fixture;
    const [counterLow, counterHigh] = halves(options.counter ?? hostVa + BigInt(this.counterOffset));
    const [ringLow, ringHigh] = halves(options.ring ?? hostVa + BigInt(this.ringOffset));
    const [doorbellLow, doorbellHigh] = halves(doorbell);
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, 0);
    registers.write(PdmaChannelA.ECMPLTN_Q_BASE_LO, counterLow);
    registers.write(PdmaChannelA.ECMPLTN_Q_BASE_HI, counterHigh);
    registers.write(PdmaChannelA.ECMPLTN_Q_SIZE, 8);
    registers.write(PdmaChannelA.ECMPLTN_Q_LBW_ADDR_L, doorbellLow);
    registers.write(PdmaChannelA.ECMPLTN_Q_LBW_ADDR_H, doorbellHigh);
    registers.write(PdmaChannelA.ECMPLTN_Q_LBW_PAYLD, interrupt + this.channel);
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, EcmpltnCfg.ENABLE | EcmpltnCfg.COUNTER | EcmpltnCfg.LBW_WRITE);
    registers.write(PdmaChannelA.MSQ_CI, 0);
    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    registers.write(PdmaChannelA.MSQ_BASE_H, ringHigh);
    registers.write(PdmaChannelA.MSQ_BASE_L, ringLow);
    registers.write(PdmaChannelA.MSQ_SIZE, (options.ringBytes ?? RING_BYTES) - 1);
    return this;
  }

  /** Writes packets behind the earlier ones, across the end of the ring if they do not fit before it. */
  write(...packets: readonly (readonly number[])[]): this {
    for (const word of packets.flat()) {
      this.#fixture.host.view.setUint32(this.ringOffset + (this.#written % RING_BYTES), word >>> 0, true);
      this.#written += 4;
    }
    return this;
  }

  /** Submits the packets that were written, and these. */
  submit(...packets: readonly (readonly number[])[]): this {
    this.write(...packets);
    this.registers.write(PdmaChannelA.MSQ_PI, this.#written);
    return this;
  }

  /** Waits for the interrupt of the completion that makes the counter reach `target`. */
  await(target: bigint): void {
    const { client, interrupt, host } = this.#fixture;
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | ((interrupt + this.channel) << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    const addr = BigInt(host.address + this.counterOffset);
    const waited = client.waitCs({ addr, target, flags, interrupt_timeout_us: WAIT_US });
    expect(waited).toMatchObject({ result: 0, out: { status: 0 } });
    expect(this.counter).toBe(target);
  }

  /** Waits until a register of the channel has a value. */
  async until(offset: number, value: number): Promise<void> {
    await vi.waitFor(() => {
      this.#fixture.status();
      expect(this.registers.read(offset)).toBe(value);
    });
  }
}

/** A card of a node of gaudi3, opened for every case. */
export class ChannelFixture {
  readonly profile: AsicProfile = GAUDI3_PROFILE;
  node!: DriverNode;
  client!: DriverClient;
  host!: MappedMemory;
  /** Device address of the host memory. */
  hostVa = 0n;
  /** Device address of a page of device memory. */
  deviceVa = 0n;
  /** First user interrupt. */
  interrupt = 0;
  readonly doorbell: bigint = GAUDI3_PROFILE.interrupts.msixDoorbell!;
  /** Mapped blocks, which the driver counts as use of the card until they are unmapped. */
  readonly #mapped: RegisterMapping[] = [];

  constructor(makeNode: () => DriverNode) {
    beforeEach(() => {
      this.node = makeNode();
      this.host = mapAnonymous(HOST_BYTES);
      this.open();
    });
    afterEach(() => {
      this.#close();
      this.node.close();
      this.host.close();
      this.node = undefined as never;
      this.client = undefined as never;
    });
  }

  /** Opens the card, and maps memory on both sides. */
  open(): void {
    this.client = new DriverClient(this.node.open(0));
    const { out } = this.client.info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO);
    this.interrupt = out.first_available_interrupt_id;
    expect(out.pdma_user_owned_ch_mask).toBe(BigInt(CHANNELS.userMask));
    const mapped = this.client.mapHost(this.host.address, HOST_BYTES);
    const handle = this.client.allocate(out.dram_page_size);
    const device = this.client.mapDevice(handle.out);
    expect([mapped.result, handle.result, device.result]).toEqual([0, 0, 0]);
    this.hostVa = mapped.out;
    this.deviceVa = device.out;
  }

  /** Closes the card and opens it again: the driver resets it in between. */
  async reopen(): Promise<void> {
    this.#close();
    await vi.waitFor(() => this.open());
  }

  /** Maps the block at an offset from the configuration base. */
  map(offset: number): RegisterMapping {
    const { result, out } = this.client.memory({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: registerAt(offset) });
    expect(result).toBe(0);
    const size = this.profile.userBlocks.find(({ address }) => address === registerAt(offset))!.size;
    expect(out.block_size).toBe(size);
    const mapping = this.client.file.mapRegisters(size, out.block_handle);
    this.#mapped.push(mapping);
    return mapping;
  }

  #close(): void {
    for (const mapping of this.#mapped.splice(0)) mapping.close();
    this.client.close();
  }

  /** A channel, not configured. */
  channel(channel = 0): ChannelProgram {
    return new ChannelProgram(this, channel, this.map(channelBlockA(CHANNELS, channel)));
  }

  /** Fills the first bytes of the host memory with a pattern, and returns a copy. */
  pattern(byteLength: number): Uint8Array {
    const bytes = Uint8Array.from({ length: byteLength }, (_, index) => (index * 7 + (index >> 8) + 1) & 0xff);
    this.host.u8.set(bytes);
    return bytes;
  }

  /** Whether the card is operational. */
  status(): boolean {
    const { out } = this.client.info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS);
    return out.status === HL_DEVICE_STATUS.OPERATIONAL;
  }

  /** A device address that nothing is mapped at. */
  get unmapped(): bigint {
    return FAR_ADDRESS;
  }
}

/** Bytes of the packets of a copy. */
export const COPY_BYTES: number = LIN_PDMA_BYTES;
