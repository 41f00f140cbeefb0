/** An open emulated RDMA device: creates protection domains, queues and regions within the limits of the device, and destroys them when it is closed. */

import { Errno, EventFd, SyscallError } from '../../sys/index.ts';
import type {
  AddressHandle,
  AddressVector,
  AsyncEvent,
  CompletionChannel,
  CompletionQueue,
  DeviceAttributes,
  GidEntry,
  MemoryRegion,
  PortAttributes,
  ProtectionDomain,
  QpInit,
  QueuePair,
  SharedReceiveQueue,
  VerbsContext,
  VerbsObject,
} from '../../verbs/port.ts';
import { type DmabufAccess, type DmaMemory, hostDmaMemory, isValidAccess, type Region } from './memory/dma-memory.ts';
import { EmulatedChannel, EmulatedCq } from './queue/completion-queue.ts';
import { EmulatedQp } from './queue/queue-pair.ts';
import { EmulatedSrq } from './queue/receive-queue.ts';
import type { RdmaDevice } from './rdma-device.ts';

/** Limit of unread asynchronous events; beyond it the oldest is lost. */
const EVENTS_MAX = 256;
/** Partition key of a fabric without partitions, with full membership. */
const DEFAULT_PKEY = 0xffff;
const PAGE_BYTES = 4096;

/** An open device. */
export class RdmaContext implements VerbsContext {
  readonly name: string;
  readonly device: RdmaDevice;
  readonly dmabufs: DmabufAccess;
  readonly #asyncEvent: EventFd = new EventFd();
  readonly #events: AsyncEvent[] = [];
  /** Objects of this context, in the order of their creation. */
  readonly #objects: Set<VerbsObject> = new Set();
  /** Called with an object after it was destroyed. */
  readonly destroyed: (object: object) => void = (object) => {
    this.#objects.delete(object as VerbsObject);
    this.device.destroyed(object);
  };
  readonly #listener: (event: AsyncEvent) => void = (event) => this.onEvent(event);
  #closed = false;

  constructor(device: RdmaDevice, dmabufs: DmabufAccess) {
    this.name = device.name;
    this.device = device;
    this.dmabufs = dmabufs;
    device.listen(this.#listener);
  }

  get asyncFd(): number {
    return this.#asyncEvent.fd;
  }

  queryDevice(): DeviceAttributes {
    return this.device.limits;
  }

  queryPort(port: number): PortAttributes {
    if (port !== 1) throw new SyscallError('ibv_query_port', Errno.EINVAL, `port ${port} of ${this.name} (emulated)`);
    return this.device.port;
  }

  gids(): readonly GidEntry[] {
    return [{ index: 0, gid: this.device.gid, type: 'roce_v2' }];
  }

  pkeys(): readonly number[] {
    return [DEFAULT_PKEY];
  }

  allocPd(): ProtectionDomain {
    this.checkPresent('ibv_alloc_pd');
    return this.keep(new EmulatedPd(this));
  }

  createCompletionChannel(): CompletionChannel {
    this.checkPresent('ibv_create_comp_channel');
    return this.keep(new EmulatedChannel(this.destroyed));
  }

  createCq(depth: number, channel: CompletionChannel | undefined): CompletionQueue {
    this.checkPresent('ibv_create_cq');
    check('ibv_create_cq', 'depth', depth, [1, this.device.limits.maxCqe]);
    const cq = new EmulatedCq(depth, channel as EmulatedChannel | undefined, this.destroyed, () =>
      this.device.progress(),
    );
    return this.keep(cq);
  }

  nextAsyncEvent(): AsyncEvent | undefined {
    const event = this.#events.shift();
    if (this.#events.length === 0 && !this.#closed) this.#asyncEvent.tryRead();
    return event;
  }

  onEvent(event: AsyncEvent): void {
    if (this.#events.length === EVENTS_MAX) this.#events.shift();
    this.#events.push(event);
    this.#asyncEvent.signal();
  }

  /** Registers an object that is destroyed with the context. */
  keep<T extends VerbsObject>(object: T): T {
    this.#objects.add(object);
    return this.device.created(object);
  }

  /** @throws SyscallError EIO after the removal of the device, EBADF after close */
  checkPresent(call: string): void {
    if (this.#closed) throw new SyscallError(call, Errno.EBADF, `${this.name} is closed (emulated)`);
    if (this.device.isRemoved) throw new SyscallError(call, Errno.EIO, `${this.name} was removed (emulated)`);
  }

  close(): void {
    if (this.#closed) return;
    // Objects are destroyed before the objects that they use.
    for (const object of [...this.#objects].reverse()) object.close();
    this.#closed = true;
    this.device.unlisten(this.#listener);
    this.#asyncEvent.close();
  }
}

class EmulatedMr implements MemoryRegion {
  readonly lkey: number;
  readonly rkey: number;
  readonly #context: RdmaContext;
  readonly #region: Region;

  constructor(context: RdmaContext, region: Region) {
    this.lkey = region.key;
    this.rkey = region.key;
    this.#context = context;
    this.#region = region;
  }

  close(): void {
    this.#context.device.regions.remove(this.#region);
    this.#context.destroyed(this);
  }
}

class EmulatedAh implements AddressHandle {
  readonly handle: number;
  readonly #context: RdmaContext;

  constructor(context: RdmaContext, gid: Uint8Array) {
    this.#context = context;
    this.handle = context.device.addHandle(gid.slice());
  }

  close(): void {
    this.#context.device.removeHandle(this.handle);
    this.#context.destroyed(this);
  }
}

/** A protection domain. */
class EmulatedPd implements ProtectionDomain {
  readonly #context: RdmaContext;

  constructor(context: RdmaContext) {
    this.#context = context;
  }

  regMr(address: number, byteLength: number, iova: number, access: number): MemoryRegion {
    this.#checkRegion('ibv_reg_mr', byteLength, access);
    if ((address - iova) % PAGE_BYTES !== 0)
      throw invalid('ibv_reg_mr', `iova and address must have the same offset within a page of ${PAGE_BYTES} bytes`);
    return this.#add(hostDmaMemory(address, byteLength), iova, access);
  }

  regDmabufMr(fd: number, offset: number, byteLength: number, iova: number, access: number): MemoryRegion {
    this.#checkRegion('ibv_reg_dmabuf_mr', byteLength, access);
    check('ibv_reg_dmabuf_mr', 'offset', offset, [0, this.#context.device.limits.maxMrSize]);
    if ((offset - iova) % PAGE_BYTES !== 0)
      throw invalid(
        'ibv_reg_dmabuf_mr',
        `iova and offset must have the same offset within a page of ${PAGE_BYTES} bytes`,
      );
    return this.#add(this.#context.dmabufs.attach(fd, offset, byteLength), iova, access);
  }

  createSrq(maxWr: number, maxSge: number): SharedReceiveQueue {
    this.#context.checkPresent('ibv_create_srq');
    const { maxSrqWr, maxSrqSge } = this.#context.device.limits;
    check('ibv_create_srq', 'max_wr', maxWr, [1, maxSrqWr]);
    check('ibv_create_srq', 'max_sge', maxSge, [1, maxSrqSge]);
    return this.#context.keep(new EmulatedSrq(this, maxWr, maxSge, this.#context.destroyed));
  }

  createQp(init: QpInit): QueuePair {
    const { device } = this.#context;
    const { maxQpWr, maxSge, maxQp } = device.limits;
    const call = 'ibv_create_qp';
    this.#context.checkPresent(call);
    check(call, 'max_send_wr', init.maxSendWr, [1, maxQpWr]);
    check(call, 'max_recv_wr', init.maxReceiveWr, [0, maxQpWr]);
    check(call, 'max_send_sge', init.maxSendSge, [1, maxSge]);
    check(call, 'max_recv_sge', init.maxReceiveSge, [0, maxSge]);
    check(call, 'max_inline_data', init.maxInlineBytes, [0, device.inlineBytesMax]);
    if (device.qpCount >= maxQp) {
      throw new SyscallError(call, Errno.ENOMEM, `${device.name} has ${maxQp} queue pairs, the maximum (emulated)`);
    }
    const qp = new EmulatedQp(device, this, device.newQpNum(), { ...init });
    device.addQp(qp);
    qp.onClose = () => this.#context.destroyed(qp);
    return this.#context.keep(qp);
  }

  createAh({ gid }: AddressVector): AddressHandle {
    this.#context.checkPresent('ibv_create_ah');
    if (gid === undefined) throw invalid('ibv_create_ah', 'the path needs a GID on Ethernet');
    return this.#context.keep(new EmulatedAh(this.#context, gid));
  }

  close(): void {
    this.#context.destroyed(this);
  }

  #checkRegion(call: string, byteLength: number, access: number): void {
    this.#context.checkPresent(call);
    const { name, regions, limits } = this.#context.device;
    check(call, 'length', byteLength, [1, limits.maxMrSize]);
    if (!isValidAccess(access)) throw invalid(call, `access 0x${access.toString(16)} is not permitted`);
    if (regions.size < limits.maxMr) return;
    throw new SyscallError(call, Errno.ENOMEM, `${name} has ${limits.maxMr} memory regions, the maximum (emulated)`);
  }

  #add(memory: DmaMemory, iova: number, access: number): MemoryRegion {
    const { regions } = this.#context.device;
    return this.#context.keep(new EmulatedMr(this.#context, regions.add({ pd: this, memory, iova, access })));
  }
}

function check(call: string, name: string, value: number, [min, max]: readonly [number, number]): void {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    throw invalid(call, `${name} must be from ${min} to ${max}, got ${value}`);
  }
}

function invalid(call: string, what: string): SyscallError {
  return new SyscallError(call, Errno.EINVAL, `${what} (emulated)`);
}
