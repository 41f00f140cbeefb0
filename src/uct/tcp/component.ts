/** The component tcp: connections over TCP. It has a connection manager. */

import { UcxError } from '../../ucs/error.ts';
import { Status } from '../../ucs/status.ts';
import type { Component } from '../api/memory-domain.ts';
import { TCP_CM_CONFIG_TABLE } from './cm/config.ts';
import { tcpConnectionManager } from './cm/tcp-connection-manager.ts';

/** The component `tcp`. */
export function tcpComponent(): Component {
  return {
    name: 'tcp',
    transports: [],
    configTable: TCP_CM_CONFIG_TABLE,
    openMd: () => {
      throw new UcxError({ code: 'ERR_NO_DEVICE', status: Status.NO_DEVICE, message: 'tcp: has no memory domain' });
    },
    openConnectionManager: tcpConnectionManager,
  };
}
