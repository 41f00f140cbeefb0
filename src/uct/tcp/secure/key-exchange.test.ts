import { describe, expect, it } from 'vitest';
import { HELLO_BYTES, KeyExchange, PROOF_BYTES, type Role } from './key-exchange.ts';
import type { Security } from './security.ts';
import type { Session } from './session.ts';

const SECURITY: Security = { level: 'auth', key: Buffer.from('correct horse battery staple') };
const OTHER: Security = { level: 'auth', key: Buffer.from('correct horse battery stapler') };
const MESSAGE = Uint8Array.from({ length: 64 }, (_, i) => i);

interface Ends {
  readonly client: KeyExchange;
  readonly server: KeyExchange;
}

function ends(client = SECURITY, server = SECURITY): Ends {
  return { client: new KeyExchange(client, 'connecting'), server: new KeyExchange(server, 'accepting') };
}

function proofs({ client, server }: Ends): { readonly ofClient: Uint8Array; readonly ofServer: Uint8Array } {
  return { ofClient: proof(client.receiveHello(server.hello)), ofServer: proof(server.receiveHello(client.hello)) };
}

function proof(heard: Uint8Array | string): Uint8Array {
  if (typeof heard === 'string') throw new Error(heard);
  return heard;
}

function flipped(bytes: Uint8Array, bit: number): Uint8Array {
  const changed = Uint8Array.from(bytes);
  changed[bit >> 3]! ^= 1 << (bit & 7);
  return changed;
}

function sessions(): { readonly atClient: Session; readonly atServer: Session } {
  const both = ends();
  const { ofClient, ofServer } = proofs(both);
  return { atClient: both.client.verify(ofServer)!, atServer: both.server.verify(ofClient)! };
}

describe('a key exchange', () => {
  it('gives both ends matching keys, and only the other end opens a first message', () => {
    const { atClient, atServer } = sessions();
    const said = atClient.sealHello(MESSAGE);
    expect(said).toHaveLength(MESSAGE.byteLength + atClient.overheadBytes);
    expect(Buffer.from(atServer.openHello(said)!).equals(MESSAGE)).toBe(true);
    const answered = atServer.sealHello(MESSAGE);
    expect(Buffer.from(atClient.openHello(answered)!).equals(MESSAGE)).toBe(true);
    // A peer never receives its own proof.
    expect(atClient.openHello(atClient.sealHello(MESSAGE))).toBeUndefined();
  });

  it('rejects first messages of other connections, and those with a bit changed', () => {
    const [one, two] = [sessions(), sessions()];
    const said = one.atClient.sealHello(MESSAGE);
    expect(two.atServer.openHello(said)).toBeUndefined();
    for (let bit = 0; bit < said.byteLength * 8; bit++) {
      expect(one.atServer.openHello(flipped(said, bit))).toBeUndefined();
    }
    expect(one.atServer.openHello(new Uint8Array(0))).toBeUndefined();
  });

  it('shows both ends that their keys differ', () => {
    const both = ends(SECURITY, OTHER);
    const { ofClient, ofServer } = proofs(both);
    expect(both.client.verify(ofServer)).toBeUndefined();
    expect(both.server.verify(ofClient)).toBeUndefined();
  });

  it('fails if any bit of a hello is changed', () => {
    for (let bit = 0; bit < HELLO_BYTES * 8; bit++) {
      const { client, server } = ends();
      const heard = server.receiveHello(flipped(client.hello, bit));
      const ofClient = proof(client.receiveHello(server.hello));
      if (typeof heard === 'string') continue;
      expect(client.verify(heard)).toBeUndefined();
      expect(server.verify(ofClient)).toBeUndefined();
    }
  });

  it('fails if any bit of a proof is changed, or the proof is truncated', () => {
    for (let bit = 0; bit < PROOF_BYTES * 8; bit++) {
      const both = ends();
      const { ofClient } = proofs(both);
      expect(both.server.verify(flipped(ofClient, bit))).toBeUndefined();
      // There is only one attempt.
      expect(both.server.verify(ofClient)).toBeUndefined();
    }
    const both = ends();
    expect(both.server.verify(proofs(both).ofClient.subarray(1))).toBeUndefined();
    expect(ends().server.verify(new Uint8Array(PROOF_BYTES))).toBeUndefined();
  });

  it('rejects replayed and reflected messages', () => {
    const before = ends();
    const said = proofs(before);
    const { server, client } = ends();
    // A replay of the messages of a client.
    expect(typeof server.receiveHello(before.client.hello)).toBe('object');
    expect(server.verify(said.ofClient)).toBeUndefined();
    // A peer that reflects all messages.
    expect(client.receiveHello(client.hello)).toMatch(/reflected or invalid/);
    const accepting = Uint8Array.from(client.hello);
    accepting[6] = 1;
    const own = proof(client.receiveHello(accepting));
    expect(client.verify(own)).toBeUndefined();
  });

  it.each([
    ['does not use security', (hello: Buffer) => hello.fill(0x55), /its UCX_TCP_SECURITY is none/],
    ['has another version', (hello: Buffer) => hello.fill(2, 4, 5), /version 2 of the authentication, this library 1/],
    ['requests no security', (hello: Buffer) => hello.fill(0, 5, 6), /has UCX_TCP_SECURITY=none, this end auth/],
    ['requests an unknown level', (hello: Buffer) => hello.fill(9, 5, 6), /has UCX_TCP_SECURITY=9, this end auth/],
    ['has another value than zero', (hello: Buffer) => hello.fill(1, 7, 8), /reflected or invalid/],
    ['has no role', (hello: Buffer) => hello.fill(9, 6, 7), /reflected or invalid/],
    ['has a public key of zeros', (hello: Buffer) => hello.fill(0, 32), /its public key is invalid/],
    [
      'has a public key of low order',
      (hello: Buffer) => hello.fill(0, 32).fill(1, 32, 33),
      /its public key is invalid/,
    ],
  ])('rejects a peer that %s', (_name, change, reason) => {
    const { client, server } = ends();
    expect(server.receiveHello(change(Buffer.from(client.hello)))).toMatch(reason);
  });

  it('reports an error as early as possible', () => {
    const { client, server } = ends();
    for (let end = 0; end < HELLO_BYTES; end++) {
      expect(server.objectionTo(client.hello.subarray(0, end))).toBeUndefined();
      const unauthenticatedPeer = new Uint8Array(end);
      if (end > 0) expect(server.objectionTo(unauthenticatedPeer)).toMatch(/does not authenticate itself/);
    }
  });

  it('sends different bytes every time', () => {
    const hellos = (['connecting', 'accepting'] as Role[]).flatMap((role) =>
      [0, 1].map(() => Buffer.from(new KeyExchange(SECURITY, role).hello).toString('hex', 8)),
    );
    expect(new Set(hellos.flatMap((hello) => [hello.slice(0, 48), hello.slice(48)])).size).toBe(8);
  });
});
