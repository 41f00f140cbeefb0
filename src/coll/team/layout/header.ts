/** Layout of the messages between the ranks of a team. */

import { ALGORITHMS } from '../../choice/algorithms.ts';
import { COLLECTIVES, type Collective } from '../../choice/problem.ts';
import { DTYPES, type Dtype, REDUCE_OPS, type ReduceOp } from '../../dtype/dtype.ts';

const VERSION = 1;
/** Bytes of the fields; for some kinds further bytes follow. */
export const HEADER_BYTES = 72;
const NO_NAME = 0xff;

/** Kinds of messages. */
export const Kind = {
  /** The data of one part of an operation. */
  DATA: 0,
  /** The receiver of a long part has memory for it. If the sender can write to that memory, its packed key follows the fields. */
  READY: 1,
  /** The data of a part was written to the memory of READY, or will not be written: see `status`. */
  NOTICE: 2,
  /** The team has failed; the reason follows the fields as text. */
  FAILURE: 3,
  /** The sender waits for a part from the receiver of this message, in the operation that the message describes. */
  CHECK_RECEIVE: 4,
  /** The sender waits until the receiver of this message offers memory for a part. */
  CHECK_SEND: 5,
  /** A rank greets another over an endpoint that the team may use between the two; see members.ts. */
  GREETING: 6,
  /** The lower rank has chosen the endpoint that carries this message. */
  CHOICE: 7,
  /** The sender has left the team; if the team had failed, the reason as in FAILURE. */
  LEAVE: 8,
} as const;
export type Kind = (typeof Kind)[keyof typeof Kind];

/** The properties of an operation that must be equal on all ranks. */
export interface Signature {
  readonly collective: Collective;
  readonly dtype: Dtype;
  readonly op: ReduceOp | undefined;
  readonly root: number;
  /** Number of elements; -1 if it differs between ranks. */
  readonly count: number;
  /** Index of the algorithm. */
  readonly algorithm: number;
}

/** The signature in messages that do not belong to an operation. */
export const NO_OPERATION: Signature = {
  collective: 'barrier',
  dtype: 'uint8',
  op: undefined,
  root: 0,
  count: 0,
  algorithm: 0,
};

/** The fields of a message. */
export interface Header {
  kind: Kind;
  team: number;
  /** Number of the operation in its team. */
  sequence: number;
  /** Rank of the sender. */
  from: number;
  slice: number;
  round: number;
  signature: Signature;
  /** OK, or why the data was not written or the team has failed. */
  status: number;
  /** Bytes of the part. */
  byteLength: number;
  /** Offset in the memory of the key; for FAILURE and LEAVE the rank that failed. */
  offset: number;
}

/** Writes a message. @param target at least {@link HEADER_BYTES} bytes plus those of `rest` @returns the written bytes */
export function writeHeader(target: Uint8Array, header: Header, rest?: Uint8Array): Uint8Array {
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  const { signature } = header;
  target[0] = VERSION;
  target[1] = header.kind;
  target[2] = COLLECTIVES.indexOf(signature.collective);
  target[3] = DTYPES.indexOf(signature.dtype);
  target[4] = signature.op === undefined ? NO_NAME : REDUCE_OPS.indexOf(signature.op);
  target[5] = signature.algorithm;
  view.setFloat64(8, header.team, true);
  view.setFloat64(64, header.sequence, true);
  view.setUint32(20, header.from, true);
  view.setUint32(24, header.slice, true);
  view.setUint32(28, header.round, true);
  view.setUint32(32, signature.root, true);
  view.setInt32(36, header.status, true);
  view.setFloat64(40, signature.count, true);
  view.setFloat64(48, header.byteLength, true);
  view.setFloat64(56, header.offset, true);
  if (rest !== undefined) target.set(rest, HEADER_BYTES);
  return target.subarray(0, HEADER_BYTES + (rest?.byteLength ?? 0));
}

/** Reads a message; undefined if the bytes are not a message of this version. */
export function readHeader(bytes: Uint8Array): Header | undefined {
  if (bytes.byteLength < HEADER_BYTES || bytes[0] !== VERSION) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const collective = COLLECTIVES[bytes[2]!];
  const dtype = DTYPES[bytes[3]!];
  const op = REDUCE_OPS[bytes[4]!];
  if (bytes[1]! > Kind.LEAVE || collective === undefined || dtype === undefined) return undefined;
  if (op === undefined && bytes[4] !== NO_NAME) return undefined;
  return {
    kind: bytes[1] as Kind,
    team: view.getFloat64(8, true),
    sequence: view.getFloat64(64, true),
    from: view.getUint32(20, true),
    slice: view.getUint32(24, true),
    round: view.getUint32(28, true),
    signature: {
      collective,
      dtype,
      op,
      root: view.getUint32(32, true),
      count: view.getFloat64(40, true),
      algorithm: bytes[5]!,
    },
    status: view.getInt32(36, true),
    byteLength: view.getFloat64(48, true),
    offset: view.getFloat64(56, true),
  };
}

/** Whether a message is a check: it only describes what its sender waits for. */
export function isCheck(kind: Kind): boolean {
  return kind === Kind.CHECK_RECEIVE || kind === Kind.CHECK_SEND;
}

/** The bytes that follow the fields. */
export function restOf(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(HEADER_BYTES);
}

/** Whether two ranks have called the same operation. */
export function isSame(one: Signature, other: Signature): boolean {
  return (
    one.collective === other.collective &&
    one.count === other.count &&
    one.algorithm === other.algorithm &&
    one.dtype === other.dtype &&
    one.op === other.op &&
    one.root === other.root
  );
}

/** Describes the operation, such as `allReduce of 100 float32, sum, by ring`. */
export function describeSignature({ collective, dtype, op, root, count, algorithm }: Signature): string {
  if (collective === 'barrier') return collective;
  const by = ALGORITHMS[algorithm]?.name ?? 'an unknown algorithm';
  const what = count < 0 ? `${dtype}, with counts for each rank` : `${count} ${dtype}`;
  const hasRoot = collective === 'broadcast' || collective === 'gather' || collective === 'scatter';
  const where = hasRoot || collective === 'reduce' ? `, root ${root}` : '';
  return `${collective} of ${what}${op === undefined ? '' : `, ${op}`}${where}, by ${by}`;
}
