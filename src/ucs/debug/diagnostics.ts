/**
 * Instrumentation: channels of node:diagnostics_channel and the types of their messages. Publishing costs nothing without subscribers: publishers check
 * `hasSubscribers` first, which V8 folds to a constant.
 *
 * Times are nanoseconds of the context's clock: only differences are meaningful.
 */

import { channel } from 'node:diagnostics_channel';

/** A channel with messages of one type. */
export interface DiagnosticsChannel<M> {
  readonly hasSubscribers: boolean;
  publish(message: M): void;
  subscribe(onMessage: (message: M, name: string | symbol) => void): void;
  unsubscribe(onMessage: (message: M, name: string | symbol) => void): void;
}

/** An operation of an endpoint or worker has ended, with or without success. */
export interface OperationEnd {
  /** `put/zcopy`, `tag/eager/short`, `flush`: the value of Request.protocol. */
  readonly protocol: string;
  /** Such as `gaudi_cpy`; undefined for an operation that was not carried by a single transport. */
  readonly transport: string | undefined;
  /** Such as `gaudi0`. */
  readonly device: string | undefined;
  /** Bytes of the operation. */
  readonly byteLength: number;
  /** A value of Status: 0 is success. */
  readonly status: number;
  /** Start, in nanoseconds of the monotonic clock. */
  readonly startNs: number;
  /** End, in nanoseconds of the monotonic clock. */
  readonly endNs: number;
  /** Number of the worker within the process. */
  readonly worker: number;
}

/** A card has finished a command submission. */
export interface CommandSubmissionEnd {
  /** Name of the card: its number and PCI address. */
  readonly card: string;
  /** Hardware queue. */
  readonly queue: number;
  /** The driver's number of the submission. */
  readonly sequence: number;
  /** Start, in nanoseconds of the monotonic clock. */
  readonly startNs: number;
  /** End, in nanoseconds of the monotonic clock. */
  readonly endNs: number;
}

/** A DMA transfer has ended. */
export interface TransferEnd {
  /** Name of the card: its number and PCI address. */
  readonly card: string;
  /** Index of the hardware queue. */
  readonly queue: number;
  /** Bytes of the transfer. */
  readonly byteLength: number;
  /** A value of Status: 0 is success. */
  readonly status: number;
  /** Start, in nanoseconds of the monotonic clock. */
  readonly startNs: number;
  /** End, in nanoseconds of the monotonic clock. */
  readonly endNs: number;
}

/** A context has mapped or unmapped memory. */
export interface MemoryChange {
  /** Name of the kind of memory, such as `gaudi`. */
  readonly memoryType: string;
  /** System device that has it; undefined for host memory. */
  readonly device: number | undefined;
  /** Address of the first byte. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** A connection to a worker has been established or has failed. */
export interface EndpointChange {
  /** Transports and devices of its lanes. */
  readonly transports: readonly string[];
  /** A value of Status: OK for an established connection, otherwise the reason of the failure. */
  readonly status: number;
}

/** `gaudi-ucx:operation:end`. */
export const operationEnd: DiagnosticsChannel<OperationEnd> = channelOf('gaudi-ucx:operation:end');
/** `gaudi-ucx:cs:end`. */
export const commandSubmissionEnd: DiagnosticsChannel<CommandSubmissionEnd> = channelOf('gaudi-ucx:cs:end');
/** `gaudi-ucx:dma:end`. */
export const transferEnd: DiagnosticsChannel<TransferEnd> = channelOf('gaudi-ucx:dma:end');
/** `gaudi-ucx:memory:map`. */
export const memoryMap: DiagnosticsChannel<MemoryChange> = channelOf('gaudi-ucx:memory:map');
/** `gaudi-ucx:memory:unmap`. */
export const memoryUnmap: DiagnosticsChannel<MemoryChange> = channelOf('gaudi-ucx:memory:unmap');
/** `gaudi-ucx:endpoint:connect`. */
export const endpointConnect: DiagnosticsChannel<EndpointChange> = channelOf('gaudi-ucx:endpoint:connect');
/** `gaudi-ucx:endpoint:fail`. */
export const endpointFail: DiagnosticsChannel<EndpointChange> = channelOf('gaudi-ucx:endpoint:fail');

/**
 * Numbers of open objects of this thread that neither the kernel nor a memory map shows; leak checks compare them before and after. The code that opens an
 * object increments the number, and the code that closes it decrements it. This costs little, because these paths call a transport too.
 */
export const OPEN = {
  /** Unpacked remote keys that a connection, a team or a worker keeps for its own use. */
  keptKeys: 0,
  /** Send queue slots and send buffers of rc that the connections had not returned when their interface closed. */
  sendSlots: 0,
  /** Scratch buffers that collective operations use. */
  scratchBuffers: 0,
};

/** Workers of this thread so far. */
let workers = 0;

/** The number of a new worker, for the events of its operations. */
export function nextWorkerNumber(): number {
  workers += 1;
  return workers;
}

function channelOf<M>(name: string): DiagnosticsChannel<M> {
  return channel(name) as DiagnosticsChannel<M>;
}
