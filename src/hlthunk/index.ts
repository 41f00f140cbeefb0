/**
 * hl-thunk in TypeScript, with the names of the C library in camelCase; functions take the device first, where C has the file descriptor. Re-exports
 * only.
 */

export { cardLabel, type NamedCard, namedCards } from '../driver/card-names.ts';
export type { AbsentCard, CardEntry, DriverNode } from '../driver/port.ts';
export { highWord, joinBig as packAddress, lowWord } from '../ucs/type/int64.ts';
export type { CamelRecord, CardFile, CardTarget } from './base/card-file.ts';
export { type DeviceRange, highAt, lowAt } from './base/card-file.ts';
export {
  GaudiErrorCode,
  GaudiErrorNumber,
  gaudiError,
  gaudiErrorNumber,
  gaudiErrorOfErrno,
  gaudiErrorStatus,
  gaudiErrorText,
  ioctlError,
} from './base/gaudi-error.ts';
export {
  CommandBuffer,
  type CommandBufferOptions,
  destroyCommandBuffer,
  requestCommandBuffer,
} from './cs/command-buffer.ts';
export {
  type CommandChunk,
  commandSubmission,
  EncapsSignals,
  type JobOptions,
  type MultiWaitResult,
  type SubmissionOptions,
  type WaitResult,
  waitForCs,
  waitForCsAsync,
  waitForMultiCs,
} from './cs/command-submission.ts';
export { csFlushPciHbwWrites, engineCoresSetMode, enginesCommand } from './cs/engine-commands.ts';
export {
  ANY_CQ_INTERRUPT,
  ANY_DECODER_INTERRUPT,
  allocateTimestampElements,
  type InterruptCounter,
  registerTimestampInterrupt,
  TimestampBuffer,
  waitForInterrupt,
  waitForInterruptAsync,
} from './cs/interrupts.ts';
export {
  ALREADY_SIGNALED,
  reserveEncapsSignals,
  type SignalSubmission,
  signalSubmission,
  unreserveEncapsSignals,
  waitForReservedEncapsSignals,
  waitForSignal,
} from './cs/signals.ts';
export type { DeviceDmaOptions } from './dma/dma.ts';
export { DeviceDma } from './dma/dma.ts';
export { DMA_PACKET_BYTES_MAX, DMA_REQUESTS_MAX, DMA_SHORT_BYTES_MAX } from './dma/queue.ts';
export type { DmaCounts } from './dma/request.ts';
export { type DmaCallback, DmaRequest } from './dma/request.ts';
export { type DevInfoSigned, getDevInfoSigned, getSecAttestInfo, type SecAttestInfo } from './info/attestation.ts';
export * from './info/device-info.ts';
export { DramRowCause, type ReplacedDramRow } from './info/dram-rows.ts';
export {
  DeviceEvents,
  type DeviceFault,
  type EventCallback,
  type EventSubscription,
  type NotifierEvent,
} from './info/events.ts';
export * from './info/fault-info.ts';
export {
  type CardLinks,
  getNicPorts,
  getNicPortsMasks,
  linksBetween,
  type NicPeer,
  type NicPort,
  type NicPortsMasks,
} from './info/nic.ts';
export { type Arena, BLOCK_GRANULE_BYTES, DeviceBlock, DevicePart } from './memory/arena.ts';
export {
  ARENA_BYTES,
  type ArenaMap,
  type ArenaStatistics,
  BLOCK_ALIGNMENT_MAX,
  type BlockOptions,
  DeviceArenas,
  type MemoryWatcher,
} from './memory/device-arenas.ts';
export {
  type DeviceMemoryAllocOptions,
  deviceMemoryAlloc,
  deviceMemoryFree,
  deviceMemoryMap,
  memoryUnmap,
} from './memory/device-memory.ts';
export { DeviceMemoryRange, DeviceRanges } from './memory/device-range.ts';
export { DmaMemory } from './memory/dma-memory.ts';
export {
  type DmabufExport,
  DmabufImports,
  deviceMappedMemoryExportDmabufFd,
  deviceMemoryExportDmabufFd,
  exportBlock,
  ImportedMapping,
} from './memory/dmabuf.ts';
export { free, HostBuffer, malloc } from './memory/host-buffer.ts';
export { type HostMapOptions, HostMapping, HostMemory } from './memory/host-memory.ts';
export { ControlDevice, Device, type DeviceInfo } from './open/device.ts';
export {
  close,
  deviceMemoryRange,
  dmaDeviceToDeviceAsync,
  dmaDeviceToHostAsync,
  dmaHostToDeviceAsync,
  dmaPoll,
  dmaRequestFree,
  hostMemoryMap,
  registerDmabufFd,
} from './open/device-calls.ts';
export type { DeviceOptions } from './open/device-options.ts';
export {
  HANDLE_MESSAGE_BYTES_MAX,
  type HandleMessage,
  type HandleTransferOptions,
  type ReceivedHandle,
  receiveHandle,
  sendHandle,
} from './open/handle-socket.ts';
export { getHwBlock, HwBlock, type RegisterValue, readHwBlock, userBlockOf } from './open/hw-block.ts';
export {
  IPC_HANDLE_BYTES,
  type IpcHandle,
  type IpcHandleInfo,
  ipcCloseHandle,
  ipcInspectHandle,
  ipcOpenHandle,
  ipcWrapArena,
  ipcWrapHandle,
  ipcWrapImport,
} from './open/ipc.ts';
export {
  type CardSelection,
  getDeviceCount,
  getDeviceIndexFromModuleId,
  getDeviceIndexFromPciBusId,
  getDeviceName,
  getPciBusId,
  open,
  openByModuleId,
  openControl,
  openControlByBusId,
  openControlByModuleId,
  openControlByName,
} from './open/open.ts';
