/**
 * The registers of the DMA cores of gaudi, behind the queue managers: a write to COMMIT transfers what the other registers describe, and a
 * completion message follows if it is enabled. The bytes are moved as those of LIN_DMA packets.
 *
 * Source: include/gaudi/asic_reg/dma0_core_regs.h and dma0_core_masks.h, gaudi_memset_device_memory and gaudi_dma_core_transfer of gaudi.c, Linux
 * 6.12; the meaning of sizes and strides from hl-thunk (tests/gaudi/gaudi_dma.c).
 */

import type { AsicProfile } from '../../../uapi/index.ts';
import { GaudiLinDmaCtl } from '../../../uapi/index.ts';
import type { Job, Stream } from '../queue/stream.ts';
import { type RowShape, STRIDE_DIMENSIONS, StridedTransfer } from '../queue/strided-transfer.ts';
import type { TurnBudget } from '../queue/turn-budget.ts';
import type { LinearDma, Outcome } from './linear-dma.ts';

/** Offsets of registers in the block of an engine. TSIZE_1, STRIDE_1, ... TSIZE_4, STRIDE_4 are consecutive, and TSIZE_0 follows them. */
const SRC_BASE_LO = 0x14;
const SRC_BASE_HI = 0x18;
const DST_BASE_LO = 0x1c;
const DST_BASE_HI = 0x20;
const SRC_TSIZE_1 = 0x2c;
const SRC_TSIZE_0 = 0x4c;
const DST_TSIZE_1 = 0x54;
const DST_TSIZE_0 = 0x74;
const COMMIT = 0x78;
const WR_COMP_WDATA = 0x7c;
const WR_COMP_ADDR_LO = 0x80;
const WR_COMP_ADDR_HI = 0x84;

/** The upper byte of DST_BASE_HI is a part of the context id. */
const DST_HIGH_MASK = 0x00ff_ffff;

/** Bits of COMMIT (DMA0_CORE_COMMIT_*), which are those of the LIN_DMA packet: transposition and compression are not modelled. */
const UNSUPPORTED: number = GaudiLinDmaCtl.TRANSPOSE | GaudiLinDmaCtl.COMPRESS | GaudiLinDmaCtl.DECOMPRESS;

/** Connections of the DMA cores. */
export interface DmaCoreOptions {
  readonly profile: AsicProfile;
  readonly linearDma: LinearDma;
  readonly budget: TurnBudget;
  /** The value of a register; `offset` from CFG_BASE. */
  readonly readRegister: (offset: number) => number;
  /** Writes 32 bits to a device address. */
  readonly writeWord: (high: number, low: number, value: number) => void;
}

/** The DMA cores of one card. */
export class DmaCores {
  readonly #options: DmaCoreOptions;
  readonly #packet: Int32Array = new Int32Array(6);

  constructor(options: DmaCoreOptions) {
    this.#options = options;
  }

  /** Whether the engine of a stream is one of them. */
  has(stream: Stream): boolean {
    const { profile } = this.#options;
    return profile.name === 'gaudi' && profile.queues[stream.queueId]!.engine === 'dma';
  }

  /** Whether the register at an offset of the block of the stream's engine starts transfers. */
  isCommit(stream: Stream, offset: number): boolean {
    return offset === COMMIT && this.has(stream);
  }

  /** The transfer that the registers of an engine describe; undefined for one that is not modelled. `base` is its block, from CFG_BASE. */
  describe(base: number, commit: number): StridedTransfer | undefined {
    if ((commit & UNSUPPORTED) !== 0) return undefined;
    const register = (offset: number): number => this.#options.readRegister(base + offset) >>> 0;
    const address = (high: number, low: number): bigint => (BigInt(high) << 32n) | BigInt(low);
    const isLinear = (commit & GaudiLinDmaCtl.LIN) !== 0;
    const isFill = (commit & GaudiLinDmaCtl.MEMSET) !== 0;
    const shape = (first: number, rowBytes: number, start: bigint): RowShape => {
      const dimensions = isLinear ? [] : Array.from({ length: STRIDE_DIMENSIONS }, (_, i) => first + 8 * i);
      const counts = dimensions.map((at) => register(at));
      return { base: start, rowBytes, counts, strides: dimensions.map((at) => register(at + 4)) };
    };
    const rowBytes = register(DST_TSIZE_0);
    const source = address(register(SRC_BASE_HI), register(SRC_BASE_LO));
    const destination = address(register(DST_BASE_HI) & DST_HIGH_MASK, register(DST_BASE_LO));
    // The size of a linear transfer is that of the destination.
    const sourceRow = isLinear ? rowBytes : register(SRC_TSIZE_0);
    return new StridedTransfer(
      isFill ? source : shape(SRC_TSIZE_1, sourceRow, source),
      shape(DST_TSIZE_1, rowBytes, destination),
      commit & GaudiLinDmaCtl.MEMSET,
      (commit & GaudiLinDmaCtl.WRCOMP_EN) !== 0,
    );
  }

  /** Moves rows of the transfer of a stream; 'next' after the last one and its completion message. */
  advance(stream: Stream, job: Job, base: number): Outcome {
    const { cp } = stream;
    const { linearDma, budget } = this.#options;
    const transfer = cp.transfer!;
    while (!transfer.ended) {
      if (!budget.take(1)) return 'blocked';
      transfer.write(this.#packet);
      if (linearDma.execute(stream, job, this.#packet, 0) === 'blocked') return 'blocked';
      transfer.advance();
    }
    if (transfer.completes && !this.complete(stream, base)) return 'blocked';
    cp.transfer = undefined;
    return 'next';
  }

  /** Sends the completion message of an engine when its transfers have ended; returns whether it has. */
  complete(stream: Stream, base: number): boolean {
    if (!stream.drained) return false;
    const { readRegister, writeWord } = this.#options;
    const [high, low] = [readRegister(base + WR_COMP_ADDR_HI), readRegister(base + WR_COMP_ADDR_LO)];
    writeWord(high, low, readRegister(base + WR_COMP_WDATA));
    return true;
  }
}
