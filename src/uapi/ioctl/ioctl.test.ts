import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  DRM_IOCTL_TYPE,
  DRM_IOCTLS,
  HABANALABS_IOCTL_TYPE,
  HABANALABS_IOCTLS,
  ioctlNumber,
  ioctlSize,
  ioctlType,
  iowr,
} from './ioctl.ts';

describe('request numbers', () => {
  it("are those of Linux 6.6 and older ('H')", () => {
    expect(HABANALABS_IOCTLS).toEqual({
      INFO: 0xc0184801,
      CB: 0xc0184802,
      CS: 0xc0304803,
      WAIT_CS: 0xc0384804,
      MEMORY: 0xc0284805,
      DEBUG: 0xc0284806,
    });
  });

  it('are those of Linux 6.7 and newer (DRM)', () => {
    expect(DRM_IOCTLS).toEqual({
      INFO: 0xc0186440,
      CB: 0xc0186441,
      CS: 0xc0306442,
      WAIT_CS: 0xc0386443,
      MEMORY: 0xc0286444,
      DEBUG: 0xc0286445,
    });
  });

  it('come apart again', () => {
    expect(ioctlType(HABANALABS_IOCTLS.CS)).toBe(HABANALABS_IOCTL_TYPE);
    expect(ioctlType(DRM_IOCTLS.CS)).toBe(DRM_IOCTL_TYPE);
    expect(ioctlNumber(HABANALABS_IOCTLS.DEBUG)).toBe(6);
    expect(ioctlSize(DRM_IOCTLS.WAIT_CS)).toBe(56);
  });

  it('come apart whatever they are made of, and are unsigned', () => {
    fc.assert(
      fc.property(fc.nat(0xff), fc.nat(0xff), fc.nat(0x3fff), (type, number, size) => {
        const request = iowr(type, number, size);
        expect(request).toBeGreaterThanOrEqual(0xc0000000);
        expect([ioctlType(request), ioctlNumber(request), ioctlSize(request)]).toEqual([type, number, size]);
      }),
    );
  });
});
