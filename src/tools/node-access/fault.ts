/** Faults of `gaudi-ucx node fault`: parses its arguments and describes a fault in a sentence. The emulator injects the faults. */

import { type Fault, readFault } from '../../assembly/node-server.ts';
import type { DriverNode, NamedCard } from '../../hlthunk/index.ts';
import { Errno, errnoName } from '../../sys/index.ts';
import { HL_DEVICE_STATUS, HL_DEVICE_STATUS_TEXT } from '../../uapi/index.ts';
import { timeType } from '../../ucs/config/value.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { formatTime } from '../base/text-table.ts';
import { labelOfMinor, OPERATIONAL } from './card.ts';

/** Driver data about cards. */
type CardAttributes = Pick<DriverNode, 'attribute' | 'ownerOf'>;

const STATUSES: Readonly<Record<string, number>> = HL_DEVICE_STATUS;
const ERRNOS: Readonly<Record<string, number>> = Errno;
/** Resources that can be exhausted, in words. */
const RESOURCES: Readonly<Record<Extract<Fault, { kind: 'exhausted' }>['resource'], string>> = {
  hbm: 'HBM',
  va: 'device addresses (va)',
  fd: 'file descriptors (fd)',
};
/** Options of a fault, as text. */
export interface FaultArguments {
  readonly nth?: string;
  readonly errno?: string;
  readonly ioctl?: string;
  readonly resource?: string;
  readonly delay?: string;
  readonly status?: string;
  readonly port?: string;
  readonly peer?: string;
}

/**
 * Parses the arguments of a fault.
 * @throws UcxError ERR_INVALID_PARAM that names the argument
 */
export function faultOf(kind: string, given: FaultArguments): Fault {
  const { nth, errno, ioctl, resource, delay, status, port, peer } = given;
  const fields: Record<string, unknown> = { kind: kind.toLowerCase().replaceAll('_', '-') };
  if (nth !== undefined) fields['nth'] = integerOf('nth', nth);
  if (errno !== undefined) fields['errno'] = errnoOf(errno);
  if (ioctl !== undefined) fields['ioctl'] = ioctl.toUpperCase();
  if (resource !== undefined) fields['resource'] = resource;
  if (delay !== undefined) fields['delayNs'] = delayOf(delay);
  if (status !== undefined) fields['status'] = STATUSES[status.toUpperCase()] ?? status;
  if (port !== undefined) fields['port'] = integerOf('port', port);
  if (peer !== undefined) fields['peer'] = integerOf('peer', peer);
  return readFault(fields);
}

/**
 * A sentence that describes a fault.
 * @param node after the fault, for data that the fault does not contain
 * @param cards of the node, with the names for the sentence
 */
export function faultSentence(node: CardAttributes, cards: readonly NamedCard[], minor: number, fault: Fault): string {
  const card = labelOfMinor(cards, minor);
  switch (fault.kind) {
    case 'ioctl':
      return `${card}: ${nthOf(fault.nth, `${fault.ioctl} ioctl`)} fails with ${errnoName(fault.errno)}`;
    case 'open':
      return `${card}: ${nthOf(fault.nth, 'open')} fails with ${errnoName(fault.errno)}`;
    case 'completion':
      return `${card}: the completion of ${nthOf(fault.nth, 'submission')} is ${delayed(fault.delayNs, 'late', 'lost')}`;
    case 'hang':
      return `${card}: ${nthOf(fault.nth, 'submission')} hangs its engines ${delayed(fault.delayNs, '', 'forever')}`;
    case 'exhausted':
      return `${card}: ${nthOf(fault.nth, `request for ${RESOURCES[fault.resource]}`)} fails as if none were left`;
    case 'status':
      return `${card}: its state is now "${HL_DEVICE_STATUS_TEXT.get(fault.status)}"`;
    case 'link-down':
    case 'link-up': {
      const links =
        fault.port === undefined
          ? `the links to ${labelOfMinor(cards, fault.peer!)}`
          : `the link of port ${fault.port}`;
      return `${card}: ${links} ${fault.port === undefined ? 'are' : 'is'} ${fault.kind.slice('link-'.length)}`;
    }
    case 'engine-failure':
      return 'all cards: the DMA engines have failed';
    case 'hard-reset':
      return `${card}: ${resetText(node, minor)}`;
    case 'unplug':
      return `${card}: removed`;
    case 'malfunction':
      return `${card}: failed permanently`;
    default: {
      const state = node.attribute(minor, 'status')?.trim();
      return state === undefined ? `${card}: stays removed` : `${card}: its state is now "${state}"`;
    }
  }
}

/** A reset waits for the process that has opened the card: before it starts if that process receives fault events, otherwise during it. */
function resetText(node: CardAttributes, minor: number): string {
  const pid = node.ownerOf?.(minor);
  if (pid === undefined) return 'was reset';
  return node.attribute(minor, 'status')?.trim().toLowerCase() === OPERATIONAL
    ? `its reset is pending until process ${pid} has closed it, for 30 s at most`
    : `is in reset until process ${pid} has closed it`;
}

function nthOf(nth: number | undefined, what: string): string {
  return nth === undefined || nth === 1 ? `the next ${what}` : `the ${what} number ${nth} from now`;
}

function delayed(delayNs: number | undefined, late: string, never: string): string {
  return delayNs === undefined
    ? never
    : `${late === '' ? 'for ' : ''}${formatTime(delayNs)}${late === '' ? '' : ` ${late}`}`;
}

/** Throws ERR_INVALID_PARAM. */
export function integerOf(name: string, text: string): number {
  if (!/^\d+$/.test(text)) throw invalidParam(name, 'must be a number', text);
  return Number(text);
}

function errnoOf(text: string): number {
  const named = ERRNOS[text.toUpperCase()];
  if (named === undefined && !/^\d+$/.test(text))
    throw invalidParam('errno', 'must be a name such as EIO, or a number', text);
  return named ?? Number(text);
}

function delayOf(text: string): number {
  const ns = timeType.parse(text);
  if (ns === undefined || !Number.isFinite(ns)) throw invalidParam('delay', 'must be a time such as 10ms', text);
  return Math.round(ns);
}
