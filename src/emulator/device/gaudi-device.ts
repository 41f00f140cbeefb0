/** One emulated card as hardware: its memories, address decoder, queues, command processors and registers. */

import {
  addSeals,
  close as closeFd,
  Errno,
  ftruncate,
  isSyscallError,
  MadviseAdvice,
  madvise,
  mapLarge,
  mapSharedWindow,
  memfdCreate,
  SealFlag,
  SyscallError,
  unmapLarge,
} from '../../sys/index.ts';
import { type AsicProfile, dmmuRange, engineIdOf } from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { ChannelEngine } from './channel/channel-engine.ts';
import type { SubmissionHold } from './channel/pdma-channel.ts';
import { CommandProcessor } from './command/command-processor.ts';
import type { DmaEngines } from './engine/dma-engines.ts';
import { AddressMap, AddressRegion, Target } from './memory/address-map.ts';
import { WordAccess } from './memory/memory-access.ts';
import { PageTable } from './memory/mmu.ts';
import { PhysicalMemory } from './memory/physical-memory.ts';
import type { CardTraffic } from './memory/traffic.ts';
import type { FaultListener } from './queue/engine-access.ts';
import { type Stall, Stream } from './queue/stream.ts';
import { RegisterFile } from './register-file.ts';

/** Doorbell register, which the driver also maps at the start of the first reserved range of host addresses. */
const DOORBELL_BYTES = 4;

/** Options of a card. */
export interface GaudiDeviceOptions {
  readonly profile: AsicProfile;
  /** Bytes of physical HBM; sparse, so untouched pages cost nothing. */
  readonly hbmBytes: number;
  readonly engines: DmaEngines;
  readonly clock: Clock;
  /** Minor of the card that has the memories. */
  readonly minor: number;
  /** Counters of the transfers of the card's engines. */
  readonly traffic: CardTraffic;
  /** See CommandProcessorOptions. */
  readonly inlineBytesMax: number;
  /** Whether messages of PDMA channels overtake data. */
  readonly isStrict: boolean;
  readonly faults: FaultListener;
  /** Called when packets are submitted to a PDMA channel: may hold them. */
  readonly onSubmission: (hold: SubmissionHold) => void;
  /** Called when command processors need another pass for their work: {@link GaudiDevice.pump} has to be called soon. */
  readonly onWorkLeft: () => void;
  /** Called when the device writes to the MSI-X doorbell: interrupt `vector`. */
  readonly onInterrupt: (vector: number) => void;
}

/** Unit of mappings; the user's SRAM of gaudi ends inside one. */
const MAPPING_UNIT_BYTES = 65536;

/** A memory of the card on a sparse memfd. */
class DeviceMemory {
  readonly memory: PhysicalMemory;
  readonly #fd: number;
  readonly #mappedBytes: number;

  /** @throws SyscallError ENOMEM, EMFILE */
  constructor(name: string, byteLength: number) {
    this.#mappedBytes = Math.ceil(byteLength / MAPPING_UNIT_BYTES) * MAPPING_UNIT_BYTES;
    this.#fd = memfdCreate(`gaudi-${name}`, { sealing: true });
    const address = this.#map(name);
    // Reduces page faults at first access; failure on a kernel without huge shared pages is harmless.
    madvise(address, this.#mappedBytes, MadviseAdvice.HUGEPAGE);
    this.memory = new PhysicalMemory(name, { address, byteLength }, (offset, length) => {
      const bytes = Math.ceil(length / MAPPING_UNIT_BYTES) * MAPPING_UNIT_BYTES;
      return new Uint8Array(mapSharedWindow(this.#fd, bytes, offset).buffer);
    });
    this.memory.fd = this.#fd;
  }

  close(): void {
    this.memory.forget();
    unmapLarge(this.memory.address, this.#mappedBytes);
    closeFd(this.#fd);
  }

  #map(name: string): number {
    try {
      ftruncate(this.#fd, this.#mappedBytes);
      // Clients of a node server map parts of the file: if they could shrink it, an access to it would crash the server.
      addSeals(this.#fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
      return mapLarge(this.#fd, this.#mappedBytes);
    } catch (error) {
      closeFd(this.#fd);
      if (!isSyscallError(error) || error.errno !== Errno.ENOMEM) throw error;
      const what = `${this.#mappedBytes} bytes of address space for the ${name} of an emulated card`;
      const advice = 'reduce UCX_GAUDI_EMULATOR_HBM or UCX_GAUDI_EMULATOR_CARDS, or raise ulimit -v';
      throw new SyscallError(error.syscall, error.errno, `${what}; ${advice}`, { cause: error });
    }
  }
}

/** Creates the SRAM of a card; releases the HBM if that fails. */
function sramBeside(hbm: DeviceMemory, byteLength: number): DeviceMemory {
  try {
    return new DeviceMemory('sram', byteLength);
  } catch (error) {
    hbm.close();
    throw error;
  }
}

/** The hardware of one card. */
export class GaudiDevice {
  readonly profile: AsicProfile;
  readonly processor: CommandProcessor;
  /** The PDMA channels that users program; undefined on a card with queues. */
  readonly channels: ChannelEngine | undefined;
  readonly registers: RegisterFile;
  readonly addressMap: AddressMap;
  /** Page tables of host memory in small and huge pages, and of HBM if it has virtual addresses. */
  readonly hostPages: PageTable = new PageTable();
  readonly hostHugePages: PageTable = new PageTable();
  readonly dramPages: PageTable = new PageTable();
  readonly #hbm: DeviceMemory;
  readonly #sram: DeviceMemory;
  readonly #access: WordAccess;
  readonly #streams: (Stream | undefined)[];
  /** The lower command processor of each QMAN, by the id of its first queue. */
  readonly #lower: Map<number, Stream> = new Map();
  readonly #engines: DmaEngines;
  readonly traffic: CardTraffic;

  /** @throws SyscallError ENOMEM, EMFILE */
  constructor(options: GaudiDeviceOptions) {
    const { profile } = options;
    this.profile = profile;
    this.#engines = options.engines;
    this.traffic = options.traffic;
    this.#hbm = new DeviceMemory('hbm', options.hbmBytes);
    this.#sram = sramBeside(this.#hbm, Number(profile.sram.end - profile.sram.start));
    this.#hbm.memory.card = options.minor;
    this.#sram.memory.card = options.minor;
    this.#access = new WordAccess();
    this.#streams = new Array<Stream | undefined>(profile.queues.length).fill(undefined);
    this.addressMap = new AddressMap(this.#regions());
    this.registers = new RegisterFile({
      profile,
      stream: (queueId) => this.stream(queueId),
      writeWord: (high, low, value) => this.writeWord(high, low, value),
      readWord: (high, low) => this.readWord(high, low),
      onInterrupt: options.onInterrupt,
    });
    this.processor = new CommandProcessor({
      profile,
      addressMap: this.addressMap,
      engines: options.engines,
      access: this.#access,
      registers: this.registers,
      faults: options.faults,
      clock: options.clock,
      inlineBytesMax: options.inlineBytesMax,
      traffic: options.traffic,
      writeWord: (high, low, value) => this.writeWord(high, low, value),
      onWorkLeft: options.onWorkLeft,
    });
    if (profile.channels === undefined) return;
    this.channels = new ChannelEngine({
      ...options,
      channels: profile.channels,
      addressMap: this.addressMap,
      words: this.#access,
      writeRegister: (offset, value) => this.registers.writeAsUser(offset, value),
    });
    this.registers.channels = this.channels;
  }

  /** Physical HBM. */
  get hbm(): PhysicalMemory {
    return this.#hbm.memory;
  }

  /** The stream of a queue id of the profile. */
  stream(queueId: number): Stream {
    const known = this.#streams[queueId];
    if (known !== undefined) return known;
    const queue = this.profile.queues[queueId]!;
    const engineId = engineIdOf(this.profile.name, queue);
    const lower = this.#lower.get(queue.firstOfQman) ?? new Stream(queue, engineId, undefined);
    this.#lower.set(queue.firstOfQman, lower);
    const opened = new Stream(queue, engineId, lower);
    this.#streams[queueId] = opened;
    return opened;
  }

  /** Stalls the engine of a queue, with all its streams, or resumes it (Stall.NONE). Started transfers continue. A reset also resumes it. */
  stall(queueId: number, stall: Stall): void {
    const stream = this.stream(queueId);
    stream.stall = stall;
    if (stream.lower !== undefined) stream.lower.stall = stall;
  }

  /** All streams that were used so far. */
  *usedStreams(): Iterable<Stream> {
    for (const stream of this.#streams) if (stream !== undefined) yield stream;
  }

  /** Ids of the engines that have work (INFO HW_IDLE). */
  *busyEngines(): Iterable<number> {
    for (const stream of this.usedStreams()) if (!stream.idle) yield stream.engineId;
    if (this.channels !== undefined) for (const { engineId } of this.channels.busyChannels()) yield engineId;
  }

  /** True if no queue has work (INFO HW_IDLE). */
  get idle(): boolean {
    for (const _busy of this.busyEngines()) return false;
    return true;
  }

  /** Busy time of the card's engines in nanoseconds. Streams that share a channel are counted together. */
  get busyNs(): number {
    let sum = this.traffic.inlineNs + (this.channels?.busyNs ?? 0);
    for (const stream of this.usedStreams()) sum += stream.busyNs + (stream.lower?.busyNs ?? 0);
    return sum;
  }

  /** True if no descriptor of the card waits or runs: no memory is accessed. */
  get drained(): boolean {
    for (const stream of this.usedStreams()) {
      if (!stream.drained || (stream.lower !== undefined && !stream.lower.drained)) return false;
    }
    return this.channels?.drained ?? true;
  }

  /** Runs everything that can run. */
  pump(): void {
    this.#engines.pump();
    if (this.processor.hasBlocked) this.processor.pump();
    this.channels?.pump();
  }

  /** Writes 32 bits to any address as the device; writes to unmapped addresses are lost, like posted writes. */
  writeWord(high: number, low: number, value: number): void {
    const map = this.addressMap;
    const target = map.decode(high, low);
    if (target === Target.MEMORY) this.#access.write(map.memory, map.offset, value);
    else if (target === Target.REGISTER) this.registers.writeRegister(map.offset, value);
  }

  /** Reads 32 bits as the device; 0 for unmapped addresses. */
  readWord(high: number, low: number): number {
    const map = this.addressMap;
    const target = map.decode(high, low);
    if (target === Target.MEMORY) return this.#access.read(map.memory, map.offset);
    return target === Target.REGISTER ? this.registers.readRegister(map.offset) : 0;
  }

  /** Drops waiting command buffers and stops PDMA channels, before a reset. Descriptors that the DMA engines have are executed. */
  dropPending(): void {
    this.processor.reset();
    for (const stream of this.usedStreams()) stream.dropPending();
    this.channels?.halt();
  }

  /** Returns the memory behind a range of HBM to the system; it then reads as zeros. */
  discardHbm(offset: number, byteLength: number): void {
    madvise(this.hbm.address + offset, byteLength, MadviseAdvice.REMOVE);
  }

  /** Clears the state of a context: sync objects, monitors, fences, queues. HBM and SRAM keep their contents. */
  resetState(): void {
    this.dropPending();
    for (const stream of this.usedStreams()) stream.reset();
    this.channels?.reset();
    this.registers.reset();
  }

  close(): void {
    this.registers.close();
    this.processor.close();
    this.channels?.close();
    this.#hbm.close();
    this.#sram.close();
    this.#access.close();
  }

  #regions(): AddressRegion[] {
    const { profile } = this;
    const { dram, va } = profile;
    const sized = (range: { start: bigint; end: bigint }): number => Number(range.end - range.start);
    const regions = [new AddressRegion('host', va.host.start, sized(va.host), { pageTable: this.hostPages })];
    if (va.hostHuge.start !== va.host.start) {
      regions.push(
        new AddressRegion('host-huge', va.hostHuge.start, sized(va.hostHuge), { pageTable: this.hostHugePages }),
      );
    }
    const dmmu = dmmuRange(dram, BigInt(this.hbm.byteLength));
    if (dmmu !== undefined) {
      regions.push(new AddressRegion('dram', dmmu.start, sized(dmmu), { pageTable: this.dramPages }));
    } else {
      regions.push(new AddressRegion('dram', dram.base, this.hbm.byteLength, { memory: this.hbm }));
    }
    regions.push(new AddressRegion('sram', profile.sram.start, sized(profile.sram), { memory: this.#sram.memory }));
    regions.push(new AddressRegion('cfg', profile.cfg.start, sized(profile.cfg), {}));
    const { msixDoorbell, virtualDoorbell } = profile.interrupts;
    if (msixDoorbell !== undefined && virtualDoorbell !== undefined) {
      const registerOffset = Number(msixDoorbell - profile.cfg.start);
      regions.push(new AddressRegion('msix', virtualDoorbell, DOORBELL_BYTES, { registerOffset }));
    }
    return regions;
  }
}
