/**
 * hl-thunk in TypeScript, with the names of the C library in camelCase; functions take the device first, where C has the file descriptor. Re-exports
 * only. Which driver a program gets is not chosen here: the entry of the package, which also opens cards by themselves, is hlthunk.ts.
 */

export type { CardEntry, DriverNode } from '../driver/port.ts';
export { highWord, joinBig as packAddress, lowWord } from '../ucs/int64.ts';
export { type Arena, BLOCK_GRANULE_BYTES, DeviceBlock, DevicePart } from './arena.ts';
export { type DevInfoSigned, getDevInfoSigned, getSecAttestInfo, type SecAttestInfo } from './attestation.ts';
export type { CamelRecord } from './camel-record.ts';
export type { CardFile, CardTarget } from './card-file.ts';
export {
  CommandBuffer,
  type CommandBufferOptions,
  destroyCommandBuffer,
  requestCommandBuffer,
} from './command-buffer.ts';
export {
  type CommandChunk,
  commandSubmission,
  type JobOptions,
  type MultiWaitResult,
  type SubmissionOptions,
  type WaitResult,
  waitForCs,
  waitForCsAsync,
  waitForMultiCs,
} from './command-submission.ts';
export { ControlDevice, Device, type DeviceInfo } from './device.ts';
export { type DeviceRange, highAt, lowAt } from './device-address.ts';
export {
  ARENA_BYTES,
  type ArenaStatistics,
  BLOCK_ALIGNMENT_MAX,
  type BlockOptions,
  DeviceArenas,
  type MemoryWatcher,
} from './device-arenas.ts';
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
} from './device-calls.ts';
export * from './device-info.ts';
export {
  type DeviceMemoryAllocOptions,
  deviceMemoryAlloc,
  deviceMemoryFree,
  deviceMemoryMap,
  memoryUnmap,
} from './device-memory.ts';
export type { DeviceDmaOptions, DeviceOptions } from './device-options.ts';
export { DeviceMemoryRange, DeviceRanges } from './device-range.ts';
export { DeviceDma } from './dma.ts';
export type { DmaCounts } from './dma-activity.ts';
export { DmaMemory } from './dma-memory.ts';
export { DMA_PACKET_BYTES_MAX, DMA_REQUESTS_MAX, DMA_SHORT_BYTES_MAX } from './dma-queue.ts';
export { type DmaCallback, DmaRequest } from './dma-request.ts';
export {
  type DmabufExport,
  DmabufImports,
  deviceMappedMemoryExportDmabufFd,
  deviceMemoryExportDmabufFd,
  exportBlock,
  ImportedMapping,
} from './dmabuf.ts';
export { EncapsSignals } from './encaps-signals.ts';
export { csFlushPciHbwWrites, engineCoresSetMode, enginesCommand } from './engine-commands.ts';
export {
  DeviceEvents,
  type DeviceFault,
  type EventCallback,
  type EventSubscription,
  type NotifierEvent,
} from './events.ts';
export * from './fault-info.ts';
export {
  GaudiErrorCode,
  gaudiError,
  gaudiErrorOfErrno,
  gaudiErrorStatus,
  gaudiErrorText,
  ioctlError,
} from './gaudi-error.ts';
export { free, HostBuffer, malloc } from './host-buffer.ts';
export { type HostMapOptions, HostMapping, HostMemory } from './host-memory.ts';
export { getHwBlock, HwBlock, type RegisterValue, readHwBlock, userBlockOf } from './hw-block.ts';
export {
  ANY_CQ_INTERRUPT,
  ANY_DECODER_INTERRUPT,
  allocateTimestampElements,
  type InterruptCounter,
  registerTimestampInterrupt,
  TimestampBuffer,
  waitForInterrupt,
  waitForInterruptAsync,
} from './interrupts.ts';
export {
  IPC_HANDLE_BYTES,
  type IpcHandle,
  ipcCloseHandle,
  ipcOpenHandle,
  ipcWrapArena,
  ipcWrapHandle,
  ipcWrapImport,
} from './ipc.ts';
export {
  type CardLinks,
  getNicPorts,
  getNicPortsMasks,
  linksBetween,
  type NicPeer,
  type NicPort,
  type NicPortsMasks,
} from './nic.ts';
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
} from './open.ts';
export {
  ALREADY_SIGNALED,
  reserveEncapsSignals,
  type SignalSubmission,
  signalSubmission,
  unreserveEncapsSignals,
  waitForReservedEncapsSignals,
  waitForSignal,
} from './signals.ts';
