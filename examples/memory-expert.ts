/**
 * A memory expert: a component of a program that teaches UCX the memory of an accelerator which the library does not know. It answers whose memory an address
 * is, allocates, copies to and from host memory, and exports dma-bufs, by which network devices reach the memory without a copy.
 *
 * The accelerator is imaginary. Its memory is a memfd, which stands for a dma-buf on an emulated node, and its copy engine reads and writes that file. An expert
 * of real memory has the same parts: its driver allocates, its engine copies and completes later (return INPROGRESS, and call the completion in progress()).
 */

import { randomBytes } from 'node:crypto';
import { closeSync, fstatSync, ftruncateSync, readSync, writeSync } from 'node:fs';
import koffi from 'koffi';
import { createEmulatedNode, type EmulatedNode } from '../src/emulator/index.ts';
import { Context, MemoryType, Status, UcxError } from '../src/index.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type DeviceRange,
  DeviceType,
  type DmabufExport,
  type DmabufRegion,
  type Iface,
  type IfaceAttributes,
  IfaceFlag,
  type IovEntry,
  type MdAttributes,
  MdFlag,
  type MdMemory,
  type MemoryAttributes,
  type MemoryDomain,
  memoryTypeBit,
  NO_ACTIVE_MESSAGES,
  type RegistrationSource,
  type RemoteKey,
  statsNode,
  type UctEndpoint,
} from '../src/uct.ts';

const NAME = 'toy_copy';
const HOST = memoryTypeBit(MemoryType.HOST);
const TOY = memoryTypeBit(MemoryType.ROCM);
/** A number that no other device of the context has. */
const SYS_DEVICE = 100;
const ARENA_BYTES = 64 * 2 ** 20;
const PAGE = 4096;
/** Where the device address space of the accelerator begins. */
const BASE = 0x7700_0000_0000n;

const libc = koffi.load(null);
const memfdCreate: (name: string, flags: number) => number = libc.func(
  'int memfd_create(const char *name, uint flags)',
);
const fcntl: (fd: number, command: number, argument: number) => number = libc.func('int fcntl(int, int, int)');
const [ALLOW_SEALING, ADD_SEALS, SEAL_SHRINK] = [2, 1033, 2];

function failure(status: Status, message: string): UcxError {
  return new UcxError({ code: 'ERR_TOY', status, message: `${NAME}: ${message}` });
}

/** The device: an arena of memory, and an engine that copies. */
class Accelerator {
  readonly fd: number;
  /** Free ranges as [offset, byteLength], by offset. */
  readonly #free: [number, number][] = [[0, ARENA_BYTES]];

  constructor() {
    this.fd = memfdCreate('toy accelerator', ALLOW_SEALING);
    ftruncateSync(this.fd, ARENA_BYTES);
    fcntl(this.fd, ADD_SEALS, SEAL_SHRINK);
  }

  allocate(byteLength: number): number {
    const bytes = Math.ceil(byteLength / PAGE) * PAGE;
    const range = this.#free.find(([, length]) => length >= bytes);
    if (range === undefined) throw failure(Status.NO_MEMORY, `no ${byteLength} bytes are free`);
    const [offset] = range;
    range[0] += bytes;
    range[1] -= bytes;
    return offset;
  }

  free(offset: number, byteLength: number): void {
    this.#free.push([offset, Math.ceil(byteLength / PAGE) * PAGE]);
  }

  write(offset: number, source: Uint8Array): void {
    for (let done = 0; done < source.byteLength; )
      done += writeSync(this.fd, source, done, source.byteLength - done, offset + done);
  }

  read(offset: number, target: Uint8Array): void {
    for (let done = 0; done < target.byteLength; )
      done += readSync(this.fd, target, done, target.byteLength - done, offset + done);
  }

  close(): void {
    closeSync(this.fd);
  }
}

/** Memory of the device, or host memory that its engine may access. */
class ToyMemory implements MdMemory {
  readonly mdName = NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  readonly bytes: Uint8Array | undefined;
  readonly generation: number;
  live = true;

  constructor(place: { readonly offset: number; readonly byteLength: number } | Uint8Array, generation: number) {
    const isHost = place instanceof Uint8Array;
    this.memoryType = isHost ? MemoryType.HOST : MemoryType.ROCM;
    this.sysDevice = isHost ? undefined : SYS_DEVICE;
    this.address = isHost ? 0n : BASE + BigInt(place.offset);
    this.byteLength = place.byteLength;
    this.bytes = isHost ? place : undefined;
    this.generation = generation;
  }

  get offset(): number {
    return Number(this.address - BASE);
  }
}

/** A remote key: the transport copies within this process, so the key is the memory. */
class ToyKey implements RemoteKey {
  readonly mdName = NAME;
  readonly memory: ToyMemory;

  constructor(memory: ToyMemory) {
    this.memory = memory;
  }

  get memoryType(): MemoryType {
    return this.memory.memoryType;
  }

  get sysDevice(): number | undefined {
    return this.memory.sysDevice;
  }

  get byteLength(): number {
    return this.memory.byteLength;
  }

  get live(): boolean {
    return this.memory.live;
  }

  release(): void {}
}

/** Copies between host memory and the device. Every operation is complete when its call returns. */
class ToyEndpoint implements UctEndpoint {
  readonly #device: Accelerator;

  constructor(device: Accelerator) {
    this.#device = device;
  }

  putShort(source: Uint8Array, sourceOffset: number, byteLength: number, remoteOffset: number, key: ToyKey): Status {
    if (!isInside(key, remoteOffset, byteLength)) return Status.INVALID_ADDR;
    this.#device.write(key.memory.offset + remoteOffset, source.subarray(sourceOffset, sourceOffset + byteLength));
    return Status.OK;
  }

  getShort(target: Uint8Array, targetOffset: number, byteLength: number, remoteOffset: number, key: ToyKey): Status {
    if (!isInside(key, remoteOffset, byteLength)) return Status.INVALID_ADDR;
    this.#device.read(key.memory.offset + remoteOffset, target.subarray(targetOffset, targetOffset + byteLength));
    return Status.OK;
  }

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, key: ToyKey): Status {
    return this.#eachEntry(iov, remoteOffset, key, (bytes, at) => this.#device.write(at, bytes));
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, key: ToyKey): Status {
    return this.#eachEntry(iov, remoteOffset, key, (bytes, at) => this.#device.read(at, bytes));
  }

  flush(): Status {
    return Status.OK;
  }

  fence(): Status {
    return Status.OK;
  }

  amShort(): Status {
    return Status.UNSUPPORTED;
  }

  amBcopy(): Status {
    return Status.UNSUPPORTED;
  }

  atomic(): Status {
    return Status.UNSUPPORTED;
  }

  check(): Status {
    return Status.OK;
  }

  close(): void {}

  #eachEntry(
    iov: readonly IovEntry[],
    remoteOffset: number,
    key: ToyKey,
    copy: (bytes: Uint8Array, at: number) => void,
  ): Status {
    let at = remoteOffset;
    for (const { memory, offset, byteLength } of iov) {
      if (!isInside(key, at, byteLength)) return Status.INVALID_ADDR;
      const bytes = memory.bytes?.subarray(offset, offset + byteLength);
      // One side of a copy is host memory: see requiredMemoryTypes and localMemoryTypes.
      if (bytes === undefined || !memory.live) return Status.INVALID_PARAM;
      copy(bytes, key.memory.offset + at);
      at += byteLength;
    }
    return Status.OK;
  }
}

function isInside({ memory }: ToyKey, offset: number, byteLength: number): boolean {
  return memory.live && offset >= 0 && offset + byteLength <= memory.byteLength;
}

/** The transport. It copies within its own context only, which is enough for staging. */
class ToyIface implements Iface {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly outstanding = 0;
  readonly #device: Accelerator;

  constructor(device: Accelerator, address: Uint8Array) {
    this.#device = device;
    this.address = address;
    const rma = { shortBytesMax: 65_536, zcopyBytesMin: 0, zcopyBytesMax: ARENA_BYTES, iovMax: 16 };
    this.attributes = {
      resource: RESOURCE,
      flags:
        IfaceFlag.PUT_SHORT |
        IfaceFlag.PUT_ZCOPY |
        IfaceFlag.GET_SHORT |
        IfaceFlag.GET_ZCOPY |
        IfaceFlag.CONNECT_TO_IFACE |
        IfaceFlag.ERRHANDLE_REMOTE_MEM,
      put: rma,
      get: rma,
      am: NO_ACTIVE_MESSAGES,
      localMemoryTypes: HOST,
      remoteMemoryTypes: TOY,
      requiredMemoryTypes: TOY,
      reachesOtherDevices: false,
      performance: {
        latencyNs: 1000,
        overheadNs: 500,
        zcopyOverheadNs: 40,
        hostToDevice: 10e9,
        deviceToHost: 10e9,
        deviceToDevice: 0,
        hostToHost: 0,
      },
      priority: 0,
      deviceAddressBytes: 0,
      ifaceAddressBytes: address.byteLength,
      endpointAddressBytes: 0,
      errorHandling: ['remote access'],
    };
  }

  unreachableReason(address: Uint8Array): string | undefined {
    return Buffer.compare(address, this.address) === 0 ? undefined : 'reaches memory of its context only';
  }

  connect(address: Uint8Array): UctEndpoint {
    const reason = this.unreachableReason(address);
    if (reason !== undefined) throw failure(Status.UNREACHABLE, reason);
    return new ToyEndpoint(this.#device);
  }

  setAmHandler(): void {}

  progress(): number {
    return 0;
  }

  errorOf(): undefined {}

  stats(): ReturnType<typeof statsNode> {
    return statsNode('uct_iface', NAME, {});
  }

  wait(): Promise<void> {
    return Promise.resolve();
  }

  close(): void {}
}

const RESOURCE = {
  transport: NAME,
  aliases: ['toy'],
  device: 'toy0',
  deviceType: DeviceType.ACC,
  sysDevice: SYS_DEVICE,
} as const;

/** The memory domain. */
class ToyMd implements MemoryDomain {
  readonly resources = [RESOURCE];
  readonly attributes: MdAttributes = {
    name: NAME,
    component: NAME,
    flags: MdFlag.ALLOC | MdFlag.REG | MdFlag.NEED_MEMH | MdFlag.NEED_RKEY | MdFlag.EXPORT_DMABUF | MdFlag.REG_DMABUF,
    registerMemoryTypes: HOST | TOY,
    registerDmabufMemoryTypes: TOY,
    allocateMemoryTypes: TOY,
    accessMemoryTypes: HOST | TOY,
    detectMemoryTypes: TOY,
    dmabufMemoryTypes: TOY,
    cacheMemoryTypes: 0,
    registerCost: { overheadNs: 10, perByteNs: 0 },
    rkeyPackedBytes: 24,
    allocateBytesMax: ARENA_BYTES,
    registerBytesMax: Number.MAX_SAFE_INTEGER,
  };
  readonly #services: ComponentServices;
  readonly #device = new Accelerator();
  readonly #secret: Uint8Array = randomBytes(16);
  readonly #live = new Map<number, ToyMemory>();
  #generation = 0;

  constructor(services: ComponentServices) {
    this.#services = services;
  }

  memAlloc(byteLength: number, { memoryType }: AllocateOptions): ToyMemory {
    if (memoryType !== MemoryType.ROCM) throw failure(Status.INVALID_PARAM, 'allocates memory of its device only');
    const memory = this.#add({ offset: this.#device.allocate(byteLength), byteLength });
    // A context looks in this cache first. So the memory must be in it before a program has its address.
    this.#services.memoryTypes?.insert(SYS_DEVICE, memory.address, byteLength, MemoryType.ROCM);
    return memory;
  }

  memFree(memory: ToyMemory): void {
    this.#end(memory);
    this.#services.memoryTypes?.remove(SYS_DEVICE, memory.address, memory.byteLength);
    this.#device.free(memory.offset, memory.byteLength);
  }

  /** Registers memory of the device by its address, and host memory, which its engine copies by the CPU. */
  memReg(source: RegistrationSource): ToyMemory {
    const bytes = source instanceof Uint8Array ? source : 'bytes' in source ? source.bytes : undefined;
    if (bytes !== undefined) return this.#add(bytes);
    const { address, byteLength } = source as DeviceRange;
    this.memQuery(address, byteLength);
    return this.#add({ offset: Number(address - BASE), byteLength });
  }

  /** Registers memory by a dma-buf that this domain has exported. */
  memRegDmabuf({ fd, offset, byteLength }: DmabufRegion): ToyMemory {
    const [given, own] = [fstatSync(fd), fstatSync(this.#device.fd)];
    if (given.ino !== own.ino || given.dev !== own.dev) {
      throw failure(Status.UNSUPPORTED, 'imports dma-bufs of its device only');
    }
    if (offset + byteLength > ARENA_BYTES) throw failure(Status.INVALID_PARAM, 'the range is not inside the dma-buf');
    return this.#add({ offset, byteLength });
  }

  memDereg(memory: ToyMemory): void {
    this.#end(memory);
  }

  memAdvise(): void {
    throw failure(Status.UNSUPPORTED, 'takes no advice');
  }

  memQuery(address: bigint, byteLength: number): MemoryAttributes {
    const found = this.detectMemoryType(address, byteLength);
    if (found === undefined) throw failure(Status.INVALID_ADDR, `0x${address.toString(16)} is in no allocation`);
    return found;
  }

  detectMemoryType(address: bigint, byteLength: number): MemoryAttributes | undefined {
    for (const memory of this.#live.values()) {
      const isIn =
        address >= memory.address && address + BigInt(byteLength) <= memory.address + BigInt(memory.byteLength);
      if (memory.bytes !== undefined || !isIn) continue;
      const { address: baseAddress, byteLength: allocLength } = memory;
      return { memoryType: MemoryType.ROCM, sysDevice: SYS_DEVICE, baseAddress, allocLength };
    }
    return undefined;
  }

  memExportDmabuf(address: bigint, byteLength: number): DmabufExport {
    this.memQuery(address, byteLength);
    const fd = fcntl(this.#device.fd, 1030, 0); // F_DUPFD_CLOEXEC
    return { fd, offset: Number(address - BASE), close: () => closeSync(fd) };
  }

  mkeyPack(memory: ToyMemory, target: Uint8Array, offset: number): void {
    target.set(this.#secret, offset);
    new DataView(target.buffer, target.byteOffset).setBigUint64(offset + 16, BigInt(memory.generation), true);
  }

  rkeyUnpack(packed: Uint8Array): ToyKey {
    const isOwn = Buffer.compare(packed.subarray(0, 16), this.#secret) === 0;
    const id = Number(new DataView(packed.buffer, packed.byteOffset).getBigUint64(16, true));
    const memory = isOwn ? this.#live.get(id) : undefined;
    if (memory === undefined)
      throw failure(Status.INVALID_ADDR, 'the key belongs to another process, or its memory was freed');
    return new ToyKey(memory);
  }

  openIface(): Iface {
    return new ToyIface(this.#device, this.#secret);
  }

  stats(): ReturnType<typeof statsNode> {
    return statsNode('uct_md', NAME, { memory_handles: this.#live.size });
  }

  close(): void {
    for (const memory of this.#live.values()) memory.live = false;
    this.#live.clear();
    this.#device.close();
  }

  #add(place: ConstructorParameters<typeof ToyMemory>[0]): ToyMemory {
    this.#generation += 1;
    const memory = new ToyMemory(place, this.#generation);
    this.#live.set(this.#generation, memory);
    return memory;
  }

  #end(memory: ToyMemory): void {
    if (!this.#live.delete(memory.generation)) throw failure(Status.INVALID_PARAM, 'the memory has been released');
    memory.live = false;
  }
}

/** The component. */
export const toyComponent: Component = {
  name: NAME,
  transports: [{ name: NAME, aliases: ['toy'] }],
  configTable: undefined,
  openMd: (services) => new ToyMd(services),
};

/** Sends memory of one context to another over `tls`, and tells how the bytes went. */
async function exchange(node: EmulatedNode, tls: string): Promise<string> {
  const open = (): Promise<Context> =>
    Context.create({ node, components: [toyComponent], config: { TLS: tls, ACC_DEVICES: 'toy0' } });
  await using here = await open();
  await using there = await open();
  const [worker, peer] = [here.worker(), there.worker()];
  const endpoint = worker.endpoint(peer.address());
  const bytes = randomBytes(2 ** 20);

  const memory = here.memMap({ allocate: bytes.byteLength, memoryType: MemoryType.ROCM });
  const target = there.memMap({ allocate: bytes.byteLength, memoryType: MemoryType.ROCM });
  const { memoryType, baseAddress } = here.memQuery({ address: memory.address + 100n, byteLength: 10 });
  console.log(
    `0x${baseAddress.toString(16)} is ${memoryType === MemoryType.ROCM ? 'memory of the toy' : 'host memory'}`,
  );

  // By its address, and by a dma-buf of it: other memory handles of the same bytes.
  here.memUnmap(here.memMap({ address: memory.address, byteLength: 4096, sysDevice: SYS_DEVICE }));
  const { fd, offset, close } = here.exportDmabuf(memory);
  here.memUnmap(here.memMap({ dmabuf: { fd, offset, byteLength: 4096 }, memoryType: MemoryType.ROCM }));
  close();

  const own = worker.endpoint(worker.address());
  await own.put(bytes, own.unpackRkey(here.packRkey(memory)));
  const [sent] = await Promise.all([endpoint.tagSend(memory, { tag: 1 }), peer.tagRecv(target, { tag: 1 })]);

  const back = new Uint8Array(bytes.byteLength);
  const loopback = peer.endpoint(peer.address());
  await loopback.get(back, loopback.unpackRkey(there.packRkey(target)));
  if (Buffer.compare(back, bytes) !== 0) throw new Error('other bytes came back');
  return `the same bytes by ${sent.protocol} over ${sent.transport}`;
}

if (process.argv[1] === import.meta.filename) {
  // An RDMA device is on this node; its card is left to others.
  const node = createEmulatedNode({ cards: 1, nics: 1 });
  for (const tls of ['toy,tcp,self', 'toy,posix,cma,self', 'toy,rc,self'])
    console.log(`${tls}: ${await exchange(node, tls)}`);
  node.close();
}
