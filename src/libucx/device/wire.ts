/**
 * What workers of this engine say to each other about memory of cards: the headers of the active messages by which an operation is asked for and answered. Bytes
 * only; whatever arrives may be wrong.
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import { AtomicOperation } from '../../uct/api/iface.ts';

/** What a message is. */
export const WireKind = {
  /** Its data belong into the memory. Answered by DONE. */
  WRITE: 1,
  /** Answered by DATA, or DONE with a failure. */
  READ: 2,
  /** Answered by DONE with the word before. */
  ATOMIC: 3,
  DONE: 4,
  DATA: 5,
} as const;
export type WireKind = (typeof WireKind)[keyof typeof WireKind];

/** A header. What a kind has no use for is 0. */
export interface WireHeader {
  readonly kind: WireKind;
  /** By which whoever asks knows the answer. */
  readonly id: number;
  readonly status: number;
  /** The memory, as its remote key names it. */
  readonly exportId: number;
  readonly offset: number;
  readonly byteLength: number;
  readonly operation: AtomicOperation;
  readonly value: bigint;
  readonly compare: bigint;
}

export const WIRE_HEADER_BYTES = 56;
const VERSION = 1;
/** Version and kind: so that a message of another program is told from one of ours. */
const MAGIC = 0x5364;
const AT = { magic: 0, version: 2, kind: 3, operation: 4, status: 5, id: 8, exportId: 16, offset: 24, byteLength: 32 };
const VALUE_AT = 40;
const COMPARE_AT = 48;

const OPERATIONS: ReadonlySet<number> = new Set(Object.values(AtomicOperation));
const KINDS: ReadonlySet<number> = new Set(Object.values(WireKind));

/** What most headers do not say. */
export const NOTHING_ELSE: Omit<WireHeader, 'kind' | 'id'> = {
  status: 0,
  exportId: 0,
  offset: 0,
  byteLength: 0,
  operation: AtomicOperation.ADD,
  value: 0n,
  compare: 0n,
};

/** Makes the bytes of a header. */
export function packWireHeader(header: WireHeader): Uint8Array {
  const bytes = new Uint8Array(WIRE_HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint16(AT.magic, MAGIC, true);
  view.setUint8(AT.version, VERSION);
  view.setUint8(AT.kind, header.kind);
  view.setUint8(AT.operation, header.operation);
  view.setInt8(AT.status, header.status);
  setInteger(view, AT.id, header.id);
  setInteger(view, AT.exportId, header.exportId);
  setInteger(view, AT.offset, header.offset);
  setInteger(view, AT.byteLength, header.byteLength);
  view.setBigUint64(VALUE_AT, header.value, true);
  view.setBigUint64(COMPARE_AT, header.compare, true);
  return bytes;
}

/** Reads a header; undefined for what is none. Numbers are integers of 0 to 2^53 - 1; whether they make sense is not looked at. */
export function parseWireHeader(bytes: Uint8Array): WireHeader | undefined {
  if (bytes.byteLength !== WIRE_HEADER_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.getUint16(AT.magic, true) !== MAGIC || view.getUint8(AT.version) !== VERSION) return undefined;
  const [kind, operation] = [view.getUint8(AT.kind), view.getUint8(AT.operation)];
  if (!KINDS.has(kind) || !OPERATIONS.has(operation)) return undefined;
  const [id, exportId] = [integerAt(view, AT.id), integerAt(view, AT.exportId)];
  const [offset, byteLength] = [integerAt(view, AT.offset), integerAt(view, AT.byteLength)];
  if (![id, exportId, offset, byteLength].every(Number.isSafeInteger)) return undefined;
  return {
    kind: kind as WireKind,
    id,
    status: view.getInt8(AT.status),
    exportId,
    offset,
    byteLength,
    operation: operation as AtomicOperation,
    value: view.getBigUint64(VALUE_AT, true),
    compare: view.getBigUint64(COMPARE_AT, true),
  };
}

function setInteger(view: DataView, at: number, value: number): void {
  view.setUint32(at, value | 0, true);
  view.setUint32(at + 4, highOf(value), true);
}

function integerAt(view: DataView, at: number): number {
  return joinWords(view.getInt32(at, true), view.getInt32(at + 4, true));
}
