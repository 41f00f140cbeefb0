/** Values of `smi -Q` by the names of hl-smi: text and unit. Values that no driver interface reports are N/A. */

import { invalidParam } from '../../ucs/type/error.ts';
import type { SmiCard } from './smi-card.ts';

/** Text of unknown values. */
export const UNKNOWN = 'N/A';

/** The logical index of a card. */
export function indexText({ index }: Pick<SmiCard, 'index'>): string {
  return index === undefined ? UNKNOWN : String(index);
}

/** Bytes of a MiB, the unit of memory. */
const MIB = 2 ** 20;
const NS_PER_US = 1000;

/** A value of a card. */
interface Query {
  /** Unit, printed after the value, and in brackets after the name; undefined for none. */
  readonly unit?: string;
  readonly read: (card: SmiCard, time: string) => string | number | undefined;
}

const never: Query = { read: () => undefined };
const mib = (bytes: number | undefined): number | undefined =>
  bytes === undefined ? undefined : Math.round(bytes / MIB);
const micro = (ns: number | undefined): number | undefined =>
  ns === undefined ? undefined : Math.round(ns / NS_PER_US);
const whole = (value: number | undefined): number | undefined => (value === undefined ? undefined : Math.round(value));

/** All values. The upstream driver has no interface for counters of ECC errors, serial numbers and UUIDs. */
const QUERIES: Readonly<Record<string, Query>> = {
  timestamp: { read: (_card, time) => time },
  name: { read: ({ name }) => name },
  bus_id: { read: ({ busId }) => busId },
  driver_version: { read: ({ driverVersion }) => driverVersion },
  'temperature.aip': { unit: 'C', read: ({ temperature }) => whole(temperature) },
  module_id: { read: ({ moduleId }) => moduleId },
  'utilization.aip': { unit: '%', read: ({ utilization }) => utilization },
  'memory.total': { unit: 'MiB', read: ({ memoryBytes }) => mib(memoryBytes) },
  'memory.free': {
    unit: 'MiB',
    read: ({ memoryBytes = Number.NaN, memoryUsedBytes = Number.NaN }) => {
      const free = memoryBytes - memoryUsedBytes;
      return Number.isNaN(free) ? undefined : mib(free);
    },
  },
  'memory.used': { unit: 'MiB', read: ({ memoryUsedBytes }) => mib(memoryUsedBytes) },
  index: { read: ({ index }) => index },
  serial: never,
  uuid: never,
  'power.draw': { unit: 'W', read: ({ power }) => whole(power) },
  'power.max': { unit: 'W', read: ({ powerMax }) => whole(powerMax) },
  'clocks.current.soc': { unit: 'MHz', read: ({ clockMhz }) => clockMhz },
  'clocks.max.soc': { unit: 'MHz', read: ({ clockMaxMhz }) => clockMaxMhz },
  'ecc.errors.uncorrected.aggregate.total': never,
  'ecc.errors.uncorrected.volatile.total': never,
  'ecc.errors.corrected.aggregate.total': never,
  'ecc.errors.corrected.volatile.total': never,
  'ecc.errors.dram.aggregate.total': never,
  'ecc.errors.dram-corrected.aggregate.total': never,
  'ecc.errors.dram.volatile.total': never,
  'ecc.errors.dram-corrected.volatile.total': never,
  'ecc.mode.current': never,
  'ecc.mode.pending': never,
  'stats.violation.power': { unit: 'us', read: ({ powerThrottleNs }) => micro(powerThrottleNs) },
  'stats.violation.thermal': { unit: 'us', read: ({ thermalThrottleNs }) => micro(thermalThrottleNs) },
};

/** Names of all values. */
export const QUERY_NAMES: readonly string[] = Object.keys(QUERIES);

/** Format of the output. */
export interface CsvFormat {
  readonly header: boolean;
  readonly units: boolean;
}

/** Reads comma-separated names. @throws UcxError ERR_INVALID_PARAM that names the unknown one */
export function readQueries(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.find((name) => !Object.hasOwn(QUERIES, name));
  if (unknown !== undefined) throw invalidParam('-Q', `must be names from ${QUERY_NAMES.join(', ')}`, unknown);
  return names;
}

/** Reads `csv`, `csv,noheader`, `csv,noheader,nounits`. @throws UcxError ERR_INVALID_PARAM */
export function readFormat(text: string): CsvFormat {
  const [kind, ...flags] = text.split(',').map((word) => word.trim());
  if (kind !== 'csv' || flags.some((flag) => flag !== 'noheader' && flag !== 'nounits')) {
    throw invalidParam('-f', 'must be csv, csv,noheader, csv,nounits or csv,noheader,nounits', text);
  }
  return { header: !flags.includes('noheader'), units: !flags.includes('nounits') };
}

/** The lines of the output. @param time of the reading, as text */
export function queryLines(
  cards: readonly SmiCard[],
  names: readonly string[],
  format: CsvFormat,
  time: string,
): string[] {
  const rows = cards.map((card) => names.map((name) => cellOf(card, name, format, time)).join(', '));
  const head = names.map((name) => {
    const { unit } = QUERIES[name]!;
    return unit === undefined ? name : `${name} [${unit}]`;
  });
  return format.header ? [head.join(', '), ...rows] : rows;
}

/** A value as text, with its unit. */
export function valueText(card: SmiCard, name: string): string {
  return cellOf(card, name, { header: false, units: true }, '');
}

function cellOf(card: SmiCard, name: string, { units }: CsvFormat, time: string): string {
  const { unit, read } = QUERIES[name]!;
  const value = read(card, time);
  if (value === undefined) return UNKNOWN;
  return unit === undefined || !units ? String(value) : `${value} ${unit}`;
}
