/** The RDMA devices of an emulated node, `hca0`, `hca1` and so on, behind the interface `VerbsPort`. */

import { Errno, SyscallError } from '../../sys/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import type { VerbsContext, VerbsDeviceEntry, VerbsPort } from '../../verbs/port.ts';
import { nicPlacesOf } from '../config/card-places.ts';
import type { DmabufAccess } from './memory/dma-memory.ts';
import { RdmaContext } from './rdma-context.ts';
import { RdmaDevice } from './rdma-device.ts';
import { SocketWire } from './socket-wire.ts';
import { LocalWire, type RdmaWire } from './wire.ts';

/** The wire of this thread: devices of all emulated nodes of the thread reach each other over it. */
const localWire: LocalWire = new LocalWire();

/** Parameters of the devices. */
export interface EmulatedVerbsOptions {
  /** Number of devices. */
  readonly nics: number;
  readonly clock: Clock;
  /** Finds the memory of dma-bufs. */
  readonly dmabufs: DmabufAccess;
  /** Wire between the devices. Default: the wire of this thread. */
  readonly wire?: RdmaWire | undefined;
  /** Whether the devices also reach devices of other processes and threads, over sockets; ignored if `wire` is given. Default: false. */
  readonly sockets?: boolean | undefined;
}

/** The devices. */
export class EmulatedVerbs implements VerbsPort {
  readonly emulated = true;
  readonly #options: EmulatedVerbsOptions;
  /** Created at first use. */
  readonly #devices: Map<string, RdmaDevice> = new Map();
  readonly #contexts: Set<RdmaContext> = new Set();
  #socketWire: SocketWire | undefined;
  #closed = false;

  constructor(options: EmulatedVerbsOptions) {
    this.#options = options;
  }

  devices(): readonly VerbsDeviceEntry[] {
    const places = nicPlacesOf(this.#closed ? 0 : this.#options.nics);
    const entries = places.map((place, i) => ({ name: `hca${i}`, ...place }));
    return entries.filter(({ name }) => this.#devices.get(name)?.isRemoved !== true);
  }

  whyNoDevices(): string {
    return 'the emulated node has no RDMA devices: set their number by UCX_GAUDI_EMULATOR_NICS, or by --nics of node up';
  }

  open(name: string): VerbsContext {
    const context = new RdmaContext(this.device(name), this.#options.dmabufs);
    this.#contexts.add(context);
    return context;
  }

  /**
   * A device, for faults and tests.
   * @throws SyscallError ENODEV; EMFILE
   */
  device(name: string): RdmaDevice {
    checkString('name', name);
    if (!this.devices().some((entry) => entry.name === name)) {
      throw new SyscallError('ibv_open_device', Errno.ENODEV, `${name} (emulated)`);
    }
    const known = this.#devices.get(name);
    if (known !== undefined) return known;
    const { clock, wire = this.#defaultWire() } = this.#options;
    const device = new RdmaDevice(name, clock, wire);
    this.#devices.set(name, device);
    return device;
  }

  /** Removes all devices. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const context of this.#contexts) context.close();
    for (const device of this.#devices.values()) device.close();
    this.#socketWire?.close();
  }

  #defaultWire(): RdmaWire {
    if (this.#options.sockets !== true) return localWire;
    this.#socketWire ??= new SocketWire(localWire);
    return this.#socketWire;
  }
}
