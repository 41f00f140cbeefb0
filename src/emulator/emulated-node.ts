/** The emulated node: cards in this process, behind the interface `DriverNode`. Opening a card returns a file that implements the ioctls of the driver. */

import type { AbsentCard, CardEntry, DriverFile, DriverNode, NodeTransfers, PortLink } from '../driver/port.ts';
import { Errno, SyscallError } from '../sys/index.ts';
import { HL_DEVICE_STATUS } from '../uapi/index.ts';
import { systemRandomBytes } from '../ucs/sys/random.ts';
import { closedError, UcxError } from '../ucs/type/error.ts';
import { Status } from '../ucs/type/status.ts';
import { placesOf } from './config/card-places.ts';
import { LinkTable } from './config/links.ts';
import { type EmulatedNodeOptions, type NodeConfig, resolveNodeOptions } from './config/node-config.ts';
import { DmaEngines, hasEngineThread } from './device/engine/dma-engines.ts';
import { LinkTraffic } from './device/memory/traffic.ts';
import { readCardAttribute } from './driver/attributes.ts';
import { DmabufRegistry, type ExportedDmabuf } from './driver/base/dmabuf.ts';
import { Card } from './driver/card.ts';
import { DebugFs } from './driver/debugfs.ts';
import type { EmulatedFile, PrimaryFile } from './driver/ioctl/file.ts';
import type { MmapFile } from './driver/memory/mmap-file.ts';
import { OWN_PROCESS } from './driver/memory/user-memory.ts';
import { type Fault, readFault } from './faults/fault-plan.ts';
import { EmulatedVerbs } from './rdma/emulated-verbs.ts';
import { cardMemory, dmabufOf, NO_DMABUFS, refuseDmabuf } from './rdma/memory/card-memory.ts';
import type { IoctlTracer } from './trace/ioctl-tracer.ts';

const IDENTITY_BYTES = 16;

const MILLIDEGREES_PER_DEGREE = 1000;

/** A node of emulated cards. */
export class EmulatedNode implements DriverNode {
  readonly kind = 'emulator';
  readonly emulated = true;
  /** Identity of this object: other processes cannot reach its cards. A node server sends its identity to its clients. */
  readonly identity: string = Buffer.from(systemRandomBytes(IDENTITY_BYTES)).toString('hex');
  /** The options of the node with their defaults. */
  readonly config: NodeConfig;
  /** Records the ioctls of files that other processes open from now on; if undefined, nothing is recorded. */
  tracer: IoctlTracer | undefined;
  /** The RDMA devices; undefined if the node has none. */
  readonly verbs: EmulatedVerbs | undefined;
  readonly #engines: DmaEngines;
  readonly #dmabufs: DmabufRegistry = new DmabufRegistry();
  readonly #linkTraffic: LinkTraffic;
  readonly #cards: readonly Card[];
  /** The debugfs files of each card. */
  readonly #debugFs: readonly DebugFs[];
  #closed = false;

  /**
   * @param config checked options
   * @throws SyscallError ENOMEM, EMFILE
   */
  constructor(config: NodeConfig) {
    this.config = config;
    this.#engines = new DmaEngines({
      threads: config.dmaThreads,
      spinNs: config.dmaSpinNs,
      clock: config.clock,
      log: config.log,
      random: config.random,
    });
    const { nics, nicDmabufs, nicSockets, clock } = config;
    const dmabufs = nicDmabufs ? cardMemory(this.#dmabufs) : NO_DMABUFS;
    this.verbs = nics === 0 ? undefined : new EmulatedVerbs({ nics, clock, dmabufs, sockets: nicSockets });
    this.#linkTraffic = new LinkTraffic(config.cards);
    this.#cards = this.#makeCards();
    this.#debugFs = this.#cards.map((card) => new DebugFs(card));
    this.#engines.listen(() => {
      for (const card of this.#cards) card.progress();
    });
  }

  cards(): readonly CardEntry[] {
    const present = this.#closed ? [] : this.#cards.filter((card) => !card.removed);
    return present.map(({ place }) => ({ ...place, path: `/dev/accel/accel${place.minor} (emulated)` }));
  }

  absentCards(): readonly AbsentCard[] {
    const removed = this.#closed ? [] : this.#cards.filter((card) => card.removed);
    return removed.map(({ place: { minor, busId } }) => ({ minor, busId, state: 'removed' }));
  }

  ownerOf(minor: number): number | undefined {
    const owner = this.#at(minor)?.context?.userMemory.owner;
    return owner === OWN_PROCESS ? process.pid : owner;
  }

  open(minor: number): DriverFile {
    return this.#present(minor).open();
  }

  openControl(minor: number): DriverFile {
    return this.#present(minor).openControl();
  }

  /**
   * @internal
   * Opens a card for another process: addresses in its ioctls are addresses of that process.
   * @throws SyscallError like {@link open} and {@link openControl}
   */
  openFor(minor: number, pid: number, control: boolean): EmulatedFile {
    const card = this.#present(minor);
    return this.#traced(control ? card.openControl(pid) : card.open(pid));
  }

  /**
   * @internal
   * Opens the primary node of a card for a device node whose mappings the kernel makes.
   * @param mmapFile the file that it maps; the caller closes it after the returned file
   * @throws SyscallError like {@link open}
   */
  openMapped(minor: number, pid: number, mmapFile: MmapFile): PrimaryFile {
    return this.#traced(this.#present(minor).open(pid, mmapFile));
  }

  attribute(minor: number, name: string): string | undefined {
    const card = this.#closed ? undefined : this.#at(minor);
    return card === undefined || typeof name !== 'string' ? undefined : readCardAttribute(card, name);
  }

  temperature(minor: number): number | undefined {
    const card = this.#closed ? undefined : this.#at(minor);
    const millidegrees = card?.readSensor('temp1_input');
    return millidegrees === undefined ? undefined : millidegrees / MILLIDEGREES_PER_DEGREE;
  }

  /**
   * Returns the debugfs files of a card, by name.
   * @throws SyscallError ENOENT for an unknown minor
   */
  debugFs(minor: number): DebugFs {
    return this.#debugFs[this.#present(minor).place.minor]!;
  }

  links(minor: number): readonly PortLink[] | undefined {
    const card = this.#closed ? undefined : this.#at(minor);
    if (card === undefined || card.removed || !this.config.reportNicPorts) return undefined;
    return card.links.of(minor);
  }

  transfers(): NodeTransfers | undefined {
    if (this.#closed) return undefined;
    const cards = this.#cards.map(({ place: { minor }, device }) => {
      const { hostToDevice, deviceToHost, deviceToDevice, fills } = device.traffic;
      return { minor, hostToDevice, deviceToHost, deviceToDevice, fills, busyNs: device.busyNs };
    });
    const { clock, dmaThreads } = this.config;
    // Without engine threads, the engines run in this thread.
    const engineThreads = Math.max(1, dmaThreads);
    return { timeNs: clock.nowNs(), engineThreads, cards, linkBytes: this.#linkTraffic.rows() };
  }

  /**
   * @internal
   * The dma-buf of a descriptor, for an RDMA device of another process that accesses a range of it.
   * @throws SyscallError EBADF; EINVAL for a foreign descriptor or a range that is not inside the dma-buf; ENODEV; EOPNOTSUPP
   */
  dmabufForDevice(fd: number, offset: number, byteLength: number): ExportedDmabuf {
    return this.config.nicDmabufs ? dmabufOf(this.#dmabufs, fd, offset, byteLength) : refuseDmabuf(fd);
  }

  /** Number of dma-bufs that are open or imported. */
  get dmabufCount(): number {
    return this.#dmabufs.count;
  }

  /**
   * Returns a card, for tests: its device, counters and records.
   * @throws SyscallError ENOENT for an unknown minor
   */
  card(minor: number): Card {
    const card = this.#at(minor);
    if (card === undefined) throw noSuchCard(minor);
    return card;
  }

  /**
   * Injects a fault: plans it, or causes it at once.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED; SyscallError ENOENT for an unknown minor
   */
  inject(minor: number, given: Fault): void {
    if (this.#closed) throw closedError('EmulatedNode');
    const fault = readFault(given);
    const card = this.card(minor);
    if (fault.kind === 'hard-reset') card.resets.hard('injected fault');
    else if (fault.kind === 'unplug') card.remove();
    else if (fault.kind === 'malfunction') card.setStatus(HL_DEVICE_STATUS.MALFUNCTION);
    else if (fault.kind === 'status') card.setStatus(fault.status);
    else if (fault.kind === 'engine-failure') this.#engines.crash();
    else if (fault.kind === 'recover') this.#recover(card);
    else if (fault.kind === 'link-down' || fault.kind === 'link-up') card.setLink(fault, fault.kind === 'link-up');
    else card.faults.add(fault);
  }

  #recover(card: Card): void {
    if (this.#engines.failed) {
      const message = 'the DMA engines of this node have failed, so its cards no longer work: create another node';
      throw new UcxError({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED, message });
    }
    card.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
    card.faults.recover();
  }

  /**
   * Loads what the cards need later, such as the modules of engine threads, which are otherwise read at the first transfer. For a process that outlives
   * the files of its package.
   */
  prepare(): Promise<void> {
    return this.#engines.prepare();
  }

  /** Resumes streams that wait for a finished engine, before its event arrives. For a server, between two ioctls. */
  pump(): void {
    for (const card of this.#cards) if (card.device.processor.hasBlocked) card.progress();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.verbs?.close();
    for (const card of this.#cards) card.end();
    this.#engines.close();
    for (const card of this.#cards) card.close();
  }

  /** Creates all cards or none: on a failure, the cards created so far are closed. */
  #makeCards(): Card[] {
    const cards: Card[] = [];
    const places = placesOf(this.config.cards, this.config.identities);
    const links = new LinkTable(this.config.profile, places, this.config.absentLinks);
    const surroundings = {
      engines: this.#engines,
      dmabufs: this.#dmabufs,
      links,
      linkTraffic: this.#linkTraffic,
    };
    try {
      for (const place of places) {
        cards.push(new Card(place, this.config, surroundings));
      }
      return cards;
    } catch (error) {
      for (const card of cards) card.close();
      throw error;
    }
  }

  #traced<T extends EmulatedFile>(file: T): T {
    file.tracer = this.tracer;
    return file;
  }

  /** The card with a minor; undefined for any other value. */
  #at(minor: number): Card | undefined {
    return typeof minor === 'number' ? this.#cards[minor] : undefined;
  }

  #present(minor: number): Card {
    if (this.#closed) throw noSuchCard(minor);
    return this.card(minor);
  }
}

/**
 * Creates an emulated node. Nothing starts until a card is used.
 * @throws UcxError ERR_INVALID_PARAM for a bad option; SyscallError ENOMEM, EMFILE
 * @example
 * ```ts
 * const node = createEmulatedNode({ asic: 'gaudi2', cards: 2 });
 * node.inject(0, { kind: 'link-down', port: 0 });
 * node.close(); // before that: Context.create({ node })
 * ```
 */
export function createEmulatedNode(options: EmulatedNodeOptions = {}): EmulatedNode {
  return new EmulatedNode(resolveNodeOptions(options, hasEngineThread() ? 1 : 0));
}

function noSuchCard(minor: number): SyscallError {
  const name = typeof minor === 'number' ? minor : '?';
  return new SyscallError('open', Errno.ENOENT, `/dev/accel/accel${name} of the emulated node`);
}
