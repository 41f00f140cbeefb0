/** Opens a card for programs of hl-thunk, which have no context: the driver is selected as for contexts. */

import type { DriverNode } from '../driver/port.ts';
import { type CardSelection, type Device, type DeviceOptions, open, openByModuleId } from '../hlthunk/index.ts';
import { checkOptions } from '../ucs/type/check-options.ts';
import { invalidParam } from '../ucs/type/error.ts';
import { openNode } from './open-node.ts';
import { PROGRAM_OPTIONS, type ProgramOptions, startProgram, withDriver } from './program/program.ts';

/** Source of the cards; all options have defaults. */
export interface OpenNodeOptions extends ProgramOptions {
  /**
   * `auto`, `kernel`, `emulator` or `emulator:<absolute path of the socket of a node server>`: overrides UCX_GAUDI_DRIVER. The name in a
   * configuration is `GAUDI_DRIVER`.
   */
  readonly driver?: string | undefined;
}

const NODE_OPTIONS = [...PROGRAM_OPTIONS, 'driver'] as const;

/** Selection of a card, and options for opening it. */
export interface OpenDeviceOptions extends OpenNodeOptions, CardSelection {
  /** OCP module id, instead of the other ways to select a card. */
  readonly moduleId?: number | undefined;
  /** Options of the device. */
  readonly device?: Omit<DeviceOptions, 'ownsNode'> | undefined;
}

/**
 * Opens the node with the cards: that of the habanalabs driver, a node server, or an emulated node in this process, as selected by `driver` or
 * UCX_GAUDI_DRIVER. For programs that open several cards by `open` or `openControl`. The caller closes the node after its cards.
 * @throws UcxError ERR_CONFIG_VALUE, ERR_CONFIG_UNKNOWN, ERR_CONFIG_FILE, ERR_LOG_FILE, ERR_INVALID_PARAM; ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED
 */
export function openDriverNode(options: OpenNodeOptions = {}): DriverNode {
  checkOptions(options, 'options', NODE_OPTIONS);
  return openNode(start(options));
}

/**
 * Opens a card of the driver selected by `driver` or UCX_GAUDI_DRIVER (hlthunk_open): the first matching card that can be opened. Closing the device closes
 * everything opened with it. If cards are emulated in this process, each call opens a new node: for several cards of one node, see {@link openDriverNode}.
 * @throws UcxError as `openDriverNode` and `open`
 * @example
 * ```ts
 * const device = openDevice({ driver: 'emulator' });
 * console.log(getDeviceName(device));
 * device.close();
 * ```
 */
export function openDevice(options: OpenDeviceOptions = {}): Device {
  checkOptions(options, 'options', [...NODE_OPTIONS, 'name', 'busId', 'minor', 'moduleId', 'device']);
  const { device = {}, name, busId, minor, moduleId } = options;
  checkOptions(device, 'device');
  if (moduleId !== undefined && (name ?? busId ?? minor) !== undefined) {
    throw invalidParam('moduleId', 'must not be combined with name, busId or minor', moduleId);
  }
  const program = start(options);
  const node = openNode(program);
  try {
    const opened = { log: program.log.child('hlthunk'), ...device, ownsNode: true };
    return moduleId === undefined ? open(node, { name, busId, minor }, opened) : openByModuleId(node, moduleId, opened);
  } catch (error) {
    node.close();
    throw error;
  }
}

function start(options: OpenNodeOptions): ReturnType<typeof startProgram> {
  const { driver, ...rest } = options;
  return startProgram(withDriver(rest, driver));
}
