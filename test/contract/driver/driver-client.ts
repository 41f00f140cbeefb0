/**
 * A small test driver: builds argument blocks and runs ioctls of one open file. For tests of the driver boundary only.
 */

import type { DriverFile } from '../../../src/driver/port.ts';
import { allocateScratch, type ScratchBlock } from '../../../src/sys/index.ts';
import {
  HL_CB_ARGS,
  HL_CB_OP,
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_CHUNK_FLAGS,
  HL_DEBUG_ARGS,
  HL_INFO_ARGS,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  type Struct,
  type StructFields,
  type StructValues,
} from '../../../src/uapi/index.ts';

/** Bytes of an argument block for data after the arguments: chunks and sequence numbers. */
const BLOCK_BYTES = 65536;
/** Start of that data. */
const DATA_OFFSET = 64;
const ANSWER_BYTES = 16384;

/** A chunk of a submission as the tests write it. */
export interface Chunk {
  readonly queue: number;
  /** Device address or handle. */
  readonly cb: bigint;
  readonly byteLength: number;
  /** Default USER_ALLOC_CB. */
  readonly flags?: number;
}

/** The result of an ioctl and its answer. */
export interface Answer<O> {
  readonly result: number;
  readonly out: O;
}

type Values<S> = S extends Struct<infer F> ? StructValues<F> : never;

/** The ioctls of one file. */
export class DriverClient {
  readonly file: DriverFile;
  readonly block: ScratchBlock = allocateScratch(BLOCK_BYTES);
  readonly answer: ScratchBlock = allocateScratch(ANSWER_BYTES);

  constructor(file: DriverFile) {
    this.file = file;
  }

  /** Address of the data area of the argument block. */
  get dataAddress(): number {
    return this.block.address + DATA_OFFSET;
  }

  /** The data area. */
  get data(): DataView {
    return new DataView(this.block.view.buffer, this.block.view.byteOffset + DATA_OFFSET, BLOCK_BYTES - DATA_OFFSET);
  }

  memory(values: Partial<Values<typeof HL_MEM_ARGS.in>>): Answer<Values<typeof HL_MEM_ARGS.out>> {
    HL_MEM_ARGS.in.encode(values, this.block.view);
    const result = this.file.ioctl(this.file.numbers.MEMORY, this.block);
    return { result, out: HL_MEM_ARGS.out.decode(this.block.view) };
  }

  allocate(byteLength: number | bigint, flags = 0): Answer<bigint> {
    const { result, out } = this.memory({ op: HL_MEM_OP.ALLOC, alloc_mem_size: BigInt(byteLength), flags });
    return { result, out: out.handle };
  }

  free(handle: bigint): number {
    return this.memory({ op: HL_MEM_OP.FREE, free_handle: handle }).result;
  }

  mapDevice(handle: bigint, hint = 0n, flags = 0): Answer<bigint> {
    const values = { op: HL_MEM_OP.MAP, map_device_handle: handle, map_device_hint_addr: hint, flags };
    const { result, out } = this.memory(values);
    return { result, out: out.device_virt_addr };
  }

  mapHost(address: number | bigint, byteLength: number | bigint, hint = 0n, flags = 0): Answer<bigint> {
    const { result, out } = this.memory({
      op: HL_MEM_OP.MAP,
      map_host_host_virt_addr: BigInt(address),
      map_host_mem_size: BigInt(byteLength),
      map_host_hint_addr: hint,
      flags: flags | HL_MEM.USERPTR,
    });
    return { result, out: out.device_virt_addr };
  }

  unmap(address: bigint): number {
    return this.memory({ op: HL_MEM_OP.UNMAP, unmap_device_virt_addr: address }).result;
  }

  exportDmabuf(address: bigint, byteLength: number, offset = 0, flags = 0o2000000): Answer<number> {
    const { result, out } = this.memory({
      op: HL_MEM_OP.EXPORT_DMABUF_FD,
      export_dmabuf_fd_addr: address,
      export_dmabuf_fd_mem_size: BigInt(byteLength),
      export_dmabuf_fd_offset: BigInt(offset),
      flags,
    });
    return { result, out: out.fd };
  }

  importDmabuf(fd: number, byteLength: number): Answer<bigint> {
    const values = { op: HL_MEM_OP.REG_DMABUF_FD, reg_dmabuf_fd_fd: fd, reg_dmabuf_fd_length: BigInt(byteLength) };
    const { result, out } = this.memory(values);
    return { result, out: out.device_virt_addr };
  }

  commandBuffer(values: Partial<Values<typeof HL_CB_ARGS.in>>): Answer<Values<typeof HL_CB_ARGS.out>> {
    HL_CB_ARGS.in.encode(values, this.block.view);
    const result = this.file.ioctl(this.file.numbers.CB, this.block);
    return { result, out: HL_CB_ARGS.out.decode(this.block.view) };
  }

  createCommandBuffer(byteLength: number, flags = 0): Answer<bigint> {
    const { result, out } = this.commandBuffer({ op: HL_CB_OP.CREATE, cb_size: byteLength, flags });
    return { result, out: out.cb_handle };
  }

  destroyCommandBuffer(handle: bigint): number {
    return this.commandBuffer({ op: HL_CB_OP.DESTROY, cb_handle: handle }).result;
  }

  /** Runs a CS ioctl with unchecked arguments. */
  cs(values: Partial<Values<typeof HL_CS_ARGS.in>>): Answer<Values<typeof HL_CS_ARGS.out>> {
    HL_CS_ARGS.in.encode(values, this.block.view);
    const result = this.file.ioctl(this.file.numbers.CS, this.block);
    return { result, out: HL_CS_ARGS.out.decode(this.block.view) };
  }

  /** Submits chunks. Returns the sequence number. */
  submit(
    chunks: readonly Chunk[],
    values: Partial<Values<typeof HL_CS_ARGS.in>> = {},
  ): Answer<Values<typeof HL_CS_ARGS.out>> {
    this.writeChunks(chunks);
    return this.cs({ chunks_execute: BigInt(this.dataAddress), num_chunks_execute: chunks.length, ...values });
  }

  /** Writes chunks into the data area. */
  writeChunks(chunks: readonly Chunk[]): void {
    for (const [index, { queue, cb, byteLength, flags }] of chunks.entries()) {
      HL_CS_CHUNK.encode(
        {
          cb_handle: cb,
          queue_index: queue,
          cb_size: byteLength,
          cs_chunk_flags: flags ?? HL_CS_CHUNK_FLAGS.USER_ALLOC_CB,
        },
        this.data,
        index * HL_CS_CHUNK.size,
      );
    }
  }

  /** Waits for a submission, in microseconds; 0 polls. */
  wait(seq: bigint, timeoutUs: number | bigint = 0): Answer<Values<typeof HL_WAIT_CS_ARGS.out>> {
    return this.waitCs({ seq, timeout_us: BigInt(timeoutUs) });
  }

  /** Runs a WAIT_CS ioctl with unchecked arguments. */
  waitCs(values: Partial<Values<typeof HL_WAIT_CS_ARGS.in>>): Answer<Values<typeof HL_WAIT_CS_ARGS.out>> {
    HL_WAIT_CS_ARGS.in.encode(values, this.block.view);
    const result = this.file.ioctl(this.file.numbers.WAIT_CS, this.block);
    return { result, out: HL_WAIT_CS_ARGS.out.decode(this.block.view) };
  }

  /** Queries INFO for a struct. */
  info<F extends StructFields>(
    op: number,
    struct: Struct<F>,
    values: Partial<Values<typeof HL_INFO_ARGS>> = {},
  ): Answer<StructValues<F>> {
    this.answer.u8.fill(0);
    const result = this.infoRaw({ op, return_size: struct.size, ...values });
    return { result, out: struct.decode(this.answer.view) };
  }

  /** Runs an INFO ioctl; by default the answer goes to {@link answer}. */
  infoRaw(values: Partial<Values<typeof HL_INFO_ARGS>>): number {
    HL_INFO_ARGS.encode({ return_pointer: BigInt(this.answer.address), ...values }, this.block.view);
    return this.file.ioctl(this.file.numbers.INFO, this.block);
  }

  debug(values: Partial<Values<typeof HL_DEBUG_ARGS>>): number {
    HL_DEBUG_ARGS.encode(values, this.block.view);
    return this.file.ioctl(this.file.numbers.DEBUG, this.block);
  }

  /** Closes the file and frees the memory. */
  close(): void {
    this.file.close();
    this.block.free();
    this.answer.free();
  }
}
