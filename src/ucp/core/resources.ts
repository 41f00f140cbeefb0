/**
 * The memory domains and transports that a context has opened, and those that it has not, with the reason: what selection and
 * explain() draw from.
 */

import type { Clock } from '../../ucs/clock.ts';
import type { Config } from '../../ucs/config.ts';
import { type AllowList, isAllowed } from '../../ucs/config-list.ts';
import { isUcxError, UcxError } from '../../ucs/error.ts';
import type { Log } from '../../ucs/log.ts';
import { type MemoryType, memoryTypeBit, memoryTypeName } from '../../ucs/memory-type.ts';
import { Status } from '../../ucs/status.ts';
import type { IfaceResource } from '../../uct/api/iface.ts';
import { type Component, MdFlag, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import { UCP_CONFIG_TABLE } from './config.ts';

/** An open memory domain with its position, which is its index in handles and keys. */
export interface OpenMd {
  readonly index: number;
  readonly md: MemoryDomain;
  /** The resources that UCX_TLS allows. */
  readonly resources: readonly IfaceResource[];
}

/** Something that is not used, and why. */
export interface Rejection {
  /** Transport, or component where it did not open. */
  readonly name: string;
  readonly reason: string;
}

/** What opening needs. */
export interface ResourcesOptions {
  readonly components: readonly Component[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
}

/** The opened resources of a context. */
export class Resources {
  readonly mds: readonly OpenMd[];
  readonly rejections: readonly Rejection[];

  /**
   * Opens the memory domains of all components that UCX_TLS allows.
   * @throws UcxError of a component whose devices are there but cannot be used; ERR_NO_TRANSPORT when nothing is left
   */
  constructor(options: ResourcesOptions) {
    const allowed = options.config.get(UCP_CONFIG_TABLE).TLS;
    const mds: OpenMd[] = [];
    const rejections: Rejection[] = [];
    try {
      for (const component of options.components) openComponent(component, options, allowed, mds, rejections);
      if (mds.length === 0) throw noTransport(rejections);
    } catch (error) {
      for (const { md } of mds) md.close();
      throw error;
    }
    this.mds = mds;
    this.rejections = rejections;
  }

  /**
   * The memory domains that allocate a type, those whose memory peers can map before the others; throws with the reasons when there are
   * none.
   */
  allocatorsOf(type: MemoryType): readonly OpenMd[] {
    const able = this.mds.filter(({ md }) => (md.attributes.allocateMemoryTypes & memoryTypeBit(type)) !== 0);
    const isMapped = ({ md }: OpenMd): boolean => (md.attributes.flags & MdFlag.RKEY_PTR) !== 0;
    if (able.length > 0) return [...able.filter(isMapped), ...able.filter((open) => !isMapped(open))];
    const reasons =
      this.rejections.map(({ name, reason }) => `${name}: ${reason}`).join('; ') || 'no transport was left out';
    throw new UcxError({
      code: 'ERR_UNSUPPORTED',
      status: Status.UNSUPPORTED,
      message: `no memory domain allocates ${memoryTypeName(type)} memory (${reasons})`,
      details: { memoryType: memoryTypeName(type), reasons },
    });
  }

  close(): void {
    for (const { md } of [...this.mds].reverse()) md.close();
  }
}

function openComponent(
  component: Component,
  options: ResourcesOptions,
  allowed: AllowList,
  mds: OpenMd[],
  rejections: Rejection[],
): void {
  const wanted = component.transports.filter(({ name, aliases }) => isTransportAllowed(allowed, [name, ...aliases]));
  for (const transport of component.transports) {
    if (!wanted.includes(transport)) rejections.push({ name: transport.name, reason: 'excluded by UCX_TLS' });
  }
  if (wanted.length === 0) return;
  try {
    const { config, clock, log } = options;
    const md = component.openMd({ config, clock, log: log.child(component.name) });
    const names = new Set(wanted.map(({ name }) => name));
    const resources = md.resources.filter(({ transport }) => names.has(transport));
    mds.push({ index: mds.length, md, resources });
  } catch (error) {
    // A machine without such devices is no failure, unless the user asked for them by name.
    const absent = isUcxError(error) && error.status === Status.NO_DEVICE && allowed.mode !== 'allow';
    if (!absent) throw error;
    rejections.push({ name: component.name, reason: error.message });
  }
}

/** A deny list excludes a transport under any of its names; an allow list admits it under any. */
function isTransportAllowed(list: AllowList, names: readonly string[]): boolean {
  if (list.mode === 'deny') return names.every((name) => isAllowed(list, name));
  return names.some((name) => isAllowed(list, name));
}

function noTransport(rejections: readonly Rejection[]): UcxError {
  const reasons = rejections.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
  return new UcxError({
    code: 'ERR_NO_TRANSPORT',
    status: Status.NO_DEVICE,
    message: `no transport is left to use (${reasons})`,
    details: { reasons },
  });
}
