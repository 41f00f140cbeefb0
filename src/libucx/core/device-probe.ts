/**
 * Checks whether libucp can access memory of a card: writes and reads a few bytes both by libucp and by the native transports, and compares them. Support
 * of the memory type is not sufficient: the Gaudi module of libucp supports only memory from its own allocator.
 */

import type { Context } from '../../api/contract/context.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { checkStatus, isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import {
  UCP_EP_CLOSE_FLAG,
  UCP_EP_PARAM_FIELD,
  UCP_EP_PARAMS,
  UCP_ERR_HANDLING_MODE,
  UCP_OP_ATTR_FIELD,
  UCP_REQUEST_PARAM,
} from '../c/abi.ts';
import { Fields, OutValue } from '../c/fields.ts';
import type { EngineContext } from '../engine/engine.ts';
import { mapByUcp } from '../mem/memory-map.ts';
import { packUcx, unpackUcx } from '../mem/remote-key.ts';
import { createWorker, workerAddress } from './worker-handle.ts';

/** Bytes moved in each direction. */
export const PROBE_BYTES = 4096;
/** Time limit of one operation of libucp. */
const OPERATION_NS = 2e9;
/** Zero bytes after an address: libucp may read past its end, because it does not know the length. */
const ADDRESS_PADDING = 64;
const FACTORS = [31, 57] as const;

/** The members of the libucx context that the probe uses. */
export type ProbingContext = Pick<EngineContext, 'libucp' | 'handle' | 'configuration'> & { readonly clock: Clock };

/** {@link PROBE_BYTES} of device memory, accessed by the native transports. */
export interface ProbedMemory {
  readonly address: number;
  write(bytes: Uint8Array): Promise<void>;
  read(): Promise<Uint8Array>;
}

/**
 * Probes access of libucp to device memory. Releases all resources except memory that libucp may still write to.
 * @param memoryType number of the memory type in libucp
 * @returns the reason why libucp cannot access it; undefined if it can
 */
export async function probeDevice(
  context: ProbingContext,
  memoryType: number,
  memory: ProbedMemory,
): Promise<string | undefined> {
  try {
    const libucp = new ProbeOfLibucp(context, memoryType, memory.address);
    try {
      return await compare(libucp, memory);
    } finally {
      libucp.close();
    }
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return error.message;
  }
}

/**
 * Runs the probe on memory of the first card of a native context, and frees the memory.
 * @returns the result of `probe`; the reason if such memory cannot be allocated
 */
export async function probeOn(
  native: Context,
  probe: (memory: ProbedMemory) => Promise<string | undefined>,
): Promise<string | undefined> {
  const worker = native.worker({ progress: 'manual' });
  try {
    const hbm = native.memMap({ allocate: PROBE_BYTES, memoryType: MemoryType.GAUDI });
    try {
      const endpoint = worker.endpoint(worker.address());
      const rkey = endpoint.unpackRkey(native.packRkey(hbm));
      return await probe({
        address: Number(hbm.address),
        async write(bytes) {
          await endpoint.put(bytes, rkey);
        },
        async read() {
          const bytes = new Uint8Array(PROBE_BYTES);
          await endpoint.get(bytes, rkey);
          return bytes;
        },
      });
    } finally {
      await worker.close();
      native.memUnmap(hbm);
    }
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return error.message;
  } finally {
    await worker.close();
  }
}

async function compare(libucp: ProbeOfLibucp, memory: ProbedMemory): Promise<string | undefined> {
  const [own, others] = FACTORS.map((factor) => Uint8Array.from({ length: PROBE_BYTES }, (_, i) => i * factor)) as [
    Uint8Array,
    Uint8Array,
  ];
  await memory.write(own);
  if (Buffer.compare(libucp.get(), own) !== 0) return 'ucp_get_nbx returns wrong bytes';
  libucp.put(others);
  const found = await memory.read();
  return Buffer.compare(found, others) === 0
    ? undefined
    : 'ucp_put_nbx succeeds, but the memory does not have the written bytes';
}

/** A worker of libucp with a loopback endpoint and a remote key of the memory. */
class ProbeOfLibucp {
  readonly #context: ProbingContext;
  readonly #address: number;
  readonly #host: ScratchBlock = allocateScratch(PROBE_BYTES);
  readonly #param: Fields<typeof UCP_REQUEST_PARAM.at> = new Fields(UCP_REQUEST_PARAM);
  #memh = 0;
  #worker = 0;
  #ep = 0;
  #rkey = 0;
  #isWatched = true;
  /** Whether an operation timed out: libucp may still access the host memory then. */
  #isLost = false;

  /** Releases all resources if it throws. @throws UcxError of the failing call of libucp */
  constructor(context: ProbingContext, memoryType: number, address: number) {
    this.#context = context;
    this.#address = address;
    const { functions } = context.libucp;
    try {
      this.#memh = mapByUcp(functions, context.handle, { address, byteLength: PROBE_BYTES, flags: 0, memoryType });
      this.#worker = createWorker(context, 0n);
      this.#ep = this.#connect();
      this.#rkey = unpackUcx(functions, this.#ep, packUcx(functions, context.handle, this.#memh));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Reads the memory by libucp. @throws UcxError */
  get(): Uint8Array {
    const { ucp_get_nbx } = this.#context.libucp.functions;
    this.#run('ucp_get_nbx', () =>
      ucp_get_nbx(this.#ep, this.#host.address, PROBE_BYTES, this.#address, this.#rkey, this.#param.address),
    );
    return this.#host.u8.slice(0, PROBE_BYTES);
  }

  /** Writes the memory by libucp, and waits for completion. @throws UcxError */
  put(bytes: Uint8Array): void {
    const { ucp_put_nbx, ucp_ep_flush_nbx } = this.#context.libucp.functions;
    this.#host.u8.set(bytes);
    this.#run('ucp_put_nbx', () =>
      ucp_put_nbx(this.#ep, this.#host.address, PROBE_BYTES, this.#address, this.#rkey, this.#param.address),
    );
    this.#run('ucp_ep_flush_nbx', () => ucp_ep_flush_nbx(this.#ep, this.#param.address));
  }

  close(): void {
    const { libucp, handle } = this.#context;
    const { functions } = libucp;
    if (this.#rkey !== 0) functions.ucp_rkey_destroy(this.#rkey);
    if (this.#ep !== 0) this.#closeEndpoint();
    if (this.#worker !== 0) functions.ucp_worker_destroy(this.#worker);
    if (this.#memh !== 0) functions.ucp_mem_unmap(handle, this.#memh);
    if (!this.#isLost) this.#host.free();
    this.#param[Symbol.dispose]();
  }

  /** Creates a loopback endpoint, with peer error handling if a transport has it. */
  #connect(): number {
    const { functions } = this.#context.libucp;
    const bytes = workerAddress(functions, this.#worker);
    using address = allocateScratch(bytes.byteLength + ADDRESS_PADDING);
    using params = new Fields(UCP_EP_PARAMS);
    using ep = new OutValue();
    address.u8.set(bytes);
    params.setU64('field_mask', UCP_EP_PARAM_FIELD.REMOTE_ADDRESS | UCP_EP_PARAM_FIELD.ERR_HANDLING_MODE);
    params.setU64('address', address.address).setU32('err_mode', UCP_ERR_HANDLING_MODE.PEER);
    let status = functions.ucp_ep_create(this.#worker, params.address, ep.address);
    if (status === Status.UNREACHABLE) {
      this.#isWatched = false;
      params.setU32('err_mode', UCP_ERR_HANDLING_MODE.NONE);
      status = functions.ucp_ep_create(this.#worker, params.address, ep.address);
    }
    checkStatus(status, 'ucp_ep_create');
    return ep.value;
  }

  #closeEndpoint(): void {
    const { ucp_ep_close_nbx } = this.#context.libucp.functions;
    if (this.#isLost && this.#isWatched) {
      this.#param.setU32('op_attr_mask', UCP_OP_ATTR_FIELD.FLAGS).setU32('flags', UCP_EP_CLOSE_FLAG.FORCE);
    }
    try {
      this.#run('ucp_ep_close_nbx', () => ucp_ep_close_nbx(this.#ep, this.#param.address));
    } catch (error) {
      // Ignored: destroying the worker frees the endpoint.
      if (!isUcxError(error)) throw error;
    }
  }

  /** Runs an operation until it ends or the time limit passes. @throws UcxError with its status; ERR_TIMED_OUT */
  #run(what: string, start: () => number): void {
    const { libucp, clock } = this.#context;
    const { ucp_worker_progress, ucp_request_check_status, ucp_request_free } = libucp.functions;
    const started = start();
    if (started <= 0) {
      checkStatus(started, what);
      return;
    }
    const deadlineNs = clock.nowNs() + OPERATION_NS;
    for (;;) {
      ucp_worker_progress(this.#worker);
      const status = ucp_request_check_status(started);
      if (status !== Status.INPROGRESS) {
        ucp_request_free(started);
        checkStatus(status, what);
        return;
      }
      if (clock.nowNs() < deadlineNs) continue;
      this.#isLost = true;
      ucp_request_free(started);
      throw statusError(Status.TIMED_OUT, what);
    }
  }
}
