/**
 * The package entry `gaudi-ucx`: UCX's protocol layer for Intel Gaudi accelerators. Re-exports only.
 *
 * @packageDocumentation
 */

export { Context, type ContextOptions } from './assembly/context.ts';
export { type ConfigReadOptions, type Environment, ProgramConfig as Config } from './assembly/program-config.ts';
export { GaudiErrorCode, gaudiErrorStatus, gaudiErrorText } from './hlthunk/index.ts';
export { AM_HEADER_BYTES_MAX, AM_IDS, type AmSendParams } from './ucp/am/active-message.ts';
export type { AmCallback, AmMessage } from './ucp/am/message-view.ts';
export type { AtomicName, AtomicParams } from './ucp/amo/atomics.ts';
export type {
  AmSendOptions,
  AtomicOptions,
  SendOptions,
  TagRecvOptions,
  TagRecvResult,
  TagSendOptions,
  TransferOptions,
  TransferResult,
} from './ucp/core/awaited-options.ts';
export type { Endpoint, EndpointOptions } from './ucp/core/endpoint.ts';
export type { CloseOptions, EndpointAttributes } from './ucp/core/endpoint-attributes.ts';
export type { ExplainedOperation } from './ucp/core/explain-transfer.ts';
export type { Request, RequestCallback, RequestParams } from './ucp/core/request.ts';
export { REQUESTS_MAX } from './ucp/core/request-pool.ts';
export type { Worker } from './ucp/core/worker.ts';
export type { WorkerOptions } from './ucp/core/worker-context.ts';
export { IOV_MAX, type IovPiece, type LocalBuffer } from './ucp/mem/local-bytes.ts';
export type { LocalMemory, MemMapParams, MemoryHandle } from './ucp/mem/memory-handle.ts';
export type { AdviseOptions } from './ucp/mem/memory-map.ts';
export type { AddressedMemory, MemoryInfo, MemoryTypeEvent } from './ucp/mem/memory-types.ts';
export type { RemoteKey } from './ucp/mem/remote-key.ts';
export type {
  ChosenProtocol,
  Explanation,
  RejectedProtocol,
  SizeExplanation,
  SizeLoser,
  SizeWinner,
} from './ucp/proto/explain.ts';
export type { StreamRecvParams } from './ucp/stream/stream.ts';
export type { TagMessage } from './ucp/tag/tag.ts';
export { TAG_MASK_FULL, type Tag } from './ucp/tag/tag-value.ts';
export type { ConnectionRequest, ConnectionRequestAttributes } from './ucp/wireup/connection-request.ts';
export type { Listener, ListenerAttributes, ListenerOptions } from './ucp/wireup/listener.ts';
export type { ConnectNbxOptions, ConnectOptions } from './ucp/wireup/socket-connections.ts';
export type { ConfigEntry } from './ucs/config.ts';
export type { ConfigPrintOptions } from './ucs/config-print.ts';
export type {
  CommandSubmissionEnd,
  EndpointChange,
  MemoryChange,
  OperationEnd,
  TransferEnd,
} from './ucs/diagnostics.ts';
export { AbortError, isUcxError, UcxError } from './ucs/error.ts';
export { MemoryType, memoryTypeName } from './ucs/memory-type.ts';
export type { RcacheCounters } from './ucs/rcache-options.ts';
export type { Counters, StatsNode } from './ucs/stats/stats-node.ts';
export { Status, statusName, statusString } from './ucs/status.ts';
export type { SocketAddress } from './uct/api/connection-manager.ts';
export type { MemoryAdvice, RegistrationCache } from './uct/api/memory-domain.ts';
