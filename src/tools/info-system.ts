/** `info -s`: the cards of the node as the driver describes them. */

import {
  type ControlDevice,
  type DriverNode,
  getDeviceStatus,
  getHwIpInfo,
  getNicPorts,
  type HwIpInfo,
  openControl,
} from '../hlthunk/index.ts';
import { HL_DEVICE_STATUS } from '../uapi/index.ts';
import { formatBytes } from './text-table.ts';

const STATUS_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(HL_DEVICE_STATUS).map(([name, value]) => [value, name.toLowerCase().replaceAll('_', ' ')]),
);

/** The text for all cards of a node. Uses control nodes only, so cards that are in use are shown too. */
export function describeCards(node: DriverNode): string {
  const cards = node.cards();
  const source = node.kind === 'emulator' ? 'emulated node' : 'habanalabs kernel driver';
  const lines = ['#', `# ${cards.length} Gaudi cards (${source})`, '#'];
  for (const card of cards) {
    const control = openControl(node, card.minor);
    try {
      lines.push(`# card ${card.minor}: ${card.path}`, ...cardLines(node, card.minor, card.numaNode, control), '#');
    } finally {
      control.close();
    }
  }
  return lines.join('\n');
}

function cardLines(node: DriverNode, minor: number, numaNode: number, control: ControlDevice): string[] {
  const info = getHwIpInfo(control);
  const firmware = info.cpucpVersion || node.attribute(minor, 'fw_os_ver') || 'unknown';
  const fields: readonly (readonly [string, string])[] = [
    ['name', info.cardName],
    ['bus id', control.busId],
    ['module id', `${info.moduleId}`],
    ['NUMA node', numaNode < 0 ? 'unknown' : `${numaNode}`],
    ['HBM', `${formatBytes(Number(info.dramSize))} for users, pages of ${formatBytes(Number(info.dramPageSize))}`],
    ['SRAM', formatBytes(info.sramSize)],
    ['firmware', firmware],
    ['status', STATUS_NAMES.get(getDeviceStatus(control)) ?? 'unknown'],
    ['NIC ports', nicPorts(control, info)],
  ];
  return fields.map(([name, value]) => `#${`${name}: `.padStart(16)}${value}`);
}

function nicPorts(control: ControlDevice, info: HwIpInfo): string {
  const ports = getNicPorts(control, info);
  if (ports === undefined) return 'not reported by this driver';
  const external = ports.filter((port) => port.external).length;
  return `${ports.length} (${ports.length - external} scale-up, ${external} scale-out)`;
}
