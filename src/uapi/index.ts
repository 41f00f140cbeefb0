/** The habanalabs kernel ABI as data. Re-exports only. */

export * from './asic-profile.ts';
export * from './asic-profile-gaudi.ts';
export * from './asic-profile-gaudi2.ts';
export * from './asic-profile-gaudi3.ts';
export * from './asic-profiles.ts';
export * from './cb-ops.ts';
export * from './cs-flags.ts';
export * from './debug-ops.ts';
export * from './device-status.ts';
export * from './handles.ts';
export * from './info-ops.ts';
export * from './ioctl.ts';
export * from './memory-ops.ts';
export * from './nic-wiring.ts';
export * from './packet-ctl.ts';
export * from './packets.ts';
export * from './queues.ts';
export * from './struct.ts';
export * from './structs-cb.ts';
export * from './structs-cs.ts';
export * from './structs-debug.ts';
export * from './structs-info.ts';
export * from './structs-info-6-1.ts';
export * from './structs-info-events.ts';
export * from './structs-memory.ts';
export * from './user-block.ts';
