/**
 * The struct-layout engine: one table per C struct gives its size, offsets, word indices, encoder and decoder. Limits: little-endian, natural alignment
 * (x86-64 System V), no bit fields, no nested tables.
 *
 * `encode` and `decode` are the cold API (bigint, allocation). Hot paths index a Uint32Array by {@link Struct.words}.
 */

type ScalarKind = 'u8' | 'u16' | 'u32' | 'u64' | 's32' | 's64';

/** The C type of a field: a scalar, `bytes[n]` (`__u8[n]`) or an array of n unsigned integers. */
export type FieldKind = ScalarKind | `bytes[${number}]` | `u16[${number}]` | `u32[${number}]` | `u64[${number}]`;

/** The one header that declares a field or struct which is not in every header; `vendor` is Intel's out-of-tree header. */
export type HeaderVersion = '6.1' | '6.12' | 'vendor';

/** A field that is a member of a union, a nested member, or exists in one header only. */
export interface FieldSpec {
  readonly kind: FieldKind;
  /** Offset in bytes; needed for the members of a union. Without it the field follows the bytes laid out so far. */
  readonly at?: number;
  /** C member path when it is not the field's name, such as `alloc.mem_size`. */
  readonly c?: string;
  /** The one header that has the field; both kernel headers have it otherwise. */
  readonly only?: HeaderVersion;
}

/** The table of a struct: field name to type, in the order of the C declaration. */
export type StructFields = Readonly<Record<string, FieldKind | FieldSpec>>;

type KindOf<S> = S extends { readonly kind: infer K } ? K : S;
type ValueOf<K> = K extends 'u64' | 's64'
  ? bigint
  : K extends ScalarKind
    ? number
    : K extends `bytes[${number}]`
      ? Uint8Array
      : K extends `u64[${number}]`
        ? readonly bigint[]
        : readonly number[];

/** The decoded record of a struct: numbers, bigint for 64-bit fields, Uint8Array for bytes, plain arrays for arrays. */
export type StructValues<F extends StructFields> = { -readonly [K in keyof F]: ValueOf<KindOf<F[K]>> };

/** Position and size of a field. */
export interface FieldLayout {
  readonly name: string;
  readonly cPath: string;
  readonly kind: FieldKind;
  /** Bytes from the start of the struct. */
  readonly offset: number;
  /** Bytes of the whole field. */
  readonly size: number;
  readonly only: HeaderVersion | undefined;
}

/** The argument union of an ioctl: `in` and `out` share the same bytes. */
export interface ArgsUnion<I extends StructFields, O extends StructFields> {
  /** Name in the kernel header, such as `hl_cs_args`. */
  readonly cName: string;
  /** `sizeof` in bytes: the larger of the two, and the size that the ioctl number carries. */
  readonly size: number;
  readonly in: Struct<I>;
  readonly out: Struct<O>;
  /** The word indices of `in`; those of the result are `out.words`. */
  readonly words: Struct<I>['words'];
}

interface Element {
  readonly bytes: number;
  readonly signed: boolean;
}

const ELEMENTS: Readonly<Record<string, Element>> = {
  bytes: { bytes: 1, signed: false },
  u8: { bytes: 1, signed: false },
  u16: { bytes: 2, signed: false },
  u32: { bytes: 4, signed: false },
  u64: { bytes: 8, signed: false },
  s32: { bytes: 4, signed: true },
  s64: { bytes: 8, signed: true },
};

type FieldValue = number | bigint | Uint8Array | readonly (number | bigint)[];

interface FieldCodec extends FieldLayout {
  readonly element: Element;
  /** Number of elements of an array; 0 for a scalar. */
  readonly count: number;
}

/** A C struct of the ABI. */
export class Struct<F extends StructFields> {
  /** Name in the kernel header, such as `hl_cs_in`. */
  readonly cName: string;
  /** The one header that declares this struct with this layout; undefined when 6.1 and 6.12 agree. */
  readonly only: HeaderVersion | undefined;
  /** `sizeof` in bytes. */
  readonly size: number;
  /** Offset in bytes of each field. */
  readonly offsets: { readonly [K in keyof F]: number };
  /** Index of the 32-bit word in which each field begins; for a 64-bit field its low word, the high word follows. */
  readonly words: { readonly [K in keyof F]: number };
  readonly layout: readonly FieldLayout[];
  readonly #laidOut: LaidOut;

  constructor(cName: string, fields: F, only: HeaderVersion | undefined) {
    const { codecs, size } = layOut(fields);
    const offsets: Record<string, number> = {};
    const words: Record<string, number> = {};
    for (const codec of codecs) {
      offsets[codec.name] = codec.offset;
      words[codec.name] = codec.offset >>> 2;
    }
    this.cName = cName;
    this.only = only;
    this.size = size;
    this.offsets = offsets as Struct<F>['offsets'];
    this.words = words as Struct<F>['words'];
    this.layout = codecs;
    this.#laidOut = { cName, size, codecs };
  }

  /**
   * Writes the struct at `offset` of `view`. Omitted fields and padding become zero. If several fields of a union are given, the last one in the table
   * wins.
   * @throws RangeError if a value does not fit its field or the struct does not fit the view; nothing is written then
   */
  encode(values: Partial<StructValues<F>>, view: DataView, offset: number = 0): void {
    encodeStruct(this.#laidOut, values as Readonly<Record<string, FieldValue | undefined>>, view, offset);
  }

  /**
   * Reads the struct at `offset` of `view`; `bytes` fields are copies.
   * @throws RangeError when the struct does not fit the view
   */
  decode(view: DataView, offset: number = 0): StructValues<F> {
    return decodeStruct(this.#laidOut, view, offset) as StructValues<F>;
  }
}

/**
 * Builds a struct from its table.
 * @param cName name in the kernel header
 * @param fields the table, `as const`
 * @param only the one header that has this layout
 */
export function defineStruct<const F extends StructFields>(cName: string, fields: F, only?: HeaderVersion): Struct<F> {
  return new Struct(cName, fields, only);
}

/** Builds the argument union of an ioctl from its two halves. */
export function defineArgs<I extends StructFields, O extends StructFields>(
  cName: string,
  input: Struct<I>,
  output: Struct<O>,
): ArgsUnion<I, O> {
  return { cName, size: Math.max(input.size, output.size), in: input, out: output, words: input.words };
}

function layOut(fields: StructFields): { codecs: readonly FieldCodec[]; size: number } {
  const codecs: FieldCodec[] = [];
  let end = 0;
  let alignment = 1;
  for (const [name, entry] of Object.entries(fields)) {
    const spec: FieldSpec = typeof entry === 'string' ? { kind: entry } : entry;
    const { element, count } = parseKind(spec.kind);
    const offset = spec.at ?? alignUp(end, element.bytes);
    const size = element.bytes * Math.max(count, 1);
    codecs.push({ name, cPath: spec.c ?? name, kind: spec.kind, offset, size, only: spec.only, element, count });
    end = Math.max(end, offset + size);
    alignment = Math.max(alignment, element.bytes);
  }
  return { codecs, size: alignUp(end, alignment) };
}

function parseKind(kind: FieldKind): { element: Element; count: number } {
  const bracket = kind.indexOf('[');
  const name = bracket < 0 ? kind : kind.slice(0, bracket);
  const element = ELEMENTS[name];
  if (element === undefined) throw new RangeError(`unknown field kind ${kind}`);
  return { element, count: bracket < 0 ? 0 : Number.parseInt(kind.slice(bracket + 1), 10) };
}

function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}

/** A struct with the positions of its fields. */
interface LaidOut {
  readonly cName: string;
  readonly size: number;
  readonly codecs: readonly FieldCodec[];
}

function encodeStruct(
  { cName, size, codecs }: LaidOut,
  values: Readonly<Record<string, FieldValue | undefined>>,
  view: DataView,
  offset: number,
): void {
  checkExtent(cName, size, view, offset);
  for (const codec of codecs) checkField(cName, codec, values[codec.name]);
  new Uint8Array(view.buffer, view.byteOffset + offset, size).fill(0);
  for (const codec of codecs) {
    const value = values[codec.name];
    if (value !== undefined) writeField(codec, value, view, offset + codec.offset);
  }
}

function decodeStruct({ cName, size, codecs }: LaidOut, view: DataView, offset: number): Record<string, FieldValue> {
  checkExtent(cName, size, view, offset);
  const values: Record<string, FieldValue> = {};
  for (const codec of codecs) values[codec.name] = readField(codec, view, offset + codec.offset);
  return values;
}

function checkExtent(cName: string, size: number, view: DataView, offset: number): void {
  if (!Number.isInteger(offset) || offset < 0 || offset + size > view.byteLength) {
    throw new RangeError(`${cName} needs ${size} bytes at offset ${offset}, the view has ${view.byteLength}`);
  }
}

function checkField(cName: string, codec: FieldCodec, value: FieldValue | undefined): void {
  if (value === undefined) return;
  if (codec.count === 0) {
    if (typeof value === 'object') throw new RangeError(`${cName}.${codec.name} is ${codec.kind}, got an array`);
    checkScalar(cName, codec, value);
    return;
  }
  if (typeof value !== 'object' || value.length > codec.count) {
    const got = typeof value === 'object' ? value.length : `${typeof value} ${value}`;
    throw new RangeError(`${cName}.${codec.name} has ${codec.count} elements, got ${got}`);
  }
  for (const item of value) checkScalar(cName, codec, item);
}

function checkScalar(cName: string, codec: FieldCodec, value: number | bigint): void {
  const { bytes, signed } = codec.element;
  if (bytes === 8) {
    const isInRange = (wide: bigint) => wide === (signed ? BigInt.asIntN(64, wide) : BigInt.asUintN(64, wide));
    if (typeof value === 'bigint' && isInRange(value)) return;
  } else if (typeof value === 'number' && Number.isInteger(value)) {
    const span = 2 ** (bytes * 8);
    const low = signed ? -span / 2 : 0;
    if (value >= low && value < low + span) return;
  }
  throw new RangeError(
    `${cName}.${codec.name} is ${codec.kind}, got ${value === undefined ? 'nothing' : `${typeof value} ${value}`}`,
  );
}

function writeField(codec: FieldCodec, value: FieldValue, view: DataView, at: number): void {
  if (typeof value !== 'object') {
    writeScalar(codec.element, value, view, at);
    return;
  }
  for (let index = 0; index < value.length; index++) {
    const item = value[index];
    if (item !== undefined) writeScalar(codec.element, item, view, at + index * codec.element.bytes);
  }
}

function readField(codec: FieldCodec, view: DataView, at: number): FieldValue {
  if (codec.count === 0) return readScalar(codec.element, view, at);
  if (codec.kind.startsWith('bytes')) {
    return new Uint8Array(view.buffer, view.byteOffset + at, codec.count).slice();
  }
  return Array.from({ length: codec.count }, (_, index) =>
    readScalar(codec.element, view, at + index * codec.element.bytes),
  );
}

function writeScalar(element: Element, value: number | bigint, view: DataView, at: number): void {
  if (element.bytes === 8) view.setBigUint64(at, BigInt(value), true);
  else if (element.bytes === 4) view.setUint32(at, Number(value), true);
  else if (element.bytes === 2) view.setUint16(at, Number(value), true);
  else view.setUint8(at, Number(value));
}

function readScalar(element: Element, view: DataView, at: number): number | bigint {
  if (element.bytes === 8) return element.signed ? view.getBigInt64(at, true) : view.getBigUint64(at, true);
  if (element.bytes === 4) return element.signed ? view.getInt32(at, true) : view.getUint32(at, true);
  return element.bytes === 2 ? view.getUint16(at, true) : view.getUint8(at);
}
