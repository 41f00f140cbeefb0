/** `info -d`: memory domains, transports, devices and capabilities, in the layout of ucx_info -d. */

import { memoryTypeBit, memoryTypeName, memoryTypesOfMask } from '../ucs/memory/memory-type.ts';
import type { IfaceAttributes, IfaceResource, RmaLimits } from '../uct/api/iface.ts';
import { IfaceFlag } from '../uct/api/iface.ts';
import { type MdAttributes, MdFlag, type MemoryDomain } from '../uct/api/memory-domain.ts';

const MEGABYTE = 1e6;

/**
 * The text for one open memory domain, with its transports.
 * @param exclusionOf why the configuration does not let a resource be used; undefined when it does
 */
export function describeMemoryDomain(
  md: MemoryDomain,
  exclusionOf: (resource: IfaceResource) => string | undefined,
): string {
  const interfaces = md.resources.map((resource) => {
    const iface = md.openIface(resource);
    const text = describeInterface(iface.attributes, exclusionOf(resource));
    iface.close();
    return text;
  });
  return [...mdLines(md.attributes), '#', ...interfaces.flat()].join('\n');
}

/** The text for a component that has no memory domain here. */
export function describeMissing(component: string, reason: string): string {
  return ['#', `# Memory domain: ${component}`, `#   < no supported devices found: ${reason} >`, '#'].join('\n');
}

function mdLines(md: MdAttributes): string[] {
  const lines = ['#', `# Memory domain: ${md.name}`, field(16, 'Component', md.component)];
  if ((md.flags & MdFlag.ALLOC) !== 0) lines.push(field(20, 'allocate', unlimitedOr(md.allocateBytesMax)));
  if ((md.flags & MdFlag.REG) !== 0) {
    const { overheadNs, perByteNs } = md.registerCost;
    const growth = perByteNs === 0 ? '' : ` + ${perByteNs} * N nsec`;
    lines.push(field(20, 'register', `${unlimitedOr(md.registerBytesMax)}, cost: ${overheadNs}${growth || ' nsec'}`));
  }
  if ((md.flags & MdFlag.NEED_RKEY) !== 0) lines.push(field(20, 'remote key', `${md.rkeyPackedBytes} bytes`));
  if ((md.flags & MdFlag.INVALIDATE) !== 0) lines.push('#           memory invalidation is supported');
  lines.push(field(20, 'memory types', memoryTypes(md)));
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

function describeInterface(attributes: IfaceAttributes, exclusion: string | undefined): string[] {
  const { resource, performance, flags } = attributes;
  const bandwidth = Math.max(performance.hostToHost, performance.hostToDevice, performance.deviceToHost);
  return [
    field(16, 'Transport', resource.transport),
    field(16, 'Device', resource.device),
    field(16, 'Type', resource.deviceType),
    field(
      16,
      'System device',
      resource.sysDevice === undefined ? '<unknown>' : `${resource.device} (${resource.sysDevice})`,
    ),
    ...(exclusion === undefined ? [] : [field(16, 'Not used', exclusion)]),
    '#',
    '#      capabilities:',
    field(22, 'bandwidth', `0.00/ppn + ${(bandwidth / MEGABYTE).toFixed(2)} MB/sec`),
    field(22, 'latency', `${performance.latencyNs} nsec`),
    field(22, 'overhead', `${performance.overheadNs} nsec`),
    ...rmaLines('put', attributes.put, flags & IfaceFlag.PUT_SHORT, flags & IfaceFlag.PUT_ZCOPY),
    ...rmaLines('get', attributes.get, flags & IfaceFlag.GET_SHORT, flags & IfaceFlag.GET_ZCOPY),
    ...messageLines(attributes),
    ...atomicLines(flags),
    ...(attributes.limitation === undefined ? [] : [field(22, 'limitation', attributes.limitation)]),
    field(22, 'connection', (flags & IfaceFlag.CONNECT_TO_IFACE) !== 0 ? 'to iface' : 'none'),
    field(22, 'device priority', `${attributes.priority}`),
    field(22, 'device num paths', '1'),
    field(22, 'max eps', 'inf'),
    field(22, 'device address', `${attributes.deviceAddressBytes} bytes`),
    field(22, 'iface address', `${attributes.ifaceAddressBytes} bytes`),
    field(22, 'ep address', `${attributes.endpointAddressBytes} bytes`),
    field(22, 'error handling', attributes.errorHandling.join(', ') || 'none'),
    '#',
  ];
}

function rmaLines(operation: string, limits: RmaLimits, hasShort: number, hasZcopy: number): string[] {
  const lines: string[] = [];
  if (hasShort !== 0) lines.push(field(22, `${operation}_short`, `<= ${limits.shortBytesMax}`));
  if (hasZcopy === 0) return lines;
  const upper = limits.zcopyBytesMax === Number.MAX_SAFE_INTEGER ? 'unlimited' : `<= ${limits.zcopyBytesMax}`;
  const lower = limits.zcopyBytesMin > 0 ? `>= ${limits.zcopyBytesMin}, ` : '';
  return [...lines, field(22, `${operation}_zcopy`, `${lower}${upper}, up to ${limits.iovMax} iov`)];
}

function messageLines({ am, flags }: IfaceAttributes): string[] {
  const lines: string[] = [];
  if ((flags & IfaceFlag.AM_SHORT) !== 0) lines.push(field(22, 'am_short', `<= ${am.shortBytesMax}`));
  if ((flags & IfaceFlag.AM_BCOPY) !== 0) lines.push(field(22, 'am_bcopy', `<= ${am.bcopyBytesMax}`));
  return lines;
}

/** The atomic operations: a transport has all of them for a width, or none. */
function atomicLines(flags: number): string[] {
  const widths = [
    ...((flags & IfaceFlag.ATOMIC32) !== 0 ? ['32'] : []),
    ...((flags & IfaceFlag.ATOMIC64) !== 0 ? ['64'] : []),
  ];
  if (widths.length === 0) return [];
  const names = ['add', 'and', 'or', 'xor', 'fadd', 'fand', 'for', 'fxor', 'swap', 'cswap'];
  return [field(22, 'domain', 'cpu'), ...names.map((name) => field(22, `atomic_${name}`, `${widths.join(', ')} bit`))];
}

function field(width: number, name: string, value: string): string {
  return `#${`${name}: `.padStart(width)}${value}`;
}

function unlimitedOr(bytes: number): string {
  return bytes === Number.MAX_SAFE_INTEGER ? 'unlimited' : `<= ${bytes}`;
}
