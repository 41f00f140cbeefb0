import { describe, expect, it } from 'vitest';
import { HL_SERVER_TYPE } from '../ioctl/device-status.ts';
import { GAUDI2_PROFILE } from './asic-profile-gaudi2.ts';
import { HLS2_CARDS, wiredPort } from './nic-wiring.ts';

const HLS2 = HL_SERVER_TYPE.GAUDI2_HLS2;
const cards = Array.from({ length: HLS2_CARDS }, (_, moduleId) => moduleId);
const ports = Array.from({ length: GAUDI2_PROFILE.engines.nicCount }, (_, port) => port);

describe('the wiring of HLS-2', () => {
  it.each([
    [0, 0, 3, 0],
    [0, 10, 2, 16],
    [2, 17, 0, 11],
    [4, 18, 6, 12],
    [6, 10, 4, 16],
    [7, 21, 2, 21],
  ])('leads from card %i port %i to card %i port %i', (moduleId, port, peer, far) => {
    expect(wiredPort(HLS2, moduleId, port)).toEqual({ moduleId: peer, port: far });
  });

  it('goes both ways', () => {
    for (const moduleId of cards) {
      for (const port of ports) {
        const far = wiredPort(HLS2, moduleId, port);
        if (far !== undefined) expect(wiredPort(HLS2, far.moduleId, far.port)).toEqual({ moduleId, port });
      }
    }
  });

  it('has three links between any two cards, and the scale-out ports of the profile', () => {
    for (const moduleId of cards) {
      const peers = ports.map((port) => wiredPort(HLS2, moduleId, port)?.moduleId);
      for (const other of cards)
        expect(peers.filter((peer) => peer === other)).toHaveLength(other === moduleId ? 0 : 3);
      const out = ports.filter((port) => peers[port] === undefined);
      expect(out.reduce((mask, port) => mask | (1n << BigInt(port)), 0n)).toBe(GAUDI2_PROFILE.engines.nicScaleOutMask);
    }
  });

  it('is not assumed for other servers, cards and ports', () => {
    expect(wiredPort(HL_SERVER_TYPE.UNKNOWN, 0, 0)).toBeUndefined();
    expect(wiredPort(HLS2, 8, 0)).toBeUndefined();
    expect(wiredPort(HLS2, 0, 24)).toBeUndefined();
  });
});
