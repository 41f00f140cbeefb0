/** What a context over libucp does not use: no transport that libucp has itself, and the transports of cards if UCX_TLS excludes them. */

import { expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const { skipReason } = installedLibucp();
const contexts = useContexts();

it.skipIf(skipReason !== undefined).each([
  ['all', []],
  ['^cma', []],
  ['tcp,self,gaudi', []],
  ['tcp,self', ['gaudi_cpy', 'gaudi_ipc']],
  ['^gaudi_ipc', ['gaudi_ipc']],
])('UCX_TLS=%s excludes %j (needs libucp)', async (tls, names) => {
  const { context } = await contexts.open({ context: { engine: 'libucx', config: { TLS: tls } } });
  const excluded = names.map((name) => ({ name, reason: 'excluded by UCX_TLS' }));
  expect(context.query().unavailable).toEqual(excluded);
  expect(context.snapshot().unavailable).toEqual(excluded);
});
