/**
 * One PDMA channel of a card (gaudi3) at the ioctl boundary: its block, mapped by MAP_BLOCK, a ring in host memory, and a completion counter. For tests of the
 * driver boundary only.
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
  readonly registers: RegisterMapping;
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
    this.registers = client.file.mapRegisters(out.block_size, out.block_handle);
    memory.counter.fill(0);
    this.count(memory.counterVa, this.#interrupt);
    this.start();
  }

  /** Number of completions that the channel has counted. */
  get completed(): number {
    return Atomics.load(this.#memory.counter, 0);
  }

  /** Bytes of the ring that the channel has consumed. */
  get consumed(): number {
    return this.registers.read(PdmaChannelA.MSQ_CI);
  }

  /** Starts the empty ring at its first byte. */
  start(): void {
    const { registers } = this;
    const { ringVa } = this.#memory;
    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    registers.write(PdmaChannelA.MSQ_BASE_H, Number(ringVa >> 32n));
    registers.write(PdmaChannelA.MSQ_BASE_L, Number(ringVa & 0xffff_ffffn));
    registers.write(PdmaChannelA.MSQ_SIZE, RING_BYTES - 1);
    this.#submitted = 0;
  }

  /** Counts the completions at a device address from now on, each with an interrupt. */
  count(counterVa: bigint, interrupt: number): void {
    const { registers } = this;
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

  /** Writes a message of 32 bits to a register. */
  message(address: bigint, value: number): void {
    const control = PqmOpcode.MSG_LONG << OPCODE_SHIFT;
    this.#put([value, control, Number(address & 0xffff_ffffn), Number(address >> 32n)]);
  }

  /** Raises an interrupt behind the earlier packets. */
  raise(interrupt: number): void {
    this.message(this.#profile.interrupts.msixDoorbell!, interrupt);
  }

  /** Writes packets by their words. */
  words(words: readonly number[]): void {
    this.#put(words);
  }

  /** Starts the packets that were written. */
  submit(): void {
    this.registers.write(PdmaChannelA.MSQ_PI, this.#submitted);
  }

  /** Copies and waits for it. */
  copy(source: bigint, destination: bigint, byteLength: number, bits = 0): void {
    const target = this.completed + 1;
    this.transfer(source, destination, byteLength, bits);
    this.submit();
    expect(this.wait(target)).toEqual([0, HL_WAIT_CS_STATUS.COMPLETED]);
  }

  /** Waits until the channel has counted `target` completions; the result and the status. */
  wait(target: number, timeoutUs: bigint = WAIT_US): [number, number] {
    const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (this.#interrupt << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
    const addr = BigInt(this.#memory.counterAddress);
    const values = { flags, addr, target: BigInt(target), interrupt_timeout_us: timeoutUs };
    const { result, out } = this.#client.waitCs(values);
    return [result, out.status];
  }

  /** Stops the channel and removes the mapping of its block. */
  close(): void {
    this.registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, 0);
    this.registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, 0);
    this.registers.close();
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
