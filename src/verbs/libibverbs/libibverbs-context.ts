/**
 * A device opened with libibverbs, as an implementation of the verbs port. Post, poll and notify call functions from the table of the device, which are bound
 * once.
 */

import { allocateScratch, functionAt, SyscallError, viewAt } from '../../sys/index.ts';
import type {
  AsyncEvent,
  CompletionChannel,
  CompletionQueue,
  DeviceAttributes,
  GidEntry,
  PortAttributes,
  ProtectionDomain,
  VerbsContext,
} from '../port.ts';
import { AsyncEventLayout, ContextLayout, GidEntryLayout } from './layouts.ts';
import {
  check,
  type DataPathCall,
  type Device,
  type LibibverbsFunctions,
  pointerOf,
  setNonblocking,
} from './library.ts';
import { Pd } from './protection-domain.ts';
import { Channel, Cq } from './queues.ts';
import { readDeviceAttributes, readGid, readPortAttributes } from './struct-codec.ts';

const SCRATCH_BYTES = 256;

export class LibibverbsContext implements VerbsContext {
  readonly name: string;
  readonly asyncFd: number;
  readonly #device: Device;
  #closed = false;

  /** @param device the struct ibv_device @throws SyscallError EACCES, ENODEV, EMFILE */
  constructor(functions: LibibverbsFunctions, name: string, device: number) {
    this.name = name;
    const context = pointerOf(
      functions.openDevice(device),
      'ibv_open_device',
      `${name}, whose file /dev/infiniband/uverbs* this user must be able to read and write`,
    );
    const table = new DataView(viewAt(context, ContextLayout.BYTES));
    const entry = <F extends DataPathCall | Device['requestNotify']>(
      offset: number,
      parameters: ('int64_t' | 'int')[],
    ): F => functionAt<F>(Number(table.getBigUint64(offset, true)), 'int', parameters);
    this.asyncFd = table.getInt32(ContextLayout.ASYNC_FD, true);
    setNonblocking(this.asyncFd);
    this.#device = {
      functions,
      context,
      scratch: allocateScratch(SCRATCH_BYTES),
      postSend: entry(ContextLayout.POST_SEND, ['int64_t', 'int64_t', 'int64_t']),
      postReceive: entry(ContextLayout.POST_RECV, ['int64_t', 'int64_t', 'int64_t']),
      postSrqReceive: entry(ContextLayout.POST_SRQ_RECV, ['int64_t', 'int64_t', 'int64_t']),
      pollCq: entry(ContextLayout.POLL_CQ, ['int64_t', 'int', 'int64_t']),
      requestNotify: entry(ContextLayout.REQ_NOTIFY_CQ, ['int64_t', 'int']),
    };
  }

  queryDevice(): DeviceAttributes {
    const { functions, context, scratch } = this.#device;
    check(functions.queryDevice(context, scratch.address), 'ibv_query_device', this.name);
    return readDeviceAttributes(scratch);
  }

  queryPort(port: number): PortAttributes {
    const { functions, context, scratch } = this.#device;
    scratch.u8.fill(0);
    check(functions.queryPort(context, port, scratch.address), 'ibv_query_port', `port ${port} of ${this.name}`);
    return readPortAttributes(scratch);
  }

  gids(port: number): readonly GidEntry[] {
    const { functions, context } = this.#device;
    const { physPortCount } = this.queryDevice();
    let entriesMax = 0;
    for (let each = 1; each <= physPortCount; each++) entriesMax += this.queryPort(each).gidTableLength;
    if (entriesMax === 0) return [];
    using table = allocateScratch(entriesMax * GidEntryLayout.BYTES);
    const count = functions.queryGidTable(context, table.address, entriesMax, 0, GidEntryLayout.BYTES);
    if (count < 0) throw new SyscallError('ibv_query_gid_table', -count, this.name);
    const entries = Array.from({ length: count }, (_, i) => readGid(table, i * GidEntryLayout.BYTES));
    return entries.filter((entry) => entry.port === port).map(({ index, gid, type }) => ({ index, gid, type }));
  }

  pkeys(port: number): readonly number[] {
    const { functions, context, scratch } = this.#device;
    return Array.from({ length: this.queryPort(port).pkeyTableLength }, (_, index) => {
      const what = `index ${index} of port ${port} of ${this.name}`;
      check(functions.queryPkey(context, port, index, scratch.address), 'ibv_query_pkey', what);
      // The key is in network byte order.
      return scratch.view.getUint16(0, false);
    });
  }

  allocPd(): ProtectionDomain {
    const { functions, context } = this.#device;
    return new Pd(this.#device, pointerOf(functions.allocPd(context), 'ibv_alloc_pd', this.name));
  }

  createCompletionChannel(): CompletionChannel {
    const { functions, context } = this.#device;
    return new Channel(
      this.#device,
      pointerOf(functions.createCompChannel(context), 'ibv_create_comp_channel', this.name),
    );
  }

  createCq(depth: number, channel: CompletionChannel | undefined): CompletionQueue {
    const { functions, context } = this.#device;
    const target = channel === undefined ? 0 : (channel as Channel).pointer;
    const cq = functions.createCq(context, depth, 0, target, 0);
    return new Cq(this.#device, pointerOf(cq, 'ibv_create_cq', `${depth} completions`));
  }

  nextAsyncEvent(): AsyncEvent | undefined {
    const { functions, context, scratch } = this.#device;
    if (functions.getAsyncEvent(context, scratch.address) !== 0) return undefined;
    const type = scratch.view.getInt32(AsyncEventLayout.EVENT_TYPE, true);
    // The element is a port number, or a pointer to an object.
    const element = scratch.view.getInt32(AsyncEventLayout.ELEMENT, true);
    functions.ackAsyncEvent(scratch.address);
    return { type, element };
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#device.functions.closeDevice(this.#device.context);
    this.#device.scratch.free();
  }
}
