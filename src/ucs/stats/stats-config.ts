/** Configuration fields of the statistics: destination, trigger and filter. */

import type { ConfigTable } from '../config/config.ts';
import { type AllowList, allowListType } from '../config/list.ts';
import { boolType, type ConfigType, enumType, timeType } from '../config/value.ts';
import { FILE_NAME_SYNTAX } from '../sys/file-name.ts';
import { type StatsDestination, type StatsFormat, type StatsTrigger, signalNumber } from './stats-output.ts';

/** Port of UCX's statistics server (UCS_STATS_DEFAULT_UDP_PORT). */
const DEFAULT_PORT = 37873;
const PORT_MAX = 65_535;

/** The values of {@link STATS_CONFIG_TABLE}. */
export interface StatsConfig {
  readonly STATS_DEST: StatsDestination;
  readonly STATS_TRIGGER: StatsTrigger;
  readonly STATS_FILTER: AllowList;
  readonly STATS_FORMAT: StatsFormat;
  readonly STATS_LATENCY: boolean;
}

const destinationType: ConfigType<StatsDestination> = {
  syntax: `empty, stdout, stderr, file:<name>[:bin] or udp:<host>[:<port>]`,
  parse(text) {
    const trimmed = text.trim();
    if (trimmed === '') return { kind: 'none' };
    if (trimmed === 'stdout' || trimmed === 'stderr') return { kind: trimmed };
    const file = /^file:(.+?)(:bin)?$/.exec(trimmed);
    if (file !== null) return { kind: 'file', template: file[1]!, isBinary: file[2] !== undefined };
    const match = /^udp:(\[[^\]]+\]|[^:]+)(?::(\d+))?$/.exec(trimmed);
    const port = Number(match?.[2] ?? DEFAULT_PORT);
    if (match === null || port < 1 || port > PORT_MAX) return undefined;
    return { kind: 'udp', host: match[1]!.replace(/^\[|\]$/g, ''), port };
  },
  print(value) {
    switch (value.kind) {
      case 'none':
        return '';
      case 'file':
        return `file:${value.template}${value.isBinary ? ':bin' : ''}`;
      case 'udp':
        return `udp:${value.host.includes(':') ? `[${value.host}]` : value.host}:${value.port}`;
      default:
        return value.kind;
    }
  },
};

const triggerType: ConfigType<StatsTrigger> = {
  syntax: 'exit, signal:<name or number of a signal> or timer:<time above 0>',
  parse(text) {
    const [word = '', value = ''] = text.trim().split(/:(.*)/s);
    if (word === 'exit' && value === '') return { kind: 'exit' };
    if (word === 'signal') {
      const signal = signalNumber(value);
      return signal === undefined ? undefined : { kind: 'signal', signal };
    }
    const intervalNs = word === 'timer' ? timeType.parse(value) : undefined;
    if (intervalNs === undefined || !(intervalNs > 0 && intervalNs < Infinity)) return undefined;
    return { kind: 'timer', intervalNs };
  },
  print(value) {
    if (value.kind === 'signal') return `signal:${value.signal}`;
    return value.kind === 'timer' ? `timer:${timeType.print(value.intervalNs)}` : 'exit';
  },
};

/** `UCX_STATS_*`. */
export const STATS_CONFIG_TABLE: ConfigTable<StatsConfig> = {
  prefix: '',
  fields: [
    {
      name: 'STATS_DEST',
      type: destinationType,
      default: '',
      doc: `Destination of the statistics of a context: none when empty; stdout; stderr; file:<name>, with the substitutions ${FILE_NAME_SYNTAX}; udp:<host>[:<port>]: JSON datagrams, to port ${DEFAULT_PORT} by default; file:<name>:bin: the same JSON in a file, one object per line, regardless of STATS_FORMAT.`,
    },
    {
      name: 'STATS_TRIGGER',
      type: triggerType,
      default: 'exit',
      doc: 'When statistics are written. exit: when a context closes or the process ends; signal:<name or number>: also at this signal; timer:<time>: also periodically.',
    },
    {
      name: 'STATS_FILTER',
      type: allowListType,
      default: 'all',
      doc: 'Names of the counters that are written.',
    },
    {
      name: 'STATS_FORMAT',
      type: enumType(['full', 'agg', 'summary']),
      default: 'full',
      doc: 'full: every object with its counters; agg: the sums over all objects of a class; summary: the sums that are not zero, one line for each class.',
    },
    {
      name: 'STATS_LATENCY',
      type: boolType,
      default: 'n',
      doc: 'Record latency histograms of operations, which gaudi-ucx inspect and gaudi-ucx metrics show. This costs time: every operation then has a request and reads the clock twice.',
    },
  ],
};
