/**
 * The kinds of memory of UCX (`ucs_memory_type_t`), their names and masks of several kinds.
 *
 * Source: UCX `src/ucs/memory/memory_type.{h,c}`, master with Gaudi support.
 */

import { invalidParam } from '../type/error.ts';

/** The memory types in UCX's order; rkeys and masks contain the values. */
export const MemoryType = {
  /** Memory that the CPU loads and stores. */
  HOST: 0,
  /** NVIDIA CUDA device memory (UCS_MEMORY_TYPE_CUDA). */
  CUDA: 1,
  /** NVIDIA CUDA managed memory. */
  CUDA_MANAGED: 2,
  /** AMD ROCm device memory. */
  ROCM: 3,
  /** AMD ROCm managed memory. */
  ROCM_MANAGED: 4,
  /** Device memory of an RDMA NIC. */
  RDMA: 5,
  /** Intel Level Zero host memory. */
  ZE_HOST: 6,
  /** Intel Level Zero device memory. */
  ZE_DEVICE: 7,
  /** Intel Level Zero managed memory. */
  ZE_MANAGED: 8,
  /** HBM of a Gaudi card. */
  GAUDI: 9,
  /** Unknown; also the number of known types (`UCS_MEMORY_TYPE_LAST`). */
  UNKNOWN: 10,
} as const;

/** One of the values of {@link MemoryType}. */
export type MemoryType = (typeof MemoryType)[keyof typeof MemoryType];

/** Mask of all types except host memory: network devices access memory of these types by its dma-buf. */
export const DEVICE_MEMORY_TYPES: number = ((1 << MemoryType.UNKNOWN) - 1) & ~(1 << MemoryType.HOST);

/** The spelling of the memory types in configuration values and tool output, indexed by type (`ucs_memory_type_names`). */
export const MEMORY_TYPE_NAMES = [
  'host',
  'cuda',
  'cuda-managed',
  'rocm',
  'rocm-managed',
  'rdma',
  'ze-host',
  'ze-device',
  'ze-managed',
  'gaudi',
  'unknown',
] as const;

/** The name of a memory type, such as `gaudi`. */
export type MemoryTypeName = Exclude<(typeof MEMORY_TYPE_NAMES)[number], 'unknown'>;

/** Descriptions of the memory types as UCX prints them, indexed by type (`ucs_memory_type_descs`). */
export const MEMORY_TYPE_DESCRIPTIONS = [
  'System memory',
  'NVIDIA GPU memory',
  'NVIDIA GPU managed/unified memory',
  'AMD/ROCm GPU memory',
  'AMD/ROCm GPU managed memory',
  'RDMA device memory',
  'Intel/Ze USM host memory',
  'Intel/Ze GPU memory',
  'Intel/Ze GPU managed memory',
  'HabanaLabs Gaudi memory',
  'unknown',
] as const;

/** The number of known memory types; valid masks use the bits below it. */
export const MEMORY_TYPE_COUNT = 10;

/** The mask with every known memory type. */
export const ALL_MEMORY_TYPES: number = (1 << MEMORY_TYPE_COUNT) - 1;

/** The known memory types, by their numbers. */
const KNOWN_TYPES: readonly MemoryType[] = Object.values(MemoryType).filter((type) => type !== MemoryType.UNKNOWN);

/** The memory type with a number; undefined if there is none. */
export function memoryTypeAt(number: number): MemoryType | undefined {
  return KNOWN_TYPES[number];
}

/** The name of a memory type; `"unknown"` for any other value. */
export function memoryTypeName(type: number): string {
  return (typeof type === 'number' ? MEMORY_TYPE_NAMES[type] : undefined) ?? 'unknown';
}

/** The bit of a memory type in a mask of memory types (`UCS_BIT(mem_type)`). */
export function memoryTypeBit(type: MemoryType): number {
  return 1 << type;
}

/** True if `mask` contains `type`. */
export function hasMemoryType(mask: number, type: MemoryType): boolean {
  return (mask & (1 << type)) !== 0;
}

/** The mask of all of `types`. */
export function memoryTypeMask(...types: readonly MemoryType[]): number {
  let mask = 0;
  for (const type of types) mask |= 1 << type;
  return mask;
}

/** The known memory types of a mask, in ascending order. */
export function memoryTypesOfMask(mask: number): MemoryType[] {
  return KNOWN_TYPES.filter((type) => hasMemoryType(mask, type));
}

/** The names in a mask as UCX prints them, for example `"host,gaudi"`; empty for an empty mask. */
export function memoryTypeMaskNames(mask: number): string {
  return memoryTypesOfMask(mask).map(memoryTypeName).join(',');
}

/** The memory type with this name, case-insensitive; undefined if there is none. */
export function parseMemoryType(name: string): MemoryType | undefined {
  const word = name.toLowerCase();
  return Object.values(MemoryType).find((type) => MEMORY_TYPE_NAMES[type] === word);
}

/**
 * Replaces the name of a memory type in `params` by its number.
 * @throws UcxError ERR_INVALID_PARAM for an unknown name
 */
export function withMemoryType<T extends object>(params: T): WithMemoryType<T> {
  const { memoryType } = (params ?? {}) as { readonly memoryType?: unknown };
  if (typeof memoryType !== 'string') return params as WithMemoryType<T>;
  const type = parseMemoryType(memoryType);
  if (type === undefined || type === MemoryType.UNKNOWN) {
    throw invalidParam(
      'memoryType',
      `must be a memory type (${MEMORY_TYPE_NAMES.slice(0, -1).join(', ')})`,
      memoryType,
    );
  }
  return { ...params, memoryType: type } as WithMemoryType<T>;
}

/** Parameters whose memory type is a number. */
export type WithMemoryType<T> = T extends { readonly memoryType: unknown }
  ? Omit<T, 'memoryType'> & { readonly memoryType: MemoryType }
  : T extends { readonly memoryType?: unknown }
    ? Omit<T, 'memoryType'> & { readonly memoryType?: MemoryType }
    : T;
