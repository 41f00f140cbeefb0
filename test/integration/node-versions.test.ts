/** Node servers and clients of different versions: a client says who is in its way, shows the server, and ends it. */

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NODE_PROTOCOL_VERSION } from '../../src/emulator/node/mailbox/layout.ts';
import { packageVersion } from '../../src/ucs/sys/package.ts';
import { ROOT } from '../fixtures/built.ts';
import { useNodeCommandLine } from '../fixtures/command-line.ts';

const cli = useNodeCommandLine();
const LAYOUT = 'dist/src/emulator/node/mailbox/layout.js';
const CLIENT = 'dist/src/emulator/node/served-client.js';
const OWN = `gaudi-ucx ${packageVersion()}, protocol ${NODE_PROTOCOL_VERSION}`;

let copy: string;
beforeEach(() => {
  copy = mkdtempSync(join(tmpdir(), 'gaudi-ucx-version-'));
});
afterEach(() => rmSync(copy, { recursive: true }));

/** A copy of the package in another version, whose modules are changed. Returns its command line. */
function otherPackage(
  version: string,
  changes: Readonly<Record<string, readonly [from: string, to: string][]>>,
): string {
  mkdirSync(join(copy, 'dist'));
  cpSync(join(ROOT, 'dist/src'), join(copy, 'dist/src'), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as object;
  writeFileSync(join(copy, 'package.json'), JSON.stringify({ ...manifest, version }));
  for (const [file, replacements] of Object.entries(changes)) {
    let text = readFileSync(join(copy, file), 'utf8');
    for (const [from, to] of replacements) {
      expect(text).toContain(from);
      text = text.replace(from, to);
    }
    writeFileSync(join(copy, file), text);
  }
  return join(copy, 'dist/src/tools/main.js');
}

/** Starts its node server. Returns the process id. */
function start(main: string): number {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, 'node', 'up', '--cards', '1'], {
    encoding: 'utf8',
    env: cli.environment(),
  });
  expect([status, stderr]).toEqual([0, '']);
  return Number(/pid (\d+)/.exec(stdout)?.[1]);
}

const protocol = (version: number): [string, string] => [
  `NODE_PROTOCOL_VERSION = ${NODE_PROTOCOL_VERSION}`,
  `NODE_PROTOCOL_VERSION = ${version}`,
];

describe('a node server of another version', { timeout: 120_000 }, () => {
  it('is shown and ended, and its clients are told both versions and what helps', async () => {
    const pid = start(otherPackage('9.9.9', { [LAYOUT]: [protocol(99)] }));
    const about = `node server ${pid} at ${cli.socket} is gaudi-ucx 9.9.9, protocol 99`;
    const shown = await cli.outputHere(['node', 'status']);
    expect(shown).toBe(`${about}; this is ${OWN}, which can only end it: gaudi-ucx node down\n`);
    expect(JSON.parse(await cli.outputHere(['node', 'status', '--json']))).toEqual({
      pid,
      socket: cli.socket,
      package: '9.9.9',
      protocol: 99,
      upSeconds: expect.any(Number),
    });
    const refused = await cli.runHere(['smi']);
    expect([refused.code, refused.out]).toEqual([1, '']);
    expect(refused.err).toContain(`${about}, and this client is ${OWN}: use one version, or end the server by`);
    expect(await cli.outputHere(['node', 'down'])).toBe(`node server ${pid} has ended\n`);
    expect(existsSync(cli.socket)).toBe(false);
  });

  it('that answers no such question, as before protocol 8, is shown and ended', async () => {
    const never: [string, string][] = ['who', 'shutdown'].map((op) => [`op === '${op}'`, `op === 'never'`]);
    const pid = start(otherPackage('0.0.1', { [LAYOUT]: [protocol(7)], [CLIENT]: never }));
    expect(await cli.outputHere(['node', 'status'])).toContain(
      `node server ${pid} at ${cli.socket} is an older gaudi-ucx;`,
    );
    expect(await cli.outputHere(['node', 'down'])).toBe(`node server ${pid} has ended\n`);
    expect(existsSync(cli.socket)).toBe(false);
  });
});
