/** The configuration of tcp: `UCX_TCP_*`. The configuration of the connection manager over TCP: `UCX_TCP_CM_*`. */

import type { ConfigTable } from '../../ucs/config/config.ts';
import { listType } from '../../ucs/config/list.ts';
import {
  bandwidthType,
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
import { SECURITY_LEVELS, type SecurityConfig } from './secure/security.ts';

/** The first and the last permitted port to listen on; [0, 0] for any. */
export type PortRange = readonly [number, number];

/** The values of the table. */
export interface TcpConfig extends SecurityConfig {
  readonly TX_SEG_SIZE: number;
  readonly RX_SEG_SIZE: number;
  readonly MAX_POLL: number;
  readonly NODELAY: boolean;
  readonly SNDBUF: number | 'auto';
  readonly RCVBUF: number | 'auto';
  readonly PORT_RANGE: PortRange;
  readonly BACKLOG: number;
  readonly BRIDGE_ENABLE: boolean;
  readonly AF_PRIO: readonly AddressFamily[];
  readonly EP_BIND_SRC_ADDR: Ternary;
  readonly CONNECT_TIMEOUT: number;
  readonly KEEPIDLE: number;
  readonly KEEPINTVL: number;
  readonly KEEPCNT: number;
  readonly PEER_TIMEOUT: number;
  readonly MAX_BW: number;
  readonly LATENCY: number;
  readonly OVERHEAD: number;
}

const PORT_MAX = 65_535;

/** Address families by the names of UCX. */
const FAMILIES = ['inet', 'inet6'] as const;
export type AddressFamily = (typeof FAMILIES)[number];

/** Permitted families, the preferred one first. */
const familiesType: ConfigType<readonly AddressFamily[]> = restricted(
  listType(enumType(FAMILIES)),
  'inet, inet6, or both separated by a comma, the preferred one first',
  (families) => families.length > 0 && new Set(families).size === families.length,
);

const segmentType = restricted(
  memorySizeType,
  'a size from 1k to 1m, a multiple of 64',
  (bytes) => bytes >= 1024 && bytes <= 2 ** 20 && bytes % 64 === 0,
);
const socketBufferType: ConfigType<number | 'auto'> = restricted(
  memoryUnitsType,
  'auto or a size from 4k to 1g',
  (bytes) => bytes === 'auto' || (bytes >= 4096 && bytes <= 2 ** 30),
);
/** Times that the kernel counts in whole seconds. */
const secondsType = restricted(timeType, 'a time from 1s to 32767s', (ns) => ns >= 1e9 && ns <= 32_767e9);
const boundedTimeType = restricted(timeType, 'a time from 1ms to 60m', (ns) => ns >= 1e6 && ns <= 3600e9);

/** `0`, `5000` or `5000-5100`. */
const portRangeType: ConfigType<PortRange> = {
  syntax: '0 for any, a port, or a range of ports: 5000-5100',
  parse(text) {
    const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text.trim());
    if (match === null) return undefined;
    const first = Number(match[1]);
    const last = Number(match[2] ?? match[1]);
    const isGood = first <= last && last <= PORT_MAX && (first > 0 || last === 0);
    return isGood ? [first, last] : undefined;
  },
  print: ([first, last]) => (first === last ? String(first) : `${first}-${last}`),
};

/** `UCX_TCP_*`. */
export const TCP_CONFIG_TABLE: ConfigTable<TcpConfig> = {
  prefix: 'TCP_',
  fields: [
    {
      name: 'TX_SEG_SIZE',
      type: segmentType,
      default: '64k',
      doc: 'Longest message that is copied for sending: 1k to 1m, a multiple of 64; no longer than RX_SEG_SIZE, here and at the peers. The default of UCX is 8k.',
    },
    {
      name: 'RX_SEG_SIZE',
      type: segmentType,
      default: '64k',
      doc: 'Longest message that can be received, and size of the receive buffer: 1k to 1m, a multiple of 64.',
    },
    {
      name: 'MAX_POLL',
      type: restricted(uintType, 'an unsigned integer, at least 1', (count) => count >= 1),
      default: '16',
      doc: 'Maximum number of receive calls on one connection in one call of progress.',
    },
    { name: 'NODELAY', type: boolType, default: 'y', doc: 'Send small messages at once (TCP_NODELAY).' },
    {
      name: 'SNDBUF',
      type: socketBufferType,
      default: 'auto',
      doc: 'Size of the send buffer of a socket (SO_SNDBUF), which bounds the send window. auto is 256k for peers on this host, and the default of the kernel for others.',
    },
    {
      name: 'RCVBUF',
      type: socketBufferType,
      default: 'auto',
      doc: 'Size of the receive buffer of a socket (SO_RCVBUF), which bounds the receive window. auto is the default of the kernel.',
    },
    {
      name: 'PORT_RANGE',
      type: portRangeType,
      default: '0',
      doc: 'Ports on which to listen for peers: 0 for any free port, or a range, such as 5000-5100; each device needs one port of the range.',
    },
    {
      name: 'BACKLOG',
      type: restricted(uintType, 'an unsigned integer, at least 1', (count) => count >= 1),
      default: '1024',
      doc: 'Maximum number of connections that wait to be accepted, bounded by net.core.somaxconn.',
    },
    {
      name: 'BRIDGE_ENABLE',
      type: boolType,
      default: 'n',
      doc: 'Use bridges, such as docker0. Their addresses are the same on many machines, so they do not identify peers on other hosts.',
    },
    {
      name: 'AF_PRIO',
      type: familiesType,
      default: 'inet,inet6',
      doc: 'Address families for connections, the preferred one first: inet is IPv4, inet6 IPv6. Families that are not listed are not used, nor are devices without an address of a listed family.',
    },
    {
      name: 'EP_BIND_SRC_ADDR',
      type: ternaryType,
      default: 'try',
      doc: 'Bind connections to the address of the device, so that connections of different devices use different paths. y: for all peers, and fails if that is impossible; try: for peers on other hosts, if possible; n: the kernel selects the source address.',
    },
    {
      name: 'CONNECT_TIMEOUT',
      type: boundedTimeType,
      default: '10s',
      doc: 'Time limit for establishing a connection and exchanging hellos, 1ms to 60m. Time in which the program does not call progress does not count.',
    },
    {
      name: 'KEEPIDLE',
      type: secondsType,
      default: '10s',
      doc: 'Time without data after which the kernel probes whether the host of the peer is alive (TCP_KEEPIDLE).',
    },
    {
      name: 'SECURITY',
      type: enumType(SECURITY_LEVELS),
      default: 'none',
      doc: 'Authentication of peers, clients and listeners. none: only for loopback and trusted networks; auth: both ends prove that they know the shared key of TCP_KEY_FILE, and data is not encrypted; encrypt: as auth, and data is encrypted. Must be the same at both ends; applies to all devices.',
    },
    {
      name: 'KEY_FILE',
      type: stringType,
      default: '',
      doc: 'File of the shared key for TCP_SECURITY: at least 16 random bytes, owned by the user of this process and readable only by this user.',
    },
    {
      name: 'KEEPINTVL',
      type: secondsType,
      default: '2s',
      doc: 'Interval of the probes that begin after TCP_KEEPIDLE (TCP_KEEPINTVL).',
    },
    {
      name: 'KEEPCNT',
      type: restricted(uintType, 'an unsigned integer, 1 to 127', (count) => count >= 1 && count <= 127),
      default: '3',
      doc: 'Number of unanswered keepalive probes after which the connection ends (TCP_KEEPCNT).',
    },
    {
      name: 'PEER_TIMEOUT',
      type: boundedTimeType,
      default: '10s',
      doc: 'The process or host of a peer is regarded as failed if neither a complete message nor 4 KiB of a long message arrives from it for this time. The keepalive (UCX_KEEPALIVE_INTERVAL) checks this. A process sends three heartbeats in this time while its event loop runs, so a process that blocks its event loop for longer is regarded as failed.',
    },
    {
      name: 'MAX_BW',
      type: bandwidthType,
      default: '2200MBs',
      doc: 'Estimated bandwidth of devices that do not report their speed, and upper bound for those that do.',
    },
    { name: 'LATENCY', type: timeType, default: '10us', doc: 'Estimated latency of a message between two hosts.' },
    { name: 'OVERHEAD', type: timeType, default: '2us', doc: 'Estimated time of starting an operation.' },
  ],
};

/** The longest message that is copied for sending: a peer with the same settings can receive it. */
export function sendBytesMax({ TX_SEG_SIZE, RX_SEG_SIZE }: Pick<TcpConfig, 'TX_SEG_SIZE' | 'RX_SEG_SIZE'>): number {
  return Math.min(TX_SEG_SIZE, RX_SEG_SIZE);
}

/** The values of the table. */
export interface TcpCmConfig {
  readonly TIMEOUT: number;
  readonly ANSWER_TIMEOUT: number;
  readonly MAX_CLIENTS: number;
  readonly MAX_REQUESTS: number;
  readonly REUSEADDR: boolean;
}

const positiveTimeType = restricted(timeType, 'a time above 0', (ns) => ns > 0);

function countType(max: number): ConfigType<number> {
  return restricted(uintType, `an integer from 1 to ${max}`, (count) => count >= 1 && count <= max);
}

/** `UCX_TCP_CM_*`. */
export const TCP_CM_CONFIG_TABLE: ConfigTable<TcpCmConfig> = {
  prefix: 'TCP_CM_',
  fields: [
    {
      name: 'TIMEOUT',
      type: positiveTimeType,
      default: '10s',
      doc: 'Time limit for connecting to a listener, and for the next message of either side; slower peers are disconnected. inf for no limit.',
    },
    {
      name: 'ANSWER_TIMEOUT',
      type: positiveTimeType,
      default: '1m',
      doc: 'Time limit for the program to accept or reject a client; then the client gives up. inf for no limit.',
    },
    {
      name: 'MAX_CLIENTS',
      type: countType(65_536),
      default: '1024',
      doc: 'Maximum number of clients of the listeners of one worker that have not sent their request: 1 to 65536 in all, and at most half of that from one address. If another one connects, the oldest is disconnected, and may connect again.',
    },
    {
      name: 'MAX_REQUESTS',
      type: countType(65_536),
      default: '1024',
      doc: 'Maximum number of connection requests that the program has not accepted or rejected yet, 1 to 65536; further ones are rejected with BUSY.',
    },
  ],
  // As in UCX: UCX_CM_REUSEADDR < UCX_TCP_CM_REUSEADDR.
  subTables: [
    {
      prefix: 'CM_',
      fields: [
        {
          name: 'REUSEADDR',
          type: boolType,
          default: 'y',
          doc: 'Let a listener use a port while closed connections of an earlier listener still exist in the kernel (SO_REUSEADDR). The default of UCX is n.',
        },
      ],
    },
  ],
};
