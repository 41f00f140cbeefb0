import { describe, expect, it } from 'vitest';
import { HL_DEVICE_STATUS } from '../../uapi/index.ts';
import { FAULT_KINDS, readFault } from './fault-plan.ts';

describe('readFault', () => {
  it.each([
    { kind: 'ioctl', ioctl: 'CS', errno: 5, nth: 2 },
    { kind: 'open', errno: 16 },
    { kind: 'completion', delayNs: 1000, nth: 1 },
    { kind: 'hang' },
    { kind: 'exhausted', resource: 'hbm', nth: 3 },
    { kind: 'status', status: HL_DEVICE_STATUS.NEEDS_RESET },
    { kind: 'hard-reset' },
    { kind: 'unplug' },
    { kind: 'malfunction' },
    { kind: 'recover' },
    { kind: 'engine-failure' },
    { kind: 'link-down', port: 5 },
    { kind: 'link-up', peer: 1 },
  ])('takes %o', (fault) => {
    expect(FAULT_KINDS).toContain(fault.kind);
    expect(readFault(fault)).toEqual(fault);
    expect(readFault({ ...fault, more: undefined })).toEqual(fault);
    expect(() => readFault({ ...fault, more: 1 })).toThrow(
      `argument more must not be given for a fault of kind ${fault.kind}`,
    );
  });

  it.each([
    [undefined, 'fault'],
    [null, 'fault'],
    [7, 'fault'],
    [{}, 'kind'],
    [{ kind: 'toString' }, 'kind'],
    [{ kind: 'ioctl', errno: 5 }, 'ioctl'],
    [{ kind: 'ioctl', ioctl: 'CS' }, 'errno'],
    [{ kind: 'ioctl', ioctl: 'CS', errno: 0 }, 'errno'],
    [{ kind: 'open', errno: 4096 }, 'errno'],
    [{ kind: 'open', errno: 5, nth: 0 }, 'nth'],
    [{ kind: 'hang', delayNs: -1 }, 'delayNs'],
    [{ kind: 'hang', delayNs: 1e18 }, 'delayNs'],
    [{ kind: 'exhausted', resource: 'time' }, 'resource'],
    [{ kind: 'status', status: 99 }, 'status'],
    [{ kind: 'link-down', port: 64 }, 'port'],
    [{ kind: 'link-up', peer: -1 }, 'peer'],
  ])('refuses %o by the name of the field', (fault, field) => {
    expect(() => readFault(fault)).toThrow(new RegExp(`argument ${field} `));
  });
});
