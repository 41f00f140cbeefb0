/** UCX_GAUDI_COPY_*=y: a context opens with cards that can do what is demanded, and fails with the reason otherwise. */

import { describe, expect, it } from 'vitest';
import { Context, type EngineName, MemoryType } from '../../../src/index.ts';
import type { AsicName } from '../../../src/uapi/asic/asic-profile.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const VALUES = ['y', 'n', 'try', 'auto'] as const;
const FIELDS = ['DMABUF', 'MAPPED_DMABUF', 'RCACHE', 'HW_BLOCK_ACCESS', 'NIC_SCALE_OUT'] as const;
const ASICS: readonly AsicName[] = ['gaudi', 'gaudi2', 'gaudi3'];

/** What the generations cannot do, with the reason. */
const UNABLE: Readonly<Record<string, RegExp>> = {
  'gaudi MAPPED_DMABUF':
    /^gaudi0 does not support .* gaudi exports physical memory only; set UCX_GAUDI_COPY_MAPPED_DMABUF=try to continue without$/,
  'gaudi HW_BLOCK_ACCESS': /^gaudi0 does not support .*EPERM/,
  'gaudi3 NIC_SCALE_OUT': /^gaudi0 does not support .* the driver .*NIC ports/,
};

const ROWS = ASICS.flatMap((asic) => FIELDS.map((field): [AsicName, string] => [asic, field]));

describe.each<EngineName>(['native', 'libucx'])('the demands on cards, engine %s', (engine) => {
  const fixture = useContexts(engine);

  describe.skipIf(engine === 'libucx' && installedLibucp().libucp === undefined)('(needs libucp for libucx)', () => {
    /** Opens and closes a context. @returns the message of its failure */
    async function failure(asic: AsicName, env: Readonly<Record<string, string>>): Promise<string | undefined> {
      const options = fixture.quiet({ node: fixture.node({ asic }), engine, env });
      try {
        const context = await Context.create(options);
        context.memMap({ allocate: 4096, memoryType: MemoryType.GAUDI });
        await context.close();
        return undefined;
      } catch (error) {
        expect(error).toMatchObject({ code: 'ERR_UNSUPPORTED' });
        return (error as Error).message;
      } finally {
        await fixture.close();
      }
    }

    it.each(ROWS)('%s, %s: only y demands it', async (asic, field) => {
      const why = UNABLE[`${asic} ${field}`];
      for (const value of VALUES) {
        for (const name of [`UCX_GAUDI_COPY_${field}`, `UCT_GAUDI_COPY_ENABLE_${field}`]) {
          const message = await failure(asic, { [name]: value });
          const isUnmet = value === 'y' && why !== undefined;
          expect.soft(message, `${name}=${value}`).toEqual(isUnmet ? expect.stringMatching(why) : undefined);
        }
      }
    });

    it('names the setting and the card, also with a mapping table and with transports by name', async () => {
      const demand = { UCX_GAUDI_COPY_MAPPED_DMABUF: 'y' };
      const node = fixture.node({ asic: 'gaudi' });
      const { moduleId, busId } = node.cards()[1]!;
      const table = JSON.stringify([{ index: 0, module_id: moduleId, bus_id: busId }]);
      for (const more of [{ GAUDI_MAPPING_TABLE: table }, { UCX_TLS: 'self,gaudi' }]) {
        const options = fixture.quiet({ node, engine, env: { ...demand, ...more } });
        const { message } = await failureOf(() => Context.create(options));
        expect(message).toMatch(/^gaudi0 does not support UCX_GAUDI_COPY_MAPPED_DMABUF=y: /);
      }
    });
  });
});
