/** Summary of a profile: counts, times, bytes and failures by timeline and name. */

import { formatBytes, formatTable, formatTime } from '../base/text-table.ts';
import { percentileOf } from '../perftest/measure.ts';
import type { ProfileEvent, ProfileFile } from './read-profile.ts';

/** Events of one name on one timeline. Times in nanoseconds; percentiles are undefined for sums, which do not contain them. */
export interface SummaryRow {
  readonly timeline: string;
  readonly name: string;
  readonly count: number;
  readonly totalNs: number;
  readonly meanNs: number;
  readonly p50Ns: number | undefined;
  readonly p99Ns: number | undefined;
  readonly minNs: number;
  readonly maxNs: number;
  readonly bytes: number;
  /** Bytes per second while at least one event of the row ran; undefined for sums, and without bytes. */
  readonly bytesPerSecond: number | undefined;
  /** Events that failed, by the name of their status. */
  readonly failed: Readonly<Record<string, number>>;
}

/** Summary of a profile. */
export interface ProfileSummary {
  readonly title: string;
  readonly lost: number;
  readonly events: number;
  /** From the first begin to the last end. */
  readonly spanNs: number;
  /** Recorded events (mode log), and sums (mode accum), each with the longest total time first. */
  readonly rows: readonly SummaryRow[];
  readonly sums: readonly SummaryRow[];
}

/** The summary of a file. */
export function summarize({ title, lost, events, sums }: ProfileFile): ProfileSummary {
  const groups = new Map<string, ProfileEvent[]>();
  for (const event of events) {
    const key = `${event.timeline}\n${event.name}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [event]);
    else group.push(event);
  }
  const starts = events.reduce((least, { startNs }) => Math.min(least, startNs), Infinity);
  const ends = events.reduce((most, { endNs }) => Math.max(most, endNs), -Infinity);
  return {
    title,
    lost,
    events: events.length,
    spanNs: events.length === 0 ? 0 : ends - starts,
    rows: [...groups.values()].map(rowOf).sort(longestFirst),
    sums: sums
      .map((sum) => ({
        ...sum,
        meanNs: sum.totalNs / sum.count,
        p50Ns: undefined,
        p99Ns: undefined,
        bytesPerSecond: undefined,
        failed: {},
      }))
      .sort(longestFirst),
  };
}

/** The summary as text. */
export function summaryText(summary: ProfileSummary): string {
  const { title, lost, events, spanNs, rows, sums } = summary;
  const parts = [title];
  if (events > 0 || sums.length === 0) {
    const losses = lost === 0 ? '' : `; ${lost} older events were overwritten (UCX_PROFILE_LOG_SIZE)`;
    parts.push(`${events} events in ${formatTime(spanNs)}${losses}`);
  }
  if (rows.length > 0) parts.push(tableOf(rows));
  if (sums.length > 0) parts.push(`sums of all events (accum):\n${tableOf(sums)}`);
  return parts.join('\n\n');
}

function rowOf(events: readonly ProfileEvent[]): SummaryRow {
  const { timeline, name } = events[0]!;
  const times = Float64Array.from(events, ({ startNs, endNs }) => endNs - startNs).sort();
  const totalNs = times.reduce((sum, ns) => sum + ns, 0);
  const bytes = events.reduce((sum, event) => sum + event.bytes, 0);
  const busyNs = busyTime(events);
  const failed: Record<string, number> = {};
  for (const { status } of events) {
    if (status !== undefined && status !== 'OK') failed[status] = (failed[status] ?? 0) + 1;
  }
  return {
    timeline,
    name,
    count: events.length,
    totalNs,
    meanNs: totalNs / events.length,
    p50Ns: percentileOf(times, 50),
    p99Ns: percentileOf(times, 99),
    minNs: times[0]!,
    maxNs: percentileOf(times, 100),
    bytes,
    bytesPerSecond: bytes > 0 && busyNs > 0 ? (bytes * 1e9) / busyNs : undefined,
    failed,
  };
}

/** Time in which at least one event ran. */
function busyTime(events: readonly ProfileEvent[]): number {
  let busyNs = 0;
  let untilNs = -Infinity;
  for (const { startNs, endNs } of [...events].sort((left, right) => left.startNs - right.startNs)) {
    busyNs += Math.max(0, endNs - Math.max(startNs, untilNs));
    untilNs = Math.max(untilNs, endNs);
  }
  return busyNs;
}

function tableOf(rows: readonly SummaryRow[]): string {
  const head = ['on', 'what', 'count', 'total', 'mean', 'p50', 'p99', 'min', 'max', 'bytes', 'GB/s', 'failed'];
  const time = (ns: number | undefined): string => (ns === undefined ? '-' : formatTime(ns));
  const body = rows.map((row) => [
    row.timeline,
    row.name,
    String(row.count),
    ...[row.totalNs, row.meanNs, row.p50Ns, row.p99Ns, row.minNs, row.maxNs].map(time),
    formatBytes(row.bytes),
    row.bytesPerSecond === undefined ? '-' : (row.bytesPerSecond / 1e9).toFixed(2),
    Object.entries(row.failed)
      .map(([status, count]) => `${status} ${count}`)
      .join(', ') || '-',
  ]);
  return formatTable([head, ...body]);
}

function longestFirst(left: SummaryRow, right: SummaryRow): number {
  return right.totalNs - left.totalNs;
}
