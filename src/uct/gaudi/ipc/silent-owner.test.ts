/** gaudi_ipc to an owner that does not run: what waits for it ends at one time-out, and works again once the owner has answered. */

import { expect, it } from 'vitest';
import { asProcesses, pattern, useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { Status } from '../../../ucs/type/status.ts';

const fixture = useIpcPeers();

it('is waited for once, whatever number of operations need it', async () => {
  const [here, there] = fixture.pair({ config: { GAUDI_IPC_TIMEOUT: '20ms' } });
  const far = there.allocate(64);
  asProcesses();
  const [key, other] = [here.unpack(far), here.unpack(there.allocate(64))];
  const bytes = pattern(8, 1);
  let status: Status = Status.NO_RESOURCE;
  // Neither progress nor the event loop serves the owner.
  while (status === Status.NO_RESOURCE) {
    status = here.tryPutShort(bytes, key);
    here.iface.progress();
  }
  expect(status).toBe(Status.TIMED_OUT);
  for (const next of [key, other, key]) {
    expect(here.tryPutShort(bytes, next)).toBe(Status.TIMED_OUT);
    expect(here.iface.errorOf(Status.TIMED_OUT)).toMatchObject({ code: 'ERR_GAUDI_TIMEOUT' });
    here.iface.progress();
  }
  expect(here.iface.outstanding).toBe(0);
  // It runs again, and answers what it was sent.
  there.iface.progress();
  await there.write(far, pattern(64, 2));
  for (let round = 0; round < 10_000 && (status === Status.TIMED_OUT || status === Status.NO_RESOURCE); round++) {
    there.iface.progress();
    status = here.tryPutShort(bytes, key);
    here.iface.progress();
  }
  expect(status).toBe(Status.INPROGRESS);
  expect(await here.putShort(bytes, key)).toBe(Status.OK);
  expect(Buffer.compare((await there.read(far)).subarray(0, 8), bytes)).toBe(0);
});
