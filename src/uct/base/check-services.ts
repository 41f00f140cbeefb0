/** Checks of the services that a program passes to components: once, at the public interface. */

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

/** @throws UcxError ERR_INVALID_PARAM if it is not a function */
export function checkHandler(handler: unknown, argument = 'handler'): void {
  if (typeof handler !== 'function') throw invalidParam(argument, 'must be a function', handler);
}
