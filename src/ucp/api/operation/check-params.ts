/** Checks the parameters of requests, and the names of the parameters of memMap, whose values are checked where memory is mapped. */

import { withMemoryType } from '../../../ucs/memory/memory-type.ts';
import { checkFlag, checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { MapParams, MemMapParams } from './memory.ts';
import type { RequestCallback, RequestParams } from './request.ts';

const MAP_OPTIONS = {
  buffer: ['buffer', 'protection'],
  address: ['address', 'byteLength', 'memoryType', 'sysDevice', 'protection'],
  dmabuf: ['dmabuf', 'memoryType', 'sysDevice', 'protection'],
  allocate: ['allocate', 'memoryType', 'sysDevice', 'shared', 'protection'],
} as const;

/**
 * Checks the names of the parameters of memMap, and replaces the name of a memory type by its number.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkMapParams(params: MemMapParams): MapParams {
  checkOptions(params, 'params');
  const kind = (['buffer', 'address', 'dmabuf', 'allocate'] as const).find((name) => name in params);
  if (kind !== undefined) checkOptions(params, 'params', MAP_OPTIONS[kind]);
  const sysDevice: unknown = (params as { readonly sysDevice?: unknown }).sysDevice;
  if (sysDevice !== undefined && !(Number.isSafeInteger(sysDevice) && (sysDevice as number) >= 0)) {
    throw invalidParam('sysDevice', 'must be an integer of 0 or more', sysDevice);
  }
  return withMemoryType(params);
}

const REQUEST_FIELDS = ['noImmediateCompletion', 'callback', 'userData'] as const;
const PUT_FIELDS = [...REQUEST_FIELDS, 'notify', 'notifyId'] as const;

/** The parameters of the operations that have more than a request has. */
export const PARAM_FIELDS: Readonly<
  Record<'put' | 'notify' | 'list' | 'atomic' | 'am' | 'streamRecv', readonly string[]>
> = {
  put: PUT_FIELDS,
  notify: [...REQUEST_FIELDS, 'notifyId'],
  list: [...PUT_FIELDS, 'strict', 'flush', 'blocks'],
  atomic: [...REQUEST_FIELDS, 'bits', 'compare'],
  am: [...REQUEST_FIELDS, 'protocol'],
  streamRecv: [...REQUEST_FIELDS, 'waitAll'],
};

/**
 * Checks the parameters of a request. Allocates nothing.
 * @param names the parameters of the operation
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkParams(params: RequestParams | undefined, names?: readonly string[]): void {
  if (params === undefined) return;
  checkOptions(params, 'params');
  for (const name in params) {
    // Comparisons with constants take a tenth of the time of a search.
    if (name === 'callback' || name === 'noImmediateCompletion' || name === 'userData') continue;
    if (names?.includes(name) !== true) checkOptions(params, 'params', names ?? REQUEST_FIELDS);
  }
  const { noImmediateCompletion, callback } = params;
  checkFlag('params.noImmediateCompletion', noImmediateCompletion);
  checkCallback('params.callback', callback);
}

/** Checks the callback of a request. @throws UcxError ERR_INVALID_PARAM */
export function checkCallback(argument: string, callback: RequestCallback | undefined): void {
  if (callback !== undefined && typeof callback !== 'function') {
    throw invalidParam(argument, 'must be a function', callback);
  }
}
