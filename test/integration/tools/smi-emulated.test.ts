/** `gaudi-ucx smi` where there are neither cards nor a node server: it says in every format that its cards are emulated, beside the output. */

import { existsSync } from 'node:fs';
import { expect, it } from 'vitest';
import { useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const NOTICE =
  /^these cards are emulated, because neither a card nor a node server was found; UCX_GAUDI_DRIVER=emulator avoids this message.*\n$/;
const FORMATS = [[], ['-L'], ['-q'], ['-Q', 'name'], ['-n', 'link'], ['--fw-versions'], ['topo'], ['--json']];

it.skipIf(existsSync('/dev/accel'))(
  'every format has the mark, unless the user has chosen (needs no cards)',
  async () => {
    for (const args of FORMATS) {
      const { code, out, err } = await cli.runHere(['smi', ...args]);
      expect({ code, args }).toEqual({ code: 0, args });
      expect(err, args.join(' ')).toMatch(NOTICE);
      expect(out).not.toMatch(NOTICE);
      if (args[0] === '--json') expect(JSON.parse(out)[0]).toMatchObject({ emulated: true });
      expect(await cli.outputHere(['smi', ...args], { UCX_GAUDI_DRIVER: 'emulator' })).not.toBe('');
    }
    expect(cli.run(['node', 'up', '--cards', '1']).code).toBe(0);
    const [card] = JSON.parse(await cli.outputHere(['smi', '--json']));
    expect(card).toMatchObject({ emulated: true });
  },
);
