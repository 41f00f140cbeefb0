/**
 * Handles and mmap cookies: 64-bit values that identify command buffers, hardware blocks and timestamp buffers of a file. Handles of MEMORY ALLOC are
 * plain small numbers instead.
 *
 * A cookie is a type in bits 59 to 63 and an id shifted by the page size: `type << 59 | id << 12`. It is passed to mmap as the offset. Hot code keeps the
 * two 32-bit words; an id below 2^20 is in the low word, a larger one extends into the high word.
 * Source: drivers/accel/habanalabs/common/habanalabs.h and memory_mgr.c, Linux 6.12 (HL_MMAP_TYPE_*).
 */

/** log2 of the page size of the driver's mappings. */
export const PAGE_SHIFT = 12;

/** Bytes of a page of the driver's mappings. */
export const PAGE_SIZE = 4096;

/** Position of the type in the 64-bit cookie. */
export const HANDLE_TYPE_SHIFT = 59;

/** Values of the type field (HL_MMAP_TYPE_CB, _BLOCK, _TS_BUFF before their shift). */
export const HandleType = {
  CB: 0x2,
  HW_BLOCK: 0x4,
  TS: 0x10,
} as const;

/** One of the values of {@link HandleType}. */
export type HandleType = (typeof HandleType)[keyof typeof HandleType];

/** High word of a cookie of each type whose id is below 2^20: the type alone. */
export const HandleTypeHi = {
  CB: 0x10000000,
  HW_BLOCK: 0x20000000,
  TS: 0x80000000,
} as const;

/** Mask of the byte offset below the type, which the driver uses when a cookie is mapped (HL_MMAP_OFFSET_VALUE_MASK, in bytes). */
export const HANDLE_OFFSET_MASK = 0x1fffffffffffn;

const TYPE_SHIFT_IN_HI = HANDLE_TYPE_SHIFT - 32;
const BELOW_TYPE_IN_HI = 0x7ffffff;

/** Low word of the cookie of `id` (any type). */
export function handleLo(id: number): number {
  return (id << PAGE_SHIFT) >>> 0;
}

/** High word of the cookie of `id`. */
export function handleHi(type: HandleType, id: number): number {
  return ((type << TYPE_SHIFT_IN_HI) | (id >>> (32 - PAGE_SHIFT))) >>> 0;
}

/** The type field of a cookie's high word; values that {@link HandleType} lacks are not handles. */
export function handleType(hi: number): number {
  return hi >>> TYPE_SHIFT_IN_HI;
}

/**
 * The id of a cookie, or -1 when the words cannot come from {@link handleLo} and {@link handleHi}: bits below the page or an id
 * of 2^32 and more. The type is not checked.
 */
export function handleId(lo: number, hi: number): number {
  const upper = hi & BELOW_TYPE_IN_HI;
  if ((lo & (PAGE_SIZE - 1)) !== 0 || upper >>> PAGE_SHIFT !== 0) return -1;
  return ((upper << (32 - PAGE_SHIFT)) | (lo >>> PAGE_SHIFT)) >>> 0;
}

/** The cookie as one unsigned 64-bit value, as mmap takes it. Cold. */
export function packHandle(type: HandleType, id: number): bigint {
  return (BigInt(type) << BigInt(HANDLE_TYPE_SHIFT)) | (BigInt(id) << BigInt(PAGE_SHIFT));
}

/** Type and id of a cookie. Cold. For a value that is not a handle, the type may be any number. */
export function unpackHandle(handle: bigint): { readonly type: number; readonly id: bigint } {
  const unsigned = BigInt.asUintN(64, handle);
  return {
    type: Number(unsigned >> BigInt(HANDLE_TYPE_SHIFT)),
    id: (unsigned & HANDLE_OFFSET_MASK) >> BigInt(PAGE_SHIFT),
  };
}
