/** Worker addresses and remote keys as programs give them: their types, the engine that packed them, options for those of programs without this library. */

import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { argumentError, describeValue, invalidParam, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { AddressEndpointOptions, RawRemoteMemory, RkeyOptions } from '../endpoint.ts';
import type { EngineName } from '../engine.ts';

/** The first address that is not a host address. */
const HOST_ADDRESSES_END = 2 ** 48;

/** Kind of packed bytes, for errors. */
export type PackedKind = 'worker address' | 'remote key';

/** The marks of packed bytes, little-endian: of the native engine their first four bytes, of the engine libucx (`gUCX`, `gUCK`) their last, behind those of libucp. */
export const PACKED_MARKS: Readonly<Record<EngineName, Readonly<Record<PackedKind, number>>>> = {
  native: { 'worker address': 0x4150_4355, 'remote key': 0x5945_4b52 },
  libucx: { 'worker address': 0x5843_5567, 'remote key': 0x4b43_5567 },
};
const MARK_BYTES = 4;

/** Whether the address is that of another program. @throws UcxError ERR_INVALID_PARAM */
export function checkRawAddress({ rawAddress = false }: AddressEndpointOptions): boolean {
  if (typeof rawAddress !== 'boolean') throw invalidParam('rawAddress', 'must be true or false', rawAddress);
  return rawAddress;
}

/** Checks the type of a worker address, and that no other engine packed it. @throws UcxError ERR_INVALID_PARAM, ERR_ADDRESS_MALFORMED */
export function checkPackedAddress(packed: Uint8Array, engine: EngineName): void {
  if (!isBytes(packed)) {
    const [rule, got] = ['must be a Uint8Array', describeValue(packed)];
    throw argumentError('address', rule, got, `argument address ${rule}, got ${got}; use connect() for host and port`);
  }
  checkEngine(packed, 'worker address', engine);
}

/** Checks the type of a packed remote key, and that no other engine packed it. @throws UcxError ERR_INVALID_PARAM, ERR_RKEY_MALFORMED */
export function checkPackedKey(packed: Uint8Array, engine: EngineName): void {
  if (!isBytes(packed)) throw invalidParam('packed', 'must be a Uint8Array from packRkey', packed);
  checkEngine(packed, 'remote key', engine);
}

/** Bytes of the other engine, or of the other kind, would be read as noise; libucp even aborts the process. */
function checkEngine(packed: Uint8Array, kind: PackedKind, engine: EngineName): void {
  if (packed.byteLength < MARK_BYTES) return;
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const marks = { native: view.getUint32(0, true), libucx: view.getUint32(packed.byteLength - MARK_BYTES, true) };
  const other = engine === 'native' ? 'libucx' : 'native';
  const otherKind = kind === 'remote key' ? 'worker address' : 'remote key';
  // A checksum may look like a mark: that of this engine decides.
  if (marks[engine] === PACKED_MARKS[engine][kind]) return;
  if (marks[engine] === PACKED_MARKS[engine][otherKind]) throw malformed(kind, `is a ${otherKind}`);
  if (!Object.values(PACKED_MARKS[other]).includes(marks[other])) return;
  const what = marks[other] === PACKED_MARKS[other][kind] ? 'is' : `is a ${otherKind}, and`;
  throw malformed(
    kind,
    `${what} of the engine ${other}, but this context has the engine ${engine}: use one engine at both ends (UCX_ENGINE, or the option engine)`,
  );
}

/** The error for bytes that are not an address or a key. */
export function malformed(kind: PackedKind, rule: string): UcxError {
  return new UcxError({
    code: kind === 'remote key' ? 'ERR_RKEY_MALFORMED' : 'ERR_ADDRESS_MALFORMED',
    status: Status.INVALID_PARAM,
    message: `${kind} ${rule}`,
    details: { rule },
  });
}

/** The memory behind the key of another program; undefined for a key of this library. @throws UcxError ERR_INVALID_PARAM */
export function checkRawMemory(options: RkeyOptions): RawRemoteMemory | undefined {
  checkOptions(options, 'options', ['raw']);
  const { raw } = options;
  if (raw === undefined) return undefined;
  if (typeof raw !== 'object' || raw === null) throw invalidParam('raw', 'must have address and byteLength', raw);
  const { address, byteLength } = raw;
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('raw.byteLength', 'must be a positive integer', byteLength);
  }
  const isInteger = typeof address === 'bigint' || Number.isSafeInteger(address);
  if (!isInteger || address < 0 || Number(address) + byteLength > HOST_ADDRESSES_END) {
    throw invalidParam('raw.address', 'must be an address of host memory, with all bytes below 2^48', address);
  }
  return raw;
}

/** The error of an engine that cannot communicate with other programs. */
export function otherPrograms(kind: string): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `a ${kind} of another UCX program needs the engine libucx (UCX_ENGINE=libucx): the native engine does not speak UCX's wire protocol`,
  });
}
