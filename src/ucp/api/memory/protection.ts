/** The protection of mapped memory (ucp_mem_map_params_t.prot): its names in the API, and the access flags of transports that they stand for. */

import { invalidParam, type UcxError } from '../../../ucs/type/error.ts';
import { MemAccess } from '../../../uct/api/memory-domain.ts';
import type { MemoryProtection } from '../operation/memory.ts';

/** Access of peers by put and get. */
export const REMOTE_ACCESS: number = MemAccess.REMOTE_PUT | MemAccess.REMOTE_GET;
/** Access of peers by atomic operations, which read and write. */
export const ATOMIC_ACCESS: number = REMOTE_ACCESS | MemAccess.REMOTE_ATOMIC;

const ACCESS_OF: Readonly<Record<MemoryProtection, number>> = {
  'local-read': MemAccess.LOCAL_READ,
  'local-write': MemAccess.LOCAL_WRITE,
  'remote-read': MemAccess.REMOTE_GET,
  'remote-write': MemAccess.REMOTE_PUT,
};
const NAMES = Object.keys(ACCESS_OF) as readonly MemoryProtection[];
const RULE = `must be a list of one or more of ${NAMES.join(', ')}`;

/** The access flags of a protection; all of them for none. @throws UcxError ERR_INVALID_PARAM */
export function accessOf(protection: readonly MemoryProtection[] | undefined): number {
  if (protection === undefined) return MemAccess.ALL;
  if (!Array.isArray(protection) || protection.length === 0) throw invalidParam('protection', RULE, protection);
  let access = 0;
  for (const name of protection as readonly MemoryProtection[]) {
    if (!NAMES.includes(name)) throw invalidParam('protection', RULE, name);
    access |= ACCESS_OF[name];
  }
  return withAtomics(access);
}

/** The access flags, with that of atomic operations if they permit peers both put and get. */
export function withAtomics(access: number): number {
  return (access & REMOTE_ACCESS) === REMOTE_ACCESS ? access | MemAccess.REMOTE_ATOMIC : access;
}

/** The names of access flags. */
export function protectionOf(access: number): MemoryProtection[] {
  return NAMES.filter((name) => (access & ACCESS_OF[name]) !== 0);
}

/** Accesses that a packed key denies, not those that it permits: keys of memory for every access are the same bytes in all versions of this library. */
const DENIES_PUT = 0x1;
const DENIES_GET = 0x2;

/** The byte of a packed key that says which accesses it denies to peers. */
export function deniedOf(access: number): number {
  return (
    ((access & MemAccess.REMOTE_PUT) === 0 ? DENIES_PUT : 0) | ((access & MemAccess.REMOTE_GET) === 0 ? DENIES_GET : 0)
  );
}

/** The access that such a byte leaves to peers: bits of {@link REMOTE_ACCESS}; undefined for a byte with other bits. */
export function accessWithout(denied: number): number | undefined {
  if ((denied & ~(DENIES_PUT | DENIES_GET)) !== 0) return undefined;
  const put = (denied & DENIES_PUT) === 0 ? MemAccess.REMOTE_PUT : 0;
  return (denied & DENIES_GET) === 0 ? put | MemAccess.REMOTE_GET : put;
}

/** The accesses that an operation needs. */
export interface Accesses {
  /** To the local memory: bits of MemAccess. */
  readonly ownAccess: number;
  /** To the memory of the key: bits of MemAccess. */
  readonly remoteAccess: number;
}

/** The accesses of a put. */
export const PUT_ACCESSES: Accesses = { ownAccess: MemAccess.LOCAL_READ, remoteAccess: MemAccess.REMOTE_PUT };
/** The accesses of a get. */
export const GET_ACCESSES: Accesses = { ownAccess: MemAccess.LOCAL_WRITE, remoteAccess: MemAccess.REMOTE_GET };

const OF_ATOMICS: Accesses = { ownAccess: 0, remoteAccess: ATOMIC_ACCESS };
const OF_MESSAGES: Accesses = { ownAccess: MemAccess.LOCAL_READ, remoteAccess: 0 };

/** The accesses of an operation, by its name: put, get or atomic; other names are those of messages. */
export function accessesOf(operation: string): Accesses {
  if (operation === 'put') return PUT_ACCESSES;
  if (operation === 'get') return GET_ACCESSES;
  return operation === 'atomic' ? OF_ATOMICS : OF_MESSAGES;
}

/** The error of an operation that the protection of memory does not permit. */
export function refusedAccess(argument: string, needed: number, access: number): UcxError {
  const rule = `must be mapped with protection ${protectionOf(needed).join(' and ')} for this`;
  return invalidParam(argument, rule, protectionOf(access).join(', '));
}

/** The error of packing a remote key for memory that peers may not access. */
export function noRemoteAccess({ access }: { readonly access: number }): UcxError {
  const rule = 'must be mapped with protection remote-read or remote-write for a remote key';
  return invalidParam('handle', rule, protectionOf(access).join(', '));
}
