/** Answers to messages whose endpoint has been closed meanwhile, over every kind of connection between two workers: they are refused, and never wait. */

import { describe, expect, it } from 'vitest';
import type { AmMessage } from '../../../src/index.ts';
import { driveUntil, PAIR_KINDS, serving, usePairs } from '../../fixtures/pair.ts';

const ID = 5;

for (const kind of PAIR_KINDS) {
  describe(`a message that was kept over '${kind.name}'`, () => {
    const { pair } = usePairs(kind);

    it('is answered over its endpoint, also once that is closed', async () => {
      const both = await pair(kind);
      const { two, ab } = both;
      let kept: AmMessage | undefined;
      two.worker.setAmHandler(ID, (message) => {
        kept = message.retain();
      });
      await serving(both, () => ab.amSend(ID, new Uint8Array(8)));
      await driveUntil(both, () => kept !== undefined);
      const endpoint = kept!.replyEndpoint;
      await serving(both, () => endpoint.close({ force: true }));
      expect(kept!.replyEndpoint).toBe(endpoint);
      expect(() => kept!.replyEndpoint.amSendNbx(ID, undefined, new Uint8Array(8), 0, 8)).toThrow(
        expect.objectContaining({ code: 'ERR_CLOSED' }),
      );
    });
  });
}
