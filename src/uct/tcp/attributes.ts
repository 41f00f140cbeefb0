/** What the interface of a network device can do, as the cost model sees it. Data only. */

import { MemoryType, memoryTypeBit } from '../../ucs/memory-type.ts';
import { type IfaceAttributes, IfaceFlag, type IfaceResource, type RmaLimits } from '../api/iface.ts';
import { IOV_MAX } from '../base/host-iov.ts';
import type { TcpConfig } from './config.ts';
import type { NetworkInterface } from './network-interfaces.ts';
import { TCP_ADDRESS_BYTES_MAX } from './tcp-address.ts';

/** Of the bandwidth of a link: Ethernet, IP and TCP take the rest. */
const PAYLOAD_SHARE = 0.94;

/** The attributes. */
export function tcpAttributes(resource: IfaceResource, device: NetworkInterface, config: TcpConfig): IfaceAttributes {
  const host = memoryTypeBit(MemoryType.HOST);
  const limits: RmaLimits = {
    shortBytesMax: config.TX_SEG_SIZE,
    zcopyBytesMin: 0,
    zcopyBytesMax: Number.MAX_SAFE_INTEGER,
    iovMax: IOV_MAX,
  };
  const speed = device.bytesPerSecond === undefined ? config.MAX_BW : device.bytesPerSecond * PAYLOAD_SHARE;
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
      IfaceFlag.EP_CHECK |
      IfaceFlag.EVENT |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM,
    put: limits,
    get: limits,
    am: {
      shortBytesMax: config.TX_SEG_SIZE,
      bcopyBytesMax: config.TX_SEG_SIZE,
      zcopyBytesMax: config.RX_SEG_SIZE,
    },
    localMemoryTypes: host,
    remoteMemoryTypes: host,
    requiredMemoryTypes: 0,
    reachesOtherDevices: false,
    performance: {
      latencyNs: config.LATENCY,
      overheadNs: config.OVERHEAD,
      hostToDevice: 0,
      deviceToHost: 0,
      deviceToDevice: 0,
      hostToHost: Math.min(speed, config.MAX_BW),
    },
    priority: 0,
    deviceAddressBytes: 0,
    ifaceAddressBytes: TCP_ADDRESS_BYTES_MAX,
    endpointAddressBytes: 0,
    errorHandling: ['remote access', 'peer failure'],
  };
}
