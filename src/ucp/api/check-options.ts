/** Checks the objects that calls of the API take beside their arguments: parameters of requests, options. What is in them is checked where it is used. */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { RequestParams } from './request.ts';

export { checkOptions };

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
