/**
 * Remote keys of ib: packing, unpacking, and the table of keys of this memory domain. The owner's device enforces which access a key permits.
 *
 * Layout of a packed key, little-endian: u32 kind and version, u32 CRC-32 of everything else, u32 id, u32 offset in the page, u64 length, 8 bytes id of the
 * table, u8 memory type, u8 number of devices, u16 0, u32 system device; for each device u32 key of the memory region.
 */

import { crc32 } from 'node:zlib';
import { MEMORY_TYPE_COUNT, type MemoryType } from '../../../ucs/memory/memory-type.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { RemoteKey } from '../../api/memory.ts';
import { IB_NAME } from './config.ts';
import type { IbMemory, IbRegions } from './memory.ts';

const KEY_KIND = 0x0162_696b;
const AT_CHECKSUM = 4;
const AT_ID = 8;
const AT_IOVA = 12;
const AT_LENGTH = 16;
const AT_TABLE = 24;
const TABLE_ID_BYTES = 8;
const AT_TYPE = 32;
const AT_DEVICES = 33;
const AT_SYS_DEVICE = 36;
const HEADER_BYTES = 40;
const NO_DEVICE = 0xffff_ffff;

/** Maximum number of devices of a memory domain. */
export const DEVICES_MAX = 16;

/** Bytes of a packed key. */
export function keyBytes(devices: number): number {
  return HEADER_BYTES + 4 * devices;
}

/** A key of remote memory. */
export class IbKey implements RemoteKey {
  readonly mdName: string = IB_NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  readonly iova: number;
  /** By the index of the device at the peer. */
  readonly rkeys: Uint32Array;
  /** The memory, if it is of this memory domain. */
  readonly memory: IbMemory | undefined;
  #released = false;

  constructor(fields: Pick<IbKey, 'memoryType' | 'sysDevice' | 'byteLength' | 'iova' | 'rkeys' | 'memory'>) {
    this.memoryType = fields.memoryType;
    this.sysDevice = fields.sysDevice;
    this.byteLength = fields.byteLength;
    this.iova = fields.iova;
    this.rkeys = fields.rkeys;
    this.memory = fields.memory;
  }

  /** False once the key was released or, for memory of this memory domain, the memory deregistered. Only the device of the owner detects others. */
  get live(): boolean {
    return !this.#released && (this.memory === undefined || (this.memory.live && !this.memory.isDetached));
  }

  release(): void {
    this.#released = true;
  }
}

/** The keys of one memory domain. */
export class IbKeyTable {
  readonly #id: Uint8Array = systemRandomBytes(TABLE_ID_BYTES);
  readonly #byId: Map<number, IbMemory> = new Map();

  add(memory: IbMemory): void {
    this.#byId.set(memory.generation, memory);
  }

  remove(memory: IbMemory): void {
    this.#byId.delete(memory.generation);
  }

  /** Writes the key of `memory`, whose regions for peers are given: the same bytes every time. */
  pack(memory: IbMemory, { iova, rkeys }: IbRegions, target: Uint8Array, offset: number): void {
    const packed = target.subarray(offset, offset + keyBytes(rkeys.length));
    const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
    packed.fill(0);
    view.setUint32(0, KEY_KIND, true);
    view.setUint32(AT_ID, memory.generation, true);
    view.setUint32(AT_IOVA, iova, true);
    view.setBigUint64(AT_LENGTH, BigInt(memory.byteLength), true);
    packed.set(this.#id, AT_TABLE);
    view.setUint8(AT_TYPE, memory.memoryType);
    view.setUint8(AT_DEVICES, rkeys.length);
    view.setUint32(AT_SYS_DEVICE, memory.sysDevice ?? NO_DEVICE, true);
    for (const [i, rkey] of rkeys.entries()) view.setUint32(HEADER_BYTES + 4 * i, rkey, true);
    view.setUint32(AT_CHECKSUM, checksumOf(packed), true);
  }

  /**
   * Reads a packed key, of this memory domain or that of a peer.
   * @throws UcxError ERR_RKEY_MALFORMED (INVALID_PARAM); for keys of this memory domain ERR_RKEY_STALE if the memory is no longer registered, and
   * ERR_RKEY_FORGED if the key was never issued (both INVALID_ADDR)
   */
  unpack(packed: Uint8Array): IbKey {
    if (!(packed instanceof Uint8Array) || packed.byteLength < HEADER_BYTES) throw malformed();
    const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
    const devices = view.getUint8(AT_DEVICES);
    const byteLength = Number(view.getBigUint64(AT_LENGTH, true));
    const memoryType = view.getUint8(AT_TYPE);
    const isSound =
      view.getUint32(0, true) === KEY_KIND &&
      devices <= DEVICES_MAX &&
      packed.byteLength === keyBytes(devices) &&
      view.getUint32(AT_CHECKSUM, true) === checksumOf(packed) &&
      Number.isSafeInteger(byteLength) &&
      memoryType < MEMORY_TYPE_COUNT;
    if (!isSound) throw malformed();
    const rkeys = Uint32Array.from({ length: devices }, (_, i) => view.getUint32(HEADER_BYTES + 4 * i, true));
    const isOwn = Buffer.compare(packed.subarray(AT_TABLE, AT_TABLE + TABLE_ID_BYTES), this.#id) === 0;
    const memory = isOwn ? this.#find(packed, view.getUint32(AT_ID, true)) : undefined;
    const device = view.getUint32(AT_SYS_DEVICE, true);
    return new IbKey({
      memoryType: memoryType as MemoryType,
      sysDevice: device === NO_DEVICE ? undefined : device,
      byteLength,
      iova: view.getUint32(AT_IOVA, true),
      rkeys,
      memory,
    });
  }

  #find(packed: Uint8Array, id: number): IbMemory {
    const memory = this.#byId.get(id);
    if (memory === undefined) {
      throw refusal('ERR_RKEY_STALE', 'belongs to memory that is not registered any more');
    }
    const { exposed } = memory;
    const own = new Uint8Array(packed.byteLength);
    if (exposed !== undefined && exposed.rkeys.length === packed[AT_DEVICES]) this.pack(memory, exposed, own, 0);
    if (Buffer.compare(own, packed) !== 0) throw refusal('ERR_RKEY_FORGED', 'does not match the key that was issued');
    return memory;
  }
}

function checksumOf(packed: Uint8Array): number {
  return crc32(packed.subarray(AT_ID), crc32(packed.subarray(0, AT_CHECKSUM)));
}

function refusal(code: string, rule: string): UcxError {
  const message = `remote key of ${IB_NAME} ${rule}`;
  return new UcxError({ code, status: Status.INVALID_ADDR, message, details: { md: IB_NAME } });
}

function malformed(): UcxError {
  const message = `remote key of ${IB_NAME} is not a remote key of this version: use the same version of gaudi-ucx at both ends`;
  return new UcxError({ code: 'ERR_RKEY_MALFORMED', status: Status.INVALID_PARAM, message, details: { md: IB_NAME } });
}
