import { existsSync } from 'node:fs';
import { cpus } from 'node:os';
import { describe, expect, it } from 'vitest';
import { machineFact } from './machine-facts.ts';

describe('machineFact', () => {
  it('returns the vendor of the processor by its UCX name', () => {
    const model = cpus()[0]?.model ?? '';
    const expected = /^Intel/.test(model) ? 'Intel' : /^AMD/.test(model) ? 'AMD' : machineFact('CPU vendor');
    expect(machineFact('CPU vendor')).toBe(expected);
  });

  it('returns the product only if the firmware names one', () => {
    const name = machineFact('DMI product name');
    if (!existsSync('/sys/class/dmi/id/product_name')) expect(name).toBeUndefined();
    else expect(name).not.toBe('');
  });

  it('returns undefined for every other fact', () => {
    for (const name of ['CPU model', '', 'toString', '__proto__']) expect(machineFact(name)).toBeUndefined();
  });
});
