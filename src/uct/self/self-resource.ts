/** The one resource of the loopback transport: the memory of this process. */

import { DeviceType, type IfaceResource } from '../api/iface.ts';

export const SELF_RESOURCE: IfaceResource = {
  transport: 'self',
  aliases: [],
  device: 'memory',
  deviceType: DeviceType.SELF,
  sysDevice: undefined,
};
