/** Failures that Node.js reports, of sockets, names of hosts and files: commands end with a code, as for their own errors. */

import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();

async function lastLine(args: readonly string[]): Promise<string | undefined> {
  const { code, err } = await cli.runHere(args);
  expect(code).toBe(1);
  return err.trimEnd().split('\n').at(-1);
}

it('a port in use', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const port = String((server.address() as AddressInfo).port);
  for (const args of [
    ['perftest', '-p', port],
    ['metrics', '--port', port],
  ]) {
    expect.soft(await lastLine(args), args[0]).toMatch(/EADDRINUSE.* \(ERR_SYSCALL_EADDRINUSE\)$/);
  }
});

it('a name of no host, and a file that does not exist', async () => {
  // A name that no resolver asks the network about.
  expect(await lastLine(['perftest', 'no such host', '-t', 'tag_lat'])).toMatch(/getaddrinfo .* \(ERR_UNREACHABLE\)$/);
  expect(await lastLine(['profile', '/nonexistent/trace'])).toMatch(/ENOENT.* \(ERR_SYSCALL_ENOENT\)$/);
});
