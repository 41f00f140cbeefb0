/** What the tools call the state of a card that cannot be opened, with the texts of the driver's sysfs. */

import { expect, it } from 'vitest';
import { FakeMachine } from '../../../test/fixtures/driver/fake-machine.ts';
import { KernelNode } from '../../driver/kernel/kernel-node.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { stateOfRefusal } from './card.ts';

it.each([
  ['Operational', 'EACCES', 'no permission'],
  ['Operational', 'EBUSY', 'in reset'],
  ['Disabled', 'EPERM', 'disabled'],
  ['In reset after device release', 'EAGAIN', 'in reset after device release'],
])('of a card in the state %s that refuses with %s is: %s', (text, errno, state) => {
  using machine = new FakeMachine();
  machine.addCard({ minor: 0, layout: 'accel-parent', busId: '0000:19:00.0' });
  machine.write('sys/class/accel/accel0/device/status', `${text}\n`);
  const node = new KernelNode({ ...machine });
  const details = { errno };
  const error = new UcxError({ code: 'ERR_DEVICE_OPEN', status: Status.NO_DEVICE, message: 'refused', details });
  expect(stateOfRefusal(node, 0, error)).toBe(state);
  node.close();
});
