/** Checks the parameters of requests, and the names of the parameters of memMap, whose values are checked where memory is mapped. */

import { withMemoryType } from '../../../ucs/memory/memory-type.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { MapParams, MemMapParams } from './memory.ts';
import type { RequestParams } from './request.ts';

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
  return withMemoryType(params);
}

/**
 * Checks the parameters of a request.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkParams(params: RequestParams | undefined): void {
  if (params === undefined) return;
  checkOptions(params, 'params');
  const { callback } = params;
  if (callback !== undefined && typeof callback !== 'function') {
    throw invalidParam('params.callback', 'must be a function', callback);
  }
}
