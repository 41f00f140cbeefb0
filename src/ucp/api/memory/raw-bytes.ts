/** Options for worker addresses and remote keys of programs that do not use this library. It checks their types, not the bytes. */

import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { argumentError, describeValue, invalidParam, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { AddressEndpointOptions, RawRemoteMemory, RkeyOptions } from '../endpoint.ts';

/** The first address that is not a host address. */
const HOST_ADDRESSES_END = 2 ** 48;

/** Whether the address is that of another program. @throws UcxError ERR_INVALID_PARAM */
export function checkRawAddress({ rawAddress = false }: AddressEndpointOptions): boolean {
  if (typeof rawAddress !== 'boolean') throw invalidParam('rawAddress', 'must be true or false', rawAddress);
  return rawAddress;
}

/** Checks the type of a worker address. @throws UcxError ERR_INVALID_PARAM */
export function checkPackedAddress(packed: Uint8Array): void {
  if (isBytes(packed)) return;
  const [rule, got] = ['must be a Uint8Array', describeValue(packed)];
  throw argumentError('address', rule, got, `argument address ${rule}, got ${got}; use connect() for host and port`);
}

/** Checks the type of a packed remote key. @throws UcxError ERR_INVALID_PARAM */
export function checkPackedKey(packed: Uint8Array): void {
  if (!isBytes(packed)) throw invalidParam('packed', 'must be a Uint8Array from packRkey', packed);
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
