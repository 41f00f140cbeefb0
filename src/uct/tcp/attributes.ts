/** Attributes of the interface on a network device, for the cost model. Data only. */

import { type IfaceAttributes, IfaceFlag, type IfaceResource } from '../api/iface.ts';
import { hostIfaceAttributes } from '../base/host/domain.ts';
import { type NetworkInterface, TCP_ADDRESS_BYTES_MAX } from './address.ts';
import { sendBytesMax, type TcpConfig } from './config.ts';

/** Fraction of the bandwidth of a link for payload: Ethernet, IP and TCP use the rest. */
const PAYLOAD_SHARE = 0.94;

/** A zero-copy frame is a system call of its own, while short ones share it. */
const SYSTEM_CALL_NS = 2000;
/** Longer puts and gets are sent from the memory itself. */
const RMA_SHORT_BYTES_MAX = 8192;

/** The attributes. */
export function tcpAttributes(resource: IfaceResource, device: NetworkInterface, config: TcpConfig): IfaceAttributes {
  const { RX_SEG_SIZE, MAX_BW } = config;
  const bcopyBytesMax = sendBytesMax(config);
  const speed = device.bytesPerSecond === undefined ? MAX_BW : device.bytesPerSecond * PAYLOAD_SHARE;
  return hostIfaceAttributes({
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
    shortBytesMax: Math.min(bcopyBytesMax, RMA_SHORT_BYTES_MAX),
    am: { shortBytesMax: bcopyBytesMax, bcopyBytesMax, zcopyBytesMax: RX_SEG_SIZE },
    latencyNs: config.LATENCY,
    overheadNs: config.OVERHEAD,
    zcopyOverheadNs: SYSTEM_CALL_NS,
    bandwidth: Math.min(speed, MAX_BW),
    ifaceAddressBytes: TCP_ADDRESS_BYTES_MAX,
    errorHandling: ['remote access', 'peer failure'],
  });
}
