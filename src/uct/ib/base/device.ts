/**
 * An open RDMA device of a context: its limits, its usable ports, and its protection domain. Also its asynchronous events, which are read as they arrive and
 * logged; the owner handles a fatal one.
 */

import { EventAlarm } from '../../../sys/index.ts';
import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import { AsyncEventType, asyncEventText, LinkLayer, PortState } from '../../../verbs/abi.ts';
import type {
  AsyncEvent,
  DeviceAttributes,
  GidEntry,
  PortAttributes,
  ProtectionDomain,
  VerbsContext,
  VerbsPort,
} from '../../../verbs/port.ts';
import { DeviceType, type IfaceResource } from '../../api/iface.ts';
import { RC_NAME } from './config.ts';

/** Minimum limits of a device for connections. */
const NEEDS = { maxQpWr: 32, maxCqe: 64, maxSge: 2, maxSrqWr: 16 } as const;
/** Their names in libibverbs. */
const VERBS_NAMES = { maxQpWr: 'max_qp_wr', maxCqe: 'max_cqe', maxSge: 'max_sge', maxSrqWr: 'max_srq_wr' } as const;

/** A port that can be used. */
export interface IbPort {
  readonly device: IbDevice;
  readonly number: number;
  readonly attributes: PortAttributes;
  readonly gid: GidEntry;
  readonly pkeyIndex: number;
  readonly resource: IfaceResource;
}

export class IbDevice {
  readonly name: string;
  /** Position among the devices of the memory domain: index of its keys. */
  readonly index: number;
  readonly emulated: boolean;
  readonly context: VerbsContext;
  readonly attributes: DeviceAttributes;
  readonly pd: ProtectionDomain;

  /** @throws SyscallError */
  constructor(verbs: VerbsPort, name: string, index: number) {
    this.name = name;
    this.index = index;
    this.emulated = verbs.emulated;
    this.context = verbs.open(name);
    try {
      this.attributes = this.context.queryDevice();
      this.pd = this.context.allocPd();
    } catch (error) {
      this.context.close();
      throw error;
    }
  }

  /**
   * The port with a number, or the reason why it cannot be used.
   * @param gidIndex index of its GID; undefined to choose
   * @param pkey partition key without the bit of membership; undefined to choose
   */
  port(number: number, gidIndex: number | undefined, pkey: number | undefined): IbPort | string {
    const attributes = this.context.queryPort(number);
    if (attributes.state !== PortState.ACTIVE) return `port ${number} is not active (state ${attributes.state})`;
    for (const name of ['maxQpWr', 'maxCqe', 'maxSge', 'maxSrqWr'] as const) {
      const [has, needs] = [this.attributes[name], NEEDS[name]];
      if (has < needs) return `${VERBS_NAMES[name]} of the device is ${has}, but ${RC_NAME} needs ${needs}`;
    }
    const gids = this.context.gids(number);
    const gid =
      gidIndex === undefined ? chooseGid(gids, attributes.linkLayer) : gids.find(({ index }) => index === gidIndex);
    if (gid === undefined) {
      const indices = gids.map(({ index }) => index).join(', ') || 'none';
      return gidIndex === undefined
        ? 'the port has no GID'
        : `the port has no GID with index ${gidIndex} (UCX_IB_GID_INDEX); valid are: ${indices}`;
    }
    const pkeys = this.context.pkeys(number);
    const pkeyIndex = pkeyIndexIn(pkeys, pkey);
    if (pkeyIndex < 0) {
      const valid = pkeys.filter((each) => each !== 0).map(hexOf);
      const wanted = pkey === undefined ? 'partition key' : `partition key ${hexOf(pkey)} (UCX_IB_PKEY)`;
      return `the port has no ${wanted}; valid are: ${valid.join(', ') || 'none'}`;
    }
    const resource: IfaceResource = {
      transport: RC_NAME,
      aliases: ['rc_verbs', 'rc_v', 'ib'],
      device: `${this.name}:${number}`,
      deviceType: DeviceType.NET,
      sysDevice: undefined,
    };
    return { device: this, number, attributes, gid, pkeyIndex, resource };
  }

  close(): void {
    this.pd.close();
    this.context.close();
  }
}

/** On Ethernet RoCE v2, an IPv4 address first, as UCX does. */
function chooseGid(gids: readonly GidEntry[], linkLayer: number): GidEntry | undefined {
  if (linkLayer !== LinkLayer.ETHERNET) return gids[0];
  const v2 = gids.filter(({ type }) => type === 'roce_v2');
  return v2.find(({ gid }) => isIpv4(gid)) ?? v2[0] ?? gids[0];
}

function isIpv4(gid: Uint8Array): boolean {
  return gid.subarray(0, 10).every((byte) => byte === 0) && gid[10] === 0xff && gid[11] === 0xff;
}

const PKEY_MASK = 0x7fff;

/** The entry with a partition key, or the first valid one; one with full membership first. -1 for none. */
function pkeyIndexIn(pkeys: readonly number[], wanted: number | undefined): number {
  const isWanted = (pkey: number): boolean => pkey !== 0 && (wanted === undefined || (pkey & PKEY_MASK) === wanted);
  const full = pkeys.findIndex((pkey) => isWanted(pkey) && pkey > PKEY_MASK);
  return full < 0 ? pkeys.findIndex(isWanted) : full;
}

function hexOf(pkey: number): string {
  return `0x${pkey.toString(16)}`;
}

/** Reads the asynchronous events of a device. */
export class AsyncEvents {
  readonly #device: IbDevice;
  readonly #log: LimitedLog;
  readonly #onFatal: () => void;
  readonly #alarm: EventAlarm;

  /** @param onFatal called when the device has failed and does not complete anything any more @throws SyscallError EMFILE */
  constructor(device: IbDevice, log: LimitedLog, onFatal: () => void) {
    this.#device = device;
    this.#log = log;
    this.#onFatal = onFatal;
    this.#alarm = new EventAlarm(device.context.asyncFd, () => this.#read());
    this.#alarm.arm();
  }

  close(): void {
    this.#alarm.close();
  }

  #read(): void {
    const { context } = this.#device;
    for (let event = context.nextAsyncEvent(); event !== undefined; event = context.nextAsyncEvent()) this.#tell(event);
    this.#alarm.arm();
  }

  #tell({ type, element }: AsyncEvent): void {
    const { name } = this.#device;
    const text = asyncEventText(type);
    if (type === AsyncEventType.DEVICE_FATAL) {
      this.#log.warn(`${name}: ${text}`);
      this.#onFatal();
    } else if (type === AsyncEventType.PORT_ERR) this.#log.warn(`${name}:${element}: ${text}`);
    // Peers can cause the other events, such as errors of queue pairs; the completions of their requests report those.
    else this.#log.debug(`${name}: ${text} (${element})`);
  }
}
