/** A sample of the package on a release of Node.js of another line than that of this run: the demo, and examples that wait for descriptors, threads and processes. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { NODE_RELEASES, nodePackage } from '../../../scripts/node-releases.ts';
import { built, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN } from '../../fixtures/tools/command-line.ts';

const OWN = process.versions.node.split('.')[0]!;
const OTHER = NODE_RELEASES[OWN === '26' ? '20' : '26']!;

/** The program of the other release, which npm brings; undefined without the registry. */
function otherNode(): string | undefined {
  const args = ['exec', '--yes', '--prefer-offline', `--package=${nodePackage(OTHER)}`, '--', 'which', 'node'];
  const { status, stdout } = spawnSync('npm', args, { cwd: ROOT, encoding: 'utf8', timeout: 60_000 });
  return status === 0 ? stdout.trim() : undefined;
}

/** The last line that a program prints on the other release. */
function lastLine(node: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(node, args, {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: 60_000,
    env: { ...process.env, UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '2' },
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout.trimEnd().split('\n').at(-1)!;
}

const node = otherNode();

describe.skipIf(node === undefined)(`Node.js ${OTHER} (needs the npm registry)`, { timeout: 120_000 }, () => {
  it('is that release', () => {
    expect(lastLine(node!, '--version')).toBe(`v${OTHER}`);
  });

  it('runs the demo, with a process for each card', () => {
    expect(lastLine(node!, MAIN, 'demo', '--json')).toBe('}');
  });

  it.each([
    ['put-get', 'the same bytes came back'],
    ['hlthunk-dma', 'the same bytes came back'],
  ])('runs the example %s', (name, line) => {
    expect(lastLine(node!, built(join(ROOT, 'examples', `${name}.ts`)))).toBe(line);
  });

  it('continues the promises of a descriptor callback before the loop sleeps', () => {
    expect(lastLine(node!, '--input-type=module', '--eval', CONTINUES)).toBe('continued');
  });

  it.each(['self,posix', 'self,tcp'])('moves a message of 1 MiB between two contexts over %s', (tls) => {
    expect(lastLine(node!, '--input-type=module', '--eval', MESSAGES.replace('TRANSPORTS', JSON.stringify(tls)))).toBe(
      'the same bytes',
    );
  });
});

it('engines of package.json promises every release, and no older one', () => {
  const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const [oldest] = Object.values(NODE_RELEASES).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  expect(`>=${oldest!.replace(/\.0$/, '')}`).toBe(engines.node);
});

const CONTINUES = `
  import * as sys from 'file://${built(join(ROOT, 'src/sys/index.ts'))}';
  const [reader, writer] = sys.pipe2();
  setTimeout(() => { console.log('the loop slept'); process.exit(); }, 5000);
  sys.pollReadable(reader, () => {
    sys.read(reader, new Uint8Array(1));
    void Promise.resolve().then(() => { console.log('continued'); process.exit(); });
  });
  setImmediate(() => sys.write(writer, new Uint8Array(1)));
`;

const MESSAGES = `
  import { Context } from 'file://${built(join(ROOT, 'src/index.ts'))}';
  const config = { TLS: TRANSPORTS };
  const contexts = [await Context.create({ config }), await Context.create({ config })];
  const [one, two] = contexts.map((context) => context.worker());
  const endpoint = one.endpoint(two.address());
  const sent = new Uint8Array(2 ** 20).map((_, i) => i * 7);
  const received = new Uint8Array(2 ** 20);
  await Promise.all([endpoint.tagSend(sent, { tag: 1 }), two.tagRecv(received, { tag: 1 })]);
  console.log(Buffer.compare(sent, received) === 0 ? 'the same bytes' : 'other bytes');
  await Promise.all(contexts.map((context) => context.close()));
`;
