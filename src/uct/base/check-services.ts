/** Checks what components are handed when they open something: once, where a program hands it over. */

import { checkMethods, checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { ComponentServices } from '../api/memory-domain.ts';

/** @throws UcxError ERR_INVALID_PARAM */
export function checkServices(services: ComponentServices): void {
  checkOptions(services, 'services');
  const { log, clock, config, isDeviceAllowed, memoryTypes } = services;
  checkMethods('services.log', log, ['error', 'warn', 'diag', 'info', 'debug', 'child']);
  checkMethods('services.clock', clock, ['nowNs', 'setTimer']);
  checkMethods('services.config', config, ['get']);
  if (memoryTypes !== undefined) checkMethods('services.memoryTypes', memoryTypes, ['insert', 'remove']);
  if (isDeviceAllowed !== undefined && typeof isDeviceAllowed !== 'function') {
    throw invalidParam('services.isDeviceAllowed', 'must be a function', isDeviceAllowed);
  }
}

/** @throws UcxError ERR_INVALID_PARAM for what cannot be called */
export function checkHandler(handler: unknown, argument = 'handler'): void {
  if (typeof handler !== 'function') throw invalidParam(argument, 'must be a function', handler);
}
