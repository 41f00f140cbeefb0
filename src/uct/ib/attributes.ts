/** Attributes of the interface on a port, for the cost model. Data only. */

import { DEVICE_MEMORY_TYPES, MemoryType, memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import { type IfaceAttributes, IfaceFlag, type QueueLimits, ZCOPY_TRACKING_NS } from '../api/iface.ts';
import type { IbConfig } from './base/config.ts';
import type { IbPort } from './base/device.ts';
import { IB_ADDRESS_BYTES } from './connection/address.ts';
import { IB_IOV_MAX } from './connection/connection.ts';

/** Fraction of the bandwidth of a link for payload: the headers of packets use the rest. */
const PAYLOAD_SHARE = 0.95;
/** Estimates of UCX for rc_verbs. */
const LATENCY_NS = 1000;
const OVERHEAD_NS = 75;

/** The attributes. */
export function ibAttributes(
  { resource, attributes, device }: IbPort,
  { SEG_SIZE }: IbConfig,
  queues: QueueLimits,
): IfaceAttributes {
  const memoryTypes = memoryTypeBit(MemoryType.HOST) | DEVICE_MEMORY_TYPES;
  const limits = {
    shortBytesMax: SEG_SIZE,
    zcopyBytesMin: 0,
    zcopyBytesMax: attributes.maxMessageBytes,
    iovMax: Math.min(IB_IOV_MAX, device.attributes.maxSge - 1),
  };
  const speed = attributes.bytesPerSecond * PAYLOAD_SHARE;
  return {
    resource,
    flags:
      IfaceFlag.PUT_SHORT |
      IfaceFlag.PUT_ZCOPY |
      IfaceFlag.GET_SHORT |
      IfaceFlag.GET_ZCOPY |
      IfaceFlag.AM_SHORT |
      IfaceFlag.AM_BCOPY |
      IfaceFlag.AM_ZCOPY |
      (device.attributes.hasAtomics ? IfaceFlag.ATOMIC64 : 0) |
      IfaceFlag.EP_CHECK |
      IfaceFlag.EVENT |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM,
    put: limits,
    get: limits,
    am: { shortBytesMax: SEG_SIZE, bcopyBytesMax: SEG_SIZE, zcopyBytesMax: SEG_SIZE },
    localMemoryTypes: memoryTypes,
    remoteMemoryTypes: memoryTypes,
    requiredMemoryTypes: 0,
    reachesOtherDevices: true,
    performance: {
      latencyNs: LATENCY_NS,
      overheadNs: OVERHEAD_NS,
      zcopyOverheadNs: ZCOPY_TRACKING_NS,
      hostToDevice: speed,
      deviceToHost: speed,
      deviceToDevice: speed,
      hostToHost: speed,
    },
    priority: 0,
    queues,
    deviceAddressBytes: 0,
    ifaceAddressBytes: IB_ADDRESS_BYTES,
    endpointAddressBytes: 0,
    errorHandling: ['remote access', 'peer failure'],
  };
}
