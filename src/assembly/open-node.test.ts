/** The choice of the RDMA devices: UCX_IB_DRIVER, the emulated node and the machine. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { createTestLog } from '../../test/fixtures/test-log.ts';
import { Config } from '../index.ts';
import { isUcxError } from '../ucs/type/error.ts';
import type { VerbsPort } from '../verbs/port.ts';
import { openVerbs } from './open-node.ts';

const EMULATED: VerbsPort = {
  emulated: true,
  devices: () => [],
  whyNoDevices: () => '',
  open: () => {
    throw new Error('not opened by this test');
  },
};

const bare = mkdtempSync(join(tmpdir(), 'gaudi-ucx-sys-'));
const withRdma = mkdtempSync(join(tmpdir(), 'gaudi-ucx-sys-'));
const withCard = mkdtempSync(join(tmpdir(), 'gaudi-ucx-sys-'));
mkdirSync(join(withRdma, 'class/infiniband/rxe0'), { recursive: true });
mkdirSync(join(withCard, 'class/infiniband/hbl_0/device'), { recursive: true });
writeFileSync(join(withCard, 'class/infiniband/hbl_0/device/vendor'), '0x1da3\n');
afterAll(() => {
  for (const directory of [bare, withRdma, withCard]) rmSync(directory, { recursive: true });
});

/** `emulated`, `machine` or `none`; `machine` too if libibverbs is not installed, which the log says. */
function choiceOf(driver: string, verbs: VerbsPort | undefined, sysRoot: string): string {
  const config = Config.read({ env: { UCX_IB_DRIVER: driver }, configDirectories: [] });
  const { log, records } = createTestLog();
  try {
    const chosen = openVerbs({ verbs }, { config, log }, sysRoot);
    if (chosen !== undefined) return chosen.emulated ? 'emulated' : 'machine';
  } catch (error) {
    if (isUcxError(error) && error.code.startsWith('ERR_LIBRARY')) return 'machine';
    throw error;
  }
  return records.some(({ message }) => message.includes('rxe0')) ? 'machine' : 'none';
}

describe('UCX_IB_DRIVER', () => {
  it.each([
    ['auto', EMULATED, withRdma, 'emulated'],
    ['auto', EMULATED, bare, 'emulated'],
    ['auto', undefined, withRdma, 'machine'],
    ['auto', undefined, bare, 'none'],
    ['auto', undefined, withCard, 'none'],
    ['emulator', undefined, withRdma, 'none'],
    ['emulator', EMULATED, withRdma, 'emulated'],
    ['verbs', EMULATED, bare, 'machine'],
  ])('%s takes the devices that there are (%#)', (driver, verbs, sysRoot, expected) => {
    expect(choiceOf(driver, verbs, sysRoot)).toBe(expected);
  });

  it('is auto by default', () => {
    const { entries } = Config.read({ env: {}, configDirectories: [] });
    expect(entries.find(({ name }) => name === 'UCX_IB_DRIVER')).toMatchObject({ text: 'auto' });
  });
});
