/** One recorded ioctl as data: names of the request and of its arguments, from the layouts of the kernel headers. */

import { errnoName } from '../../sys/index.ts';
import {
  type FieldLayout,
  HL_CB_ARGS,
  HL_CB_OP,
  HL_CS_ARGS,
  HL_DEBUG_ARGS,
  HL_DEBUG_OP,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  IOCTL_NAMES,
  type IoctlName,
  ioctlIndex,
} from '../../uapi/index.ts';

/** Fields of an argument block by name, as hexadecimal strings. All members of a union are included. */
export type RecordedFields = Readonly<Record<string, string>>;

/** One line of a trace. */
export interface IoctlRecord {
  /** Nanoseconds from the start of the trace to the call, and from the call to its return. */
  readonly timeNs: number;
  readonly durationNs: number;
  readonly pid: number;
  /** The calling thread if the kernel reports it (device nodes), else the process. */
  readonly tid: number;
  /** Minor of the card, and whether the file is a control node. */
  readonly card: number;
  readonly control: boolean;
  /** Name of the ioctl, or its request number. */
  readonly request: string;
  /** Name of the operation, for ioctls that have them. */
  readonly op?: string;
  /** The arguments before and after the call. */
  readonly in: RecordedFields;
  readonly out: RecordedFields;
  readonly result: number;
  /** Name of the error; absent after success. */
  readonly errno?: string;
}

interface Layouts {
  readonly input: readonly FieldLayout[];
  readonly output: readonly FieldLayout[];
  readonly ops?: Readonly<Record<string, number>>;
}

const LAYOUTS: Readonly<Record<IoctlName, Layouts>> = {
  INFO: { input: HL_INFO_ARGS.layout, output: HL_INFO_ARGS.layout, ops: HL_INFO_OP },
  CB: { input: HL_CB_ARGS.in.layout, output: HL_CB_ARGS.out.layout, ops: HL_CB_OP },
  CS: { input: HL_CS_ARGS.in.layout, output: HL_CS_ARGS.out.layout },
  WAIT_CS: { input: HL_WAIT_CS_ARGS.in.layout, output: HL_WAIT_CS_ARGS.out.layout },
  MEMORY: { input: HL_MEM_ARGS.in.layout, output: HL_MEM_ARGS.out.layout, ops: HL_MEM_OP },
  DEBUG: { input: HL_DEBUG_ARGS.layout, output: HL_DEBUG_ARGS.layout, ops: HL_DEBUG_OP },
};

/** The caller of an ioctl, and its times. */
export type IoctlCaller = Pick<IoctlRecord, 'timeNs' | 'durationNs' | 'pid' | 'tid' | 'card' | 'control'>;

/** Decodes one ioctl: its words before and after, and its result or negative errno. */
export function decodeIoctl(
  caller: IoctlCaller,
  request: number,
  words: { readonly before: Uint32Array; readonly after: Uint32Array },
  result: number,
): IoctlRecord {
  const name = IOCTL_NAMES[ioctlIndex(request)];
  const layouts = name === undefined ? undefined : LAYOUTS[name];
  const input = layouts === undefined ? {} : readFields(layouts.input, words.before);
  const op = layouts?.ops === undefined ? undefined : nameOf(layouts.ops, Number(input['op']));
  return {
    ...caller,
    request: name ?? `0x${(request >>> 0).toString(16)}`,
    ...(op === undefined ? {} : { op }),
    in: input,
    out: layouts === undefined ? {} : readFields(layouts.output, words.after),
    result,
    ...(result < 0 ? { errno: errnoName(-result) } : {}),
  };
}

/** Formats a record as a readable line, in the style of strace; fields that are 0 are omitted. */
export function formatRecord(record: IoctlRecord): string {
  const { pid, tid, card, control, request, op, result, errno, durationNs } = record;
  const node = control ? `accel_controlD${card}` : `accel${card}`;
  const name = op === undefined ? request : `${request} ${op}`;
  const answer = errno === undefined ? String(result) : `-1 ${errno}`;
  const seconds = (durationNs / 1e9).toFixed(6);
  return `[${pid}/${tid}] ioctl(${node}, ${name}, ${fieldsText(record.in)}) = ${answer} ${fieldsText(record.out)} <${seconds}>`;
}

function fieldsText(fields: RecordedFields): string {
  const set = Object.entries(fields).filter(([, value]) => !/^0x0*$/.test(value));
  return `{${set.map(([name, value]) => `${name}=${value}`).join(', ')}}`;
}

/** The fields that lie inside the block. */
function readFields(layout: readonly FieldLayout[], words: Uint32Array): RecordedFields {
  const bytes = Buffer.from(words.buffer, words.byteOffset, words.byteLength);
  const fields: Record<string, string> = {};
  for (const { name, offset, size } of layout) {
    if (offset + size > bytes.byteLength) continue;
    const digits = Buffer.from(bytes.subarray(offset, offset + size))
      .reverse()
      .toString('hex');
    fields[name] = `0x${digits.replace(/^0+(?=.)/, '')}`;
  }
  return fields;
}

function nameOf(ops: Readonly<Record<string, number>>, value: number): string {
  return Object.entries(ops).find(([, code]) => code === value)?.[0] ?? String(value);
}
