/** Cards that do not open: which error is reported, and what it says. */

import { describe, expect, it } from 'vitest';
import { scriptedNode } from '../../../test/fixtures/driver/scripted-node.ts';
import { Errno, SyscallError } from '../../sys/index.ts';
import { MALFUNCTION_TEXT } from '../base/gaudi-error.ts';
import { type DriverNode, open, openControlByName } from '../index.ts';

const { ENOENT, EACCES, EBUSY, EPERM } = Errno;

/** A node whose cards, of the minors 2 and 4, fail to open. */
function failing(errnos: readonly [number, number], attributes: Record<string, string> = {}): DriverNode {
  const open = (minor: number): never => {
    throw new SyscallError('open', errnos[minor === 2 ? 0 : 1], 'scripted');
  };
  return scriptedNode({ attributes, node: { open } });
}

describe('if no card opens', () => {
  it.each([
    ['EACCES and ENOENT', [EACCES, ENOENT], 'EACCES'],
    ['ENOENT and EACCES', [ENOENT, EACCES], 'EACCES'],
    ['EACCES and EBUSY', [EACCES, EBUSY], 'EBUSY'],
    ['ENOENT twice', [ENOENT, ENOENT], 'ENOENT'],
  ] as const)('the last error other than ENOENT is reported: %s', (_title, errnos, errno) => {
    expect(() => open(failing(errnos))).toThrow(
      expect.objectContaining({ details: expect.objectContaining({ errno }) }),
    );
  });

  it.each([
    ['of a card that has failed says so', 'disabled', true],
    ['of a card that works does not say that it has failed', 'operational', false],
  ])('EPERM %s', (_title, status, hasFailed) => {
    const node = failing([EPERM, EPERM], { status });
    expect(() => open(node)).toThrow(
      expect.objectContaining({
        code: 'ERR_GAUDI_PERMISSION_DENIED',
        details: expect.objectContaining({ reason: hasFailed ? `EPERM: ${MALFUNCTION_TEXT}` : 'EPERM' }),
      }),
    );
  });
});

it('a search for a generation closes the control nodes of other cards', () => {
  const { openControl, ...others } = scriptedNode();
  const opened: number[] = [];
  const closed: number[] = [];
  const node: DriverNode = {
    ...others,
    openControl: (minor) => {
      opened.push(minor);
      return { ...openControl(minor), close: () => closed.push(minor) };
    },
  };
  expect(() => openControlByName(node, 'gaudi')).toThrow(/gaudi device not found/);
  expect([opened, closed]).toEqual([
    [2, 4],
    [2, 4],
  ]);
  openControlByName(node, 'gaudi2').close();
  expect(closed).toEqual([2, 4, 2]);
});
