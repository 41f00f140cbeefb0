/**
 * Opens a card for programs of hl-thunk, which have no context: the driver is chosen as for contexts. What a device can do is in hlthunk.
 */

import type { DriverNode } from '../driver/port.ts';
import { type CardSelection, type Device, type DeviceOptions, open, openByModuleId } from '../hlthunk/index.ts';
import { checkOptions } from '../ucs/type/check-options.ts';
import { invalidParam } from '../ucs/type/error.ts';
import { openNode } from './open-node.ts';
import { PROGRAM_OPTIONS, type ProgramOptions, startProgram, withDriver } from './program.ts';

/** Where the cards come from; everything has a default. */
export interface OpenNodeOptions extends ProgramOptions {
  /**
   * `auto`, `kernel`, `emulator` or `emulator:<absolute path of the socket of a node server>`: beats UCX_GAUDI_DRIVER. In a configuration the
   * same is `GAUDI_DRIVER`.
   */
  readonly driver?: string;
}

const NODE_OPTIONS = [...PROGRAM_OPTIONS, 'driver'] as const;

/** Which card, and how it is opened. */
export interface OpenDeviceOptions extends OpenNodeOptions, CardSelection {
  /** OCP module id, instead of the other ways to name a card. */
  readonly moduleId?: number;
  /** Options of the device. */
  readonly device?: Omit<DeviceOptions, 'ownsNode'>;
}

/**
 * Opens the machine with the cards: that of the habanalabs driver, a node server, or an emulated node in this process, as `driver` or
 * UCX_GAUDI_DRIVER says. For programs that open several cards, each by `open` or `openControl`. The caller closes the node, after its cards.
 * @throws UcxError ERR_CONFIG_VALUE, ERR_CONFIG_UNKNOWN, ERR_CONFIG_FILE, ERR_LOG_FILE, ERR_INVALID_PARAM; ERR_NODE_UNREACHABLE, ERR_NODE_REFUSED
 */
export function openDriverNode(options: OpenNodeOptions = {}): DriverNode {
  checkOptions(options, 'options', NODE_OPTIONS);
  return openNode(start(options));
}

/**
 * Opens a card of the driver that `driver` or UCX_GAUDI_DRIVER chooses (hlthunk_open): the first one that fits and opens. Closing the device closes
 * what was opened with it. Two calls open two machines where those are emulated in this process: for several cards of one, see
 * {@link openDriverNode}.
 * @throws UcxError as `openDriverNode` and `open`
 */
export function openDevice(options: OpenDeviceOptions = {}): Device {
  checkOptions(options, 'options', [...NODE_OPTIONS, 'name', 'busId', 'minor', 'moduleId', 'device']);
  const { device = {}, name, busId, minor, moduleId } = options;
  checkOptions(device, 'device');
  if (moduleId !== undefined && (name ?? busId ?? minor) !== undefined) {
    throw invalidParam('moduleId', 'must not be given beside name, busId and minor', moduleId);
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
