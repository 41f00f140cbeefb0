/** The tree of device nodes, as the code for real cards finds it. */

import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { KernelNode } from '../../driver/kernel/kernel-node.ts';
import { createEmulatedNode } from '../emulated-node.ts';
import { DeviceTree, type TreeNode } from './device-tree.ts';

const root = mkdtempSync(join(tmpdir(), 'gaudi-ucx-tree-'));
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
    writeFileSync(path, typeof text === 'string' ? text : '');
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
