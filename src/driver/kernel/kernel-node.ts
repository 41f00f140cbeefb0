/**
 * The Gaudi cards of this machine through the habanalabs kernel driver: a `DriverNode` over /dev and /sys. Errors of the kernel are passed on with their errno.
 */

import { bootId, Errno, errnoText, isSyscallError, OpenFlag, SyscallError } from '../../sys/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { type Clock, systemClock } from '../../ucs/sys/clock.ts';
import { closedError } from '../../ucs/type/error.ts';
import {
  type AbsentCard,
  type CardEntry,
  type DriverFile,
  type DriverNode,
  EMULATED_DRIVER_VERSION,
  type PortLink,
} from '../port.ts';
import {
  canonicalBusId,
  checkMinor,
  controlPaths,
  discoverCards,
  explainNoCards,
  findAbsentCards,
  findOwner,
  type NodePath,
  primaryPaths,
  probeIoctlFamily,
  type Roots,
  readCardAttribute,
  readPortLinks,
  readTemperature,
  readText,
} from './discovery.ts';
import { KernelFile } from './kernel-file.ts';
import { linuxSystemCalls, type SystemCalls } from './system-calls.ts';

/** Replaceable parts; the defaults are those of the machine. */
export interface KernelNodeOptions {
  /** @default '/dev' */
  readonly devRoot?: string;
  /** @default '/sys' */
  readonly sysRoot?: string;
  /** @default '/proc' */
  readonly procRoot?: string;
  /** Log for skipped nodes and unreadable attributes, at level diag. */
  readonly log?: Log;
  readonly clock?: Clock;
  readonly calls?: SystemCalls;
}

export class KernelNode implements DriverNode {
  readonly kind = 'kernel';
  readonly #roots: Roots;
  readonly #calls: SystemCalls;
  readonly #clock: Clock;
  readonly #log: Log | undefined;
  readonly #files = new Set<KernelFile>();
  /** Minors of all cards that have had a device node since this node was opened, by bus id. */
  readonly #seen = new Map<string, number>();
  #closed = false;

  constructor(options: KernelNodeOptions = {}) {
    this.#roots = {
      devRoot: options.devRoot ?? '/dev',
      sysRoot: options.sysRoot ?? '/sys',
      procRoot: options.procRoot ?? '/proc',
    };
    this.#calls = options.calls ?? linuxSystemCalls;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log;
  }

  /** The boot id: all processes of this machine use the same cards until it is rebooted. Throws SyscallError without /proc. */
  get identity(): string {
    return Buffer.from(bootId()).toString('hex');
  }

  cards(): readonly CardEntry[] {
    if (this.#closed) throw closedError('kernel driver node');
    const { cards, skipped } = discoverCards(this.#calls, this.#roots);
    for (const { path, reason } of skipped) this.#log?.diag(`${path} is skipped: ${reason}`);
    for (const { busId, minor } of cards) this.#seen.set(busId, minor);
    return cards;
  }

  absentCards(): readonly AbsentCard[] {
    if (this.#closed) throw closedError('kernel driver node');
    const present = this.cards();
    const onBus = findAbsentCards(this.#calls, this.#roots, present);
    const removed = [...this.#seen].flatMap(([busId, minor]) =>
      present.some((card) => card.busId === busId) ? [] : [{ minor, busId, state: 'removed' }],
    );
    return [...removed, ...onBus.filter(({ busId }) => !this.#seen.has(busId))];
  }

  whyNoCards(): string {
    return explainNoCards(this.#calls, this.#roots);
  }

  ownerOf(minor: number): number | undefined {
    checkMinor(minor);
    return findOwner(this.#calls, this.#roots, minor);
  }

  open(minor: number): DriverFile {
    checkMinor(minor);
    return this.#openFirst(primaryPaths(this.#roots, minor), `primary node of accel${minor}`);
  }

  openControl(minor: number): DriverFile {
    checkMinor(minor);
    return this.#openFirst(controlPaths(this.#roots, minor), `control node of accel${minor}`);
  }

  attribute(minor: number, name: string): string | undefined {
    if (this.#closed) throw closedError('kernel driver node');
    const result = readCardAttribute(this.#calls, this.#roots, minor, name);
    if (result.text !== undefined) return result.text;
    if (result.errno !== 0)
      this.#log?.diag(`cannot read attribute ${name} of accel${minor}: ${errnoText(result.errno)}`);
    return undefined;
  }

  links(minor: number): readonly PortLink[] | undefined {
    if (this.#closed) throw closedError('kernel driver node');
    const address = readCardAttribute(this.#calls, this.#roots, minor, 'pci_addr').text;
    const busId = address === undefined ? undefined : canonicalBusId(address);
    return busId === undefined ? undefined : readPortLinks(this.#calls, this.#roots, busId);
  }

  temperature(minor: number): number | undefined {
    if (this.#closed) throw closedError('kernel driver node');
    const address = readCardAttribute(this.#calls, this.#roots, minor, 'pci_addr').text;
    const busId = address === undefined ? undefined : canonicalBusId(address);
    return busId === undefined ? undefined : readTemperature(this.#calls, this.#roots, busId);
  }

  /** Whether the device nodes are those of an emulated driver. */
  get emulated(): boolean {
    return this.driverVersion === EMULATED_DRIVER_VERSION;
  }

  get driverVersion(): string | undefined {
    return readText(this.#calls, `${this.#roots.sysRoot}/module/habanalabs/version`).text;
  }

  close(): void {
    this.#closed = true;
    for (const file of [...this.#files]) file.close();
  }

  #openFirst(nodes: readonly NodePath[], what: string): DriverFile {
    if (this.#closed) throw closedError('kernel driver node');
    for (const node of nodes) {
      const fd = this.#openIfThere(node.path);
      if (fd !== undefined) return this.#adopt(fd, node);
    }
    const tried = nodes.map(({ path }) => path).join(', ');
    throw new SyscallError('open', Errno.ENOENT, `no ${what}: tried ${tried}`);
  }

  /** Returns the fd, or undefined if the device node does not exist. */
  #openIfThere(path: string): number | undefined {
    try {
      return this.#calls.open(path, OpenFlag.RDWR | OpenFlag.CLOEXEC);
    } catch (error) {
      if (isSyscallError(error, Errno.ENOENT) || isSyscallError(error, Errno.ENOTDIR)) return undefined;
      throw error;
    }
  }

  #adopt(fd: number, node: NodePath): KernelFile {
    try {
      const file = new KernelFile({
        calls: this.#calls,
        clock: this.#clock,
        fd,
        path: node.path,
        numbers: probeIoctlFamily(this.#calls, fd, node.accel, node.path),
        onClose: (closed) => this.#files.delete(closed),
      });
      this.#files.add(file);
      return file;
    } catch (error) {
      this.#calls.close(fd);
      throw error;
    }
  }
}
