/** `info -d`: memory domains, transports, devices and capabilities, in the layout and the units of ucx_info -d. */

import { memorySizeType } from '../../ucs/config/value.ts';
import { memoryTypeBit, memoryTypeName, memoryTypesOfMask } from '../../ucs/memory/memory-type.ts';
import { type IfaceAttributes, IfaceFlag, type RmaLimits } from '../../uct/api/iface.ts';
import { type LeftOut, type MdAttributes, MdFlag } from '../../uct/api/memory-domain.ts';
import { MEGABYTE } from '../base/text-table.ts';

/** Columns of the names before the colon, as in ucx_info. */
const RESOURCE_WIDTH = 17;
const CAPABILITY_WIDTH = 23;
const ATOMICS = ['add', 'and', 'or', 'xor', 'fadd', 'fand', 'for', 'fxor', 'swap', 'cswap'];

/** A transport on a device of a memory domain. */
export interface DeviceReport {
  readonly attributes: IfaceAttributes;
  /** Reason why the configuration excludes it; undefined if included. */
  readonly exclusion: string | undefined;
  /** PCI address of the device; undefined without one, or if unknown. */
  readonly place: string | undefined;
}

/** A component: its memory domains, or the reason why it has none. */
export type DomainReport =
  | {
      readonly component: string;
      readonly md: MdAttributes;
      readonly devices: readonly DeviceReport[];
      /** Devices that could not be opened, such as removed cards, with the reasons. */
      readonly leftOut: readonly LeftOut[];
    }
  | { readonly component: string; readonly md?: undefined; readonly reason: string };

/** Formats one component. Devices that differ only by name share a block with all names and their number. */
export function domainText(report: DomainReport): string {
  if (report.md === undefined) {
    const reason = `#   < no supported devices found: ${report.reason} >`;
    return ['#', `# Memory domain: ${report.component}`, reason, '#'].join('\n');
  }
  const leftOut = report.leftOut.map(({ name, reason }) => `#${' '.repeat(13)}${name} is unusable: ${reason}`);
  return [...mdLines(report.md), ...leftOut, '#', ...blocksOf(report.devices).flat()].join('\n');
}

function mdLines(md: MdAttributes): string[] {
  const lines = ['#', `# Memory domain: ${md.name}`, field(16, 'Component', md.component)];
  if ((md.flags & MdFlag.ALLOC) !== 0) lines.push(field(CAPABILITY_WIDTH, 'allocate', limit(md.allocateBytesMax)));
  if ((md.flags & MdFlag.REG) !== 0) {
    const { overheadNs, perByteNs } = md.registerCost;
    const growth = perByteNs === 0 ? '' : ` + ${perByteNs} * N`;
    const cost = `cost: ${overheadNs}${growth} nsec`;
    lines.push(field(CAPABILITY_WIDTH, 'register', `${limit(md.registerBytesMax)}, ${cost}`));
  }
  if ((md.flags & MdFlag.NEED_RKEY) !== 0) {
    lines.push(field(CAPABILITY_WIDTH, 'remote key', `${md.rkeyPackedBytes} bytes`));
  }
  if ((md.flags & MdFlag.INVALIDATE) !== 0) lines.push(`#${' '.repeat(13)}memory invalidation is supported`);
  lines.push(field(CAPABILITY_WIDTH, 'memory types', memoryTypes(md)));
  return lines;
}

/** `host (access,reg,cache), gaudi (access,alloc,detect,dmabuf)`. */
function memoryTypes(md: MdAttributes): string {
  const abilities: readonly (readonly [string, number])[] = [
    ['access', md.accessMemoryTypes],
    ['reg', md.registerMemoryTypes],
    ['alloc', md.allocateMemoryTypes],
    ['detect', md.detectMemoryTypes],
    ['dmabuf', md.dmabufMemoryTypes],
    ['reg_dmabuf', md.registerDmabufMemoryTypes ?? 0],
    ['cache', md.cacheMemoryTypes],
  ];
  const all = abilities.reduce((mask, [, part]) => mask | part, 0);
  return memoryTypesOfMask(all)
    .map((type) => {
      const able = abilities.filter(([, mask]) => (mask & memoryTypeBit(type)) !== 0).map(([name]) => name);
      return `${memoryTypeName(type)} (${able.join(',')})`;
    })
    .join(', ');
}

/** A block of lines for each group of equal devices. */
function blocksOf(devices: readonly DeviceReport[]): string[][] {
  const groups = new Map<string, DeviceReport[]>();
  for (const report of devices) {
    const { resource } = report.attributes;
    const key = JSON.stringify([resource.transport, resource.deviceType, capabilityLines(report)]);
    groups.set(key, [...(groups.get(key) ?? []), report]);
  }
  return [...groups.values()].map((group) => {
    const { transport, deviceType } = group[0]!.attributes.resource;
    const names = group.map(({ attributes: { resource } }) => resource.device);
    const systemDevices = group.map(systemDeviceText);
    return [
      field(RESOURCE_WIDTH, 'Transport', transport),
      field(RESOURCE_WIDTH, 'Device', names.length === 1 ? names[0]! : `${names.join(', ')} (${names.length} equal)`),
      field(RESOURCE_WIDTH, 'Type', deviceType),
      field(RESOURCE_WIDTH, 'System device', [...new Set(systemDevices)].join(', ')),
      ...capabilityLines(group[0]!),
    ];
  });
}

/** `gaudi0 (0, 0000:19:00.0)`; a network device has no index. */
function systemDeviceText({ attributes: { resource }, place }: DeviceReport): string {
  const facts = [resource.sysDevice, place].filter((each) => each !== undefined);
  return facts.length === 0 ? '<unknown>' : `${resource.device} (${facts.join(', ')})`;
}

function capabilityLines({ attributes, exclusion }: DeviceReport): string[] {
  const { performance, flags, put, get, limitation } = attributes;
  const bandwidth = Math.max(performance.hostToHost, performance.hostToDevice, performance.deviceToHost);
  const fields: (readonly [string, string])[] = [
    ['bandwidth', `0.00/ppn + ${(bandwidth / MEGABYTE).toFixed(2)} MB/sec`],
    ['latency', `${performance.latencyNs} nsec`],
    ['overhead', `${performance.overheadNs} nsec`],
    ...rmaFields('put', put, flags & IfaceFlag.PUT_SHORT, flags & IfaceFlag.PUT_ZCOPY),
    ...rmaFields('get', get, flags & IfaceFlag.GET_SHORT, flags & IfaceFlag.GET_ZCOPY),
    ...messageFields(attributes),
    ...atomicFields(flags),
    ...(limitation === undefined ? [] : [['limitation', limitation] as const]),
    ['connection', (flags & IfaceFlag.CONNECT_TO_IFACE) !== 0 ? 'to iface' : 'none'],
    ...queueFields(attributes),
    ['device address', `${attributes.deviceAddressBytes} bytes`],
    ['iface address', `${attributes.ifaceAddressBytes} bytes`],
    ['ep address', `${attributes.endpointAddressBytes} bytes`],
    ['error handling', attributes.errorHandling.join(', ') || 'none'],
  ];
  return [
    ...(exclusion === undefined ? [] : [field(RESOURCE_WIDTH, 'Not used', exclusion)]),
    '#',
    '#      capabilities:',
    ...fields.map(([name, value]) => field(CAPABILITY_WIDTH, name, value)),
    '#',
  ];
}

function rmaFields(
  operation: string,
  limits: RmaLimits,
  hasShort: number,
  hasZcopy: number,
): (readonly [string, string])[] {
  const fields: (readonly [string, string])[] = [];
  if (hasShort !== 0) fields.push([`${operation}_short`, limit(limits.shortBytesMax)]);
  if (hasZcopy === 0) return fields;
  const lower = limits.zcopyBytesMin > 0 ? `>= ${memorySizeType.print(limits.zcopyBytesMin)}, ` : '';
  return [...fields, [`${operation}_zcopy`, `${lower}${limit(limits.zcopyBytesMax)}, up to ${limits.iovMax} iov`]];
}

function messageFields({ am, flags }: IfaceAttributes): (readonly [string, string])[] {
  const fields: (readonly [string, string])[] = [];
  if ((flags & IfaceFlag.AM_SHORT) !== 0) fields.push(['am_short', limit(am.shortBytesMax)]);
  if ((flags & IfaceFlag.AM_BCOPY) !== 0) fields.push(['am_bcopy', limit(am.bcopyBytesMax)]);
  if ((flags & IfaceFlag.AM_ZCOPY) !== 0) fields.push(['am_zcopy', limit(am.zcopyBytesMax!)]);
  return fields;
}

function queueFields({ queues }: IfaceAttributes): (readonly [string, string])[] {
  if (queues === undefined) return [];
  return [
    ['send queue', `${queues.sendLength} requests`],
    ['receive queue', `${queues.receiveLength} requests`],
    ['inline', `<= ${memorySizeType.print(queues.inlineBytes)}`],
    ['max sge', `${queues.sgeMax}`],
    ['max regions', `${queues.regionsMax}`],
  ];
}

/** The atomic operations: a transport supports all operations of a width, or none. */
function atomicFields(flags: number): (readonly [string, string])[] {
  const widths = [
    ...((flags & IfaceFlag.ATOMIC32) !== 0 ? ['32'] : []),
    ...((flags & IfaceFlag.ATOMIC64) !== 0 ? ['64'] : []),
  ];
  if (widths.length === 0) return [];
  return [['domain', 'cpu'], ...ATOMICS.map((name) => [`atomic_${name}`, `${widths.join(', ')} bit`] as const)];
}

function field(width: number, name: string, value: string): string {
  return `#${`${name}: `.padStart(width)}${value}`;
}

function limit(bytes: number): string {
  return bytes === Number.MAX_SAFE_INTEGER ? 'unlimited' : `<= ${memorySizeType.print(bytes)}`;
}
