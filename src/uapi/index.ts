/** The habanalabs kernel ABI as data. */

export * from './asic/asic-profile.ts';
export * from './asic/asic-profile-gaudi.ts';
export * from './asic/asic-profile-gaudi2.ts';
export * from './asic/asic-profile-gaudi3.ts';
export * from './asic/asic-profiles.ts';
export * from './asic/engine-ids.ts';
export * from './asic/nic-wiring.ts';
export * from './asic/pdma-channels.ts';
export * from './asic/queues.ts';
export * from './ioctl/cs-flags.ts';
export * from './ioctl/device-status.ts';
export * from './ioctl/handles.ts';
export * from './ioctl/ioctl.ts';
export * from './ioctl/operations.ts';
export * from './packet/packet-ctl.ts';
export * from './packet/packets.ts';
export * from './packet/pqm-packets.ts';
export * from './struct/struct.ts';
export * from './struct/structs-cb.ts';
export * from './struct/structs-cs.ts';
export * from './struct/structs-debug.ts';
export * from './struct/structs-info.ts';
export * from './struct/structs-info-6-1.ts';
export * from './struct/structs-info-events.ts';
export * from './struct/structs-memory.ts';
