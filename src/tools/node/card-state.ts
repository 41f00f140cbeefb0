/**
 * State of a card as all commands show it: the sysfs attribute `status` of the driver, or the reason why the card cannot be opened.
 */

import { type ControlDevice, type DriverNode, getDeviceStatus, openControl } from '../../hlthunk/index.ts';
import { HL_DEVICE_STATUS_TEXT } from '../../uapi/index.ts';
import { isUcxError, type UcxError } from '../../ucs/type/error.ts';

/** The state of a card that works. */
export const OPERATIONAL = 'operational';

const REFUSALS: Readonly<Record<string, string>> = {
  EPERM: 'no permission',
  EACCES: 'no permission',
  ENODEV: 'removed',
  ENOENT: 'removed',
  ENXIO: 'removed',
  EBUSY: 'in reset',
  EAGAIN: 'in reset',
};

/** The state that an open card reports. */
export function stateOf(control: ControlDevice): string {
  const status = getDeviceStatus(control);
  return HL_DEVICE_STATUS_TEXT.get(status) ?? `status ${status}`;
}

/** State of a card that cannot be opened: that of sysfs unless the card is operational, else the meaning of the errno. */
export function stateOfRefusal(node: DriverNode, minor: number, { message, details }: UcxError): string {
  const state = node.attribute(minor, 'status')?.toLowerCase();
  if (state !== undefined && state !== OPERATIONAL) return state;
  return REFUSALS[String(details['errno'])] ?? message;
}

/** Answer of a card, or the reason why there is none. */
export type CardAnswer<T> =
  | { readonly state: string; readonly card: T; readonly reason?: undefined }
  | { readonly state: string; readonly card?: undefined; readonly reason: string };

/** Queries a card through its control node, which is closed afterwards. A refusal is returned, not thrown. */
export function askCard<T>(node: DriverNode, minor: number, ask: (control: ControlDevice) => T): CardAnswer<T> {
  try {
    using control = openControl(node, minor);
    return { state: stateOf(control), card: ask(control) };
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return { state: stateOfRefusal(node, minor, error), reason: String(error.details['reason'] ?? error.message) };
  }
}
