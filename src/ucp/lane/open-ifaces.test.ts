/** Interfaces that find no resources: left out beside others, an error if they are the only ones. */

import { describe, expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import { Errno, SyscallError } from '../../sys/index.ts';
import type { OpenMd } from '../resources/resources.ts';
import { openIfaces } from './lanes.ts';

function mdOf(transport: string, openIface: () => object): OpenMd {
  return { index: 0, md: { openIface }, resources: [{ transport }] } as unknown as OpenMd;
}

const noMemory = (): never => {
  throw new SyscallError('ibv_reg_mr_iova2', Errno.ENOMEM, 'see ulimit -l');
};

describe('an interface whose buffers exceed the limit of locked memory', () => {
  it('is left out with one warning for each domain, if there are others', () => {
    const { log, records } = createTestLog();
    const iface = { close: () => {} };
    const mds = [mdOf('tcp', () => iface), mdOf('rc', noMemory)];
    for (let worker = 0; worker < 2; worker++) expect(openIfaces(mds, log).map((open) => open.iface)).toEqual([iface]);
    const warnings = records.filter(({ level }) => level <= 2).map(({ message }) => message);
    expect(warnings).toEqual([
      expect.stringMatching(/^rc is not used by a worker, because it cannot be opened: ibv_reg_mr_iova2.*ulimit -l/),
    ]);
  });

  it('is the error of a worker that has no other', () => {
    const { log } = createTestLog();
    expect(() => openIfaces([mdOf('rc', noMemory)], log)).toThrow(
      expect.objectContaining({ code: 'ERR_SYSCALL_ENOMEM' }),
    );
  });
});
