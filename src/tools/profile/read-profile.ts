/** Reads the events and sums of a profile (UCX_PROFILE_FILE). */

import type { AccumulatedSpans } from '../../ucs/profile/trace.ts';
import { readText } from '../../ucs/sys/file-name.ts';
import { asError, invalidParam } from '../../ucs/type/error.ts';

/** An event that has begun and ended. */
export interface ProfileEvent {
  /** Worker or card, such as `worker 1`. */
  readonly timeline: string;
  /** Kind: request, cs or dma. */
  readonly category: string;
  readonly name: string;
  readonly startNs: number;
  readonly endNs: number;
  readonly bytes: number;
  /** Name of the status; undefined for events without one. */
  readonly status: string | undefined;
}

/** The contents of a file. */
export interface ProfileFile {
  /** Command line and host of the process. */
  readonly title: string;
  /** Events that were replaced by newer ones. */
  readonly lost: number;
  readonly events: readonly ProfileEvent[];
  readonly sums: readonly AccumulatedSpans[];
}

const NS_PER_US = 1000;

type Fields = Readonly<Record<string, unknown>>;

/** @throws UcxError ERR_INVALID_PARAM if the file is not a profile; the error of node:fs */
export function readProfile(path: string): ProfileFile {
  const text = readText('file', path);
  if (text === '') throw notProfile(path, 'the file is empty: its process has not ended yet, or was killed');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw notProfile(path, asError(error).message);
  }
  const { traceEvents, otherData } = fieldsOf(value);
  const { title, lost, accumulated } = fieldsOf(otherData);
  if (!Array.isArray(traceEvents) || typeof title !== 'string' || typeof lost !== 'number') {
    throw notProfile(path, 'it does not have the fields of a profile');
  }
  if (!Array.isArray(accumulated)) throw notProfile(path, 'the sums are missing');
  return { title, lost, events: eventsOf(traceEvents, path), sums: accumulated.map((sum) => sumOf(sum, path)) };
}

/** Joins the begin and the end of each event by its id. */
function eventsOf(traceEvents: readonly unknown[], path: string): ProfileEvent[] {
  const begun = new Map<unknown, Fields>();
  const events: ProfileEvent[] = [];
  for (const each of traceEvents) {
    const event = fieldsOf(each);
    const { ph, id } = event;
    if (ph === 'b') begun.set(id, event);
    if (ph !== 'e') continue;
    const begin = begun.get(id);
    if (begin === undefined) throw notProfile(path, `event ${String(id)} has an end but no begin`);
    begun.delete(id);
    const { on, bytes = 0, status } = fieldsOf(begin['args']);
    events.push({
      timeline: String(on),
      category: String(begin['cat']),
      name: String(begin['name']),
      startNs: numberOf(begin['ts'], `ts of event ${String(id)}`, path) * NS_PER_US,
      endNs: numberOf(event['ts'], `ts of event ${String(id)}`, path) * NS_PER_US,
      bytes: numberOf(bytes, `bytes of event ${String(id)}`, path),
      status: status === undefined ? undefined : String(status),
    });
  }
  return events;
}

function sumOf(value: unknown, path: string): AccumulatedSpans {
  const { timeline, name, count, totalNs, minNs, maxNs, bytes } = fieldsOf(value);
  return {
    timeline: String(timeline),
    name: String(name),
    count: numberOf(count, 'count of a sum', path),
    totalNs: numberOf(totalNs, 'totalNs of a sum', path),
    minNs: numberOf(minNs, 'minNs of a sum', path),
    maxNs: numberOf(maxNs, 'maxNs of a sum', path),
    bytes: numberOf(bytes, 'bytes of a sum', path),
  };
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

function numberOf(value: unknown, field: string, path: string): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw notProfile(path, `${field} is ${String(value)}, not a number`);
}

function notProfile(path: string, reason: string): Error {
  return invalidParam('file', `must be a profile written through UCX_PROFILE_FILE (${reason})`, path);
}
