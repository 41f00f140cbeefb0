import { describe, expect, it } from 'vitest';
import { createTestLog } from '../../../../test/fixtures/test-log.ts';
import { createEmulatedNode, type EmulatedNodeOptions } from '../../../emulator/index.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { detectScaleOut, openGaudiCards, type ScaleOutMode } from './cards.ts';

/** Detects the ports of a node with two cards. */
function detect(mode: ScaleOutMode, options: EmulatedNodeOptions = {}): void {
  const node = createEmulatedNode({ cards: 2, dmaThreads: 0, ...options });
  const { log } = createTestLog();
  const cards = openGaudiCards({
    node,
    choice: { mappingTable: undefined },
    log,
    clock: systemClock,
    onLeftOut: () => {},
  });
  try {
    detectScaleOut(cards, node, mode, log);
  } finally {
    for (const { device } of cards) device.close();
    node.close();
  }
}

describe('scale-out ports', () => {
  it.each(['yes', 'try', 'no'] as const)('%s: exist on gaudi2', (mode) => {
    expect(() => detect(mode)).not.toThrow();
  });

  it('are required by yes: a driver without ports is rejected', () => {
    const refusal = expect.objectContaining({ code: 'ERR_UNSUPPORTED' });
    expect(() => detect('yes', { reportNicPorts: false })).toThrow(refusal);
    expect(() => detect('yes', { reportNicPorts: false })).toThrow(/the driver does not report NIC ports/);
  });

  it.each(['try', 'no'] as const)('%s: may be missing', (mode) => {
    expect(() => detect(mode, { reportNicPorts: false })).not.toThrow();
  });
});
