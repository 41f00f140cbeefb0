/** Finding and opening cards, by the rules of hl-thunk: the first matching card that opens is used; if all fail, the last error other than ENOENT is thrown. */

import { cardLabel, indexOf, type NamedCard, namedCards } from '../../driver/card-names.ts';
import type { CardEntry, DriverFile, DriverNode } from '../../driver/port.ts';
import { Errno, isSyscallError, processCommand } from '../../sys/index.ts';
import { ASIC_PROFILES, type AsicName, HL_DEVICE_STATUS, HL_DEVICE_STATUS_TEXT } from '../../uapi/index.ts';
import { isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import {
  checkMethods,
  checkObject,
  checkText,
  checkWord32,
  GaudiErrorCode,
  gaudiError,
  gaudiErrorOfErrno,
  invalidArgument,
  MALFUNCTION_TEXT,
} from '../base/gaudi-error.ts';
import { asicProfileOf, getHwIpInfo } from '../info/device-info.ts';
import { ControlDevice, Device } from './device.ts';
import { checkDeviceOptions, type DeviceOptions } from './device-options.ts';

/** Length of a bus id without its domain, such as `3b:00.0`. */
const BUS_ID_WITHOUT_DOMAIN_LENGTH = 7;

/** Maximum length of a command line in an error message. */
const COMMAND_LENGTH_MAX = 80;

/** Selection of a card; without any field, the first that opens. */
export interface CardSelection {
  /** Generation of the card. */
  readonly name?: AsicName | undefined;
  /** PCI address; without a domain, domain 0000 is assumed. */
  readonly busId?: string | undefined;
  /** Index of the card in /dev/accel/accelN. */
  readonly minor?: number | undefined;
}

/**
 * Opens the primary node of the first matching card (hlthunk_open).
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND if none matches; otherwise the last error: ERR_GAUDI_DEVICE_BUSY if the card is
 * in use or in reset, ERR_GAUDI_PERMISSION_DENIED
 * @example
 * ```ts
 * const node = openDriverNode();
 * const device = open(node, { name: 'gaudi2' });
 * console.log(getPciBusId(device));
 * device.close();
 * node.close();
 * ```
 */
export function open(node: DriverNode, selection: CardSelection = {}, options: DeviceOptions = {}): Device {
  checkDeviceOptions(options);
  let failure: UcxError | undefined;
  for (const entry of select(node, selection)) {
    try {
      if (selection.name !== undefined && asicOf(node, entry) !== selection.name) continue;
      return new Device(
        node,
        openFile(node, entry, () => node.open(entry.minor), options.index),
        entry,
        options,
      );
    } catch (error) {
      if (!isUcxError(error)) throw error;
      if (failure === undefined || error.details['errno'] !== 'ENOENT') failure = error;
    }
  }
  throw failure ?? notFound(node, describe(selection));
}

/**
 * Opens the card with an OCP module id (hlthunk_open_by_module_id). The id is read from sysfs, or from the card if sysfs does not have it.
 * @throws like {@link open}
 */
export function openByModuleId(node: DriverNode, moduleId: number, options: DeviceOptions = {}): Device {
  checkNode(node);
  checkWord32('moduleId', moduleId);
  checkDeviceOptions(options);
  let failure: UcxError | undefined;
  for (const entry of node.cards()) {
    try {
      const found = entry.moduleId ?? withControl(node, entry, (control) => getHwIpInfo(control).moduleId);
      if (found === moduleId) return open(node, { minor: entry.minor }, options);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      failure = error;
    }
  }
  throw failure ?? notFound(node, `module id ${moduleId}`);
}

/**
 * Opens the control node of a card: INFO only, also while another process uses the card (hlthunk_open_control).
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND; ERR_GAUDI_PERMISSION_DENIED for a card that has failed permanently
 */
export function openControl(node: DriverNode, minor: number): ControlDevice {
  checkNode(node);
  checkWord32('minor', minor);
  const entry = node.cards().find((card) => card.minor === minor);
  if (entry === undefined) throw notFound(node, `minor ${minor}`);
  return controlOf(node, entry);
}

/**
 * Opens the control node of the first card of a generation, or of any (hlthunk_open_control_by_name).
 * @throws UcxError like {@link openControl}, for the last card that failed to open
 */
export function openControlByName(node: DriverNode, name?: AsicName): ControlDevice {
  checkNode(node);
  return firstControl(
    node,
    selected(node, { name }),
    (control) => name === undefined || getDeviceName(control) === name,
  );
}

/** Opens the control node of the card at a PCI address (hlthunk_open_control_by_bus_id). Throws like {@link openControl}. */
export function openControlByBusId(node: DriverNode, busId: string): ControlDevice {
  checkText('busId', busId);
  return firstControl(node, selected(node, { busId }), () => true);
}

/**
 * Opens the control node of the card with an OCP module id (hlthunk_open_control_by_module_id), read from sysfs or from the card.
 * @throws UcxError like {@link openControl}
 */
export function openControlByModuleId(node: DriverNode, moduleId: number): ControlDevice {
  checkNode(node);
  checkWord32('moduleId', moduleId);
  const cards = node.cards().filter((entry) => (entry.moduleId ?? moduleId) === moduleId);
  const isWanted = (control: ControlDevice): boolean => getHwIpInfo(control).moduleId === moduleId;
  return firstControl(node, { cards, wanted: `module id ${moduleId}` }, isWanted);
}

/** Candidate cards, and a description of the selection for errors. */
interface WantedCards {
  readonly cards: readonly CardEntry[];
  readonly wanted: string;
}

function selected(node: DriverNode, selection: CardSelection): WantedCards {
  return { cards: select(node, selection), wanted: describe(selection) };
}

function firstControl(
  node: DriverNode,
  { cards, wanted }: WantedCards,
  isWanted: (control: ControlDevice) => boolean,
): ControlDevice {
  let failure: UcxError | undefined;
  for (const { minor } of cards) {
    let control: ControlDevice | undefined;
    try {
      control = openControl(node, minor);
      if (isWanted(control)) return control;
    } catch (error) {
      control?.close();
      if (!isUcxError(error)) throw error;
      failure = error;
      continue;
    }
    control.close();
  }
  throw failure ?? notFound(node, wanted);
}

/** Number of cards, of one generation or of all (hlthunk_get_device_count). Cards whose control node cannot be opened do not count. */
export function getDeviceCount(node: DriverNode, name?: AsicName): number {
  checkNode(node);
  checkGeneration(name);
  const cards = node.cards();
  if (name === undefined) return cards.length;
  return cards.filter((entry) => {
    try {
      return asicOf(node, entry) === name;
    } catch (error) {
      if (isUcxError(error)) return false;
      throw error;
    }
  }).length;
}

/**
 * The generation of an open card (hlthunk_get_device_name_from_fd).
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND for an unknown generation
 */
export function getDeviceName(target: CardTarget): AsicName {
  return asicProfileOf(target, getHwIpInfo(target)).name;
}

/** The PCI address of an open card, with its domain (hlthunk_get_pci_bus_id_from_fd). */
export function getPciBusId(target: CardTarget): string {
  return cardOf(target).busId;
}

/** The minor of the card at a PCI address (hlthunk_get_device_index_from_pci_bus_id). Throws ERR_GAUDI_DEVICE_NOT_FOUND. */
export function getDeviceIndexFromPciBusId(node: DriverNode, busId: string): number {
  checkText('busId', busId);
  const entry = select(node, { busId })[0];
  if (entry === undefined) throw notFound(node, `bus id ${busId}`);
  return entry.minor;
}

/** The minor of the card with an OCP module id (hlthunk_get_device_index_from_module_id). Throws like {@link openControlByModuleId}. */
export function getDeviceIndexFromModuleId(node: DriverNode, moduleId: number): number {
  using control = openControlByModuleId(node, moduleId);
  return control.minor;
}

function select(node: DriverNode, selection: CardSelection): readonly CardEntry[] {
  checkNode(node);
  checkObject('selection', selection, ['name', 'busId', 'minor']);
  const { name, busId, minor } = selection;
  checkGeneration(name);
  if (minor !== undefined) checkWord32('minor', minor);
  if (busId !== undefined) checkText('busId', busId);
  if (busId === '') throw invalidArgument('busId', 'must be a PCI address', '""');
  const full = busId?.length === BUS_ID_WITHOUT_DOMAIN_LENGTH ? `0000:${busId}` : busId;
  return node
    .cards()
    .filter((card) => (full === undefined || card.busId === full) && (minor === undefined || card.minor === minor));
}

/** Throws unless it is a generation, or undefined for all. */
function checkGeneration(name: AsicName | undefined): void {
  if (name === undefined || (typeof name === 'string' && Object.hasOwn(ASIC_PROFILES, name))) return;
  throw invalidArgument('name', `must be one of ${Object.keys(ASIC_PROFILES).join(', ')}`, name);
}

/** Throws unless it is a node: of a driver, an emulated node, or a program's own implementation. */
function checkNode(node: DriverNode): void {
  checkMethods('node', node, ['cards', 'open', 'openControl']);
}

function asicOf(node: DriverNode, entry: CardEntry): AsicName {
  return withControl(node, entry, getDeviceName);
}

function withControl<T>(node: DriverNode, entry: CardEntry, ask: (control: ControlDevice) => T): T {
  const control = controlOf(node, entry);
  try {
    return ask(control);
  } finally {
    control.close();
  }
}

function controlOf(node: DriverNode, entry: CardEntry): ControlDevice {
  const file = openFile(node, entry, () => node.openControl(entry.minor));
  return new ControlDevice(file, entry, indexOf(node, entry));
}

/** Opens a node of a card; an errno becomes an error that names the card, under its index if that is given. */
function openFile(node: DriverNode, entry: CardEntry, openNode: () => DriverFile, index?: number): DriverFile {
  try {
    return openNode();
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    const { minor, busId, path } = entry;
    const code = gaudiErrorOfErrno(error.errno);
    // The driver returns EPERM for a card in a bad state, the file system EACCES for a user without permission.
    const reason = `${error.errnoName}${openHint(node, minor, error.errno)}`;
    const what = `open of ${cardLabel({ index: index ?? indexOf(node, entry), minor, busId })} at ${path}: ${reason}`;
    throw gaudiError(code, what, { minor, busId, path, errno: error.errnoName, reason }, error);
  }
}

/** Facts beyond the errno of open: the process that has the card open, or that the card has failed. */
function openHint(node: DriverNode, minor: number, errno: number): string {
  if (errno === Errno.EBUSY) return ` (${ownerText(node, minor)})`;
  const failed = HL_DEVICE_STATUS_TEXT.get(HL_DEVICE_STATUS.MALFUNCTION);
  const hasFailed = errno === Errno.EPERM && node.attribute(minor, 'status')?.toLowerCase() === failed;
  return hasFailed ? `: ${MALFUNCTION_TEXT}` : '';
}

/** The process that has the compute context of a card, for an error message. */
function ownerText(node: DriverNode, minor: number): string {
  const pid = node.ownerOf?.(minor);
  if (pid === undefined) return 'another process has it open';
  if (pid === process.pid) return 'this process has it open';
  const command = processCommand(pid, COMMAND_LENGTH_MAX);
  return `process ${pid} has it open${command === undefined ? '' : `: ${command}`}`;
}

function notFound(node: DriverNode, wanted: string): UcxError {
  const cards = namedCards(node);
  const list = cards.length === 0 ? 'no cards' : cards.map(nameWithState).join(', ');
  return gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `${wanted}; the node has ${list}`, { wanted });
}

function nameWithState(card: NamedCard): string {
  return `${cardLabel(card)}${card.absence === undefined ? '' : `: ${card.absence}`}`;
}

function describe(selection: CardSelection): string {
  const wishes = Object.entries(selection).filter(([, value]) => value !== undefined);
  return wishes.length === 0 ? 'any card' : wishes.map(([key, value]) => `${key} ${value}`).join(', ');
}
