import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { boundAddress } from './bound-address.ts';

describe('boundAddress', () => {
  it('has the port that the kernel has chosen', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    try {
      await once(server, 'listening');
      expect(boundAddress(server)).toMatchObject({ address: '127.0.0.1', port: expect.any(Number) });
    } finally {
      server.close();
    }
  });

  it('refuses a server that does not listen', () => {
    expect(() => boundAddress(createServer())).toThrow('argument server must listen on a TCP port, got null');
  });
});
