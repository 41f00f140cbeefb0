/**
 * The commands that show hardware and choices, as a user runs them on a node that other processes use: info --blocks, info -s, explain, top, node
 * fault.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { TopModel } from '../../../src/tools/model/top-model.ts';
import { builtSpecifier, ROOT } from '../../fixtures/tools/built.ts';
import { MAIN, refusal, useNodeCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useNodeCommandLine();
const { folder } = cli;
/** Puts between host memory and the HBM of one card. */
const PUT_TO_CARD = 'perftest -l -t ucp_put_bw -m host,gaudi -s 64k -n 10 -w 0 -f -X'.split(' ');

/** A program that has card 0 of the node server, and moves bytes on command. */
async function cardHolder(): Promise<{ readonly child: ChildProcess; tell(line: string): Promise<void> }> {
  const file = join(folder, 'holder.mjs');
  writeFileSync(
    file,
    `
    import { createInterface } from 'node:readline';
    import { Context, MemoryType } from ${builtSpecifier(join(ROOT, 'src/index.ts'))};
    const context = await Context.create({ config: { ACC_DEVICES: 'gaudi0' } });
    const worker = context.worker();
    const endpoint = worker.endpoint(worker.address());
    const hbm = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI });
    const rkey = endpoint.unpackRkey(context.packRkey(hbm));
    console.log('ready');
    for await (const line of createInterface({ input: process.stdin })) {
      if (line === 'put') await endpoint.put(new Uint8Array(2 ** 20), rkey);
      console.log(line);
      if (line === 'end') break;
    }
    await context.close();
    `,
  );
  const child = spawn(process.execPath, [file], {
    cwd: ROOT,
    env: cli.environment(),
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const heard = async (wanted: string): Promise<void> => {
    for (;;) {
      const [data] = (await once(child.stdout!, 'data')) as [Buffer];
      if (data.toString().includes(wanted)) return;
    }
  };
  await heard('ready');
  return {
    child,
    tell: async (line) => {
      const answered = heard(line);
      child.stdin!.write(`${line}\n`);
      await answered;
    },
  };
}

describe('info --blocks', { timeout: 120_000 }, () => {
  it('lists the blocks of a card with their sizes', async () => {
    const text = await cli.outputHere(['info', '--blocks']);
    expect(text).toMatch(/^# card 0 \(accel0, 0000:19:00\.0\), emulated: HL225$/m);
    expect(text).toMatch(/^# NIC0_UMR0_0 \.\. NIC11_UMR1_14 +360 +4\.0 KiB +12 registers$/m);
    expect(text).toMatch(/^# DCORE1_SYNC_MNGR_OBJS \.\. DCORE3_SYNC_MNGR_OBJS +3 +80\.0 KiB +20480 registers$/m);
  });

  it('shows the registers of a block, those that are 0 on request', async () => {
    expect(await cli.outputHere(['info', '--blocks', 'pcie_dec0_cmd'])).toMatch(
      /block PCIE_DEC0_CMD\n#\n.*\n# 31 of 31 are 0 \(-a shows them\)$/m,
    );
    const text = await cli.outputHere(['info', '--blocks', 'PCIE_DEC0_CMD', '-a', '--card', '3']);
    expect(text).toMatch(/^# card 3 /);
    expect(text).toMatch(/^# 0x0010c +SWREG67 +0x00000000$/m);
  });

  it('prints why a driver refuses', async () => {
    const { out } = await cli.runHere(['info', '--blocks'], { UCX_GAUDI_EMULATOR_ASIC: 'gaudi' });
    expect(out).toMatch(/^# registers +1 +- +.*EPERM/m);
  });

  it.each([
    [{ UCX_GAUDI_COPY_HW_BLOCK_ACCESS: 'n' }, [], 1, /UCX_GAUDI_COPY_HW_BLOCK_ACCESS=n/],
    [{}, ['NOTHING'], 2, /argument name must be a register block of gaudi2/],
    [{}, ['--card', '9'], 2, /argument --card must be the index/],
    [{}, ['--card', 'x'], 2, /argument --card must be the index/],
    [{ UCX_GAUDI_DRIVER: 'kernel' }, [], 2, /argument card must be the index/],
  ])('with %o %o is refused with exit code %i', async (env, args, expected, message) => {
    const { code, out, err } = await cli.runHere(['info', '--blocks', ...args], env as Record<string, string>);
    expect({ code, out }).toEqual({ code: expected, out: '' });
    expect(err).toMatch(message);
  });
});

describe('explain', { timeout: 120_000 }, () => {
  it('shows the chosen protocol and a reason for every other candidate', async () => {
    const text = await cli.outputHere([
      'explain',
      '--op',
      'put',
      '--local',
      'host',
      '--remote',
      'gaudi:1',
      '--size',
      '4K..1G',
    ]);
    expect(text).toMatch(/^put: local host memory, remote gaudi:1 memory, cards emulated\n/);
    expect(text).toMatch(
      /^4\.0 KiB \.\. 1\.0 GiB {2}put\/zcopy {2}gaudi_cpy\/gaudi1 {2}\S+ us \.\. \S+ ms {2}.* MB\/s$/m,
    );
    expect(text).toMatch(/^ {4}not posix\/memory: does not reach remote gaudi memory$/m);
    for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
  });

  it('names what the configuration excludes', async () => {
    const { out } = await cli.runHere(['explain', '--remote', 'gaudi', '--size', '8', '--json'], {
      UCX_TLS: '^gaudi_ipc',
    });
    const report = JSON.parse(out) as { sizes: { losers: { transport: string; reason: string }[] }[] };
    const reasons = report.sizes[0]!.losers.filter(({ transport }) => transport.startsWith('gaudi_ipc'));
    expect(reasons.map(({ reason }) => reason)).toContain('excluded by UCX_TLS');
  });

  it.each(['get', 'am', 'tag', 'stream', 'atomic'])('explains %s', async (op) => {
    expect(await cli.outputHere(['explain', '--op', op, '--local', 'host', '--size', '8'])).toMatch(
      new RegExp(`^${op}: .*\\nengine native .*\\n.*\\n\\n8 B  \\w+/`),
    );
  });

  it('uses host memory of another process of this machine', () => {
    const text = cli.output(['explain', '--peer', 'process', '--size', '8']);
    expect(text).toMatch(/^put: local host memory, remote host memory of another process/);
    expect(text).toMatch(/^8 B {2}put\/short {2}posix\/memory /m);
    expect(text).toMatch(/not self\/memory: connects only to the worker itself/);
  });

  it('divides the cards of a node server with another process', () => {
    cli.output(['node', 'up', '--cards', '2']);
    const text = cli.output([
      'explain',
      '--peer',
      'process',
      '--local',
      'gaudi',
      '--remote',
      'gaudi:1',
      '--size',
      '1M',
    ]);
    expect(text).toMatch(/^1\.0 MiB {2}put\/zcopy {2}gaudi_ipc\/gaudi0 .*\n {4}3 of 3 links up$/m);
    const refused = cli.run(['explain', '--peer', 'process', '--local', 'gaudi:1', '--remote', 'gaudi:1']);
    expect(refused.code).toBe(2);
    expect(refused.err).toMatch(/argument --local must differ from the card/);
    const none = cli.run(['explain', '--peer', 'process', '--remote', 'gaudi:7']);
    expect(none.err).toMatch(/needs a card; available cards: gaudi0, gaudi1, got "gaudi:7"/);
  });

  it.each([
    [['--op', 'move'], /argument --op must be/],
    [['--size', '8..4'], /argument --size must be/],
    [['--remote', 'moon'], /argument --remote must be/],
  ])('with %o is refused with its usage', async (args, message) => {
    const { code, out, err } = await refusal(['explain', ...args]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(message);
    expect(err).toMatch(/^Try 'gaudi-ucx explain --help'\.\n/);
  });

  it('reports a card that does not exist', async () => {
    const { code, err } = await cli.runHere(['explain', '--remote', 'gaudi:9']);
    expect(code).toBe(1);
    expect(err).toMatch(/ERR_/);
  });
});

describe('links of a running node', { timeout: 180_000 }, () => {
  it('go down and up, and show in info, status, top and explain', async () => {
    cli.output(['node', 'up', '--cards', '2']);
    expect(await cli.outputHere(['info', '-s'])).toMatch(
      /NIC ports: 24 \(21 scale-up, 3 scale-out\), 0 links down, 18 without a card/,
    );
    const port = /to card 1: 3 of 3 links up: ports (\d+)/.exec(await cli.outputHere(['info', '-s']))![1]!;
    await cli.outputHere(['node', 'fault', '0', 'link-down', '--port', port]);
    expect(await cli.outputHere(['info', '-s'])).toMatch(new RegExp(`to card 1: 2 of 3 links up: ports ${port} down,`));
    expect(await cli.outputHere(['node', 'status'])).toMatch(new RegExp(`^0 .* ${port}$`, 'm'));
    expect(await cli.outputHere(['explain', '--local', 'gaudi:0', '--remote', 'gaudi:1', '--size', '1M'])).toMatch(
      /^1\.0 MiB {2}put\/zcopy {2}gaudi_ipc\/gaudi0 .*\n {4}2 of 3 links up$/m,
    );
    await cli.outputHere(['node', 'fault', '1', 'link-down', '--peer', '0']);
    expect(await cli.outputHere(['explain', '--local', 'gaudi:0', '--remote', 'gaudi:1', '--size', '1M'])).toMatch(
      /not gaudi_ipc\/gaudi0: cannot reach the remote memory: 0 of 3 links up/,
    );
    expect(await cli.outputHere(['top', '--once', '--interval', '10ms'])).toMatch(/^from 0 +- +0!$/m);
    await cli.outputHere(['node', 'fault', '1', 'link-up', '--peer', '0']);
    expect(await cli.outputHere(['info', '-s'])).toMatch(/to card 1: 3 of 3 links up/);
    expect((await cli.runHere(['node', 'fault', '0', 'link-down', '--port', '2'])).err).toMatch(
      /argument port must be a port with a link/,
    );
    expect((await cli.runHere(['node', 'fault', '0', 'link-down'])).err).toMatch(/argument link must be selected/);
  });
});

describe('cards that do not work', { timeout: 120_000 }, () => {
  it('stay visible, with the same state in every command', async () => {
    cli.output(['node', 'up', '--cards', '6']);
    for (const [card, ...fault] of [
      ['0', 'malfunction'],
      ['1', 'unplug'],
      ['2', 'status', '--status', 'NEEDS_RESET'],
      ['3', 'status', '--status', 'IN_RESET'],
      ['4', 'hard-reset'],
    ] as const) {
      expect(await cli.outputHere(['node', 'fault', card, ...fault])).toMatch(
        new RegExp(`^card ${card} \\(accel${card}, 0000:[^)]+\\): .+\\n$`),
      );
    }
    const expected = ['disabled', 'removed', 'needs reset', 'in reset', 'operational', 'operational'];
    interface States {
      readonly cards: readonly { readonly minor: number; readonly state?: string; readonly status?: string }[];
    }
    const states = (text: string): (string | undefined)[] => {
      const { system, cards = system!.cards } = JSON.parse(text) as Partial<States> & { readonly system?: States };
      return cards.map(({ state, status }) => state ?? status);
    };
    expect(states(await cli.outputHere(['info', '-s', '--json']))).toEqual(expected);
    expect(states(await cli.outputHere(['top', '--once', '--json', '--interval', '10ms']))).toEqual(expected);
    expect(states(await cli.outputHere(['node', 'status', '--json']))).toEqual(expected);
    const text = await cli.outputHere(['info', '-s']);
    expect(text).toMatch(
      /^# card 0 \(accel0, 0000:19:00\.0\): [^#]*(#[^#]*)*status: disabled \(EPERM: the card has failed \(malfunction\).*\)$/m,
    );
    expect(text).toMatch(/^# card 1 \(accel1, 0000:1a:00\.0\)\n#\s+bus id: 0000:1a:00\.0\n#\s+status: removed$/m);
    const lines = (await cli.outputHere(['top', '--once', '--interval', '10ms'])).split('\n');
    for (const [minor, state] of expected.entries()) {
      expect(lines.find((line) => line.startsWith(`   ${minor} `))).toContain(state);
    }
    expect(lines.find((line) => line.startsWith('errors: '))).toMatch(
      /^errors: card 0: disabled; card 1: removed; card 2: needs reset; /,
    );
  });

  it('that is removed keeps its name, and no other card takes it', async () => {
    cli.output(['node', 'up', '--cards', '3']);
    const label = 'card 0 (accel0, 0000:19:00.0)';
    expect(await cli.outputHere(['node', 'fault', '0000:19:00.0', 'unplug'])).toBe(`${label}: removed\n`);
    const smi = await cli.outputHere(['smi', '-Q', 'index,bus_id,name', '-f', 'csv,noheader']);
    expect(smi).toBe('0, 0000:19:00.0, N/A\n1, 0000:1a:00.0, HL225\n2, 0000:33:00.0, HL225\n');
    expect(await cli.outputHere(['smi'])).toMatch(/^\| +0 .*0000:19:00\.0 .*\| removed/m);
    const doctor = await cli.runHere(['doctor']);
    expect(doctor.out).toContain(`cards            ${label}: removed\n`);
    expect(await cli.outputHere(['info', '-s'])).toMatch(
      /^# card 0 \(accel0, 0000:19:00\.0\)\n.*\n#\s+status: removed$/m,
    );
    expect(cli.run(['info', '-d']).out).toMatch(/gaudi0 is unusable: .*: card 0 \(accel0, 0000:19:00\.0\): removed/);
    expect(await cli.outputHere(['metrics', '--once'])).toContain(
      'habanalabs_device_up{card="0",device="0",bus_id="0000:19:00.0",emulated="true",state="removed"} 0',
    );
    expect(await cli.outputHere(['node', 'status'])).toMatch(/^0 +accel0 +0000:19:00\.0 .* removed /m);
    const only = (name: string) => cli.run(PUT_TO_CARD, { UCX_ACC_DEVICES: name });
    expect(only('gaudi1').out).toContain('gaudi_cpy/gaudi1');
    expect(only('gaudi0').err).toContain(`${label}: removed`);
  });

  it('are passed over by perftest, which names them if no other card is left', async () => {
    cli.output(['node', 'up', '--cards', '3']);
    await cli.outputHere(['node', 'fault', '0', 'malfunction']);
    await cli.outputHere(['node', 'fault', '1', 'unplug']);
    expect(await cli.outputHere(['node', 'fault', '0', 'recover'])).toMatch(
      /^card 0 \(.*\): its state is now "Operational"\n$/,
    );
    expect(await cli.outputHere(['node', 'fault', '1', 'recover'])).toMatch(/^card 1 \(.*\): stays removed\n$/);
    await cli.outputHere(['node', 'fault', '0', 'malfunction']);
    // The removed card keeps its name.
    expect(cli.output(PUT_TO_CARD)).toContain('gaudi_cpy/gaudi2');
    await cli.outputHere(['node', 'fault', '2', 'malfunction']);
    const { code, out, err } = cli.run(PUT_TO_CARD);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(
      /^gaudi-ucx: gaudi memory is not supported: card 1 \(accel1, \S+\): removed; cards 0, 2: EPERM: the card has failed .*\(ERR_UNSUPPORTED\)\n$/,
    );
  });

  it('are named with the process that uses them, and a remedy', async () => {
    cli.output(['node', 'up', '--cards', '1']);
    const { child } = await cardHolder();
    const { code, err } = cli.run(['perftest', '-l', '-t', 'tag_lat', '-m', 'gaudi']);
    expect(code).toBe(1);
    // A long command line is cut.
    const command = `${process.execPath} ${join(folder, 'holder.mjs')}`.slice(0, 70);
    expect(err).toContain(`process ${child.pid} has it open: ${command}`);
    expect(err).toContain('select other cards with UCX_ACC_DEVICES or GAUDI_MAPPING_TABLE');
    expect(await cli.outputHere(['top', '--once', '--interval', '10ms'])).toMatch(
      new RegExp(`operational .* ${child.pid}$`, 'm'),
    );
    const ended = once(child, 'exit');
    child.stdin!.end('end\n');
    expect((await ended)[0]).toBe(0);
  });

  it('without a node server belong to this process, which top reports', async () => {
    expect(await cli.outputHere(['top', '--once', '--interval', '10ms'])).toMatch(/^emulated node of this process: /m);
    cli.output(['node', 'up', '--cards', '1']);
    expect(await cli.outputHere(['top', '--once', '--interval', '10ms'])).not.toContain(
      'emulated node of this process',
    );
    expect(await cli.outputHere(['node', 'status'])).not.toMatch(/^client/m);
  });
});

describe('top', { timeout: 120_000 }, () => {
  it('shows a card in use, and its traffic, without opening it', async () => {
    cli.output(['node', 'up', '--cards', '2']);
    const { child, tell } = await cardHolder();
    const live = spawn(process.execPath, [MAIN, 'top', '--json', '--interval', '50ms'], {
      cwd: ROOT,
      env: cli.environment(),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    live.stdout.on('data', (data: Buffer) => {
      text += data.toString();
    });
    const models = (): TopModel[] => {
      const lines = text.split('\n').slice(0, -1);
      return lines.map((line) => JSON.parse(line) as TopModel);
    };
    await once(live.stdout, 'data');
    await tell('put');
    while (!models().some(({ cards }) => cards[0]!.hostToDevice! > 0)) await once(live.stdout, 'data');
    const busy = models().find(({ cards }) => cards[0]!.hostToDevice! > 0)!;
    expect(busy.emulated).toBe(true);
    expect(busy.cards.map(({ minor, inUse }) => [minor, inUse])).toEqual([
      [0, true],
      [1, false],
    ]);
    expect(busy.cards[0]!.hbmUsedBytes).toBeGreaterThan(0);
    expect(busy.cards[1]).toMatchObject({ hostToDevice: 0, hbmUsedBytes: 0 });
    live.kill('SIGINT');
    expect((await once(live, 'exit'))[0]).toBe(0);
    const ended = once(child, 'exit');
    child.stdin!.end('end\n');
    expect((await ended)[0]).toBe(0);
  });

  it('ends with an error when the server of the node ends', async () => {
    cli.output(['node', 'up', '--cards', '1']);
    const live = spawn(process.execPath, [MAIN, 'top', '--json', '--interval', '50ms'], {
      cwd: ROOT,
      env: cli.environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let err = '';
    live.stderr.on('data', (data: Buffer) => {
      err += data.toString();
    });
    await once(live.stdout, 'data');
    const ended = once(live, 'close');
    live.stdout.resume();
    await cli.outputHere(['node', 'down']);
    expect((await ended)[0]).toBe(1);
    expect(err).toMatch(/^gaudi-ucx: the node server at \S+ has ended \(ERR_NODE_UNREACHABLE\)\n$/);
  });

  it('prints at most 80 by 24 characters', async () => {
    const lines = (await cli.outputHere(['top', '--once', '--interval', '10ms'])).trimEnd().split('\n');
    expect(lines.length).toBeLessThanOrEqual(24);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
    expect(lines[0]).toMatch(/^gaudi-ucx top: 8 cards \(emulated\)/);
  });

  it.each(['0', '1ns', 'soon', '2h'])('refuses interval %s with its usage', async (interval) => {
    const { code, err } = await refusal(['top', '--once', '--interval', interval]);
    expect(code).toBe(2);
    expect(err).toMatch(/^Try 'gaudi-ucx top --help'\.\ngaudi-ucx: argument --interval must be a time.*\n$/);
  });
});
