/** The open memory domains and transports of a context, and the unusable ones with the reasons, for selection and explain(). */

import type { Config } from '../../ucs/config/config.ts';
import { matchesItem } from '../../ucs/config/list.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { type MemoryType, memoryTypeBit, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import type { MemoryTypeCache } from '../../ucs/memory/memory-type-cache.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { ConnectionManager } from '../../uct/api/connection-manager.ts';
import type { IfaceResource } from '../../uct/api/iface.ts';
import {
  type Component,
  type ComponentServices,
  type LostDevice,
  MdFlag,
  type MemoryDomain,
} from '../../uct/api/memory-domain.ts';
import { UCP_CONFIG_TABLE } from './config.ts';
import { type Rejection, ResourceFilter } from './resource-filter.ts';

/** An open memory domain, with its index in handles and keys. */
export interface OpenMd {
  readonly index: number;
  readonly md: MemoryDomain;
  /** The resources that the configuration allows, at least one. */
  readonly resources: readonly IfaceResource[];
}

/** A component without devices on this machine. */
interface Absence extends Rejection {
  readonly error: UcxError;
  readonly isWarned: boolean;
}

export interface ResourcesOptions {
  readonly components: readonly Component[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** The cache in which memory domains record device memory; undefined if it is disabled. */
  readonly memoryTypes: MemoryTypeCache | undefined;
  /** Called for a device whose memory is lost. */
  readonly onDeviceLost: (device: LostDevice) => void;
}

export class Resources {
  readonly mds: readonly OpenMd[];
  readonly #notOpened: readonly Rejection[];
  readonly #managers: readonly { readonly name: string; readonly open: () => ConnectionManager }[];
  /** Names of connection managers in order of priority. */
  readonly #priority: readonly string[];

  /**
   * Opens the memory domains of all components that UCX_TLS and UCX_*_DEVICES allow.
   * @throws UcxError of a component whose devices exist but cannot be used; ERR_NO_TRANSPORT if no transport is left
   */
  constructor(options: ResourcesOptions) {
    const config = options.config.get(UCP_CONFIG_TABLE);
    const filter = new ResourceFilter(config);
    const mds: OpenMd[] = [];
    const absent: Absence[] = [];
    try {
      for (const component of options.components) openComponent(component, options, filter, { mds, absent });
      if (config.WARN_INVALID_CONFIG) for (const warning of filter.unavailable()) options.log.warn(warning);
      if (mds.length === 0 && filter.namesTransports && absent.length > 0) throw absent[0]!.error;
      if (mds.length === 0) throw noTransport(filter, absent);
      for (const warning of warningsOf(absent)) options.log.warn(warning);
    } catch (error) {
      for (const { md } of mds) md.close();
      throw error;
    }
    this.mds = mds;
    const absences = absent.map(({ name, reason }) => ({ name, reason }));
    this.#notOpened = [...filter.rejections, ...absences];
    this.#managers = options.components.flatMap((component) => {
      const open = component.openConnectionManager?.bind(component);
      if (open === undefined) return [];
      return [{ name: component.name, open: () => open(servicesOf(component, options, filter)) }];
    });
    this.#priority = config.SOCKADDR_TLS_PRIORITY;
  }

  /** The resources that the context does not use, with the reasons; including devices that were lost after the context was opened. */
  get rejections(): readonly Rejection[] {
    // Memory domains that share devices report the same ones.
    const leftOut = new Map(this.mds.flatMap(({ md }) => (md.leftOut ?? []).map((device) => [device.name, device])));
    return [...this.#notOpened, ...leftOut.values()];
  }

  /**
   * Opens the first connection manager of UCX_SOCKADDR_TLS_PRIORITY, whether or not its transports are in use.
   * @throws UcxError ERR_UNSUPPORTED if no component has one, or none that is listed; SyscallError
   */
  openConnectionManager(): ConnectionManager {
    const [manager] = this.#priority.flatMap((item) => this.#managers.filter(({ name }) => matchesItem(item, name)));
    if (manager !== undefined) return manager.open();
    const names = this.#managers.map(({ name }) => name).join(', ');
    const why = names === '' ? '' : `: UCX_SOCKADDR_TLS_PRIORITY=${this.#priority.join(',')} does not name ${names}`;
    throw new UcxError({
      code: 'ERR_UNSUPPORTED',
      status: Status.UNSUPPORTED,
      message: `no component of this context supports connections by socket address${why}`,
    });
  }

  /** The memory domains that allocate a memory type, those whose memory peers can map first. Throws with the reasons if there are none. */
  allocatorsOf(type: MemoryType): readonly OpenMd[] {
    const able = this.mds.filter(({ md }) => (md.attributes.allocateMemoryTypes & memoryTypeBit(type)) !== 0);
    const isMapped = ({ md }: OpenMd): boolean => (md.attributes.flags & MdFlag.RKEY_PTR) !== 0;
    if (able.length > 0) return [...able.filter(isMapped), ...able.filter((open) => !isMapped(open))];
    const reasons =
      this.rejections.map(({ name, reason }) => `${name}: ${reason}`).join('; ') || 'no transport was excluded';
    throw new UcxError({
      code: 'ERR_UNSUPPORTED',
      status: Status.UNSUPPORTED,
      message: `no memory domain allocates ${memoryTypeName(type)} memory (${reasons})${this.#advice(type)}`,
      details: { memoryType: memoryTypeName(type), reasons },
    });
  }

  /** A hint if UCX_TLS excludes the transport of a memory type. */
  #advice(type: MemoryType): string {
    const excluded = this.#notOpened.find(
      ({ name, reason }) => name.startsWith(`${memoryTypeName(type)}_`) && reason.endsWith('UCX_TLS'),
    );
    return excluded === undefined ? '' : `; allow ${excluded.name} in UCX_TLS`;
  }

  close(): void {
    for (const { md } of [...this.mds].reverse()) md.close();
  }
}

function openComponent(
  component: Component,
  options: ResourcesOptions,
  filter: ResourceFilter,
  { mds, absent }: { readonly mds: OpenMd[]; readonly absent: Absence[] },
): void {
  const wanted = component.transports.filter((transport) => filter.admitsTransport(transport));
  if (wanted.length === 0) return;
  try {
    const md = component.openMd(servicesOf(component, options, filter));
    const resources = md.resources.filter((resource) => filter.exclusionOf(resource) === undefined);
    if (resources.length > 0) mds.push({ index: mds.length, md, resources });
    else md.close();
  } catch (error) {
    const {
      name,
      isRequired = false,
      isReplaceable = false,
      isAbsenceWarned = false,
      unusableStatuses = [],
    } = component;
    // A machine without such devices is not an error, unless the user listed them and no other transport can do their work.
    const mayBeAbsent = !isRequired && (!filter.namesTransports || isReplaceable);
    if (!isUcxError(error) || !mayBeAbsent) throw error;
    const isUnusable = unusableStatuses.includes(error.status);
    if (error.status !== Status.NO_DEVICE && (!isUnusable || filter.namesAccelerators)) throw error;
    const isWarned = isAbsenceWarned || filter.namesTransports || isUnusable;
    absent.push({ name, reason: error.message, error, isWarned });
  }
}

/** Warnings about unused components; those that share devices share a warning. */
function warningsOf(absent: readonly Absence[]): string[] {
  const names = new Map<string, string[]>();
  for (const { name, reason, isWarned } of absent) {
    if (isWarned) names.set(reason, [...(names.get(reason) ?? []), name]);
  }
  return [...names].map(
    ([reason, [first, ...rest]]) =>
      `${[first, ...rest].join(' and ')} ${rest.length > 0 ? 'are' : 'is'} not used: ${reason}`,
  );
}

function servicesOf(
  component: Component,
  { config, clock, log, memoryTypes, onDeviceLost }: ResourcesOptions,
  filter: ResourceFilter,
): ComponentServices {
  return {
    config,
    clock,
    log: log.child(component.name),
    isDeviceAllowed: filter.admitsDevice,
    onDeviceLost,
    ...(memoryTypes === undefined ? {} : { memoryTypes }),
  };
}

function noTransport(filter: ResourceFilter, absent: readonly Absence[]): UcxError {
  const reasons = [...filter.rejections, ...absent].map(({ name, reason }) => `${name}: ${reason}`).join('; ');
  const settings = filter.settings.length === 0 ? '' : ` with ${filter.settings.join(', ')}`;
  const remedy = "'gaudi-ucx info -d' lists the transports and devices of this machine";
  return new UcxError({
    code: 'ERR_NO_TRANSPORT',
    status: Status.NO_DEVICE,
    message: [`no transport is usable${settings} (${reasons})`, ...filter.hints(), remedy].join('; '),
    details: { reasons },
  });
}
