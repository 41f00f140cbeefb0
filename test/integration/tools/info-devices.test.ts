/** `gaudi-ucx info -d` takes its words from the interfaces: a setting that changes one changes its line, and no line is the same for all settings. */

import { describe, expect, it } from 'vitest';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const { outputHere } = useCommandLine();
const NODE = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '2', UCX_GAUDI_EMULATOR_NICS: '1' };

/** The fields of a transport. */
async function fieldsOf(transport: string, env: Readonly<Record<string, string>> = {}): Promise<Map<string, string>> {
  const text = await outputHere(['info', '-d', '-t', transport], { ...NODE, ...env });
  const [, block = ''] = text.split(/^# +Transport: /m);
  return new Map([...block.matchAll(/^# +([a-z_ ]+): (.*)$/gim)].map(([, name = '', value = '']) => [name, value]));
}

describe('info -d', { timeout: 60_000 }, () => {
  it.each([
    ['rc', 'send queue', 'UCX_RC_TX_QUEUE_LEN', '64', '64 requests'],
    ['rc', 'receive queue', 'UCX_RC_RX_QUEUE_LEN', '128', '128 requests'],
    ['rc', 'inline', 'UCX_RC_TX_MIN_INLINE', '32', '<= 32'],
    ['rc', 'am_bcopy', 'UCX_IB_SEG_SIZE', '4k', '<= 4K'],
    ['gaudi_cpy', 'latency', 'UCX_GAUDI_COPY_LATENCY', '77ns', '77 nsec'],
    ['gaudi_cpy', 'bandwidth', 'UCX_GAUDI_COPY_BW', '123MBps', '0.00/ppn + 123.00 MB/sec'],
    ['gaudi_ipc', 'overhead', 'UCX_GAUDI_IPC_OVERHEAD', '88ns', '88 nsec'],
  ])('of %s has %s as %s sets it', async (transport, field, variable, value, expected) => {
    const before = (await fieldsOf(transport)).get(field);
    expect(before).toBeDefined();
    expect(before).not.toBe(expected);
    expect((await fieldsOf(transport, { [variable]: value })).get(field)).toBe(expected);
  });

  it('has the limits of the RDMA device', async () => {
    const fields = await fieldsOf('rc');
    expect(Number(fields.get('max sge'))).toBeGreaterThan(0);
    expect(Number(fields.get('max regions'))).toBeGreaterThan(0);
  });

  it('has the places of devices that are known', async () => {
    expect((await fieldsOf('gaudi_cpy')).get('System device')).toBe(
      'gaudi0 (0, 0000:19:00.0), gaudi1 (1, 0000:1a:00.0)',
    );
    expect((await fieldsOf('rc')).get('System device')).toMatch(/^\S+:1 \([\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d\)$/);
    const table = JSON.stringify([{ index: 4, bus_id: '0000:1a:00.0' }]);
    const named = await fieldsOf('gaudi_cpy', { GAUDI_MAPPING_TABLE: table });
    expect(named.get('System device')).toBe('gaudi4 (4, 0000:1a:00.0)');
    expect((await fieldsOf('posix')).get('System device')).toBe('<unknown>');
  });

  it('has no line that nothing decides', async () => {
    const text = await outputHere(['info', '-d'], NODE);
    const own = text.slice(0, text.indexOf('# UCX library'));
    expect(own).not.toMatch(/device num paths|device priority|max eps/);
  });
});
