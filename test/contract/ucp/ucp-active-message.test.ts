/** Runs the contract of active messages over every kind of connection; invalid protocols. */

import { describe, expect, it } from 'vitest';
import type { AmSendParams } from '../../../src/index.ts';
import { CONNECTION_KINDS, connectionKind, usePairs } from '../../fixtures/pair.ts';
import { activeMessageContract } from './ucp-active-message.ts';

for (const kind of CONNECTION_KINDS) activeMessageContract(kind);

describe('active messages', () => {
  const fixture = usePairs();

  it.each(['fast', 1, null])('are refused with the protocol %s', async (protocol) => {
    const { ab } = await fixture.pair(connectionKind('loopback over self alone'));
    const params = { protocol } as unknown as AmSendParams;
    expect(() => ab.amSendNbx(1, undefined, new Uint8Array(1), 0, 1, params)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_PARAM' }),
    );
  });
});
