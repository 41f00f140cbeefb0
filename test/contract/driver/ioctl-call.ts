/** Names of ioctls with what they ask for, as the index of errnos has them: `INFO GET_EVENTS`, `CS WAIT`, `MEMORY MAP host`. From the request alone, before it runs. */

import {
  DRM_IOCTL_TYPE,
  HL_CB_ARGS,
  HL_CB_OP,
  HL_CS_ARGS,
  HL_CS_FLAGS,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  IOCTL_NAMES,
  IoctlIndex,
  ioctlIndex,
  ioctlType,
} from '../../../src/uapi/index.ts';

const CS_KINDS = [
  ['SIGNAL', HL_CS_FLAGS.SIGNAL],
  ['WAIT', HL_CS_FLAGS.WAIT],
  ['RESERVE', HL_CS_FLAGS.RESERVE_SIGNALS_ONLY],
  ['UNRESERVE', HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY],
] as const;
const WAIT_KINDS = [
  ['MULTI_CS', HL_WAIT_CS_FLAGS.MULTI_CS],
  ['INTERRUPT', HL_WAIT_CS_FLAGS.INTERRUPT],
] as const;

/** The names of a call, general ones first: `MEMORY`, `MEMORY MAP host`; `unknown DRM number` or `unknown ioctl` for one that the driver does not have. */
export function ioctlCalls(request: number, words: Uint32Array): string[] {
  const index = ioctlIndex(request);
  const name = IOCTL_NAMES[index];
  if (name === undefined) return [ioctlType(request) === DRM_IOCTL_TYPE ? 'unknown DRM number' : 'unknown ioctl'];
  const what = whatOf(index, words);
  return what === undefined ? [name] : [name, `${name} ${what}`];
}

function whatOf(index: number, words: Uint32Array): string | undefined {
  switch (index) {
    case IoctlIndex.INFO:
      return opName(HL_INFO_OP, words[HL_INFO_ARGS.words.op]);
    case IoctlIndex.CB:
      return opName(HL_CB_OP, words[HL_CB_ARGS.in.words.op]);
    case IoctlIndex.CS:
      return flagName(CS_KINDS, words[HL_CS_ARGS.in.words.cs_flags]);
    case IoctlIndex.WAIT_CS:
      return flagName(WAIT_KINDS, words[HL_WAIT_CS_ARGS.in.words.flags]);
    case IoctlIndex.MEMORY:
      return memoryOp(words);
    default:
      return undefined;
  }
}

function memoryOp(words: Uint32Array): string | undefined {
  const { op, flags } = HL_MEM_ARGS.in.words;
  const name = opName(HL_MEM_OP, words[op]);
  if (name !== 'MAP') return name;
  return ((words[flags] ?? 0) & HL_MEM.USERPTR) === 0 ? 'MAP device' : 'MAP host';
}

function opName(ops: Readonly<Record<string, number>>, op: number | undefined): string | undefined {
  return Object.keys(ops).find((name) => ops[name] === op);
}

function flagName(kinds: readonly (readonly [string, number])[], flags = 0): string | undefined {
  return kinds.find(([, flag]) => (flags & flag) !== 0)?.[0];
}
