/** The configuration of ib: `UCX_IB_*` and `UCX_RC_*`, with the names of UCX. */

import type { ConfigFieldOf, ConfigTable } from '../../../ucs/config/config.ts';
import {
  type ConfigType,
  enumType,
  memorySizeType,
  orAuto,
  restricted,
  type Ternary,
  ternaryAutoType,
  timeType,
  uintType,
} from '../../../ucs/config/value.ts';
import { RCACHE_CONFIG_TABLE, type RcacheConfig } from '../../../ucs/rcache/options.ts';

/** Name of component and memory domain. */
export const IB_NAME = 'ib';
/** Name of the transport. */
export const RC_NAME = 'rc';

/** The values of the table. */
export interface IbConfig extends RcacheConfig {
  readonly DRIVER: 'auto' | 'emulator' | 'verbs';
  readonly SEG_SIZE: number;
  readonly GID_INDEX: number | 'auto';
  readonly SL: number;
  readonly TRAFFIC_CLASS: number;
  readonly HOP_LIMIT: number;
  readonly PATH_MTU: number;
  readonly PKEY: number | 'auto';
  readonly RCACHE: Ternary;
}

/** Names under which C UCX sets a field of InfiniBand for one transport. */
function ofTransport(name: string): readonly string[] {
  return [`RC_${name}`, `RC_VERBS_${name}`];
}

const MTUS = [256, 512, 1024, 2048, 4096];
/** The value is that of enum ibv_mtu, from 1. */
const mtuType: ConfigType<number> = {
  syntax: `default, ${MTUS.join(', ')}`,
  parse(text) {
    const word = text.trim().toLowerCase();
    if (word === 'default') return MTUS.length;
    const code = MTUS.indexOf(Number(word)) + 1;
    return code === 0 ? undefined : code;
  },
  print: (code) => (code === MTUS.length ? 'default' : String(MTUS[code - 1])),
};

const byteType = restricted(uintType, 'an unsigned integer, 0 to 255', (value) => value <= 255);

/** `UCX_IB_*`. */
export const IB_CONFIG_TABLE: ConfigTable<IbConfig> = {
  prefix: 'IB_',
  fields: [
    {
      name: 'DRIVER',
      type: enumType(['auto', 'emulator', 'verbs'] as const),
      default: 'auto',
      doc: 'RDMA devices to use. emulator: those of the emulated node, whose number is UCX_GAUDI_EMULATOR_NICS; verbs: those of this machine, through libibverbs, tested with soft RoCE (rdma_rxe); auto: those of the emulated node if it has any, otherwise those of this machine.',
    },
    {
      name: 'SEG_SIZE',
      aliases: ofTransport('SEG_SIZE'),
      type: restricted(
        memorySizeType,
        'a size from 1k to 64k, a multiple of 64',
        (bytes) => bytes >= 1024 && bytes <= 65_536 && bytes % 64 === 0,
      ),
      default: '8k',
      doc: 'Longest message, and length of the buffers of the transport: 1k to 64k, a multiple of 64. Must be the same at both ends.',
    },
    {
      name: 'GID_INDEX',
      type: orAuto(uintType),
      default: 'auto',
      doc: 'Index of the GID of a port. auto: on Ethernet a RoCE v2 GID, preferably of an IPv4 address; on InfiniBand 0.',
    },
    {
      name: 'SL',
      aliases: ofTransport('SL'),
      type: restricted(uintType, 'an unsigned integer, 0 to 15', (value) => value <= 15),
      default: '0',
      doc: 'Service level, 0 to 15.',
    },
    {
      name: 'TRAFFIC_CLASS',
      aliases: ofTransport('TRAFFIC_CLASS'),
      type: byteType,
      default: '0',
      doc: 'Traffic class of the global route header, 0 to 255.',
    },
    {
      name: 'HOP_LIMIT',
      aliases: ofTransport('HOP_LIMIT'),
      type: byteType,
      default: '255',
      doc: 'Hop limit of the global route header, 0 to 255.',
    },
    {
      name: 'PATH_MTU',
      aliases: ofTransport('PATH_MTU'),
      type: mtuType,
      default: 'default',
      doc: 'Longest packet of a connection in bytes: 256, 512, 1024, 2048, 4096, or default; bounded by the active MTU of the ports of both ends.',
    },
    {
      name: 'PKEY',
      aliases: ofTransport('PKEY'),
      type: orAuto(restricted(uintType, 'a partition key, 0 to 0x7fff', (pkey) => pkey <= 0x7fff)),
      default: 'auto',
      doc: 'Partition key, 0 to 0x7fff: ports without it are not used. auto: the first in the table of the port, preferably one with full membership.',
    },
    {
      name: 'RCACHE',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Cache the registrations of host memory for transfers of this process; n registers memory for each use.',
    },
  ],
  subTables: [RCACHE_CONFIG_TABLE],
};

/** The values of the table. */
export interface RcConfig {
  readonly TX_QUEUE_LEN: number;
  readonly TX_MIN_INLINE: number;
  readonly TX_CQ_MODERATION: number;
  readonly RX_QUEUE_LEN: number;
  readonly FC_WND_SIZE: number;
  readonly TIMEOUT: number;
  readonly RETRY_COUNT: number;
  readonly RNR_TIMEOUT: number;
  readonly RNR_RETRY_COUNT: number;
  readonly MAX_RD_ATOMIC: number;
  readonly CONNECT_TIMEOUT: number;
}

/** C UCX names the fields after its transport over libibverbs, too. */
function alsoForVerbs<V>(fields: readonly ConfigFieldOf<V>[]): readonly ConfigFieldOf<V>[] {
  return fields.map((field) => ({ ...field, aliases: [`RC_VERBS_${field.name}`] }));
}

const retryType = restricted(uintType, 'an unsigned integer, 0 to 7', (count) => count <= 7);

/** `UCX_RC_*`. */
export const RC_CONFIG_TABLE: ConfigTable<RcConfig> = {
  prefix: 'RC_',
  fields: alsoForVerbs<RcConfig>([
    {
      name: 'TX_CQ_MODERATION',
      type: restricted(uintType, 'an unsigned integer, at least 1', (count) => count >= 1),
      default: '64',
      doc: 'Number of unsignaled work requests for each signaled one (which asks for a completion); at most a quarter of the send queue.',
    },
    {
      name: 'FC_WND_SIZE',
      type: restricted(uintType, 'an unsigned integer, 2 to 32767', (size) => size >= 2 && size <= 32_767),
      default: '128',
      doc: 'Messages that a peer may send without a credit, 2 to 32767.',
    },
    {
      name: 'TIMEOUT',
      type: timeType,
      default: '1s',
      doc: 'Time to wait for an acknowledgement; the device rounds it up.',
    },
    {
      name: 'RETRY_COUNT',
      type: retryType,
      default: '7',
      doc: 'Number of retries without an acknowledgement, 0 to 7.',
    },
    {
      name: 'RNR_TIMEOUT',
      type: timeType,
      default: '1ms',
      doc: 'Time before a message is sent again if the peer had no receive buffer (RNR).',
    },
    {
      name: 'RNR_RETRY_COUNT',
      type: retryType,
      default: '7',
      doc: 'Number of retries if the peer has no receive buffer (RNR); 7 for no limit.',
    },
    {
      name: 'MAX_RD_ATOMIC',
      type: restricted(uintType, 'an unsigned integer, 1 to 128', (count) => count >= 1 && count <= 128),
      default: '4',
      doc: 'Reads and atomic operations in flight on a connection; bounded by the device.',
    },
    {
      name: 'CONNECT_TIMEOUT',
      type: restricted(timeType, 'a time from 1ms to 60m', (ns) => ns >= 1e6 && ns <= 3600e9),
      default: '10s',
      doc: 'Time limit for establishing a connection, 1ms to 60m.',
    },
  ]),
  // As in UCX: UCX_IB_X < UCX_RC_X < UCX_RC_VERBS_X.
  subTables: [
    {
      prefix: 'IB_',
      fields: alsoForVerbs<RcConfig>([
        {
          name: 'TX_QUEUE_LEN',
          type: restricted(uintType, 'an unsigned integer, 32 to 4096', (length) => length >= 32 && length <= 4096),
          default: '256',
          doc: 'Length of the send queue of a connection, 32 to 4096; bounded by the device.',
        },
        {
          name: 'TX_MIN_INLINE',
          type: restricted(
            memorySizeType,
            'a size up to 512, a multiple of 8',
            (bytes) => bytes <= 512 && bytes % 8 === 0,
          ),
          default: '64',
          doc: 'Bytes that are sent inside a work request: up to 512, a multiple of 8; bounded by the device.',
        },
        {
          name: 'RX_QUEUE_LEN',
          type: restricted(uintType, 'an unsigned integer, 64 to 8192', (length) => length >= 64 && length <= 8192),
          default: '512',
          doc: 'Length of the receive queue that the connections of an interface share, 64 to 8192; bounded by the device.',
        },
      ]),
    },
  ],
};
