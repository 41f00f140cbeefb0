/** Faults in the PCI devices of an emulated node as /sys describes them. */

import type { Area } from './fault.ts';

export const EMULATOR_SYSFS: Area = {
  name: 'emulator-sysfs',
  suites: ['src/emulator'],
  faults: [
    {
      file: 'src/emulator/config/card-places.ts',
      before: 'switches.has(switchOf(place.busId))',
      after: 'false',
      breaks: 'a card is not between a root port and the switch of another card',
    },
    {
      file: 'src/emulator/config/card-places.ts',
      before: 'return domain > 0 ? -1 : SWITCH_ROOTS',
      after: 'return SWITCH_ROOTS',
      breaks: 'the switches are in domain 0',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-devices.ts',
      before: 'place, config, RANGE_FIRST + BigInt(index)',
      after: 'place, config, RANGE_FIRST + BigInt(7 - place.minor)',
      breaks: 'windows of bridges do not overlap',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-devices.ts',
      before: 'powerOfTwo(sramInHbmBar + BigInt(config.hbmBytes))',
      after: 'powerOfTwo(BigInt(config.hbmBytes))',
      breaks: 'BAR 4 of gaudi3 has the SRAM and the HBM',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-devices.ts',
      before: 'secondary: Math.min(...below)',
      after: 'secondary: Math.max(...below) - 1',
      breaks: 'the bus of a downstream port is that of its card',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-devices.ts',
      before: 'return depth % 2 === 0',
      after: 'return depth % 2 === 1',
      breaks: 'the upstream port of a switch is above its downstream ports',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-config.ts',
      before: 'const last = window.end - 1n;',
      after: 'const last = window.end;',
      breaks: 'the limit of a window is its last address',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-config.ts',
      before: 'MSI_X.ENABLED | (messages.count - 1)',
      after: 'MSI_X.ENABLED | messages.count',
      breaks: 'the size of the table is encoded as one less',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-config.ts',
      before: 'list[index + 1]?.at ?? 0',
      after: 'list[index + 1]?.at ?? at',
      breaks: 'the list of capabilities ends',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/pci-files.ts',
      before: 'driver === undefined ? []',
      after: 'false ? []',
      breaks: 'a device without a driver names none',
    },
    {
      file: 'src/emulator/device-nodes/sysfs/cpu-lists.ts',
      before: "padStart(8, '0')",
      after: "padStart(1, '0')",
      breaks: 'all groups of a mask but the first have eight digits',
    },
    {
      file: 'src/emulator/device-nodes/device-tree.ts',
      before: "'../'.repeat(path.split('/').length + 1)",
      after: "'../'.repeat(path.split('/').length)",
      breaks: 'the subsystem of a device is a link to its folder',
    },
  ],
};
