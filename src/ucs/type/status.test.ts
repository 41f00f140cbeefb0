import { describe, expect, it } from 'vitest';
import { isFailure, isLackOfResources, Status, statusName, statusString } from './status.ts';

describe('Status', () => {
  it('has the values of ucs_status_t', () => {
    expect(Status.OK).toBe(0);
    expect(Status.INPROGRESS).toBe(1);
    const ordinary = Object.values(Status).filter((value) => value < 0 && value > -40);
    expect(ordinary).toEqual(Array.from({ length: 25 }, (_, index) => -1 - index));
    expect(Status.ENDPOINT_TIMEOUT).toBe(-80);
  });

  it('has a name and a description for every value', () => {
    for (const [name, value] of Object.entries(Status)) {
      expect(statusName(value)).toBe(name);
      expect(statusString(value)).not.toContain('Unknown');
    }
    expect(statusString(Status.NO_MEMORY)).toBe('Out of memory');
  });

  it('handles integers that are not a status', () => {
    expect(statusName(-99)).toBe('UNKNOWN(-99)');
    expect(statusString(-99)).toBe('Unknown error -99');
  });

  it('distinguishes failures from progress', () => {
    expect([Status.OK, Status.INPROGRESS, Status.NO_MESSAGE, Status.IO_ERROR].map(isFailure)).toEqual([
      false,
      false,
      true,
      true,
    ]);
  });

  it('distinguishes a lack of memory or descriptors from other failures', () => {
    const lacks = Object.values(Status).filter(isLackOfResources);
    expect(lacks).toEqual([Status.NO_MEMORY, Status.EXCEEDS_LIMIT]);
  });
});
