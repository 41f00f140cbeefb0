/** The components of this library for programs without a context. Log, clock and configuration have the defaults of a program. */

import type { ConfigValues } from '../ucs/config/config.ts';
import { checkMethods, checkNoNulls, checkOptions } from '../ucs/type/check-options.ts';
import type { ConnectionManager } from '../uct/api/connection-manager.ts';
import type { Component, ComponentServices, MemoryDomain } from '../uct/api/memory-domain.ts';
import type { GaudiResources } from '../uct/gaudi/base/resources.ts';
import * as copy from '../uct/gaudi/copy/md.ts';
import * as ipc from '../uct/gaudi/ipc/md.ts';
import * as ib from '../uct/ib/md.ts';
import * as self from '../uct/self/md.ts';
import * as cma from '../uct/shm/cma/md.ts';
import * as posix from '../uct/shm/posix/md.ts';
import * as tcp from '../uct/tcp/md.ts';
import type { VerbsPort } from '../verbs/port.ts';
import { openNode, openVerbs } from './open-node.ts';
import { startProgram } from './program/program.ts';
import { type Environment, ProgramConfig } from './program/program-config.ts';

/** Options of a memory domain or connection manager that a program opens directly; all have defaults. */
export interface MdOptions extends Partial<Omit<ComponentServices, 'config'>> {
  /** A configuration, or options by variable name, with or without `UCX_`, which override environment and files. Default: environment and files. */
  readonly config?: ConfigValues | Readonly<Record<string, string>> | undefined;
}

const MD_OPTIONS: readonly string[] = [
  'log',
  'clock',
  'config',
  'isDeviceAllowed',
  'memoryTypes',
  'onDeviceLost',
] satisfies readonly (keyof MdOptions)[];

/** A component of this library. */
export interface OwnComponent extends Component {
  /**
   * Opens the memory domain of this host.
   * @throws UcxError NO_DEVICE if the host has no devices for it, and the errors of opening its devices and of reading the configuration
   */
  openMd(options?: MdOptions): MemoryDomain;
  /** Creates a connection manager; absent if the component has none. */
  openConnectionManager?(options?: MdOptions): ConnectionManager;
}

/** The component `self`: loopback. */
export function selfComponent(): OwnComponent {
  return withDefaults(self.selfComponent());
}

/** The component `posix`: shared memory between the processes of a host. */
export function posixComponent(): OwnComponent {
  return withDefaults(posix.posixComponent());
}

/** The component `cma`: copies between the processes of a host by the kernel. */
export function cmaComponent(): OwnComponent {
  return withDefaults(cma.cmaComponent());
}

/** The component `tcp`: sockets, and a connection manager. */
export function tcpComponent(): OwnComponent {
  return withDefaults(tcp.tcpComponent());
}

/**
 * The component `gaudi_copy`, with the transport `gaudi_cpy`.
 * @param shared the cards; the same object for every Gaudi component of a program
 */
export function gaudiCopyComponent(shared: GaudiResources): OwnComponent {
  return withDefaults(copy.gaudiCopyComponent(shared));
}

/**
 * The component `gaudi_ipc`, with the transport of the same name.
 * @param shared the cards; the same object for every Gaudi component of a program
 */
export function gaudiIpcComponent(shared: GaudiResources): OwnComponent {
  return withDefaults(ipc.gaudiIpcComponent(shared));
}

/**
 * The component `ib`, with the transport `rc`.
 * @param given the RDMA devices, such as `node.verbs` of an open node. Without an argument, those that UCX_IB_DRIVER and UCX_GAUDI_DRIVER select, opened and
 * closed with the memory domain
 * @throws UcxError ERR_INVALID_PARAM, also for an undefined argument: `node.verbs` of a node without RDMA devices
 */
export function ibComponent(...given: readonly [verbs?: VerbsPort | undefined]): OwnComponent {
  const [verbs] = given;
  if (given.length > 0) {
    checkMethods('verbs', verbs as VerbsPort, ['devices', 'open', 'whyNoDevices']);
    return withDefaults(ib.ibComponent(verbs));
  }
  const component = ib.ibComponent(undefined);
  return {
    ...component,
    openMd: (options) => {
      const { services, env } = openingOf(component, options);
      const node = openNode({ ...services, env });
      try {
        return ib.ibComponent(openVerbs(node, services), () => node.close()).openMd(services);
      } catch (error) {
        node.close();
        throw error;
      }
    },
  };
}

function withDefaults(component: Component): OwnComponent {
  const { openConnectionManager } = component;
  return {
    ...component,
    openMd: (options) => component.openMd(openingOf(component, options).services),
    ...(openConnectionManager && {
      openConnectionManager: (options) => openConnectionManager(openingOf(component, options).services),
    }),
  };
}

/** The services of a component, and the environment of the program. */
function openingOf(
  { name }: Component,
  options: MdOptions = {},
): { readonly services: ComponentServices; readonly env: Environment } {
  checkOptions(options, 'options', MD_OPTIONS);
  checkNoNulls(options);
  const { log, clock, config } = options;
  const values = isValues(config) ? config : undefined;
  if (values !== undefined && log !== undefined && clock !== undefined) {
    return { services: { ...options, log, clock, config: values }, env: process.env };
  }
  const program = startProgram({
    ...(config === undefined || isValues(config) ? {} : { config }),
    ...(clock === undefined ? {} : { clock }),
  });
  const defaults = { log: program.log.child(name), clock: program.clock, config: program.config };
  const given = { ...(log && { log }), ...(values && { config: values }) };
  return { services: { ...options, ...defaults, ...given }, env: program.env };
}

/** Distinguishes values of tables from the configuration of a program and from options by name. */
function isValues(config: MdOptions['config']): config is ConfigValues {
  const isObject = typeof config === 'object' && !(config instanceof ProgramConfig);
  return isObject && typeof config.get === 'function';
}
