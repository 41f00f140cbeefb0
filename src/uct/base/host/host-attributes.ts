/** Attributes of interfaces that access only host memory, on either side. Data only. */

import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import {
  type AmLimits,
  type IfaceAttributes,
  type IfaceResource,
  type RmaLimits,
  ZCOPY_TRACKING_NS,
} from '../../api/iface.ts';
import { IOV_MAX } from './host-iov.ts';

/** Attributes that differ between them. */
export interface HostIfaceParams {
  readonly resource: IfaceResource;
  /** Bits of IfaceFlag. */
  readonly flags: number;
  /** Limit of short put and get; 0 if they are missing. */
  readonly shortBytesMax: number;
  readonly am: AmLimits;
  readonly latencyNs: number;
  readonly overheadNs: number;
  /** Undefined for one that only has to be tracked. */
  readonly zcopyOverheadNs?: number;
  /** Bytes per second. */
  readonly bandwidth: number;
  readonly ifaceAddressBytes: number;
  readonly errorHandling: readonly string[];
}

/** The attributes. */
export function hostIfaceAttributes(params: HostIfaceParams): IfaceAttributes {
  const { resource, flags, shortBytesMax, am, latencyNs, overheadNs, bandwidth, ifaceAddressBytes, errorHandling } =
    params;
  const limits: RmaLimits = {
    shortBytesMax,
    zcopyBytesMin: 0,
    zcopyBytesMax: Number.MAX_SAFE_INTEGER,
    iovMax: IOV_MAX,
  };
  const host = memoryTypeBit(MemoryType.HOST);
  return {
    resource,
    flags,
    put: limits,
    get: limits,
    am,
    localMemoryTypes: host,
    remoteMemoryTypes: host,
    requiredMemoryTypes: 0,
    reachesOtherDevices: false,
    performance: {
      latencyNs,
      overheadNs,
      zcopyOverheadNs: params.zcopyOverheadNs ?? ZCOPY_TRACKING_NS,
      hostToDevice: 0,
      deviceToHost: 0,
      deviceToDevice: 0,
      hostToHost: bandwidth,
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes,
    endpointAddressBytes: 0,
    errorHandling,
  };
}
