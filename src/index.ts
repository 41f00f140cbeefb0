/**
 * The package entry `gaudi-ucx`: UCX's protocol layer for Intel Gaudi accelerators. Re-exports only.
 *
 * @packageDocumentation
 */

export {
  AM_HEADER_BYTES_MAX,
  AM_IDS,
  type AmCallback,
  type AmMessage,
  type AmMessageBase,
  type EagerAmMessage,
  type MessageDataOptions,
  type MessageQueue,
  type RendezvousAmMessage,
} from './api/contract/active-message.ts';
export type { MetricsRegistry } from './api/contract/context.ts';
export { FEATURES, type Feature } from './api/contract/context.ts';
export type {
  AddressEndpointOptions,
  AmSendOptions,
  AtomicOptions,
  CloseOptions,
  Endpoint,
  EndpointAttributes,
  EndpointOptions,
  ExplainedOperation,
  NotifyOptions,
  PutOptions,
  RawRemoteMemory,
  RkeyOptions,
  SendOptions,
  StreamRecvOptions,
  TagSendOptions,
  TransferOptions,
  TransferResult,
} from './api/contract/endpoint.ts';
export type {
  ChosenProtocol,
  Engine,
  EngineName,
  Explanation,
  RejectedProtocol,
  SizeExplanation,
  SizeLoser,
  SizeWinner,
} from './api/contract/explanation.ts';
export type {
  ConnectionRequest,
  ConnectionRequestAttributes,
  Listener,
  ListenerAttributes,
  ListenerOptions,
} from './api/contract/listener.ts';
export {
  type AddressedMemory,
  type AdviseOptions,
  type CopyOptions,
  IOV_MAX,
  type IovPiece,
  type LocalBuffer,
  type LocalMemory,
  type MemMapParams,
  type MemoryHandle,
  type MemoryInfo,
  type MemoryProtection,
  type MemoryRange,
  type MemorySource,
  type MemoryTypeEvent,
  type MessageBuffer,
  type ProtectionOptions,
  type RemoteKey,
  type RemoteKeyPart,
} from './api/contract/memory.ts';
export type {
  AmSendParams,
  AtomicName,
  AtomicParams,
  NotifyParams,
  PutParams,
  Request,
  RequestCallback,
  RequestParams,
  StreamRecvParams,
} from './api/contract/request.ts';
export {
  LIST_BLOCKS_MAX,
  type ListCheckOptions,
  type ListOptions,
  type ListParams,
  NOTIFICATION_BYTES_MAX,
  type PreparedList,
  TAG_MASK_FULL,
  type Tag,
  type TransferEntry,
} from './api/contract/request.ts';
export type {
  CacheSnapshot,
  CardNode,
  CardSnapshot,
  CardTransfersSnapshot,
  ContextSnapshot,
  DmabufSnapshot,
  EndpointSnapshot,
  LaneSnapshot,
  MemorySnapshot,
  MessageSnapshot,
  RequestGroup,
  RequestSnapshot,
  RequestsSnapshot,
  UnavailableResource,
  UnexpectedSnapshot,
  WaitReason,
  WorkerSnapshot,
} from './api/contract/snapshot.ts';
export type {
  ConnectNbxOptions,
  ConnectOptions,
  LoopOptions,
  Notification,
  NotificationHandler,
  TagMessage,
  TagRecvOptions,
  TagRecvResult,
  Worker,
  WorkerOptions,
} from './api/contract/worker.ts';
export { Context, type ContextOptions } from './assembly/context.ts';
export {
  type ConfigReadOptions,
  type Environment,
  ProgramConfig as Config,
} from './assembly/program/program-config.ts';
export {
  GaudiErrorCode,
  GaudiErrorNumber,
  gaudiErrorNumber,
  gaudiErrorStatus,
  gaudiErrorText,
} from './hlthunk/index.ts';
export type { ConfigEntry } from './ucs/config/config.ts';
export type { ConfigPrintOptions } from './ucs/config/print.ts';
export type {
  CommandSubmissionEnd,
  EndpointChange,
  MemoryChange,
  OperationEnd,
  TransferEnd,
} from './ucs/debug/diagnostics.ts';
export { MemoryType, type MemoryTypeName, memoryTypeName } from './ucs/memory/memory-type.ts';
export type { RcacheCounters } from './ucs/rcache/options.ts';
export type { Counters, StatsNode } from './ucs/stats/stats-node.ts';
export { AbortError, type ErrorDetails, isUcxError, UcxError, type UcxErrorInit } from './ucs/type/error.ts';
export { Status, statusName, statusString } from './ucs/type/status.ts';
export type { SocketAddress } from './uct/api/connection-manager.ts';
export type { ChannelTraffic, RemoteKeySource } from './uct/api/memory.ts';
export type { DeviceMemoryMap, MemoryAdvice, RegistrationCache } from './uct/api/memory-domain.ts';
