/** Peers with another key: operations end with UNREACHABLE, whatever the error handling of their endpoint, because there never was a connection. */

import { describe, expect, it } from 'vitest';
import { type Endpoint, type Request, Status } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { keyFile } from '../../fixtures/transports/key-files.ts';

const KEYS = ['the key of the one, and of none else', 'the key of the other, and of none else'].map((key) =>
  keyFile(key),
);
const KEEP = { noImmediateCompletion: true };
const SHORT = new Uint8Array(8);
const LONG = new Uint8Array(2 ** 20);

const OPERATIONS: Readonly<Record<string, (endpoint: Endpoint) => Status | Request>> = {
  'short active message': (endpoint) => endpoint.amSendNbx(1, undefined, SHORT, 0, SHORT.byteLength, KEEP),
  'long active message': (endpoint) => endpoint.amSendNbx(1, undefined, LONG, 0, LONG.byteLength, KEEP),
  'short tagged message': (endpoint) => endpoint.tagSendNbx(SHORT, 0, SHORT.byteLength, 1n, KEEP),
  'synchronous message': (endpoint) => endpoint.tagSendSyncNbx(SHORT, 0, SHORT.byteLength, 1n, KEEP),
  stream: (endpoint) => endpoint.streamSendNbx(SHORT, 0, SHORT.byteLength, KEEP),
  flush: (endpoint) => endpoint.flushNbx(KEEP),
};

describe.each(['peer', 'none'] as const)('with error handling %s', (errorHandling) => {
  const fixture = useContexts('native');

  it.each(Object.keys(OPERATIONS))('a %s to a peer with another key', async (name) => {
    fixture.allow(/it does not have the key/);
    const envs = KEYS.map((file) => ({ UCX_TLS: 'tcp,self', UCX_TCP_SECURITY: 'encrypt', UCX_TCP_KEY_FILE: file }));
    const [one, two] = [
      await fixture.open({ context: { env: envs[0]! } }),
      await fixture.open({ context: { env: envs[1]! } }),
    ];
    const endpoint = one.worker.endpoint(two.worker.address(), { errorHandling });
    const request = OPERATIONS[name]!(endpoint) as Request;
    while (!request.isCompleted) {
      one.worker.progress();
      two.worker.progress();
      await new Promise(setImmediate);
    }
    expect(request.status).toBe(Status.UNREACHABLE);
    request.free();
    const later = endpoint.tagSend(SHORT, { tag: 1 });
    await expect(later).rejects.toMatchObject({ code: 'ERR_UNREACHABLE' });
  });
});
