/** The configuration of ucp: the supported fields of UCX's protocol layer. */

import type { ConfigTable } from '../../ucs/config/config.ts';
import {
  type AllowList,
  allowListType,
  DEFAULT_KEY,
  isItem,
  type KeyValues,
  keyValueType,
  listType,
} from '../../ucs/config/list.ts';
import {
  boolType,
  type ConfigType,
  enumType,
  memorySizeType,
  memoryUnitsType,
  restricted,
  stringType,
  type Ternary,
  ternaryType,
  timeType,
  uintType,
} from '../../ucs/config/value.ts';
import { MEMORY_TYPE_NAMES } from '../../ucs/memory/memory-type.ts';
import { type ProtocolInfoMode, protocolInfoType } from '../proto/protocol-info.ts';

/** The values of UCX_RNDV_SCHEME. */
export const RNDV_SCHEMES = ['auto', 'get_zcopy', 'put_zcopy', 'get_ppln', 'put_ppln', 'am', 'rkey_ptr'] as const;
export type RendezvousScheme = (typeof RNDV_SCHEMES)[number];

/** True for schemes in which the receiver reads the memory of the sender, if possible. */
export function isReadScheme(scheme: RendezvousScheme): boolean {
  return scheme === 'auto' || scheme === 'get_zcopy';
}

/** Where a peer is: on this node or on another. */
const REACHES = ['default', 'intra', 'inter'] as const;
export type Reach = (typeof REACHES)[number];

/** The values of the table. */
export interface UcpConfig {
  readonly TLS: AllowList;
  readonly NET_DEVICES: AllowList;
  readonly SHM_DEVICES: AllowList;
  readonly ACC_DEVICES: AllowList;
  readonly SELF_DEVICES: AllowList;
  readonly WARN_INVALID_CONFIG: boolean;
  readonly PROGRESS_SPIN: number;
  readonly RNDV_THRESH: KeyValues<Reach, number | 'auto'>;
  readonly RNDV_SCHEME: RendezvousScheme;
  readonly BCOPY_THRESH: number | 'auto';
  readonly ZCOPY_THRESH: number | 'auto';
  readonly RNDV_FRAG_SIZE: number;
  readonly RNDV_FRAG_ALLOC_COUNT: number;
  readonly MAX_RNDV_RAILS: number;
  readonly MIN_RNDV_CHUNK_SIZE: number;
  readonly MAX_RMA_RAILS: number;
  readonly MIN_RMA_CHUNK_SIZE: number;
  readonly SINGLE_NET_DEVICE: boolean;
  readonly MULTI_LANE_MAX_RATIO: number;
  readonly UNEXP_MAX_BYTES: number;
  readonly REQUESTS_MAX: number;
  readonly KEEPALIVE_INTERVAL: number;
  readonly RCACHE_ENABLE: Ternary;
  readonly MEMTYPE_CACHE: Ternary;
  readonly PROTO_INFO: ProtocolInfoMode;
  readonly SOCKADDR_TLS_PRIORITY: readonly string[];
  readonly PROTO_EMULATION_ENABLE: boolean;
  readonly ADDRESS_DEBUG_INFO: boolean;
}

const fragmentBytesType = restricted(
  memorySizeType,
  'a size from 64k to 16m',
  (bytes) => bytes >= 65_536 && bytes <= 16 * 2 ** 20,
);
// At least two: one fragment to send, one to receive.
const fragmentCountType = restricted(uintType, 'an unsigned integer, at least 2', (count) => count >= 2);

/** A value for all memory types or, in the syntax of UCX, for some: `host:512K,cuda:4M`. Fragments are host memory: other types are ignored. */
function ofHostMemory(type: ConfigType<number>): ConfigType<number> {
  const byMemoryType = keyValueType([DEFAULT_KEY, ...MEMORY_TYPE_NAMES], type);
  return {
    syntax: `${type.syntax}; or by memory type (only host is used): host:<value>,...`,
    parse(text) {
      const values = byMemoryType.parse(text);
      return values?.host ?? values?.[DEFAULT_KEY];
    },
    print: type.print,
  };
}

/** Names with * and ?, in order of priority. */
const managersType = listType(restricted(stringType, 'a name, or * for all', (name) => name !== '' && isItem(name)));

/** The configuration table: `UCX_TLS` and the other fields. */
export const UCP_CONFIG_TABLE: ConfigTable<UcpConfig> = {
  prefix: '',
  fields: [
    {
      name: 'TLS',
      type: allowListType,
      default: 'all',
      doc: 'Transports to use, by name or alias: shm or sm (posix, cma), mm (posix), gaudi (gaudi_cpy, gaudi_ipc), ...; a name after \\ is matched without its aliases.',
    },
    {
      name: 'NET_DEVICES',
      type: allowListType,
      default: 'all',
      doc: 'Network devices to use.',
    },
    {
      name: 'SHM_DEVICES',
      type: allowListType,
      default: 'all',
      doc: 'Intra-node devices to use: memory.',
    },
    {
      name: 'ACC_DEVICES',
      type: allowListType,
      default: 'all',
      doc: 'Accelerators to use: gaudi0, gaudi[0-3], ... Others are not opened and stay free for other processes.',
    },
    {
      name: 'SELF_DEVICES',
      type: allowListType,
      default: 'all',
      doc: 'Loopback devices to use: memory.',
    },
    {
      name: 'WARN_INVALID_CONFIG',
      type: boolType,
      default: 'y',
      doc: 'Warn about transports and devices in these lists that do not exist on this machine, with the nearest name.',
    },
    {
      name: 'PROGRESS_SPIN',
      type: timeType,
      default: '20us',
      doc: 'How long a worker polls without progress before it sleeps until an event of its transports, whether operations are awaited or not.',
    },
    {
      name: 'RNDV_THRESH',
      type: keyValueType(REACHES, memoryUnitsType),
      default: 'auto',
      doc: 'Minimum length of messages from host memory that are sent by rendezvous, for all peers, or separately for peers on this node (intra:8k) and on others (inter:16k). auto: messages that do not fit into a frame, and tagged messages of 32 KiB and more if their memory is mapped and the processor of the peer can read it directly; inf: only messages that do not fit into a frame, which always use rendezvous.',
    },
    {
      name: 'RNDV_SCHEME',
      type: enumType(RNDV_SCHEMES),
      default: 'auto',
      doc: 'Protocol of a rendezvous, if both ends support it: get_zcopy, the receiver reads the data; put_zcopy, the sender writes it at once; put_ppln, the sender writes it in windows; am, the sender sends it in messages; auto, the first of these that is possible. Must be set to the same value at both ends. get_ppln and rkey_ptr are supported by libucp only.',
    },
    {
      name: 'BCOPY_THRESH',
      type: memoryUnitsType,
      default: 'auto',
      doc: 'Minimum length of messages that are copied into a buffer of the transport instead of being sent inline; auto: messages that are too long to be sent inline.',
    },
    {
      name: 'ZCOPY_THRESH',
      type: memoryUnitsType,
      default: 'auto',
      doc: 'Minimum length of puts and gets that use zero copy; shorter ones use it only if no other protocol is possible. auto: chosen by estimated cost. Does not apply to messages, whose zero copy is the rendezvous.',
    },
    {
      name: 'RNDV_FRAG_SIZE',
      type: ofHostMemory(fragmentBytesType),
      default: '512k',
      doc: 'Size of the host buffers (fragments) through which device memory goes if no transport reaches it, 64k to 16m.',
    },
    {
      name: 'RNDV_FRAG_ALLOC_COUNT',
      type: ofHostMemory(fragmentCountType),
      default: '16',
      doc: 'Maximum number of host fragments of one worker, 2 or more. At most half of them receive at a time, which limits the windows in flight of one message; the others are kept for sending. Operations wait if no fragment is free.',
    },
    {
      name: 'MAX_RNDV_RAILS',
      aliases: ['MAX_RNDV_LANES'],
      type: restricted(uintType, 'an unsigned integer, 1 to 8', (count) => count >= 1 && count <= 8),
      default: '2',
      doc: 'Maximum number of network devices among which a rendezvous divides a message, 1 to 8.',
    },
    {
      name: 'MIN_RNDV_CHUNK_SIZE',
      type: restricted(memorySizeType, 'a size from 4k to 1g', (bytes) => bytes >= 4096 && bytes <= 2 ** 30),
      default: '16k',
      doc: 'Minimum share of a divided message for each device, 4k to 1g.',
    },
    {
      name: 'MAX_RMA_RAILS',
      aliases: ['MAX_RMA_LANES'],
      type: restricted(uintType, 'an unsigned integer, 1 to 8', (count) => count >= 1 && count <= 8),
      default: '2',
      doc: 'Maximum number of network devices among which a put or get is divided, 1 to 8. The default of UCX is 1.',
    },
    {
      name: 'MIN_RMA_CHUNK_SIZE',
      type: restricted(memorySizeType, 'a size from 4k to 1g', (bytes) => bytes >= 4096 && bytes <= 2 ** 30),
      default: '8k',
      doc: 'Minimum share of a divided put or get for each device, 4k to 1g.',
    },
    {
      name: 'SINGLE_NET_DEVICE',
      type: boolType,
      default: 'n',
      doc: 'Use only one network device for each protocol: operations are not divided, and MAX_RNDV_RAILS and MAX_RMA_RAILS are ignored.',
    },
    {
      name: 'MULTI_LANE_MAX_RATIO',
      type: restricted(uintType, 'an unsigned integer, at least 1', (ratio) => ratio >= 1),
      default: '4',
      doc: 'An operation is divided only among devices with at least 1/N of the estimated bandwidth of the best one; this is N.',
    },
    {
      name: 'UNEXP_MAX_BYTES',
      type: memorySizeType,
      default: '256m',
      doc: 'Memory of one worker for messages and stream bytes that arrive before they are received; beyond it, the bytes stay at the senders: they announce a message (rendezvous) or wait. Shared by all connections; inf for no limit.',
    },
    {
      name: 'REQUESTS_MAX',
      type: restricted(uintType, 'a number from 16 to 16777216', (count) => count >= 16 && count <= 2 ** 24),
      default: '1048576',
      doc: 'Maximum number of requests of one worker in use; beyond it operations return NO_RESOURCE, and awaited ones wait.',
    },
    {
      name: 'KEEPALIVE_INTERVAL',
      type: timeType,
      default: '1s',
      doc: 'Interval of checking whether the peers of endpoints with error handling are alive; inf for no checks.',
    },
    {
      name: 'RCACHE_ENABLE',
      type: ternaryType,
      default: 'try',
      doc: 'Cache the registrations of host buffers that are not mapped, in the memory domains; n: register them for each operation.',
    },
    {
      name: 'MEMTYPE_CACHE',
      type: ternaryType,
      default: 'try',
      doc: 'Cache the memory types of addresses; n: query the memory domains every time, and ignore context.memoryTypeEvent().',
    },
    {
      name: 'PROTO_INFO',
      type: protocolInfoType,
      default: 'auto',
      doc: 'Print tables of protocols: y: those that are chosen; used: those that were used and how often, when a worker closes; a glob: as y, but only tables whose title matches; auto: as y if debug messages are logged.',
    },
    {
      name: 'SOCKADDR_TLS_PRIORITY',
      type: managersType,
      default: 'rdmacm,tcp,sockcm',
      doc: 'Connection managers for listeners and for endpoints by socket address, in the order in which they are tried; * for all. This library has tcp.',
    },
    {
      name: 'PROTO_EMULATION_ENABLE',
      type: boolType,
      default: 'y',
      doc: 'Let the worker of the peer execute puts and gets between memories that no lane connects. n: such operations fail with ERR_UNREACHABLE.',
    },
    {
      name: 'ADDRESS_DEBUG_INFO',
      type: boolType,
      default: 'n',
      doc: 'Add host name and process id to worker addresses, so that printInfo() of an endpoint names its peer.',
    },
  ],
};
