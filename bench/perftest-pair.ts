/** Server and client of `gaudi-ucx perftest` or of C `ucx_perftest`, on two processors: runs them and reads the client's result. Compares nothing. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { schedGetAffinity } from '../src/sys/index.ts';

const KIB = 1024;
export const MIB = 1_048_576;
const POLL_MS = 20;
/** Columns of the CSV of both tools. */
export const OVERALL_LATENCY = 3;
export const OVERALL_BANDWIDTH = 5;
export const OVERALL_RATE = 7;
/** The built command line of this package. */
export const MAIN: string = fileURLToPath(new URL('../src/tools/main.js', import.meta.url));
export const OURS: readonly string[] = [process.execPath, MAIN, 'perftest'];
export const THEIRS: readonly string[] = ['ucx_perftest'];

/** The version of C UCX; undefined if it is not installed. */
export function ucxVersion(): string | undefined {
  if (spawnSync('ucx_perftest', ['-h']).error !== undefined) return undefined;
  return (
    /version ([\d.]+)/i.exec(spawnSync('ucx_info', ['-v'], { encoding: 'utf8' }).stdout)?.[1] ?? 'of unknown version'
  );
}

export type Environment = Readonly<Record<string, string>>;

/** Processors of server and client: one each, or one for both. */
export type Placement = 'apart' | 'together';

/** Runs server and client of a tool; returns the row of the client's CSV. */
export async function runPair(
  tool: readonly string[],
  args: readonly string[],
  env: Environment,
  placement: Placement = 'apart',
): Promise<number[]> {
  const [program, ...before] = tool as [string, ...string[]];
  const port = await freePort();
  const start = (position: number, more: readonly string[]): ChildProcess => {
    const all = [...before, '-p', String(port), ...pinned(placement === 'apart' ? position : 0), ...more];
    return spawn(program, all, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
  };
  const server = start(0, []);
  const serverEnd = once(server, 'exit');
  server.stdout!.resume();
  try {
    while (!isListening(port)) {
      if (server.exitCode !== null) throw new Error(`${program}: the server has ended with ${server.exitCode}`);
      await sleep(POLL_MS);
    }
    const client = start(1, ['127.0.0.1', ...args, '-f', '-v']);
    let out = '';
    client.stdout!.on('data', (data: Buffer) => {
      out += data.toString();
    });
    const [code] = (await once(client, 'close')) as [number | null];
    const row = out.trimEnd().split('\n').at(-1)!.split(',').map(Number);
    if (code !== 0 || row.some(Number.isNaN)) throw new Error(`${[program, ...args].join(' ')}: ${code}: ${out}`);
    await serverEnd;
    return row;
  } finally {
    server.kill();
  }
}

/** Both sides on processors of their own, if there are two. */
function pinned(position: number): string[] {
  const cpus = schedGetAffinity(0);
  return cpus.length > 1 ? ['-c', String(cpus[position % cpus.length])] : [];
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { readonly port: number };
  server.close();
  await once(server, 'close');
  return port;
}

/** Whether the port is listening. It does not connect, because a server serves one client only. */
function isListening(port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return ['/proc/net/tcp', '/proc/net/tcp6'].some((path) =>
    readFileSync(path, 'latin1')
      .split('\n')
      .some((line) => {
        const [, address, , state] = line.trim().split(/\s+/);
        return address?.endsWith(local) === true && state === '0A';
      }),
  );
}

export function sizeOf(bytes: number): string {
  if (bytes < KIB) return `${bytes} B`;
  return bytes < MIB ? `${bytes / KIB} KiB` : `${bytes / MIB} MiB`;
}
