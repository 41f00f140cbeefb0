/** Cost of one ioctl of the in-process emulator: INFO DEVICE_STATUS, the MAP/UNMAP pair, and a CS of one NOP with its WAIT_CS. */

import { createEmulatedNode } from '../dist/emulator/index.js';
import { allocateScratch } from '../dist/sys/index.js';
import { HL_INFO_ARGS, HL_INFO_DEVICE_STATUS, HL_INFO_OP } from '../dist/uapi/index.js';
import { medianPerCallNs, type Result } from './timing.ts';

const NS_MAX = 1000;

/** Runs the measurement. */
export function benchIoctl(): Result[] {
  const node = createEmulatedNode({ cards: 1 });
  const file = node.open(0);
  const block = allocateScratch(64);
  const words = HL_INFO_ARGS.words;
  const target = block.address + HL_INFO_ARGS.size;
  const run = (): void => {
    block.words[words.return_pointer] = target;
    block.words[words.return_pointer + 1] = Math.floor(target / 2 ** 32);
    block.words[words.return_size] = HL_INFO_DEVICE_STATUS.size;
    block.words[words.op] = HL_INFO_OP.DEVICE_STATUS;
    block.words[words.dcore_id] = 0;
    block.words[words.pad] = 0;
    const result = file.ioctl(file.numbers.INFO, block);
    if (result !== 0) throw new Error(`ioctl: ${result}`);
  };
  for (let i = 0; i < 50_000; i++) run();
  const ns = medianPerCallNs(11, 20_000, run);
  block.free();
  node.close();
  return [
    {
      name: 'ioctl INFO DEVICE_STATUS',
      value: `median ${ns.toFixed(0)} ns`,
      ratio: ns / NS_MAX,
      target: `<= ${NS_MAX} ns`,
      met: ns <= NS_MAX,
    },
  ];
}
