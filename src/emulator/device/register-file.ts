/**
 * The configuration registers of one card that user code and the driver reach: sync managers, fences, the interrupt doorbell.
 * Every other register keeps its last written value and has no effect.
 */

import { addSeals, close, ftruncate, type MappedMemory, mapFile, memfdCreate, SealFlag } from '../../sys/index.ts';
import { type AsicProfile, STREAMS_PER_QMAN } from '../../uapi/index.ts';
import type { ChannelEngine } from './channel/channel-engine.ts';
import type { Stream } from './queue/stream.ts';
import { SyncManager } from './sync-manager.ts';

/** Maximum number of registers without effect that are stored; writes to further ones are dropped. */
const PLAIN_REGISTERS_MAX = 65536;

/** Bytes of the register block of an engine with its QMAN, which WREG_32 addresses. */
const ENGINE_BLOCK_BYTES = 0x1_0000;

/** Offset for MSG_SHORT without a base, and for WREG_32 of an unknown engine: matches no register. */
const NO_BASE = -0x10_0000;

/** Connections of a register file. */
export interface RegisterFileOptions {
  readonly profile: AsicProfile;
  /** The stream of a queue id. */
  readonly stream: (queueId: number) => Stream;
  readonly writeWord: (high: number, low: number, value: number) => void;
  readonly readWord: (high: number, low: number) => number;
  /** Called when the MSI-X doorbell was written: interrupt `vector`. */
  readonly onInterrupt: (vector: number) => void;
}

/** A fence register: adds to a counter of a stream. */
interface FenceRegister {
  readonly queueId: number;
  readonly isLower: boolean;
  readonly counter: number;
}

/** A block that a user has mapped: its registers are in memory shared with the user. */
interface SharedBlock {
  readonly fd: number;
  /** Whether {@link fd} belongs to the block. */
  readonly ownsFile: boolean;
  readonly memory: MappedMemory;
  /** First byte from CFG_BASE. */
  readonly offset: number;
  readonly words: Int32Array;
  /** The sync manager whose registers are in the block, if any. */
  readonly manager: SyncManager | undefined;
}

/** The registers of one card; offsets count from CFG_BASE. */
export class RegisterFile {
  readonly #options: RegisterFileOptions;
  readonly #managers: readonly SyncManager[];
  readonly #fences: ReadonlyMap<number, FenceRegister>;
  readonly #doorbell: number;
  readonly #plain: Map<number, number> = new Map();
  readonly #shared: Map<number, SharedBlock> = new Map();
  /** Set once, after construction; undefined on a card without channels. */
  channels: Pick<ChannelEngine, 'write' | 'read' | 'moveBlock'> | undefined = undefined;

  constructor(options: RegisterFileOptions) {
    const { profile } = options;
    const { msixDoorbell } = profile.interrupts;
    this.#options = options;
    this.#managers = profile.sync.managers.map((manager) => new SyncManager(manager, profile.sync, options));
    this.#fences = fenceRegisters(profile);
    this.#doorbell = msixDoorbell === undefined ? -1 : Number(msixDoorbell - profile.cfg.start);
  }

  /** The sync manager of a dcore. */
  syncManager(dcore: number): SyncManager | undefined {
    return this.#managers.find((manager) => manager.profile.dcore === dcore);
  }

  /** Writes a configuration register, at an offset from CFG_BASE. May add to fences of the device. */
  writeRegister(offset: number, value: number): void {
    if (this.channels?.write(offset, value) === true) return;
    if (offset === this.#doorbell) {
      this.#options.onInterrupt(value);
      return;
    }
    if (this.#writeManagers(offset, value)) return;
    const fence = this.#fences.get(offset);
    if (fence !== undefined) this.#addToFence(fence, value);
    else if (this.#writeShared(offset, value)) return;
    else if (offset >= 0 && (this.#plain.size < PLAIN_REGISTERS_MAX || this.#plain.has(offset))) {
      this.#plain.set(offset, value);
    }
  }

  /**
   * Writes a register for a packet of a PDMA channel. Returns false, without effect, if users may not write it: it has no known effect, or belongs to the
   * driver.
   */
  writeAsUser(offset: number, value: number): boolean {
    if (offset !== this.#doorbell && !this.#isOfUsers(offset)) return false;
    this.writeRegister(offset, value);
    return true;
  }

  #isOfUsers(offset: number): boolean {
    for (let i = 0; i < this.#managers.length; i++) {
      if (this.#managers[i]!.contains(offset)) return this.#managers[i]!.isOfUsers(offset);
    }
    return this.channels?.read(offset) !== undefined;
  }

  /** The value of a register; 0 for one that was never written. */
  readRegister(offset: number): number {
    for (const manager of this.#managers) {
      const inObjects = offset - manager.profile.sobObj;
      if (inObjects >= 0 && inObjects < manager.objectBytes) return manager.readObject(inObjects);
      const inQueues = offset - manager.cqOffset;
      if (inQueues >= 0 && inQueues < manager.cqBytes) return manager.readQueue(inQueues);
    }
    const ofChannel = this.channels?.read(offset);
    if (ofChannel !== undefined) return ofChannel;
    const shared = this.#sharedWith(offset);
    return shared === undefined ? (this.#plain.get(offset) ?? 0) : shared.words[(offset - shared.offset) >>> 2]! >>> 0;
  }

  /** Message base 0..3 of a stream (CP_MSG_BASE). DMA queues have all bases of the profile, other queues of gaudi the first two. */
  messageBase(stream: Stream, base: number): number {
    const { profile } = this.#options;
    const isDma = profile.name !== 'gaudi' || profile.queues[stream.queueId]!.engine === 'dma';
    return isDma || base < 2 ? (profile.cpMsgBase[base] ?? NO_BASE) : NO_BASE;
  }

  /** The register block of a stream's engine, 64 KiB with the fence registers of the QMAN; negative if unknown. */
  engineBase(stream: Stream): number {
    const { profile } = this.#options;
    const { firstOfQman } = profile.queues[stream.queueId]!;
    const qman = profile.fences.find(({ firstQueue }) => firstQueue === firstOfQman);
    return qman === undefined ? NO_BASE : qman.fence0 - (qman.fence0 % ENGINE_BLOCK_BYTES);
  }

  /**
   * Moves a block of registers into a file, for mapping by a user.
   * @param offset first byte of the block from CFG_BASE
   * @param byteLength bytes, a multiple of 4096
   * @param place a file of the caller, and the offset of the block in it; undefined for a new file
   * @returns a descriptor that the register file keeps until {@link unshare}
   * @throws SyscallError EMFILE, ENOMEM
   */
  shareBlock(offset: number, byteLength: number, place?: { readonly fd: number; readonly offset: bigint }): number {
    const known = this.#shared.get(offset);
    if (known !== undefined) return known.fd;
    const fd = place?.fd ?? newBlockFile(byteLength);
    const memory = mapFile(fd, byteLength, place?.offset ?? 0);
    const words = new Int32Array(memory.buffer);
    const manager = this.#managers.find((each) => each.profile.sobObj === offset || each.cqOffset === offset);
    if (manager !== undefined) moveManaged(manager, offset, words);
    else if (this.channels?.moveBlock(offset, words, true) !== true) this.#moveToShared(words, offset, byteLength);
    this.#shared.set(offset, { fd, ownsFile: place === undefined, memory, offset, words, manager });
    return fd;
  }

  /**
   * Moves all blocks, with their values, back into private memory: stores of a client that has received their files, and may have mapped
   * them in another process, no longer have an effect here.
   */
  unshare(): void {
    for (const { offset, words, manager } of this.#shared.values()) {
      if (manager !== undefined) moveManaged(manager, offset, new Int32Array(words.length));
      else if (this.channels?.moveBlock(offset, new Int32Array(words.length), false) === true) continue;
      else this.#moveFromShared(words, offset);
    }
    this.close();
  }

  /** Resets: sync objects 0, monitors disarmed, registers 0. */
  reset(): void {
    for (const manager of this.#managers) manager.reset();
    this.#plain.clear();
    for (const { words, manager } of this.#shared.values()) if (manager === undefined) words.fill(0);
  }

  /** Releases the shared blocks, without their values. */
  close(): void {
    for (const { fd, ownsFile, memory } of this.#shared.values()) {
      memory.close();
      if (ownsFile) close(fd);
    }
    this.#shared.clear();
  }

  /** The shared block that contains a register, if any. */
  #sharedWith(offset: number): SharedBlock | undefined {
    for (const shared of this.#shared.values()) {
      if (offset >= shared.offset && offset < shared.offset + shared.memory.byteLength) return shared;
    }
    return undefined;
  }

  #writeShared(offset: number, value: number): boolean {
    const shared = this.#sharedWith(offset);
    if (shared === undefined) return false;
    shared.words[(offset - shared.offset) >>> 2] = value;
    return true;
  }

  /** Copies earlier values into a newly shared block. */
  #moveToShared(words: Int32Array, offset: number, byteLength: number): void {
    for (const [register, value] of [...this.#plain]) {
      if (register < offset || register >= offset + byteLength) continue;
      words[(register - offset) >>> 2] = value;
      this.#plain.delete(register);
    }
  }

  /** Copies the values of a shared block back. */
  #moveFromShared(words: Int32Array, offset: number): void {
    for (const [index, value] of words.entries()) if (value !== 0) this.#plain.set(offset + index * 4, value);
  }

  /** Writes a register of a sync manager; returns false if the register belongs to none. */
  #writeManagers(offset: number, value: number): boolean {
    for (const manager of this.#managers) {
      const inObjects = offset - manager.profile.sobObj;
      if (inObjects >= 0 && inObjects < manager.objectBytes) {
        manager.writeObject(inObjects, value);
        return true;
      }
      const inQueues = offset - manager.cqOffset;
      if (inQueues >= 0 && inQueues < manager.cqBytes) {
        manager.writeQueue(inQueues, value);
        return true;
      }
    }
    return false;
  }

  #addToFence({ queueId, isLower, counter }: FenceRegister, value: number): void {
    const upper = this.#options.stream(queueId);
    const stream = isLower ? upper.lower : upper;
    if (stream !== undefined) stream.fences[counter] = stream.fences[counter]! + value;
  }
}

/** A file for one block. Other processes may receive it: if it could shrink under its mapping, an access would crash this process. */
function newBlockFile(byteLength: number): number {
  const fd = memfdCreate('gaudi-registers', { sealing: true });
  ftruncate(fd, byteLength);
  addSeals(fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
  return fd;
}

/** Moves the block of a sync manager that begins at `offset`. */
function moveManaged(manager: SyncManager, offset: number, words: Int32Array): void {
  if (manager.profile.sobObj === offset) manager.moveObjects(words);
  else manager.moveQueues(words);
}

/** All fence registers of a profile by their offsets. */
function fenceRegisters(profile: AsicProfile): ReadonlyMap<number, FenceRegister> {
  const registers = new Map<number, FenceRegister>();
  for (const { firstQueue, fence0 } of profile.fences) {
    if (firstQueue < 0) continue;
    for (const [counter, stride] of profile.fenceStrides.entries()) {
      for (let stream = 0; stream <= STREAMS_PER_QMAN; stream++) {
        const isLower = stream === STREAMS_PER_QMAN;
        const queueId = firstQueue + (isLower ? 0 : stream);
        registers.set(fence0 + stride + stream * 4, { queueId, isLower, counter });
      }
    }
  }
  return registers;
}
