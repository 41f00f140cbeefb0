/**
 * State of a card as all commands show it: the sysfs attribute `status` of the driver, or the reason why the card cannot be opened. Cards in the
 * arguments of commands: by logical index, device node or bus id.
 */

import {
  type ControlDevice,
  cardLabel,
  type DriverNode,
  GaudiErrorCode,
  gaudiError,
  getDeviceStatus,
  type NamedCard,
  openControl,
} from '../../hlthunk/index.ts';
import { HL_DEVICE_STATUS_TEXT } from '../../uapi/index.ts';
import { invalidParam, isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

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

/** The error of a command whose node has ended meanwhile, or whose node server was stopped for too long. */
export function lostNode({
  lostReason = 'the emulated node is closed: its server has ended; start one by gaudi-ucx node up',
}: DriverNode): UcxError {
  return new UcxError({ code: 'ERR_NODE_UNREACHABLE', status: Status.UNREACHABLE, message: lostReason });
}

/** The error of a command whose node has no cards. */
export function noCards(node: DriverNode): UcxError {
  const why = node.whyNoCards === undefined ? '' : `: ${node.whyNoCards()}`;
  return gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `the ${node.kind} node has no cards${why}`);
}

/** Reply of a card, or the reason why there is none. */
export type CardAnswer<T> =
  | { readonly state: string; readonly card: T; readonly reason?: undefined }
  | { readonly state: string; readonly card?: undefined; readonly reason: string };

/** Queries a card through its control node, which is closed afterwards. A failure to open it is returned, not thrown. */
export function askCard<T>(node: DriverNode, minor: number, ask: (control: ControlDevice) => T): CardAnswer<T> {
  try {
    using control = openControl(node, minor);
    return { state: stateOf(control), card: ask(control) };
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return { state: stateOfRefusal(node, minor, error), reason: String(error.details['reason'] ?? error.message) };
  }
}

/**
 * The card that an argument names: `0`, `accel2` or `0000:33:00.0`.
 * @param argument its name in the message
 * @throws UcxError ERR_INVALID_PARAM with the names of all cards
 */
export function cardNamed(cards: readonly NamedCard[], argument: string, text: string): NamedCard {
  const found = cards.find(({ index, minor, busId }) => {
    const names = [index, minor === undefined ? undefined : `accel${minor}`, busId, busId.replace(/^0000:/, '')];
    return names.some((name) => String(name) === text.toLowerCase());
  });
  if (found !== undefined) return found;
  const known = cards.map(cardLabel).join(', ') || 'none';
  throw invalidParam(argument, `must be the index, device node or bus id of a card of this node: ${known}`, text);
}

/** The name of the card with a minor. */
export function labelOfMinor(cards: readonly NamedCard[], minor: number): string {
  const found = cards.find((card) => card.minor === minor);
  return found === undefined ? `accel${minor}` : cardLabel(found);
}
