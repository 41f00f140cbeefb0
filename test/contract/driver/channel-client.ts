/**
 * Copies of a card without queues of users (gaudi3), by one PDMA channel at the ioctl boundary: for cases of the driver contract that move data, beside those
 * of the channels themselves.
 */

import { expect } from 'vitest';
import type { RegisterMapping } from '../../../src/driver/port.ts';
import {
  type AsicProfile,
  channelBlockA,
  EcmpltnCfg,
  HL_MEM_OP,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  LIN_PDMA_BYTES,
  linPdmaCtl,
  PdmaChannelA,
  PQM_NOP_CTL,
  PqmOpcode,
  RING_IN_MEMORY,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../../src/uapi/index.ts';
import type { DriverClient } from './driver-client.ts';

/** Bytes of the ring: a power of two that packets of 24 bytes do not fill. */
const RING_BYTES = 4096;
/** Interrupt of the channel's completions, counted from the first of users. */
const OWN_INTERRUPT = 40;
const OPCODE_SHIFT = 24;
const WAIT_US = 10_000_000n;

/** Where a channel has its ring and its counter: addresses for the process and for the card. */
export interface ChannelMemory {
  readonly ring: Uint32Array;
  readonly ringVa: bigint;
  readonly counter: Uint32Array;
  readonly counterAddress: number;
  readonly counterVa: bigint;
}

export class ChannelClient {
  readonly #registers: RegisterMapping;
  readonly #client: DriverClient;
  readonly #profile: AsicProfile;
  readonly #memory: ChannelMemory;
  #submitted = 0;

  /** @param channel a channel of users */
  constructor(client: DriverClient, profile: AsicProfile, channel: number, memory: ChannelMemory) {
    this.#client = client;
    this.#profile = profile;
    this.#memory = memory;
    const address = profile.cfg.start + BigInt(channelBlockA(profile.channels!, channel));
    const { result, out } = client.memory({ op: HL_MEM_OP.MAP_BLOCK, map_block_block_addr: address });
    expect(result).toBe(0);
    this.#registers = client.file.mapRegisters(out.block_size, out.block_handle);
    memory.counter.fill(0);
    this.count(memory.counterVa, this.#interrupt);
    this.#start();
  }

  #start(): void {
    const registers = this.#registers;
    const { ringVa } = this.#memory;
    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    registers.write(PdmaChannelA.MSQ_BASE_H, Number(ringVa >> 32n));
    registers.write(PdmaChannelA.MSQ_BASE_L, Number(ringVa & 0xffff_ffffn));
    registers.write(PdmaChannelA.MSQ_SIZE, RING_BYTES - 1);
  }

  /** Counts the completions at a device address from now on, each with an interrupt. */
  count(counterVa: bigint, interrupt: number): void {
    const registers = this.#registers;
    const doorbell = this.#profile.interrupts.msixDoorbell!;
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, 0);
    registers.write(PdmaChannelA.ECMPLTN_Q_BASE_LO, Number(counterVa & 0xffff_ffffn));
    registers.write(PdmaChannelA.ECMPLTN_Q_BASE_HI, Number(counterVa >> 32n));
    registers.write(PdmaChannelA.ECMPLTN_Q_SIZE, 8);
    registers.write(PdmaChannelA.ECMPLTN_Q_LBW_ADDR_L, Number(doorbell & 0xffff_ffffn));
    registers.write(PdmaChannelA.ECMPLTN_Q_LBW_ADDR_H, Number(doorbell >> 32n));
    registers.write(PdmaChannelA.ECMPLTN_Q_LBW_PAYLD, interrupt);
    const configuration = EcmpltnCfg.ENABLE | EcmpltnCfg.COUNTER | EcmpltnCfg.LBW_WRITE;
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, configuration);
  }

  /** Writes a transfer that advances the counter; {@link submit} starts it. */
  transfer(source: bigint, destination: bigint, byteLength: number, bits = 0): void {
    this.#put([
      byteLength,
      (linPdmaCtl(false, true) | bits) >>> 0,
      Number(source & 0xffff_ffffn),
      Number(destination & 0xffff_ffffn),
      Number(source >> 32n),
      Number(destination >> 32n),
    ]);
  }

  /** Writes a message that raises an interrupt; it may overtake data. */
  raise(interrupt: number): void {
    const doorbell = this.#profile.interrupts.msixDoorbell!;
    const control = PqmOpcode.MSG_LONG << OPCODE_SHIFT;
    this.#put([interrupt, control, Number(doorbell & 0xffff_ffffn), Number(doorbell >> 32n)]);
  }

  /** Starts the packets that were written. */
  submit(): void {
    this.#registers.write(PdmaChannelA.MSQ_PI, this.#submitted);
  }

  /** Copies and waits for it. */
  copy(source: bigint, destination: bigint, byteLength: number, bits = 0): void {
    const target = Atomics.load(this.#memory.counter, 0) + 1;
    this.transfer(source, destination, byteLength, bits);
    this.submit();
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (this.#interrupt << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    const addr = BigInt(this.#memory.counterAddress);
    const { result, out } = this.#client.waitCs({ flags, addr, target: BigInt(target), interrupt_timeout_us: WAIT_US });
    expect([result, out.status]).toEqual([0, HL_WAIT_CS_STATUS.COMPLETED]);
  }

  /** Stops the channel and removes the mapping of its block. */
  close(): void {
    this.#registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, 0);
    this.#registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, 0);
    this.#registers.close();
  }

  get #interrupt(): number {
    return this.#profile.interrupts.firstUserInterrupt + OWN_INTERRUPT;
  }

  /** Writes a packet; NOPs fill the end of the ring, which it must not cross. */
  #put(packet: readonly number[]): void {
    const { ring } = this.#memory;
    while ((this.#submitted % RING_BYTES) + Math.max(packet.length * 4, LIN_PDMA_BYTES) > RING_BYTES) {
      ring.set([0, PQM_NOP_CTL], (this.#submitted % RING_BYTES) / 4);
      this.#submitted += 8;
    }
    ring.set(packet, (this.#submitted % RING_BYTES) / 4);
    this.#submitted += packet.length * 4;
  }
}
