/**
 * The functions of libibverbs that are called by name; those of the data path are in the table of an open device. Also the state that the objects of an open
 * device share: its functions, scratch memory for their arguments, and the check of their results.
 */

import { DynamicLibrary, fcntl, lastErrno, type ScratchBlock, SyscallError } from '../../sys/index.ts';
import type { VerbsObject } from '../port.ts';

export const LIBIBVERBS_NAMES: readonly string[] = ['libibverbs.so.1'];

type Call = (...values: number[]) => number;

/** The functions. Pointers are Numbers. */
export interface LibibverbsFunctions {
  readonly getDeviceList: (count: number) => number;
  readonly freeDeviceList: (list: number) => void;
  readonly getDeviceName: (device: number) => string;
  readonly openDevice: Call;
  readonly closeDevice: Call;
  readonly queryDevice: Call;
  readonly queryPort: Call;
  readonly queryPkey: Call;
  /** Since rdma-core v32. */
  readonly queryGidTable: Call;
  readonly allocPd: Call;
  readonly deallocPd: Call;
  readonly regMrIova2: Call;
  /** Since rdma-core v34; undefined in older versions. */
  readonly regDmabufMr: Call | undefined;
  readonly deregMr: Call;
  readonly createCompChannel: Call;
  readonly destroyCompChannel: Call;
  readonly getCqEvent: Call;
  readonly ackCqEvents: Call;
  readonly createCq: Call;
  readonly destroyCq: Call;
  readonly createSrq: Call;
  readonly destroySrq: Call;
  readonly createQp: Call;
  readonly modifyQp: Call;
  readonly destroyQp: Call;
  readonly createAh: Call;
  readonly destroyAh: Call;
  readonly getAsyncEvent: Call;
  readonly ackAsyncEvent: Call;
}

/**
 * Loads the library.
 * @throws UcxError ERR_LIBRARY_NOT_FOUND, ERR_LIBRARY_UNUSABLE, ERR_LIBRARY_SYMBOL
 */
export function loadLibibverbs(names: readonly string[] = LIBIBVERBS_NAMES): LibibverbsFunctions {
  const library = new DynamicLibrary(names);
  const pointer = 'int64_t';
  const one = [pointer] as const;
  return {
    getDeviceList: library.function('ibv_get_device_list', pointer, [...one]),
    freeDeviceList: library.function('ibv_free_device_list', 'void', [...one]),
    getDeviceName: library.function('ibv_get_device_name', 'str', [...one]),
    openDevice: library.function('ibv_open_device', pointer, [...one]),
    closeDevice: library.function('ibv_close_device', 'int', [...one]),
    queryDevice: library.function('ibv_query_device', 'int', [pointer, pointer]),
    queryPort: library.function('ibv_query_port', 'int', [pointer, 'uint32_t', pointer]),
    queryPkey: library.function('ibv_query_pkey', 'int', [pointer, 'uint32_t', 'int', pointer]),
    queryGidTable: library.function('_ibv_query_gid_table', pointer, [pointer, pointer, pointer, 'uint32_t', pointer]),
    allocPd: library.function('ibv_alloc_pd', pointer, [...one]),
    deallocPd: library.function('ibv_dealloc_pd', 'int', [...one]),
    regMrIova2: library.function('ibv_reg_mr_iova2', pointer, [pointer, pointer, pointer, pointer, 'uint32_t']),
    regDmabufMr: library.has('ibv_reg_dmabuf_mr')
      ? library.function('ibv_reg_dmabuf_mr', pointer, [pointer, pointer, pointer, pointer, 'int', 'int'])
      : undefined,
    deregMr: library.function('ibv_dereg_mr', 'int', [...one]),
    createCompChannel: library.function('ibv_create_comp_channel', pointer, [...one]),
    destroyCompChannel: library.function('ibv_destroy_comp_channel', 'int', [...one]),
    getCqEvent: library.function('ibv_get_cq_event', 'int', [pointer, pointer, pointer]),
    ackCqEvents: library.function('ibv_ack_cq_events', 'void', [pointer, 'uint32_t']),
    createCq: library.function('ibv_create_cq', pointer, [pointer, 'int', pointer, pointer, 'int']),
    destroyCq: library.function('ibv_destroy_cq', 'int', [...one]),
    createSrq: library.function('ibv_create_srq', pointer, [pointer, pointer]),
    destroySrq: library.function('ibv_destroy_srq', 'int', [...one]),
    createQp: library.function('ibv_create_qp', pointer, [pointer, pointer]),
    modifyQp: library.function('ibv_modify_qp', 'int', [pointer, pointer, 'int']),
    destroyQp: library.function('ibv_destroy_qp', 'int', [...one]),
    createAh: library.function('ibv_create_ah', pointer, [pointer, pointer]),
    destroyAh: library.function('ibv_destroy_ah', 'int', [...one]),
    getAsyncEvent: library.function('ibv_get_async_event', 'int', [pointer, pointer]),
    ackAsyncEvent: library.function('ibv_ack_async_event', 'void', [...one]),
  };
}

const F_GETFL = 3;
const F_SETFL = 4;
const O_NONBLOCK = 0o4000;

/** A function of the data path, from the table of the device. */
export type DataPathCall = (object: number, address: number, other: number) => number;

/** State that the objects of a device share. */
export interface Device {
  readonly functions: LibibverbsFunctions;
  readonly context: number;
  readonly scratch: ScratchBlock;
  readonly postSend: DataPathCall;
  readonly postReceive: DataPathCall;
  readonly postSrqReceive: DataPathCall;
  /** Arguments: the queue, the maximum number of completions, and the address for the completions. */
  readonly pollCq: DataPathCall;
  readonly requestNotify: (cq: number, solicitedOnly: number) => number;
}

/** Checks a pointer returned by a function. @throws SyscallError with the errno of the function if the pointer is 0 */
export function pointerOf(result: number, call: string, what: string): number {
  if (result === 0) throw new SyscallError(call, lastErrno(), what);
  return result;
}

/** Checks an errno returned by a function. @throws SyscallError unless it is 0 */
export function check(errno: number, call: string, what: string): void {
  if (errno !== 0) throw new SyscallError(call, errno < 0 ? -errno : errno, what);
}

/** An object of the library that is destroyed only once. */
export class Destroyable implements VerbsObject {
  readonly pointer: number;
  readonly #destroy: (pointer: number) => number;
  #closed = false;

  constructor(pointer: number, destroy: (pointer: number) => number) {
    this.pointer = pointer;
    this.#destroy = destroy;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#destroy(this.pointer);
  }
}

/** Makes a descriptor of the library non-blocking. */
export function setNonblocking(fd: number): void {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
}
