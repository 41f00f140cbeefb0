/** Checks of what a program without rights meets: devices that it may not open, and a limit of locked memory. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { check } from './guest.ts';

const NOBODY = 65_534;
const DEVICE_FILES = ['/dev/infiniband/uverbs0', '/dev/infiniband/uverbs1'];

/** Runs them. @param program the program of the guest, which tries to open a context when it has the argument `open` */
export async function limitsChecks(program: string): Promise<void> {
  await check('devices that may not be opened are an error that says so', () => {
    for (const file of DEVICE_FILES) chmodSync(file, 0o600);
    assert.match(openAsNobody(program, 'unlimited'), /^ERR_NO_DEVICE .*rxe0: ibv_open_device.*\/dev\/infiniband/m);
  });
  await check('a limit of locked memory is an error that says so', () => {
    for (const file of DEVICE_FILES) chmodSync(file, 0o666);
    assert.match(openAsNobody(program, '64'), /^ERR_SYSCALL_ENOMEM .*ulimit -l/m);
    assert.match(openAsNobody(program, 'unlimited'), /^opened/m);
  });
}

function openAsNobody(program: string, lockedKilobytes: string): string {
  const ids = [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'];
  const command = `ulimit -l ${lockedKilobytes} && exec setpriv ${ids.join(' ')} "${process.execPath}" "${program}" open`;
  const { stdout, stderr } = spawnSync('sh', ['-c', command], { encoding: 'utf8', timeout: 60_000 });
  return stdout + stderr;
}
