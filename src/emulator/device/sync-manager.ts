/**
 * One sync manager: sync objects, monitors and completion queues. It implements the effects of their registers.
 *
 * Source: include/gaudi and include/gaudi2/asic_reg of the driver, Linux 6.12, as far as the driver uses them; for gaudi3 sob_objs_regs.h and the use of
 * SCAL (Intel_Gaudi3_Software). "Inferred" marks behaviour that follows from hl-thunk's use only.
 */

import type { SyncManagerProfile, SyncProfile } from '../../uapi/index.ts';
import { highOf } from '../../ucs/type/int64.ts';

/** Receives the writes of monitors and queues. Addresses are 32-bit halves. */
export interface SyncManagerPorts {
  writeWord(high: number, low: number, value: number): void;
  readWord(high: number, low: number): number;
}

/** A write to a sync object. */
const SOB_VALUE_MASK = 0x7fff;
const SOB_LONG = 1 << 24;
const SOB_ADD = 1 << 31;
const SOB_BITS = 15;
/** Number of sync objects that hold a 60-bit value. */
const LONG_SOBS = 4;

/** A write to MON_ARM. */
const ARM_MODE_EQUAL = 1 << 16;
const ARM_TARGET_SHIFT = 17;
/** Sync objects of one group: those that a monitor can compare. */
const GROUP_SOBS = 8;

/** MON_CONFIG; MonitorFields has the bits that differ between generations. */
const CONFIG_LONG = 1 << 0;
const CONFIG_CQ_ENABLE = 1 << 4;
const CONFIG_LBW_ENABLE = 1 << 8;
const CONFIG_MSB_SID_SHIFT = 16;
const CONFIG_LONG_HIGH_GROUP = 1 << 31;

/** Mode of a completion queue: a 64-bit counter instead of a queue of 32-bit words. */
const CQ_INC_MODE_COUNTER = 1;

/** MON_STATUS: the monitor is armed. */
const STATUS_VALID = 1;

/** Limit of monitors that one write may trigger in turn, for monitors that trigger each other endlessly. */
const FIRINGS_MAX = 1 << 16;

/** Offsets of the completion queue registers from the first of them, in words. */
interface CqWords {
  readonly baseLow: number;
  readonly baseHigh: number;
  readonly sizeLog2: number;
  readonly producer: number;
  readonly lbwLow: number;
  readonly lbwHigh: number;
  readonly lbwData: number;
  readonly incMode: number;
  /** -1 without such registers. */
  readonly directLbwEn: number;
}

/** One block of sync objects and monitors; the first one of a dcore has its completion queues. */
export class SyncManager {
  readonly profile: SyncManagerProfile;
  /** Bytes of the block of objects and monitors, from its first sync object. */
  readonly objectBytes: number;
  /** Bytes of the block of completion queues; 0 if there are none. */
  readonly cqBytes: number;
  readonly #sync: SyncProfile;
  readonly #ports: SyncManagerPorts;
  #objects: Int32Array;
  #queues: Int32Array;
  readonly #cqWords: CqWords | undefined;
  /** Armed monitors by group. */
  readonly #armed: Map<number, Set<number>> = new Map();
  /** Groups that have changed and whose monitors have to be compared. */
  readonly #changed: number[] = [];
  #settling = false;

  constructor(profile: SyncManagerProfile, sync: SyncProfile, ports: SyncManagerPorts) {
    this.profile = profile;
    this.#sync = sync;
    this.#ports = ports;
    const monitorsEnd = profile.monStatus + sync.monitorsPerManager * 4;
    const directEnd = profile.cqDirect + sync.cqsPerManager * 4;
    this.objectBytes = (profile.cqDirect === 0 ? monitorsEnd : directEnd) - profile.sobObj;
    const cq = profile.group === 0 ? sync.cqRegisters : undefined;
    const lastCq = cq === undefined ? 0 : Math.max(cq.incMode, cq.directLbwEn);
    this.cqBytes = cq === undefined ? 0 : lastCq + sync.cqsPerManager * 4 - cqBlock(cq.baseAddrL);
    this.#objects = new Int32Array(this.objectBytes / 4);
    this.#queues = new Int32Array(this.cqBytes / 4);
    this.#cqWords = cq === undefined ? undefined : cqWords(cq);
    this.#disarmAll();
  }

  /** First register of the completion queues, from the configuration base; -1 if there are none. */
  get cqOffset(): number {
    const cq = this.#sync.cqRegisters;
    if (cq === undefined || this.#cqWords === undefined) return -1;
    return cqBlock(cq.baseAddrL) + this.profile.dcore * this.#sync.managerStride;
  }

  /** Whether a register, by its offset from the configuration base, belongs to the manager. */
  contains(offset: number): boolean {
    const inObjects = offset - this.profile.sobObj;
    const inQueues = offset - this.cqOffset;
    return (inObjects >= 0 && inObjects < this.objectBytes) || (inQueues >= 0 && inQueues < this.cqBytes);
  }

  /** Whether users may write a register of the manager: not the objects that INFO reserves for the driver. */
  isOfUsers(offset: number): boolean {
    const sob = (offset - this.profile.sobObj) >>> 2;
    return offset < this.profile.sobObj || sob >= this.#sync.sobsPerManager || sob >= this.profile.firstUserSob;
  }

  /** Reads a register of the block of objects; `offset` in bytes from the first sync object. */
  readObject(offset: number): number {
    return this.#objects[offset >>> 2] ?? 0;
  }

  /** Writes a register of the block of objects, with its effects. */
  writeObject(offset: number, value: number): void {
    const index = offset >>> 2;
    if (index < this.#sync.sobsPerManager) {
      this.#writeSob(index, value);
      return;
    }
    const { profile } = this;
    const queue = index - (profile.cqDirect - profile.sobObj) / 4;
    if (profile.cqDirect !== 0 && queue >= 0) {
      this.#pushDirect(queue, value);
      return;
    }
    const monitor = index - (profile.monArm - profile.sobObj) / 4;
    this.#objects[index] = value;
    if (monitor >= 0 && monitor < this.#sync.monitorsPerManager) this.#arm(monitor);
  }

  /** Reads a register of the completion queues; `offset` in bytes from {@link cqOffset}. */
  readQueue(offset: number): number {
    return this.#queues[offset >>> 2] ?? 0;
  }

  writeQueue(offset: number, value: number): void {
    this.#queues[offset >>> 2] = value;
  }

  /** Moves the registers of a block into other memory of at least the same size, such as a mapping that a user shares. */
  moveObjects(words: Int32Array): void {
    words.set(this.#objects.subarray(0, Math.min(words.length, this.#objects.length)));
    this.#objects = words;
  }

  /** Like {@link moveObjects} for the completion queues. */
  moveQueues(words: Int32Array): void {
    words.set(this.#queues.subarray(0, Math.min(words.length, this.#queues.length)));
    this.#queues = words;
  }

  /** Sets all values to 0 and disarms all monitors. */
  reset(): void {
    this.#objects.fill(0);
    this.#queues.fill(0);
    this.#changed.length = 0;
    this.#disarmAll();
  }

  #disarmAll(): void {
    this.#armed.clear();
    if (this.#sync.monitorFields.resetStatus === 0) return;
    for (let monitor = 0; monitor < this.#sync.monitorsPerManager; monitor++) this.#setStatus(monitor, 0);
  }

  #writeSob(id: number, value: number): void {
    const isLong = this.profile.monConfig !== 0 && (value & SOB_LONG) !== 0;
    const isAdd = (value & SOB_ADD) !== 0;
    // The zero-counter bit wins over the value (inferred from its name in the packets of the vendor).
    if ((value & this.#sync.monitorFields.zeroCounter) !== 0) this.#zero(id, isLong);
    else if (isLong) this.#writeLong(id, value & SOB_VALUE_MASK, isAdd);
    // Bits 0 to 15 of an addition are a signed number.
    else if (isAdd) this.#objects[id] = (this.#objects[id]! + ((value << 16) >> 16)) & SOB_VALUE_MASK;
    else this.#objects[id] = value & SOB_VALUE_MASK;
    this.#changed.push(Math.floor(id / GROUP_SOBS));
    this.#settle();
  }

  #zero(id: number, isLong: boolean): void {
    if (isLong) this.#writeLong(id, 0, false);
    else this.#objects[id] = 0;
  }

  /** Writes a 60-bit value into four sync objects, 15 bits each: a set clears the upper three, an addition carries into them. */
  #writeLong(id: number, value: number, isAdd: boolean): void {
    const first = id - (id % LONG_SOBS);
    let carry = value;
    for (let part = 0; part < LONG_SOBS; part++) {
      const sum = (isAdd ? this.#objects[first + part]! : 0) + carry;
      this.#objects[first + part] = sum & SOB_VALUE_MASK;
      carry = isAdd ? sum >>> SOB_BITS : 0;
    }
  }

  #arm(monitor: number): void {
    if (this.#isPart(monitor)) return;
    const group = this.#groupOf(monitor);
    for (const armed of this.#armed.values()) armed.delete(monitor);
    let armed = this.#armed.get(group);
    if (armed === undefined) {
      armed = new Set();
      this.#armed.set(group, armed);
    }
    armed.add(monitor);
    this.#setStatus(monitor, STATUS_VALID);
    this.#changed.push(group);
    this.#settle();
  }

  /** Fires the monitors of changed groups until none is due. Writes of a monitor re-enter here and are queued. */
  #settle(): void {
    if (this.#settling) return;
    this.#settling = true;
    let firings = 0;
    for (let group = this.#changed.shift(); group !== undefined; group = this.#changed.shift()) {
      for (const monitor of [...(this.#armed.get(group) ?? [])]) {
        if (!this.#isDue(monitor, group) || this.#armed.get(group)?.delete(monitor) !== true) continue;
        this.#setStatus(monitor, 0);
        this.#zeroCompared(monitor, group);
        this.#fire(monitor);
        firings += 1;
      }
      if (firings > FIRINGS_MAX) this.#changed.length = 0;
    }
    this.#settling = false;
  }

  #isDue(monitor: number, group: number): boolean {
    const arm = this.#register(this.profile.monArm, monitor);
    const isEqual = (arm & ARM_MODE_EQUAL) !== 0;
    const first = group * GROUP_SOBS;
    if ((this.#config(monitor) & CONFIG_LONG) !== 0) return this.#isLongDue(monitor, first, isEqual);
    const mask = (arm >>> 8) & 0xff;
    const target = arm >>> ARM_TARGET_SHIFT;
    for (let bit = 0; bit < GROUP_SOBS; bit++) {
      if (((mask >>> bit) & 1) !== 0) continue;
      const value = this.#objects[first + bit]!;
      if (isEqual ? value !== target : value < target) return false;
    }
    return true;
  }

  /** A long monitor compares 60 bits; its targets and those of the next three monitors are the 15-bit parts (inferred). */
  #isLongDue(monitor: number, first: number, isEqual: boolean): boolean {
    const low = this.#firstOfLong(monitor, first);
    const { longHasParts } = this.#sync.monitorFields;
    for (let part = LONG_SOBS - 1; part >= 0; part--) {
      const arm = this.#register(this.profile.monArm, monitor + part);
      if (longHasParts && arm === 0) continue;
      const target = arm >>> ARM_TARGET_SHIFT;
      const value = this.#objects[low + part]!;
      if (value === target) continue;
      return !isEqual && value > target;
    }
    return true;
  }

  /** Whether a monitor only holds a part of the target of a long one. */
  #isPart(monitor: number): boolean {
    const part = monitor % LONG_SOBS;
    return this.#sync.monitorFields.longHasParts && part !== 0 && (this.#config(monitor - part) & CONFIG_LONG) !== 0;
  }

  /** The first of the four sync objects that a long monitor compares. */
  #firstOfLong(monitor: number, first: number): number {
    return first + ((this.#config(monitor) & CONFIG_LONG_HIGH_GROUP) === 0 ? 0 : LONG_SOBS);
  }

  /** Auto-zero: which sync objects it clears, and when, is inferred from the name of the bit. */
  #zeroCompared(monitor: number, group: number): void {
    const config = this.#config(monitor);
    if ((config & this.#sync.monitorFields.autoZero) === 0) return;
    const first = group * GROUP_SOBS;
    if ((config & CONFIG_LONG) !== 0) {
      this.#writeLong(this.#firstOfLong(monitor, first), 0, false);
    } else {
      const mask = (this.#register(this.profile.monArm, monitor) >>> 8) & 0xff;
      for (let bit = 0; bit < GROUP_SOBS; bit++) if (((mask >>> bit) & 1) === 0) this.#objects[first + bit] = 0;
    }
    this.#changed.push(group);
  }

  #fire(monitor: number): void {
    const config = this.#config(monitor);
    const { writesShift, writesMask } = this.#sync.monitorFields;
    const writes = ((config >>> writesShift) & writesMask) + 1;
    for (let message = 0; message < writes; message++) {
      const source = monitor + message;
      const low = this.#register(this.profile.monPayAddrL, source);
      const high = this.#register(this.profile.monPayAddrH, source);
      const data = this.#register(this.profile.monPayData, source);
      if ((config & CONFIG_CQ_ENABLE) === 0) this.#ports.writeWord(high, low, data);
      else this.#push(low, data, (config & CONFIG_LBW_ENABLE) !== 0);
    }
  }

  /** Appends data to a completion queue, and sends a message if the monitor is configured so. */
  #push(queue: number, data: number, tells: boolean): void {
    const at = this.#cqWords;
    if (at === undefined || queue < 0 || queue >= this.#sync.cqsPerManager) return;
    const words = this.#queues;
    const low = words[at.baseLow + queue]! >>> 0;
    const high = words[at.baseHigh + queue]!;
    if (words[at.incMode + queue] === CQ_INC_MODE_COUNTER) {
      this.#addWide(high, low, data);
    } else {
      const size = 2 ** (words[at.sizeLog2 + queue]! & 0x1f);
      const position = (words[at.producer + queue]! >>> 0) % size;
      this.#writeAt(high, low + position, data);
      words[at.producer + queue] = words[at.producer + queue]! + 4;
    }
    if (!tells) return;
    this.#ports.writeWord(words[at.lbwHigh + queue]!, words[at.lbwLow + queue]!, words[at.lbwData + queue]!);
  }

  /** A store to a CQ_DIRECT register appends its value. */
  #pushDirect(queue: number, value: number): void {
    const at = this.#cqWords;
    const tells = at !== undefined && at.directLbwEn >= 0 && (this.#queues[at.directLbwEn + queue]! & 1) !== 0;
    this.#push(queue, value, tells);
  }

  /** Adds to a 64-bit counter. The high word is written first, so that no reader sees only the low one wrap. */
  #addWide(high: number, low: number, data: number): void {
    const sum = (this.#readAt(high, low) >>> 0) + (data >>> 0);
    if (sum > 0xffff_ffff) this.#writeAt(high, low + 4, this.#readAt(high, low + 4) + 1);
    this.#writeAt(high, low, sum | 0);
  }

  #writeAt(high: number, low: number, value: number): void {
    this.#ports.writeWord(high + highOf(low), low >>> 0, value);
  }

  #readAt(high: number, low: number): number {
    return this.#ports.readWord(high + highOf(low), low >>> 0);
  }

  #groupOf(monitor: number): number {
    const group = this.#register(this.profile.monArm, monitor) & 0xff;
    return group | (((this.#config(monitor) >>> CONFIG_MSB_SID_SHIFT) & 0xf) << 8);
  }

  #config(monitor: number): number {
    return this.profile.monConfig === 0 ? 0 : this.#register(this.profile.monConfig, monitor);
  }

  #setStatus(monitor: number, status: number): void {
    const { resetStatus } = this.#sync.monitorFields;
    this.#objects[(this.profile.monStatus - this.profile.sobObj) / 4 + monitor] = status | resetStatus;
  }

  /** The register of a monitor in the array that begins at `array` (from the configuration base). */
  #register(array: number, monitor: number): number {
    return this.#objects[(array - this.profile.sobObj) / 4 + monitor] ?? 0;
  }
}

/** The 4 KiB block of the completion queue registers. */
function cqBlock(register: number): number {
  return register - (register % 4096);
}

function cqWords(cq: NonNullable<SyncProfile['cqRegisters']>): CqWords {
  const word = (register: number): number => (register % 4096) / 4;
  return {
    baseLow: word(cq.baseAddrL),
    baseHigh: word(cq.baseAddrH),
    sizeLog2: word(cq.sizeLog2),
    producer: word(cq.pi),
    lbwLow: word(cq.lbwAddrL),
    lbwHigh: word(cq.lbwAddrH),
    lbwData: word(cq.lbwData),
    incMode: word(cq.incMode),
    directLbwEn: cq.directLbwEn === 0 ? -1 : word(cq.directLbwEn),
  };
}
