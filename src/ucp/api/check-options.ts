/** Checks the objects that calls of the API take beside their arguments: parameters of requests, options. What is in them is checked where it is used. */

import { invalidParam } from '../../ucs/error.ts';
import type { RequestParams } from './request.ts';

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

/**
 * Checks that options are an object.
 * @param argument its name
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkOptions(options: object, argument = 'options'): void {
  if (typeof options !== 'object' || options === null) throw invalidParam(argument, 'must be an object', options);
}
