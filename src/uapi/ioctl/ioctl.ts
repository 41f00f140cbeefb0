/**
 * The request numbers of the six habanalabs ioctls, in both families.
 *
 * Layout of a request (asm-generic/ioctl.h): number in bits 0 to 7, type in 8 to 15, argument bytes in 16 to 29, direction in 30
 * and 31. All of ours read and write. Source: misc/habanalabs.h, Linux 6.1 ('H'), and drm/habanalabs_accel.h, Linux 6.12 (DRM).
 */

import { HL_CB_ARGS } from '../struct/structs-cb.ts';
import { HL_CS_ARGS, HL_WAIT_CS_ARGS } from '../struct/structs-cs.ts';
import { HL_DEBUG_ARGS } from '../struct/structs-debug.ts';
import { HL_INFO_ARGS } from '../struct/structs-info.ts';
import { HL_MEM_ARGS } from '../struct/structs-memory.ts';

/** The six ioctls as unsigned 32-bit request numbers of one family. */
export interface IoctlNumbers {
  readonly INFO: number;
  readonly CB: number;
  readonly CS: number;
  readonly WAIT_CS: number;
  readonly MEMORY: number;
  readonly DEBUG: number;
}

/** The name of one of the six ioctls. */
export type IoctlName = keyof IoctlNumbers;

/** Their order in both families. */
export const IoctlIndex = { INFO: 0, CB: 1, CS: 2, WAIT_CS: 3, MEMORY: 4, DEBUG: 5 } as const;

/** Their names by {@link IoctlIndex}. */
export const IOCTL_NAMES: readonly IoctlName[] = ['INFO', 'CB', 'CS', 'WAIT_CS', 'MEMORY', 'DEBUG'];

/** Type letter of the family of Linux 6.6 and older: 'H'. */
export const HABANALABS_IOCTL_TYPE = 0x48;

/** Type letter of the DRM family of Linux 6.7 and newer: 'd'. */
export const DRM_IOCTL_TYPE = 0x64;

/** Number of the first ioctl ('H' family). */
export const HABANALABS_COMMAND_BASE = 0x01;

/** Number of the first driver ioctl (DRM family, DRM_COMMAND_BASE). */
export const DRM_COMMAND_BASE = 0x40;

const DIRECTION_READ_WRITE = 3;

/** The request number of an ioctl that reads and writes `size` bytes of argument, unsigned. */
export function iowr(type: number, number: number, size: number): number {
  return ((DIRECTION_READ_WRITE << 30) | (size << 16) | (type << 8) | number) >>> 0;
}

/** The type letter of a request: {@link HABANALABS_IOCTL_TYPE}, {@link DRM_IOCTL_TYPE} or another driver's. */
export function ioctlType(request: number): number {
  return (request >>> 8) & 0xff;
}

/** The number of a request within its family: 1 to 6, or 0x40 to 0x45 for DRM. */
export function ioctlNumber(request: number): number {
  return request & 0xff;
}

/** The {@link IoctlIndex} of a request of either family; -1 for another request. */
export function ioctlIndex(request: number): number {
  const type = ioctlType(request);
  if (type !== DRM_IOCTL_TYPE && type !== HABANALABS_IOCTL_TYPE) return -1;
  const index = ioctlNumber(request) - (type === DRM_IOCTL_TYPE ? DRM_COMMAND_BASE : HABANALABS_COMMAND_BASE);
  return index < IOCTL_NAMES.length ? Math.max(index, -1) : -1;
}

/** The bytes of argument that a request reads and writes. */
export function ioctlSize(request: number): number {
  return (request >>> 16) & 0x3fff;
}

function family(type: number, base: number): IoctlNumbers {
  return {
    INFO: iowr(type, base + IoctlIndex.INFO, HL_INFO_ARGS.size),
    CB: iowr(type, base + IoctlIndex.CB, HL_CB_ARGS.size),
    CS: iowr(type, base + IoctlIndex.CS, HL_CS_ARGS.size),
    WAIT_CS: iowr(type, base + IoctlIndex.WAIT_CS, HL_WAIT_CS_ARGS.size),
    MEMORY: iowr(type, base + IoctlIndex.MEMORY, HL_MEM_ARGS.size),
    DEBUG: iowr(type, base + IoctlIndex.DEBUG, HL_DEBUG_ARGS.size),
  };
}

/** The request numbers of Linux 6.6 and older. */
export const HABANALABS_IOCTLS: IoctlNumbers = family(HABANALABS_IOCTL_TYPE, HABANALABS_COMMAND_BASE);

/** The request numbers of Linux 6.7 and newer. */
export const DRM_IOCTLS: IoctlNumbers = family(DRM_IOCTL_TYPE, DRM_COMMAND_BASE);
