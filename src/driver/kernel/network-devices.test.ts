/** Network devices and links of ports, in fake sysfs trees. */

import { mkdirSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FakeMachine } from '../../../test/fixtures/driver/fake-machine.ts';
import { discoverNetworkDevices } from './discovery.ts';
import { KernelNode } from './kernel-node.ts';

const DEVICES = 'sys/devices';
const CARD_PATH = 'pci0000:17/0000:17:01.0/0000:19:00.0';

/** A machine whose /sys has class folders with links to devices, as in the kernel. */
class Machine extends FakeMachine {
  link(path: string, target: string): void {
    const file = join(this.root, path);
    mkdirSync(dirname(file), { recursive: true });
    symlinkSync(join(this.root, target), file);
  }

  /** An interface of a PCI device. */
  netdev(name: string, pciPath: string, files: Readonly<Record<string, string>>): void {
    for (const [file, text] of Object.entries(files)) {
      const isOfDevice = file === 'vendor' || file === 'numa_node';
      this.write(`${isOfDevice ? `${DEVICES}/${pciPath}` : `sys/class/net/${name}`}/${file}`, `${text}\n`);
    }
    this.write(`${DEVICES}/${pciPath}/net/${name}/ifindex`, '1\n');
    this.link(`sys/class/net/${name}/device`, `${DEVICES}/${pciPath}`);
  }

  /** An RDMA device with one port. */
  rdma(name: string, pciPath: string, state: string): void {
    this.write(`sys/class/infiniband/${name}/ports/1/state`, `${state}\n`);
    this.write(`sys/class/infiniband/${name}/ports/1/rate`, '100 Gb/sec (4X EDR)\n');
    mkdirSync(join(this.root, DEVICES, pciPath), { recursive: true });
    this.link(`sys/class/infiniband/${name}/device`, `${DEVICES}/${pciPath}`);
  }
}

describe('network devices', () => {
  it('are found with path, link and speed', () => {
    using machine = new Machine();
    const nic = 'pci0000:17/0000:17:02.0/0000:1b:00.0';
    machine.netdev('ens3', nic, { carrier: '1', speed: '100000', vendor: '0x15b3', numa_node: '1' });
    machine.rdma('mlx5_0', nic, '4: ACTIVE');
    expect(discoverNetworkDevices(machine.sysRoot)).toEqual([
      {
        name: 'mlx5_0',
        pciPath: nic,
        numaNode: 1,
        kind: 'infiniband',
        up: true,
        megabitPerSecond: 100_000,
        netdevs: ['ens3'],
      },
      {
        name: 'ens3',
        pciPath: nic,
        numaNode: 1,
        kind: 'ethernet',
        up: true,
        megabitPerSecond: 100_000,
        netdevs: ['ens3'],
      },
    ]);
  });

  it('with a link come first, then by name', () => {
    using machine = new Machine();
    const path = (bus: string): string => `pci0000:00/0000:00:${bus}.0`;
    machine.netdev('eth10', path('01'), { carrier: '1' });
    machine.netdev('eth2', path('02'), { carrier: '1' });
    machine.netdev('eth0', path('03'), { carrier: '0', speed: '-1' });
    machine.netdev('eth1', path('04'), {});
    machine.rdma('mlx5_1', path('05'), '1: DOWN');
    const found = discoverNetworkDevices(machine.sysRoot);
    expect(found.map(({ name, up }) => [name, up])).toEqual([
      ['mlx5_1', false],
      ['eth2', true],
      ['eth10', true],
      ['eth0', false],
      ['eth1', false],
    ]);
    expect(found.map(({ megabitPerSecond, numaNode }) => [megabitPerSecond, numaNode])[1]).toEqual([undefined, -1]);
  });

  it('exclude bridges, loopback, and ports of Gaudi cards', () => {
    using machine = new Machine();
    machine.write('sys/class/net/lo/carrier', '1\n');
    machine.write('sys/class/net/docker0/carrier', '1\n');
    machine.netdev('acc0', CARD_PATH, { carrier: '1', vendor: '0x1da3' });
    expect(discoverNetworkDevices(machine.sysRoot)).toEqual([]);
  });

  it('are empty without sysfs', () => {
    expect(discoverNetworkDevices('/nonexistent')).toEqual([]);
  });

  it('have a name each on this machine', () => {
    const names = discoverNetworkDevices('/sys').map(({ kind, name }) => `${kind} ${name}`);
    expect(new Set(names).size).toBe(names.length);
  });
});

describe('a card of the kernel', () => {
  const CARD = { minor: 0, busId: '0000:19:00.0', moduleId: 3, numaNode: 0, layout: 'accel-parent' } as const;

  it('has the links of its network interfaces', () => {
    using machine = new Machine();
    machine.addCard(CARD);
    const folder = 'sys/bus/pci/devices/0000:19:00.0/net';
    machine.write(`${folder}/acc8/dev_port`, '22\n');
    machine.write(`${folder}/acc8/carrier`, '1\n');
    machine.write(`${folder}/acc0/dev_port`, '0\n');
    machine.write(`${folder}/odd/dev_port`, 'none\n');
    const node = new KernelNode({ ...machine });
    expect(node.links(0)).toEqual([
      { port: 0, up: false, netdev: 'acc0', peer: undefined },
      { port: 22, up: true, netdev: 'acc8', peer: undefined },
    ]);
    expect(node.links(1)).toBeUndefined();
    node.close();
  });

  it('reports no links if the driver creates no interfaces', () => {
    using machine = new Machine();
    machine.addCard(CARD);
    const node = new KernelNode({ ...machine });
    expect(node.links(0)).toBeUndefined();
    expect(node.cards()[0]!.pciPath).toBeUndefined();
    node.close();
  });

  it('has its path from the root', () => {
    using machine = new Machine();
    machine.addCard({ minor: 0, busId: '0000:19:00.0', moduleId: 3, layout: 'accel-parent' });
    machine.write(`${DEVICES}/${CARD_PATH}/numa_node`, '1\n');
    machine.link('sys/bus/pci/devices/0000:19:00.0', `${DEVICES}/${CARD_PATH}`);
    const node = new KernelNode({ ...machine });
    expect(node.cards()).toMatchObject([{ pciPath: CARD_PATH, numaNode: 1 }]);
    node.close();
  });
});
