import { expect, it } from 'vitest';
import { peerPlaceOf, servedAt } from './remote-peer.ts';

it('addresses to serve have a port or none, and those of IPv6 brackets if they have one', () => {
  expect(servedAt('127.0.0.1')).toEqual({ address: '127.0.0.1', port: 0 });
  expect(servedAt('127.0.0.1:7')).toEqual({ address: '127.0.0.1', port: 7 });
  expect(servedAt('::1')).toEqual({ address: '::1', port: 0 });
  expect(servedAt('[::1]')).toEqual({ address: '::1', port: 0 });
  expect(servedAt('[::1]:7')).toEqual({ address: '::1', port: 7 });
  expect(() => servedAt('a:b')).toThrow(/serve must be a numeric address, with or without a port/);
});

it('peers have a port', () => {
  expect(peerPlaceOf('[::1]:7')).toEqual({ host: '::1', port: 7 });
  expect(peerPlaceOf('::1')).toBeUndefined();
});
