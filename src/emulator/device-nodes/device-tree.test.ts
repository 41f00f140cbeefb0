/** The tree of device nodes, as the code for real cards and libudev find it. */

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { KernelNode } from '../../driver/kernel/kernel-node.ts';
import { createEmulatedNode } from '../emulated-node.ts';
import { DeviceTree, type TreeNode } from './device-tree.ts';

let root = '';
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'gaudi-ucx-tree-'));
});
afterEach(() => rmSync(root, { recursive: true }));

/** Writes a file of the tree, and the paths of all links, for an ordinary file system. */
function copy(node: TreeNode, path: string, links: string[]): void {
  if (node.kind === 'folder') {
    mkdirSync(path, { recursive: true });
    for (const [name, child] of node.children) copy(child, join(path, name), links);
  } else if (node.kind === 'link') {
    symlinkSync(node.target, path);
    links.push(path);
  } else {
    const text = node.kind === 'attribute' ? node.read?.() : '';
    writeFileSync(path, typeof text === 'number' ? '' : (text ?? ''));
  }
}

it('is found by the discovery of real cards, and its links lead somewhere', () => {
  const node = createEmulatedNode({ cards: 3 });
  const tree = new DeviceTree(node);
  const links: string[] = [];
  copy(tree.root, root, links);
  for (const link of links) expect(() => realpathSync(link)).not.toThrow();
  const kernel = new KernelNode({ devRoot: join(root, 'dev'), sysRoot: join(root, 'sys') });
  const places = ({ minor, busId, moduleId, numaNode, pciPath }: ReturnType<KernelNode['cards']>[number]): object => ({
    minor,
    busId,
    moduleId,
    numaNode,
    pciPath,
  });
  expect(kernel.cards().map(places)).toEqual(node.cards().map(places));
  expect(kernel.emulated).toBe(true);
  for (const { minor } of node.cards()) {
    expect(kernel.attribute(minor, 'status')).toBe('Operational');
    expect(kernel.temperature(minor)).toBeGreaterThan(0);
    expect(readFileSync(join(root, `sys/dev/char/261:${2 * minor + 1}/dev`), 'utf8')).toBe(`261:${2 * minor + 1}\n`);
  }
  writeFileSync(join(root, 'sys/module/habanalabs/version'), '1.22.0\n');
  expect(kernel.emulated).toBe(false);
  kernel.close();
  node.close();
});

it('has an uevent and a subsystem for each device, which leads back to the device', () => {
  const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
  const tree = new DeviceTree(node);
  const links: string[] = [];
  copy(tree.root, root, links);
  const sys = realpathSync(join(root, 'sys'));
  const listed = links.filter((link) => /\/sys\/(class\/[^/]+|bus\/pci\/devices)\/[^/]+$/.test(link));
  // Two cards and four bridges; four nodes in each of two classes; two hwmon devices.
  expect(listed).toHaveLength(6 + 8 + 2);
  for (const link of listed) {
    const device = realpathSync(link);
    const subsystem = realpathSync(join(device, 'subsystem'));
    expect(existsSync(join(device, 'uevent'))).toBe(true);
    const back = subsystem === join(sys, 'bus/pci') ? join(subsystem, 'devices') : subsystem;
    expect(realpathSync(join(back, basename(link)))).toBe(device);
  }
  const uevent = (path: string): string[] => readFileSync(join(sys, path, 'uevent'), 'utf8').split('\n');
  const variables = ['MAJOR=261', 'MINOR=2', 'DEVNAME=accel/accel1'];
  expect(uevent('class/accel/accel1')).toEqual([...variables, 'DEVTYPE=accel_minor', '']);
  expect(uevent('class/habanalabs/hl_controlD1')).toEqual(['MAJOR=261', 'MINOR=3', 'DEVNAME=hl_controlD1', '']);
  expect([uevent('class/hwmon/hwmon101'), uevent('devices/pci0000:16')]).toEqual([[''], ['']]);
  expect(readdirSync(join(sys, 'bus/pci/drivers'))).toEqual(['habanalabs', 'pcieport']);
  const config = join(sys, 'bus/pci/devices/0000:1a:00.0/config');
  expect(readFileSync(config).readUInt32LE(0)).toBe(0x1020_1da3);
  // A removed card stays on the bus, without a driver.
  expect(uevent('bus/pci/devices/0000:1a:00.0')[0]).toBe('DRIVER=habanalabs');
  node.inject(1, { kind: 'unplug' });
  rmSync(root, { recursive: true });
  copy(tree.root, root, []);
  expect(uevent('bus/pci/devices/0000:1a:00.0')[0]).toBe('PCI_CLASS=120000');
  node.close();
});
