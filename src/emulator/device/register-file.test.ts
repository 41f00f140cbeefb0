/** Which registers the packets of a PDMA channel may write, and where the writes go. */

import { expect, it } from 'vitest';
import { GAUDI3_PROFILE } from '../../uapi/index.ts';
import { RegisterFile } from './register-file.ts';

const { sync, interrupts, cfg } = GAUDI3_PROFILE;
const CHANNEL_REGISTER = 0x100;

/** A register file whose channels have one register. */
function setUp(): { readonly registers: RegisterFile; readonly raised: number[]; readonly written: number[] } {
  const raised: number[] = [];
  const written: number[] = [];
  const registers = new RegisterFile({
    profile: GAUDI3_PROFILE,
    stream: () => expect.fail('a card without queues has no streams'),
    writeWord: () => {},
    readWord: () => 0,
    onInterrupt: (vector) => raised.push(vector),
  });
  registers.channels = {
    write: (offset, value) => offset === CHANNEL_REGISTER && written.push(value) > 0,
    read: (offset) => (offset === CHANNEL_REGISTER ? (written.at(-1) ?? 0) : undefined),
    moveBlock: () => false,
  };
  return { registers, raised, written };
}

it('a packet writes sync objects of users, the doorbell and registers of channels', () => {
  const { registers, raised, written } = setUp();
  const [first] = sync.managers;
  const own = first!.sobObj + 4 * first!.firstUserSob;
  expect(registers.writeAsUser(own, 5)).toBe(true);
  expect(registers.readRegister(own)).toBe(5);
  expect(registers.writeAsUser(Number(interrupts.msixDoorbell! - cfg.start), 71)).toBe(true);
  expect(raised).toEqual([71]);
  expect(registers.writeAsUser(CHANNEL_REGISTER, 3)).toBe(true);
  expect(written).toEqual([3]);
});

it('a packet does not write sync objects of the driver, nor registers without a known effect', () => {
  const { registers } = setUp();
  const [first, second] = sync.managers;
  const ofDriver = first!.sobObj + 4 * (first!.firstUserSob - 1);
  expect(registers.writeAsUser(ofDriver, 5)).toBe(false);
  expect(registers.readRegister(ofDriver)).toBe(0);
  expect(registers.writeAsUser(0x4000, 5)).toBe(false);
  expect(registers.readRegister(0x4000)).toBe(0);
  // The driver has objects of one manager only.
  expect(registers.writeAsUser(second!.sobObj, 6)).toBe(true);
  // Code of the driver writes every register.
  registers.writeRegister(ofDriver, 7);
  expect(registers.readRegister(ofDriver)).toBe(7);
});
