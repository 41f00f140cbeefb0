/** The capabilities of a simulated transport, as data that a seed chooses, and its attributes for ucp. No behaviour. */

import { MemoryType, memoryTypeBit } from '../../src/ucs/memory/memory-type.ts';
import {
  DeviceType,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  type RmaLimits,
} from '../../src/uct/api/iface.ts';

/** The workers that a lane reaches. */
export type Reach = 'others' | 'everybody' | 'itself';

/** One simulated transport on one device. */
export interface LaneOptions {
  /** Component and memory domain: lanes may share one. */
  readonly md: string;
  readonly transport: string;
  readonly device: string;
  readonly kind: 'network' | 'loopback' | 'card';
  readonly reach: Reach;
  /** Longest messages; 0 for none. */
  readonly amShortMax: number;
  readonly amBcopyMax: number;
  /** Longest short puts and gets, the range of zero copy; 0 for none. */
  readonly rmaShortMax: number;
  readonly zcopyMin: number;
  readonly zcopyMax: number;
  readonly hasGet: boolean;
  readonly hasAtomics: boolean;
  /** Puts, gets and atomic operations arrive in order; otherwise they overtake each other and the messages. */
  readonly isOrdered: boolean;
  /** Remote memory is accessed without its owner; otherwise in its owner's progress. */
  readonly isOffloaded: boolean;
  /** Flush waits for messages as well. */
  readonly flushesMessages: boolean;
  /** The most messages and operations in flight per endpoint; beyond it NO_RESOURCE. */
  readonly window: number;
  /** Of 256 calls, the number that is refused for no reason. */
  readonly refusals: number;
  readonly latencyNs: number;
}

const HOST = memoryTypeBit(MemoryType.HOST);
const GAUDI = memoryTypeBit(MemoryType.GAUDI);
const BANDWIDTH = 1e10;
const IOV_MAX = 1;
/** Bytes of the address of an interface. */
export const ADDRESS_BYTES = 16;

/** The resource of a lane. */
export function resourceOf({ transport, device, kind }: LaneOptions): IfaceResource {
  const types = { network: DeviceType.NET, loopback: DeviceType.SELF, card: DeviceType.ACC } as const;
  return {
    transport,
    aliases: [],
    device,
    deviceType: types[kind],
    sysDevice: kind === 'card' ? 0 : undefined,
  };
}

/** The attributes of a lane. */
export function attributesOf(lane: LaneOptions): IfaceAttributes {
  const isCard = lane.kind === 'card';
  const limits = (isThere: boolean): RmaLimits => ({
    shortBytesMax: isThere ? lane.rmaShortMax : 0,
    zcopyBytesMin: lane.zcopyMin,
    zcopyBytesMax: isThere ? lane.zcopyMax : 0,
    iovMax: IOV_MAX,
  });
  return {
    resource: resourceOf(lane),
    flags: flagsOf(lane),
    put: limits(true),
    get: limits(lane.hasGet),
    am: { shortBytesMax: lane.amShortMax, bcopyBytesMax: lane.amBcopyMax },
    localMemoryTypes: isCard ? HOST | GAUDI : HOST,
    remoteMemoryTypes: isCard ? HOST | GAUDI : HOST,
    requiredMemoryTypes: isCard ? GAUDI : 0,
    reachesOtherDevices: false,
    performance: {
      latencyNs: lane.latencyNs,
      overheadNs: 50,
      zcopyOverheadNs: 40,
      hostToDevice: BANDWIDTH,
      deviceToHost: BANDWIDTH,
      deviceToDevice: BANDWIDTH,
      hostToHost: isCard ? 0 : BANDWIDTH,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes: ADDRESS_BYTES,
    endpointAddressBytes: 0,
    errorHandling: ['peer failure', 'remote access'],
  };
}

function flagsOf({ amShortMax, rmaShortMax, zcopyMax, hasGet, hasAtomics }: LaneOptions): number {
  let flags: number =
    IfaceFlag.CONNECT_TO_IFACE | IfaceFlag.EP_CHECK | IfaceFlag.EVENT | IfaceFlag.ERRHANDLE_REMOTE_MEM;
  if (amShortMax > 0) flags |= IfaceFlag.AM_SHORT | IfaceFlag.AM_BCOPY;
  if (rmaShortMax > 0) flags |= IfaceFlag.PUT_SHORT | (hasGet ? IfaceFlag.GET_SHORT : 0);
  if (zcopyMax > 0) flags |= IfaceFlag.PUT_ZCOPY | (hasGet ? IfaceFlag.GET_ZCOPY : 0);
  if (hasAtomics) flags |= IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64;
  return flags;
}
