/** Comparison of two traces, independent of the values of handles, addresses, descriptors and times. */

import { HL_MEM } from '../../uapi/index.ts';
import { checkString } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { IoctlRecord, RecordedFields } from './ioctl-record.ts';

/** Result fields of each operation whose values the driver assigns; later arguments refer to these values. */
const GIVEN: Readonly<Record<string, readonly string[]>> = {
  'CB CREATE': ['cb_handle'],
  'CB INFO': ['device_va'],
  'MEMORY ALLOC': ['handle'],
  'MEMORY MAP': ['device_virt_addr'],
  'MEMORY MAP_BLOCK': ['block_handle', 'block_size'],
  'MEMORY EXPORT_DMABUF_FD': ['fd'],
  'MEMORY TS_ALLOC': ['handle'],
  'MEMORY REG_DMABUF_FD': ['device_virt_addr'],
  CS: ['seq', 'status', 'sob_base_addr_offset', 'sob_count_before_submission'],
  WAIT_CS: ['status', 'flags', 'cs_completion_map'],
};
/** Fields whose values are compared unchanged. */
const PLAIN: ReadonlySet<string> = new Set([
  ...['op', 'flags', 'cs_flags', 'ctx_id', 'cb_size', 'num_of_elements', 'num_chunks_restore', 'num_chunks_execute'],
  ...['timeout', 'status', 'cs_completion_map', 'block_size', 'sob_base_addr_offset', 'sob_count_before_submission'],
  ...['return_size', 'input_size', 'output_size', 'reg_idx', 'enable'],
]);
/** Further arguments of each operation: those with `=` are compared unchanged, handles and addresses by the call that returned them. */
const USED: Readonly<Record<string, readonly string[]>> = {
  'CB DESTROY': ['cb_handle'],
  'CB INFO': ['cb_handle'],
  'MEMORY ALLOC': ['=alloc_mem_size', '=alloc_page_size'],
  'MEMORY FREE': ['free_handle'],
  'MEMORY UNMAP': ['unmap_device_virt_addr'],
  'MEMORY EXPORT_DMABUF_FD': ['export_dmabuf_fd_addr', '=export_dmabuf_fd_mem_size', '=export_dmabuf_fd_offset'],
  'MEMORY REG_DMABUF_FD': ['=reg_dmabuf_fd_length'],
  'MEMORY MAP_BLOCK': ['=map_block_block_addr'],
};

/** Number space of each field: equal numbers from different spaces are different objects. */
const SPACES: Readonly<Record<string, string>> = {
  cb_handle: 'command buffer',
  handle: 'memory',
  free_handle: 'memory',
  map_device_handle: 'memory',
  device_va: 'address',
  device_virt_addr: 'address',
  unmap_device_virt_addr: 'address',
  export_dmabuf_fd_addr: 'address',
};

/** The first difference of two traces. */
export interface TraceDifference {
  /** Number of the call in both traces, from 1. */
  readonly call: number;
  /** The call in the first trace, without handles and addresses; `nothing` after the end of the trace. */
  readonly first: string;
  /** The call in the second trace, like {@link first}. */
  readonly second: string;
}

/**
 * Compares the calls of two traces in their order.
 * @returns the first difference; undefined if there is none
 * @throws UcxError ERR_INVALID_PARAM for a line that is not one of a trace
 */
export function diffTraces(first: string, second: string): TraceDifference | undefined {
  checkString('first', first);
  checkString('second', second);
  const left = normalizeTrace(first, 'first');
  const right = normalizeTrace(second, 'second');
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    if (left[i] !== right[i]) return { call: i + 1, first: left[i] ?? 'nothing', second: right[i] ?? 'nothing' };
  }
  return undefined;
}

/** The calls of a trace as strings; handles, addresses and processes are numbered by their first appearance. Throws like {@link diffTraces}, with `name`. */
export function normalizeTrace(text: string, name = 'trace'): readonly string[] {
  const names = new Map<string, string>();
  let given = 0;
  const processes = new Map<number, number>();
  const calls: string[] = [];
  for (const record of readTrace(text, name)) {
    if (isPoll(record)) continue;
    if (!processes.has(record.pid)) processes.set(record.pid, processes.size + 1);
    const key = record.op === undefined ? record.request : `${record.request} ${record.op}`;
    const place = `process ${processes.get(record.pid)} card ${record.card}${record.control ? ' control' : ''}`;
    const used = usedFields(key, record.in).map((field) => {
      if (field.startsWith('=')) return `${field.slice(1)}=${record.in[field.slice(1)]}`;
      const value = record.in[field] ?? '';
      return `${field}=${names.get(objectOf(field, value)) ?? (value === '0x0' ? value : 'unknown')}`;
    });
    // The descriptor of an event fd and `ctx_id` are members of one union.
    const isEventFd = record.op?.endsWith('EVENTFD') === true;
    const plain = Object.keys(record.in).filter((field) => PLAIN.has(field) && !(isEventFd && field === 'ctx_id'));
    const input = [...plain.map((field) => `${field}=${record.in[field]}`), ...used].join(', ');
    const output = (record.result < 0 ? [] : (GIVEN[key] ?? [])).map((field) => {
      const value = record.out[field] ?? '';
      if (PLAIN.has(field) || field === 'flags') return `${field}=${value}`;
      names.set(objectOf(field, value), `#${++given}`);
      return `${field}=#${given}`;
    });
    calls.push(`${place}: ${key} {${input}} = ${record.errno ?? record.result} {${output.join(', ')}}`);
  }
  return calls;
}

/**
 * Whether a call belongs to polling, so that the number of such calls depends on the timing: a wait that reports "busy", and a look at the status of the card,
 * which a program repeats while a channel moves its data.
 */
function isPoll({ request, op, result, out }: IoctlRecord): boolean {
  if (result !== 0) return false;
  return request === 'WAIT_CS' ? Number(out['status']) === 1 : op === 'DEVICE_STATUS';
}

function objectOf(field: string, value: string): string {
  return `${SPACES[field] ?? field} ${value}`;
}

function usedFields(key: string, input: RecordedFields): readonly string[] {
  if (key === 'MEMORY MAP')
    return (Number(input['flags']) & HL_MEM.USERPTR) !== 0 ? ['=map_host_mem_size'] : ['map_device_handle'];
  // Only a wait for one submission has these fields; waits for several submissions and for interrupts have addresses in their place.
  if (key === 'WAIT_CS') return Number(input['flags']) === 0 ? ['seq', '=timeout_us'] : [];
  return USED[key] ?? [];
}

function readTrace(text: string, name: string): readonly IoctlRecord[] {
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line, index) => {
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
    if (!isRecord(value))
      throw invalidParam(name, `must have a recorded ioctl in line ${index + 1}`, line.slice(0, 80));
    return value;
  });
}

function isRecord(value: unknown): value is IoctlRecord {
  if (typeof value !== 'object' || value === null) return false;
  const { pid, request, result, in: input, out } = value as Partial<IoctlRecord>;
  return (
    typeof pid === 'number' &&
    typeof request === 'string' &&
    typeof result === 'number' &&
    typeof input === 'object' &&
    input !== null &&
    typeof out === 'object' &&
    out !== null
  );
}
