/** The confirmation of a client whose socket is blocked, over scripted calls. */

import { expect, it, vi } from 'vitest';
import { useScript } from '../../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../../test/fixtures/processes/scripted-libc.ts';
import { useManagers } from '../../../../test/fixtures/transports/connection-managers.ts';
import { Errno } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { tcpConnectionManager } from './manager.ts';

vi.mock('../../../sys/base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();
const fixture = useManagers(tcpConnectionManager);

it('a client keeps its connection until its confirmation was sent', async () => {
  const { listener, requests } = fixture.listen(fixture.open());
  const manager = fixture.open();
  manager.connect(listener.address, Uint8Array.of(1), ({ status }) => {
    expect(status).toBe(Status.OK);
    // The next calls send the confirmation.
    script('send', -Errno.EAGAIN, -Errno.EAGAIN);
    return Status.OK;
  });
  await fixture.until(() => requests.length === 1);
  const settled: Status[] = [];
  requests[0]!.accept(Uint8Array.of(2), (status) => settled.push(status));
  await fixture.until(() => settled.length === 1);
  expect(settled).toEqual([Status.OK]);
  expect(manager.outstanding).toBe(0);
});
