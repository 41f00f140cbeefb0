/** The output of `printInfo()`: contexts, workers and endpoints in the format of ucx_info. */

import type { Engine } from '../../api/contract/explanation.ts';
import { type Iface, IfaceFlag, type IfaceResource } from '../../uct/api/iface.ts';
import type { Connection } from '../base/connection.ts';
import type { ContextCore } from '../base/context-core.ts';
import { workerName } from '../base/worker-core.ts';
import { type Lane, nameOf } from '../lane/lanes.ts';
import { choiceTable } from '../proto/protocol-info.ts';
import type { OpenMd } from '../resources/resources.ts';
import { explainHostMessages, HOST_MESSAGES } from '../rma/explain.ts';

/** Width of the names before the colon, as in ucx_info. */
const CONTEXT_WIDTH = 20;
const WORKER_WIDTH = 26;
const LANE_COLUMNS = 33;
/** UCS_SYS_DEVICE_ID_UNKNOWN. */
const UNKNOWN_DEVICE = 255;
const ATOMICS: number = IfaceFlag.ATOMIC32 | IfaceFlag.ATOMIC64;
/** Roles of a lane, each with its flags: a lane has the role if it has any of them. The role `am` is not listed, because the connection chooses that lane. */
const ROLES: readonly (readonly [role: string, flags: number])[] = [
  ['rma', IfaceFlag.PUT_SHORT | IfaceFlag.GET_SHORT],
  ['rma_bw', IfaceFlag.PUT_ZCOPY | IfaceFlag.GET_ZCOPY],
  ['amo', ATOMICS],
];

/** Lists the components, memory domains, and transports with their devices. */
export function contextInfo(engine: Engine, mds: readonly OpenMd[]): string {
  const resources = resourcesOf(mds);
  const devices = [...new Set(resources.map(({ resource }) => deviceOf(resource)))];
  return section('UCP context', [
    [line(CONTEXT_WIDTH, 'engine', `${engine.name} ${engine.version}`)],
    mds.map(({ index, md }) => line(CONTEXT_WIDTH, `component ${index}  `, ` ${md.attributes.component}`)),
    mds.map(({ index, md }) => line(CONTEXT_WIDTH, `md ${index}  `, ` component ${index}  ${md.attributes.name}`)),
    resources.map(({ md, resource }, index) => {
      const device = devices.indexOf(deviceOf(resource));
      const name = `${resource.transport}/${resource.device}`;
      return line(CONTEXT_WIDTH, `resource ${index}  `, ` md ${md.index}  dev ${device}  flags -- ${name}`);
    }),
  ]);
}

/** Lists the length of the address, and the transports with atomic operations. */
export function workerInfo(mds: readonly OpenMd[], ifaces: readonly Iface[], addressBytes: number): string {
  const able = ifaces.filter(({ attributes }) => (attributes.flags & ATOMICS) !== 0);
  const atomics = able.map(({ attributes }) => `${numberOf(mds, attributes.resource)}:${nameOf(attributes)}`);
  return section(`UCP worker '${workerName()}'`, [
    [
      line(WORKER_WIDTH, 'address', `${addressBytes} bytes`),
      line(WORKER_WIDTH, 'atomics', atomics.join(', ') || 'none'),
    ],
  ]);
}

/** Lists the lanes with their possible roles, and the protocols of messages from host memory by size. */
export function endpointInfo(context: ContextCore, connection: Connection): string {
  const { mds } = context;
  const { lanes, amLane, socketAddresses, peerName } = connection;
  const remote = socketAddresses?.remote;
  const peer = peerName ?? (remote === undefined ? '<no debug data>' : `${remote.address}:${remote.port}`);
  const tables = HOST_MESSAGES.flatMap((operation) =>
    choiceTable('endpoint', explainHostMessages(context, connection, operation)).map((text) => `# ${text}`),
  );
  return section('UCP endpoint', [
    [
      line(WORKER_WIDTH - 5, 'peer', peer),
      ...lanes.map((lane, index) => line(WORKER_WIDTH, `lane[${index}]`, laneText(mds, lane, lane === amLane))),
    ],
    amLane === undefined ? [] : tables,
  ]);
}

/** ` 0:self/memory.0 md[0]   -> md[0]/self/sysdev[255] seg 8192 am rma`. */
function laneText(mds: readonly OpenMd[], { iface, md }: Lane, isMessages: boolean): string {
  const { attributes } = iface;
  const { resource, flags, am } = attributes;
  const own = `${String(numberOf(mds, resource)).padStart(2)}:${nameOf(attributes)}.0 md[${md.index}]`;
  const remote = `md[${md.index}]/${md.md.attributes.component}/sysdev[${resource.sysDevice ?? UNKNOWN_DEVICE}]`;
  const roles = ROLES.flatMap(([role, mask]) => ((flags & mask) === 0 ? [] : [role]));
  const segment = am.bcopyBytesMax > 0 ? [`seg ${am.bcopyBytesMax}`] : [];
  return [own.padEnd(LANE_COLUMNS), '->', remote, ...segment, ...(isMessages ? ['am'] : []), ...roles].join(' ');
}

function resourcesOf(mds: readonly OpenMd[]): { readonly md: OpenMd; readonly resource: IfaceResource }[] {
  return mds.flatMap((md) => md.resources.map((resource) => ({ md, resource })));
}

/** Index of a resource in the context. */
function numberOf(mds: readonly OpenMd[], { transport, device }: IfaceResource): number {
  return resourcesOf(mds).findIndex(({ resource }) => resource.transport === transport && resource.device === device);
}

function deviceOf({ deviceType, device }: IfaceResource): string {
  return `${deviceType} ${device}`;
}

/** Groups of lines, separated by empty ones. */
function section(title: string, groups: readonly (readonly string[])[]): string {
  const body = groups.flatMap((lines) => (lines.length === 0 ? [] : [...lines, '#']));
  return ['#', `# ${title}`, '#', ...body].map((text) => `${text}\n`).join('');
}

function line(width: number, name: string, value: string): string {
  return `#${`${name}: `.padStart(width)}${value}`;
}
