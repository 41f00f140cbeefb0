/**
 * The package entry `gaudi-ucx/hlthunk`: the calls of hl-thunk, opening a card without a context, and the packet encoders for commandSubmission.
 * Re-exports only.
 */

export { type OpenDeviceOptions, type OpenNodeOptions, openDevice, openDriverNode } from './assembly/open-device.ts';
export * from './hlthunk/index.ts';
export {
  fenceCfg,
  Gaudi2QueueBase,
  GaudiQueueBase,
  HL_CS_CHUNK_FLAGS,
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_ENGINE_COMMAND,
  HL_INFO_OP,
  HL_WAIT_CS_STATUS,
  linDmaCtl,
  msgLongCtl,
  PacketOpcode,
  packetCtl,
  writeFence,
  writeLinDma,
  writeMsgLong,
  writeNop,
} from './uapi/index.ts';
export { packageVersion as getVersion } from './ucs/sys/package.ts';
export { isUcxError, UcxError } from './ucs/type/error.ts';
export { Status, statusName, statusString } from './ucs/type/status.ts';
