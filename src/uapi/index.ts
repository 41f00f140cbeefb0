/** The habanalabs kernel ABI as data. Re-exports only. */

export * from './ioctl.ts';
export * from './struct.ts';
export * from './structs-cb.ts';
export * from './structs-cs.ts';
export * from './structs-debug.ts';
export * from './structs-info.ts';
export * from './structs-info-6-1.ts';
export * from './structs-info-events.ts';
export * from './structs-memory.ts';
