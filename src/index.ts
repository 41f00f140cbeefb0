/**
 * The package entry `gaudi-ucx`: UCX's protocol layer for Intel Gaudi accelerators. Re-exports only.
 *
 * @packageDocumentation
 */

export { Context, type ContextOptions } from './assembly/context.ts';
export { GaudiErrorCode, gaudiErrorStatus, gaudiErrorText } from './hlthunk/index.ts';
export type { Endpoint, TransferOptions, TransferResult } from './ucp/core/endpoint.ts';
export type { Request, RequestCallback, RequestParams } from './ucp/core/request.ts';
export { REQUESTS_MAX, type Worker } from './ucp/core/worker.ts';
export type { LocalMemory, MemMapParams, MemoryHandle } from './ucp/mem/memory-handle.ts';
export type { RemoteKey } from './ucp/mem/remote-key.ts';
export type { ChosenProtocol, Explanation, RejectedProtocol } from './ucp/proto/explain.ts';
export { AbortError, isUcxError, UcxError } from './ucs/error.ts';
export { MemoryType, memoryTypeName } from './ucs/memory-type.ts';
export { Status, statusName, statusString } from './ucs/status.ts';
