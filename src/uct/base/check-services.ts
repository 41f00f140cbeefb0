/** Checks of the services that a program passes to components: once, at the public interface. */

import { checkMethods, checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { AmHandler } from '../api/iface.ts';
import type { ComponentServices } from '../api/memory-domain.ts';

/** @throws UcxError ERR_INVALID_PARAM */
export function checkServices(services: ComponentServices): void {
  checkOptions(services, 'services');
  const { log, clock, config, isDeviceAllowed, memoryTypes, onDeviceLost } = services;
  checkMethods('services.log', log, ['error', 'warn', 'diag', 'info', 'debug', 'child']);
  checkMethods('services.clock', clock, ['nowNs', 'setTimer']);
  checkMethods('services.config', config, ['get']);
  if (memoryTypes !== undefined) checkMethods('services.memoryTypes', memoryTypes, ['insert', 'remove']);
  if (isDeviceAllowed !== undefined) checkHandler(isDeviceAllowed, 'services.isDeviceAllowed');
  if (onDeviceLost !== undefined) checkHandler(onDeviceLost, 'services.onDeviceLost');
}

/** @throws UcxError ERR_INVALID_PARAM if it is neither a function nor undefined */
export function checkAmHandler(handler: AmHandler | undefined): void {
  if (handler !== undefined) checkHandler(handler);
}

/** @throws UcxError ERR_INVALID_PARAM if it is not a function */
export function checkHandler(handler: unknown, argument = 'handler'): void {
  if (typeof handler !== 'function') throw invalidParam(argument, 'must be a function', handler);
}
