/** The contract of a driver file: the behaviour of every driver node at the ioctl boundary, case by case of the driver's rules. */

import { describe } from 'vitest';
import type { DriverNode } from '../../../src/driver/port.ts';
import { ASIC_PROFILES, type AsicName, type PacketAsic } from '../../../src/uapi/index.ts';
import { bufferCases } from './driver-file-buffers.ts';
import { channelCases } from './driver-file-channels.ts';
import { engineCases } from './driver-file-engines.ts';
import { infoCases } from './driver-file-info.ts';
import { memoryCases } from './driver-file-memory.ts';
import { openCases } from './driver-file-open.ts';
import { packetCases } from './driver-file-packets.ts';
import { signalCases } from './driver-file-signals.ts';
import { submissionCases } from './driver-file-submission.ts';
import { transferCases } from './driver-file-transfers.ts';
import { waitCases } from './driver-file-wait.ts';

/**
 * Declares the suite.
 * @param makeNode a node with at least one free card of the generation; it is closed after every case
 */
export function driverFileContract(name: string, asic: AsicName, makeNode: () => DriverNode): void {
  describe(`driver file: ${name}`, () => {
    openCases(asic, makeNode);
    infoCases(asic, makeNode);
    bufferCases(asic, makeNode);
    memoryCases(asic, makeNode);
    waitCases(asic, makeNode);
    if (submits(asic)) {
      submissionCases(asic, makeNode);
      signalCases(asic, makeNode);
      packetCases(asic, makeNode);
      transferCases(asic, makeNode);
      engineCases(asic, makeNode);
    } else {
      channelCases(makeNode);
    }
  });
}

/** Whether users of the generation submit command buffers; otherwise they program channels. */
function submits(asic: AsicName): asic is PacketAsic {
  return ASIC_PROFILES[asic].capabilities.submits;
}
