/** Required capabilities of the cards (UCX_GAUDI_COPY_*=y): checked when the cards are opened, so that a missing one is reported at once. */

import { type Device, exportBlock, getHwBlock } from '../../../../hlthunk/index.ts';
import { close as closeFd } from '../../../../sys/index.ts';
import { isUcxError, UcxError } from '../../../../ucs/type/error.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { GaudiCopyConfig } from './config.ts';
import { cardName, type GaudiCard } from './gaudi-cards.ts';

/** Bytes allocated and exported to test whether the driver supports that. */
const PROBE_BYTES = 4096;

/** The reason why a card exports no memory as dma-buf; undefined if there is none. The driver may still refuse. */
export function exportRefusal({ DMABUF, MAPPED_DMABUF }: GaudiCopyConfig, { info }: Device): string | undefined {
  if (DMABUF === 'no') return 'UCX_GAUDI_COPY_DMABUF=n';
  const isMapped = info.profile.capabilities.dramMmu;
  if (isMapped && MAPPED_DMABUF === 'no') {
    return `UCX_GAUDI_COPY_MAPPED_DMABUF=n: ${info.profile.name} exports mapped memory only`;
  }
  return undefined;
}

/**
 * Checks the cards.
 * @throws UcxError ERR_UNSUPPORTED that names the card, the setting and the missing capability
 */
export function checkDemands(cards: readonly GaudiCard[], config: GaudiCopyConfig): void {
  for (const { index, device } of cards) {
    const { profile } = device.info;
    if (config.MAPPED_DMABUF === 'yes' && !profile.capabilities.dramMmu) {
      throw unmetDemand(index, 'MAPPED_DMABUF', `${profile.name} exports physical memory only`);
    }
    if (config.DMABUF === 'yes') {
      const why = exportRefusal(config, device) ?? refusalOf(() => exportProbe(device));
      if (why !== undefined) throw unmetDemand(index, 'DMABUF', why);
    }
    if (config.HW_BLOCK_ACCESS === 'yes') {
      const [block] = profile.userBlocks;
      const why = refusalOf(() => getHwBlock(device, block?.address ?? profile.cfg.start));
      if (why !== undefined) throw unmetDemand(index, 'HW_BLOCK_ACCESS', why);
    }
  }
}

function exportProbe(device: Device): void {
  const block = device.memory.allocate(PROBE_BYTES, { dedicated: true });
  try {
    closeFd(exportBlock(block).fd);
  } finally {
    block.free();
  }
}

function refusalOf(attempt: () => unknown): string | undefined {
  try {
    attempt();
    return undefined;
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return error.message;
  }
}

/** The error for a demand. Not NO_DEVICE, with which a memory domain says that the machine has no cards: a context would go on without them. */
export function unmetDemand(index: number, field: string, why: string): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `${cardName(index)} cannot do what UCX_GAUDI_COPY_${field}=y demands: ${why}`,
    details: { index, field },
  });
}
