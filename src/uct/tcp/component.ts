/** The component tcp: sockets to other nodes and to this one, and a connection manager. */

import type { Component } from '../api/memory-domain.ts';
import { checkServices } from '../base/checks.ts';
import { tcpConnectionManager } from './cm/tcp-connection-manager.ts';
import { TCP_CONFIG_TABLE } from './config.ts';
import { openSecurity } from './secure/security.ts';
import { TcpMd } from './tcp-md.ts';
import { TCP_NAME } from './wire/tcp-key.ts';

/** The component `tcp`. */
export function tcpComponent(): Component {
  return {
    name: TCP_NAME,
    transports: [{ name: TCP_NAME, aliases: [] }],
    configTable: TCP_CONFIG_TABLE,
    openMd: (services) => {
      checkServices(services);
      return new TcpMd(services);
    },
    openConnectionManager: (services) => {
      checkServices(services);
      return tcpConnectionManager(services, openSecurity(services.config.get(TCP_CONFIG_TABLE), services.log));
    },
  };
}
