/** A device opened with libibverbs, behind the verbs port. Post, poll and notify call functions from the table of the device, which are bound once. */

import {
  allocateScratch,
  Errno,
  fcntl,
  functionAt,
  lastErrno,
  type ScratchBlock,
  SyscallError,
  viewAt,
} from '../../sys/index.ts';
import { GID_BYTES, QpState, QpType } from '../abi.ts';
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
  QpAttributes,
  QpInit,
  QueuePair,
  SharedReceiveQueue,
  VerbsBlock,
  VerbsContext,
  VerbsObject,
} from '../port.ts';
import {
  AhAttrLayout,
  AsyncEventLayout,
  ChannelLayout,
  ContextLayout,
  DeviceAttrLayout,
  GidEntryLayout,
  MrLayout,
  PortAttrLayout,
  QpAttrLayout,
  QpAttrMask,
  QpInitLayout,
  QpLayout,
  SrqInitLayout,
} from './layouts.ts';
import type { LibibverbsFunctions } from './library.ts';

const F_GETFL = 3;
const F_SETFL = 4;
const O_NONBLOCK = 0o4000;
const SCRATCH_BYTES = 256;
const FIRMWARE_BYTES = 64;
const GID_TYPES = ['ib', 'roce_v1', 'roce_v2'] as const;
/** Bytes per second of a lane, by the bit of active_speed (SDR to NDR), without the overhead of the line encoding. */
const LANE_SPEEDS: ReadonlyMap<number, number> = new Map([
  [1, 0.25e9],
  [2, 0.5e9],
  [4, 1e9],
  [8, 1.212e9],
  [16, 1.705e9],
  [32, 3.125e9],
  [64, 6.25e9],
  [128, 12.5e9],
]);
/** Number of lanes, by the bit of active_width. */
const WIDTHS: ReadonlyMap<number, number> = new Map([
  [1, 1],
  [2, 4],
  [4, 8],
  [8, 12],
  [16, 2],
]);

type DataPathCall = (object: number, address: number, other: number) => number;

/** State that the objects of a device share. */
interface Device {
  readonly functions: LibibverbsFunctions;
  readonly context: number;
  readonly scratch: ScratchBlock;
  readonly postSend: DataPathCall;
  readonly postReceive: DataPathCall;
  readonly postSrqReceive: DataPathCall;
  /** Arguments: the queue, the maximum number of completions, and the address where they are written. */
  readonly pollCq: DataPathCall;
  readonly requestNotify: (cq: number, solicitedOnly: number) => number;
}

/** Checks a pointer that a function has returned. @throws SyscallError with the errno of the function if the pointer is 0 */
function pointerOf(result: number, call: string, what: string): number {
  if (result === 0) throw new SyscallError(call, lastErrno(), what);
  return result;
}

/** @throws SyscallError with the errno that a function has returned, unless it is 0 */
function check(errno: number, call: string, what: string): void {
  if (errno !== 0) throw new SyscallError(call, errno < 0 ? -errno : errno, what);
}

/** An object of the library, destroyed once. */
class Destroyable implements VerbsObject {
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

/** An open device. */
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
      `${name}, a file of /dev/infiniband that must be readable and writable`,
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
    const { view, u8 } = scratch;
    const int = (offset: number): number => view.getInt32(offset, true);
    const firmware = Buffer.from(u8.slice(DeviceAttrLayout.FW_VER, FIRMWARE_BYTES)).toString('latin1');
    return {
      maxMrSize: Math.min(Number.MAX_SAFE_INTEGER, Number(view.getBigUint64(DeviceAttrLayout.MAX_MR_SIZE, true))),
      maxQp: int(DeviceAttrLayout.MAX_QP),
      maxQpWr: int(DeviceAttrLayout.MAX_QP_WR),
      maxSge: int(DeviceAttrLayout.MAX_SGE),
      maxCq: int(DeviceAttrLayout.MAX_CQ),
      maxCqe: int(DeviceAttrLayout.MAX_CQE),
      maxMr: int(DeviceAttrLayout.MAX_MR),
      maxPd: int(DeviceAttrLayout.MAX_PD),
      maxQpRdAtom: int(DeviceAttrLayout.MAX_QP_RD_ATOM),
      maxQpInitRdAtom: int(DeviceAttrLayout.MAX_QP_INIT_RD_ATOM),
      maxSrq: int(DeviceAttrLayout.MAX_SRQ),
      maxSrqWr: int(DeviceAttrLayout.MAX_SRQ_WR),
      maxSrqSge: int(DeviceAttrLayout.MAX_SRQ_SGE),
      hasAtomics: int(DeviceAttrLayout.ATOMIC_CAP) !== 0,
      physPortCount: view.getUint8(DeviceAttrLayout.PHYS_PORT_CNT),
      firmware: firmware.split('\0')[0]!,
    };
  }

  queryPort(port: number): PortAttributes {
    const { functions, context, scratch } = this.#device;
    scratch.u8.fill(0);
    check(functions.queryPort(context, port, scratch.address), 'ibv_query_port', `port ${port} of ${this.name}`);
    const { view } = scratch;
    const lanes = WIDTHS.get(view.getUint8(PortAttrLayout.ACTIVE_WIDTH)) ?? 1;
    const speed = LANE_SPEEDS.get(view.getUint8(PortAttrLayout.ACTIVE_SPEED)) ?? 1e9;
    return {
      state: view.getInt32(PortAttrLayout.STATE, true),
      activeMtu: view.getInt32(PortAttrLayout.ACTIVE_MTU, true),
      gidTableLength: view.getInt32(PortAttrLayout.GID_TBL_LEN, true),
      maxMessageBytes: view.getUint32(PortAttrLayout.MAX_MSG_SZ, true),
      lid: view.getUint16(PortAttrLayout.LID, true),
      linkLayer: view.getUint8(PortAttrLayout.LINK_LAYER),
      bytesPerSecond: lanes * speed,
    };
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
    return Array.from({ length: count }, (_, i) => i * GidEntryLayout.BYTES)
      .filter((at) => table.view.getUint32(at + GidEntryLayout.PORT_NUM, true) === port)
      .map((at) => ({
        index: table.view.getUint32(at + GidEntryLayout.GID_INDEX, true),
        gid: table.u8.slice(at + GidEntryLayout.GID, at + GidEntryLayout.GID + GID_BYTES),
        type: GID_TYPES[table.view.getUint32(at + GidEntryLayout.GID_TYPE, true)] ?? 'ib',
      }));
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
    // A port number, or a pointer to an object.
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

class Channel extends Destroyable implements CompletionChannel {
  readonly fd: number;
  readonly #device: Device;

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.destroyCompChannel);
    this.#device = device;
    this.fd = new DataView(viewAt(pointer, ChannelLayout.BYTES)).getInt32(ChannelLayout.FD, true);
    setNonblocking(this.fd);
  }

  consume(): void {
    const { functions, scratch } = this.#device;
    const { address, view } = scratch;
    // Acknowledged one by one: a queue with events that are not acknowledged cannot be destroyed.
    while (functions.getCqEvent(this.pointer, address, address + 8) === 0) {
      functions.ackCqEvents(Number(view.getBigUint64(0, true)), 1);
    }
  }
}

class Cq extends Destroyable implements CompletionQueue {
  readonly #device: Device;

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.destroyCq);
    this.#device = device;
  }

  poll(block: VerbsBlock, count: number): number {
    return this.#device.pollCq(this.pointer, count, block.address);
  }

  requestNotify(): void {
    this.#device.requestNotify(this.pointer, 0);
  }
}

class Mr extends Destroyable implements MemoryRegion {
  readonly lkey: number;
  readonly rkey: number;

  constructor(pointer: number, destroy: (pointer: number) => number) {
    super(pointer, destroy);
    const view = new DataView(viewAt(pointer, MrLayout.BYTES));
    this.lkey = view.getUint32(MrLayout.LKEY, true);
    this.rkey = view.getUint32(MrLayout.RKEY, true);
  }
}

class Ah extends Destroyable implements AddressHandle {
  get handle(): number {
    return this.pointer;
  }
}

/** Addresses inside the block that a queue posts from, each computed once: a sum passed to a foreign function would allocate a heap number each time. */
class PostAddresses {
  readonly #byOffset: Map<number, number> = new Map();
  #block: VerbsBlock | undefined;

  of(block: VerbsBlock, offset: number): number {
    if (block !== this.#block) {
      this.#block = block;
      this.#byOffset.clear();
    }
    let address = this.#byOffset.get(offset);
    if (address === undefined) {
      address = block.address + offset;
      this.#byOffset.set(offset, address);
    }
    return address;
  }
}

class Srq extends Destroyable implements SharedReceiveQueue {
  readonly #device: Device;
  readonly #addresses: PostAddresses = new PostAddresses();

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.destroySrq);
    this.#device = device;
  }

  postReceive(block: VerbsBlock, offset: number): number {
    const { postSrqReceive, scratch } = this.#device;
    return postSrqReceive(this.pointer, this.#addresses.of(block, offset), scratch.address);
  }
}

class Pd extends Destroyable implements ProtectionDomain {
  readonly #device: Device;

  constructor(device: Device, pointer: number) {
    super(pointer, device.functions.deallocPd);
    this.#device = device;
  }

  regMr(address: number, byteLength: number, iova: number, access: number): MemoryRegion {
    const { functions } = this.#device;
    const mr = functions.regMrIova2(this.pointer, address, byteLength, iova, access);
    return new Mr(
      pointerOf(mr, 'ibv_reg_mr', `${byteLength} bytes, which count as locked memory (ulimit -l)`),
      functions.deregMr,
    );
  }

  regDmabufMr(fd: number, offset: number, byteLength: number, iova: number, access: number): MemoryRegion {
    const { functions } = this.#device;
    if (functions.regDmabufMr === undefined) {
      throw new SyscallError('ibv_reg_dmabuf_mr', Errno.EOPNOTSUPP, 'libibverbs is older than rdma-core v34');
    }
    const mr = functions.regDmabufMr(this.pointer, offset, byteLength, iova, fd, access);
    return new Mr(pointerOf(mr, 'ibv_reg_dmabuf_mr', `${byteLength} bytes of descriptor ${fd}`), functions.deregMr);
  }

  createSrq(maxWr: number, maxSge: number): SharedReceiveQueue {
    const { functions, scratch } = this.#device;
    scratch.u8.fill(0, 0, SrqInitLayout.BYTES);
    scratch.view.setUint32(SrqInitLayout.MAX_WR, maxWr, true);
    scratch.view.setUint32(SrqInitLayout.MAX_SGE, maxSge, true);
    const srq = functions.createSrq(this.pointer, scratch.address);
    return new Srq(this.#device, pointerOf(srq, 'ibv_create_srq', `${maxWr} receives`));
  }

  createQp(init: QpInit): QueuePair {
    const { functions, scratch } = this.#device;
    const { view } = scratch;
    scratch.u8.fill(0, 0, QpInitLayout.BYTES);
    view.setBigUint64(QpInitLayout.SEND_CQ, BigInt((init.sendCq as Cq).pointer), true);
    view.setBigUint64(QpInitLayout.RECV_CQ, BigInt((init.receiveCq as Cq).pointer), true);
    view.setBigUint64(QpInitLayout.SRQ, BigInt(init.srq === undefined ? 0 : (init.srq as Srq).pointer), true);
    view.setUint32(QpInitLayout.MAX_SEND_WR, init.maxSendWr, true);
    view.setUint32(QpInitLayout.MAX_RECV_WR, init.maxReceiveWr, true);
    view.setUint32(QpInitLayout.MAX_SEND_SGE, init.maxSendSge, true);
    view.setUint32(QpInitLayout.MAX_RECV_SGE, init.maxReceiveSge, true);
    view.setUint32(QpInitLayout.MAX_INLINE_DATA, init.maxInlineBytes, true);
    view.setUint32(QpInitLayout.QP_TYPE, init.type, true);
    const qp = pointerOf(functions.createQp(this.pointer, scratch.address), 'ibv_create_qp', `${init.maxSendWr} sends`);
    return new Qp(this.#device, qp, init.type, view.getUint32(QpInitLayout.MAX_INLINE_DATA, true));
  }

  createAh(path: AddressVector): AddressHandle {
    const { functions, scratch } = this.#device;
    writePath(scratch, 0, path);
    return new Ah(
      pointerOf(functions.createAh(this.pointer, scratch.address), 'ibv_create_ah', ''),
      functions.destroyAh,
    );
  }
}

class Qp extends Destroyable implements QueuePair {
  readonly qpNum: number;
  readonly maxInlineBytes: number;
  state: QpState = QpState.RESET;
  readonly #device: Device;
  readonly #type: QpType;
  readonly #sends: PostAddresses = new PostAddresses();
  readonly #receives: PostAddresses = new PostAddresses();

  constructor(device: Device, pointer: number, type: QpType, maxInlineBytes: number) {
    super(pointer, device.functions.destroyQp);
    this.#device = device;
    this.#type = type;
    this.maxInlineBytes = maxInlineBytes;
    this.qpNum = new DataView(viewAt(pointer, QpLayout.BYTES)).getUint32(QpLayout.QP_NUM, true);
  }

  modify(attributes: QpAttributes): void {
    const { functions, scratch } = this.#device;
    const mask = writeAttributes(scratch, attributes, this.#type);
    check(functions.modifyQp(this.pointer, scratch.address, mask), 'ibv_modify_qp', `to state ${attributes.state}`);
    this.state = attributes.state;
  }

  postSend(block: VerbsBlock, offset: number): number {
    const { postSend, scratch } = this.#device;
    return postSend(this.pointer, this.#sends.of(block, offset), scratch.address);
  }

  postReceive(block: VerbsBlock, offset: number): number {
    const { postReceive, scratch } = this.#device;
    return postReceive(this.pointer, this.#receives.of(block, offset), scratch.address);
  }
}

/** Writes struct ibv_qp_attr; returns the mask of the valid fields. */
function writeAttributes(scratch: ScratchBlock, attributes: QpAttributes, type: QpType): number {
  const { view } = scratch;
  scratch.u8.fill(0, 0, QpAttrLayout.BYTES);
  let mask: number = QpAttrMask.STATE;
  view.setUint32(QpAttrLayout.QP_STATE, attributes.state, true);
  const word = (value: number | undefined, offset: number, bit: number): void => {
    if (value === undefined) return;
    view.setUint32(offset, value, true);
    mask |= bit;
  };
  const byte = (value: number | undefined, offset: number, bit: number): void => {
    if (value === undefined) return;
    view.setUint8(offset, value);
    mask |= bit;
  };
  word(attributes.pathMtu, QpAttrLayout.PATH_MTU, QpAttrMask.PATH_MTU);
  word(attributes.qkey, QpAttrLayout.QKEY, QpAttrMask.QKEY);
  word(attributes.rqPsn, QpAttrLayout.RQ_PSN, QpAttrMask.RQ_PSN);
  word(attributes.sqPsn, QpAttrLayout.SQ_PSN, QpAttrMask.SQ_PSN);
  word(attributes.destQpNum, QpAttrLayout.DEST_QP_NUM, QpAttrMask.DEST_QPN);
  const accessFlags = type === QpType.UD ? undefined : attributes.accessFlags;
  word(accessFlags, QpAttrLayout.QP_ACCESS_FLAGS, QpAttrMask.ACCESS_FLAGS);
  byte(attributes.pkeyIndex, QpAttrLayout.PKEY_INDEX, QpAttrMask.PKEY_INDEX);
  byte(attributes.port, QpAttrLayout.PORT_NUM, QpAttrMask.PORT);
  byte(attributes.maxRdAtomic, QpAttrLayout.MAX_RD_ATOMIC, QpAttrMask.MAX_QP_RD_ATOMIC);
  byte(attributes.maxDestRdAtomic, QpAttrLayout.MAX_DEST_RD_ATOMIC, QpAttrMask.MAX_DEST_RD_ATOMIC);
  byte(attributes.minRnrTimer, QpAttrLayout.MIN_RNR_TIMER, QpAttrMask.MIN_RNR_TIMER);
  byte(attributes.timeout, QpAttrLayout.TIMEOUT, QpAttrMask.TIMEOUT);
  byte(attributes.retryCount, QpAttrLayout.RETRY_CNT, QpAttrMask.RETRY_CNT);
  byte(attributes.rnrRetry, QpAttrLayout.RNR_RETRY, QpAttrMask.RNR_RETRY);
  if (attributes.path !== undefined) {
    writePath(scratch, QpAttrLayout.AH_ATTR, attributes.path);
    mask |= QpAttrMask.AV;
  }
  return mask;
}

/** Writes struct ibv_ah_attr. */
function writePath({ view, u8 }: ScratchBlock, at: number, path: AddressVector): void {
  u8.fill(0, at, at + AhAttrLayout.BYTES);
  view.setUint16(at + AhAttrLayout.DLID, path.dlid, true);
  view.setUint8(at + AhAttrLayout.SL, path.serviceLevel);
  view.setUint8(at + AhAttrLayout.PORT_NUM, path.port);
  if (path.gid === undefined) return;
  view.setUint8(at + AhAttrLayout.IS_GLOBAL, 1);
  u8.set(path.gid, at + AhAttrLayout.DGID);
  view.setUint8(at + AhAttrLayout.SGID_INDEX, path.sgidIndex);
  view.setUint8(at + AhAttrLayout.HOP_LIMIT, path.hopLimit);
  view.setUint8(at + AhAttrLayout.TRAFFIC_CLASS, path.trafficClass);
}

function setNonblocking(fd: number): void {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
}
