/**
 * The registers of the DMA cores of the queue managers: a write to COMMIT starts the transfer that the other registers describe, followed by a completion
 * message if it is enabled. The bytes are moved like those of LIN_DMA packets.
 *
 * Source, Linux 6.12: include/gaudi/asic_reg/dma0_core_regs.h and dma0_core_masks.h, gaudi_memset_device_memory and gaudi_dma_core_transfer of gaudi.c;
 * include/gaudi2/asic_reg/dcore0_edma0_core_ctx_regs.h and arc_farm_kdma_ctx_masks.h, gaudi2_send_job_to_kdma of gaudi2.c. The meaning of sizes and
 * strides is from hl-thunk (tests/gaudi/gaudi_dma.c).
 */

import { type AsicName, type AsicProfile, GaudiLinDmaCtl } from '../../../uapi/index.ts';
import type { WorkBudget } from '../queue/cp-state.ts';
import type { Job, Stream } from '../queue/stream.ts';
import { type RowShape, STRIDE_DIMENSIONS, StridedTransfer } from '../queue/strided-transfer.ts';
import type { LinearDma, PacketOutcome } from './linear-dma.ts';

/** Registers of a core: offsets in the 64 KiB block of its engine. TSIZE_1, STRIDE_1, ... TSIZE_4, STRIDE_4 are consecutive; so are the words of an address. */
interface CoreLayout {
  readonly SRC_BASE_LO: number;
  readonly DST_BASE_LO: number;
  readonly SRC_TSIZE_0: number;
  readonly SRC_TSIZE_1: number;
  readonly DST_TSIZE_0: number;
  readonly DST_TSIZE_1: number;
  readonly COMMIT: number;
  readonly WR_COMP_WDATA: number;
  readonly WR_COMP_ADDR_LO: number;
  readonly WR_COMP_ADDR_HI: number;
  /** Register with the bits for transposition and compression, which are not modelled; undefined if COMMIT has these bits. */
  readonly CTRL?: number;
  /** Bits of the upper word of a destination that belong to the address. */
  readonly dstHighMask: number;
  /** The bit of COMMIT for a transfer without dimensions. */
  readonly linear: number;
  /** Bits of COMMIT, and of CTRL, that are not modelled. */
  readonly unsupported: number;
  readonly unsupportedCtrl: number;
}

/** Bits of COMMIT of gaudi2 that LIN_DMA packets of gaudi do not have. */
const Gaudi2Commit = {
  ENDIAN_SWAP: 0x6,
  BF16: 0x40,
  FP16: 0x80,
  ADD_OFFSET_0: 0x200,
  SRC_SIZE0_FROM_DST_SIZE0: 0x400,
  /** The bit of dimension 1; those of 2 to 4 follow. */
  DISABLE_DIM1: 0x1000,
  SRC_SIZE1_FROM_DST_SIZE1: 0x1_0000,
  SRC_STRD1_FROM_DST_STRD1: 0x10_0000,
  LIN: 0x8000_0000 | 0,
} as const;

const LAYOUTS: Readonly<Record<AsicName, CoreLayout | undefined>> = {
  gaudi: {
    SRC_BASE_LO: 0x14,
    DST_BASE_LO: 0x1c,
    SRC_TSIZE_1: 0x2c,
    SRC_TSIZE_0: 0x4c,
    DST_TSIZE_1: 0x54,
    DST_TSIZE_0: 0x74,
    COMMIT: 0x78,
    WR_COMP_WDATA: 0x7c,
    WR_COMP_ADDR_LO: 0x80,
    WR_COMP_ADDR_HI: 0x84,
    // The upper byte is a part of the context id.
    dstHighMask: 0x00ff_ffff,
    linear: GaudiLinDmaCtl.LIN,
    unsupported: GaudiLinDmaCtl.TRANSPOSE | GaudiLinDmaCtl.COMPRESS | GaudiLinDmaCtl.DECOMPRESS,
    unsupportedCtrl: 0,
  },
  gaudi2: {
    CTRL: 0xb874,
    SRC_TSIZE_0: 0xb878,
    SRC_TSIZE_1: 0xb87c,
    DST_TSIZE_1: 0xb89c,
    WR_COMP_ADDR_HI: 0xb8bc,
    WR_COMP_ADDR_LO: 0xb8c0,
    WR_COMP_WDATA: 0xb8c4,
    SRC_BASE_LO: 0xb8d8,
    DST_BASE_LO: 0xb8e0,
    DST_TSIZE_0: 0xb8e8,
    COMMIT: 0xb8ec,
    dstHighMask: 0xffff_ffff,
    linear: Gaudi2Commit.LIN,
    unsupported: Gaudi2Commit.ENDIAN_SWAP | Gaudi2Commit.BF16 | Gaudi2Commit.FP16 | Gaudi2Commit.ADD_OFFSET_0,
    // TRANSPOSE, COMPRESS, DECOMPRESS.
    unsupportedCtrl: 0x301,
  },
  gaudi3: undefined,
};
const DMA_ENGINES: ReadonlySet<string> = new Set(['dma', 'pdma', 'edma']);

/** Connections of the DMA cores. */
export interface DmaCoreOptions {
  readonly profile: AsicProfile;
  readonly linearDma: LinearDma;
  readonly budget: WorkBudget;
  /** The value of a register; `offset` from CFG_BASE. */
  readonly readRegister: (offset: number) => number;
  /** Writes 32 bits to a device address. */
  readonly writeWord: (high: number, low: number, value: number) => void;
}

/** The DMA cores of one card. */
export class DmaCores {
  readonly #options: DmaCoreOptions;
  readonly #layout: CoreLayout | undefined;
  readonly #packet: Int32Array = new Int32Array(6);

  constructor(options: DmaCoreOptions) {
    this.#options = options;
    this.#layout = LAYOUTS[options.profile.name];
  }

  /** Whether the engine of a stream is a DMA engine with such registers. */
  has(stream: Stream): boolean {
    const { profile } = this.#options;
    return this.#layout !== undefined && DMA_ENGINES.has(profile.queues[stream.queueId]!.engine);
  }

  /** Whether the register at an offset of the block of the stream's engine starts transfers. */
  isCommit(stream: Stream, offset: number): boolean {
    return offset === this.#layout?.COMMIT && this.has(stream);
  }

  /** The transfer that the registers of an engine describe; undefined for one that is not modelled. `base` is its block, from CFG_BASE. */
  describe(base: number, commit: number): StridedTransfer | undefined {
    const layout = this.#layout;
    if (layout === undefined) return undefined;
    const register = (offset: number): number => this.#options.readRegister(base + offset) >>> 0;
    const control = layout.CTRL === undefined ? 0 : register(layout.CTRL);
    if ((commit & layout.unsupported) !== 0 || (control & layout.unsupportedCtrl) !== 0) return undefined;
    const address = (low: number, highMask: number): bigint =>
      (BigInt((register(low + 4) & highMask) >>> 0) << 32n) | BigInt(register(low));
    const isLinear = (commit & layout.linear) !== 0;
    const isFill = (commit & GaudiLinDmaCtl.MEMSET) !== 0;
    const rowBytes = register(layout.DST_TSIZE_0);
    const dimensions = isLinear ? 0 : STRIDE_DIMENSIONS;
    const shape = (start: bigint, row: number, first: (bit: number, dimension: number) => number): RowShape => {
      const indices = Array.from({ length: dimensions }, (_, dimension) => dimension);
      const counts = indices.map((dimension) =>
        this.#hasBit(commit, Gaudi2Commit.DISABLE_DIM1, dimension)
          ? 1
          : register(first(Gaudi2Commit.SRC_SIZE1_FROM_DST_SIZE1, dimension)),
      );
      const strides = indices.map((dimension) => register(first(Gaudi2Commit.SRC_STRD1_FROM_DST_STRD1, dimension) + 4));
      return { base: start, rowBytes: row, counts, strides };
    };
    const ofDestination = (_bit: number, dimension: number): number => layout.DST_TSIZE_1 + 8 * dimension;
    const ofSource = (bit: number, dimension: number): number =>
      this.#hasBit(commit, bit, dimension) ? ofDestination(bit, dimension) : layout.SRC_TSIZE_1 + 8 * dimension;
    const source = address(layout.SRC_BASE_LO, 0xffff_ffff);
    // The size of a linear transfer is that of the destination.
    const isSameRow = isLinear || this.#hasBit(commit, Gaudi2Commit.SRC_SIZE0_FROM_DST_SIZE0, 0);
    return new StridedTransfer(
      isFill ? source : shape(source, isSameRow ? rowBytes : register(layout.SRC_TSIZE_0), ofSource),
      shape(address(layout.DST_BASE_LO, layout.dstHighMask), rowBytes, ofDestination),
      commit & GaudiLinDmaCtl.MEMSET,
      (commit & GaudiLinDmaCtl.WRCOMP_EN) !== 0,
    );
  }

  /** Whether the bit of a dimension is set in COMMIT of gaudi2; `first` is the bit of dimension 0, which is that of TSIZE_1. */
  #hasBit(commit: number, first: number, dimension: number): boolean {
    return this.#options.profile.name === 'gaudi2' && (commit & (first << dimension)) !== 0;
  }

  /** Moves rows of the transfer of a stream; 'next' after the last one and its completion message. */
  advance(stream: Stream, job: Job, base: number): PacketOutcome {
    const { cp } = stream;
    const { linearDma, budget } = this.#options;
    const { transfer } = cp;
    if (transfer === undefined) return 'next';
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
    const layout = this.#layout;
    if (!stream.drained || layout === undefined) return false;
    const { readRegister, writeWord } = this.#options;
    const [high, low] = [readRegister(base + layout.WR_COMP_ADDR_HI), readRegister(base + layout.WR_COMP_ADDR_LO)];
    writeWord(high, low, readRegister(base + layout.WR_COMP_WDATA));
    return true;
  }
}
